import pytest
import torch

from matheron.data import Images


@pytest.mark.usefixtures("without_shape_checks")
def test_images_and_labels_must_fit() -> None:
    images, labels = torch.zeros(2, 1, 4, 4, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"train_labels has shape \(3,\) for 2 train_images"):
        Images("bad", images, torch.zeros(3, dtype=torch.int64), images, labels)
    with pytest.raises(ValueError, match="test_images must be uint8"):
        Images("bad", images, labels, images.float(), labels)
    with pytest.raises(ValueError, match="test_images must be uint8 of shape"):
        Images("bad", images, labels, images[:, 0], labels)


def test_first_keeps_the_test_images() -> None:
    images, labels = torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.arange(4)
    few = Images("all", images, labels, images, labels, train_coarse=labels).first("few", 3)
    assert few.train_labels.tolist() == [0, 1, 2]
    assert few.train_coarse is not None
    assert few.train_coarse.tolist() == [0, 1, 2]
    assert few.rows == 7
