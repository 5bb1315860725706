"""Folders of images: order, geometry, and files that are no images."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from matheron.data import DataNotFound, ImageFolder

Image = pytest.importorskip("PIL.Image")


def folder(root: Path, shape: tuple[int, int] = (40, 30)) -> Path:
    """Two classes of one and two images, and something that is none."""
    generator = np.random.default_rng(0)
    for name in ("b/2.png", "b/1.JPG", "a/deep/0.png"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 255, (*shape, 3), dtype=np.uint8)).save(root / name)
    (root / "a" / "notes.txt").write_text("no image")
    return root


def test_images_are_in_the_order_of_their_names(tmp_path: Path) -> None:
    images = ImageFolder(folder(tmp_path), size=14)
    assert [(path.name, label) for path, label in images.paths] == [("0.png", 0), ("1.JPG", 1), ("2.png", 1)]
    assert images.labels.tolist() == [0, 1, 1]
    assert len(ImageFolder(tmp_path, most=1)) == 2
    X, y = next(iter(DataLoader(images, batch_size=3)))
    assert X.shape == (3, 3, 14, 14)
    assert y.tolist() == [0, 1, 1]


def test_images_of_the_right_size_are_taken_as_they_are(tmp_path: Path) -> None:
    images = ImageFolder(folder(tmp_path, (14, 14)), size=14, mean=(0.0,) * 3, deviation=(1.0,) * 3)
    expected = np.array(Image.open(images.paths[0][0])).transpose(2, 0, 1) / 255.0
    torch.testing.assert_close(images[0][0], torch.from_numpy(expected).float())
    scaled = ImageFolder(tmp_path, size=14)
    torch.testing.assert_close(scaled[0][0], (images[0][0] - scaled.mean) / scaled.deviation)


def test_the_middle_is_cut_out(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    pixels = np.zeros((70, 140, 3), dtype=np.uint8)
    pixels[:, 60:80] = 255
    Image.fromarray(pixels).save(tmp_path / "a" / "bar.png")
    [(image, _)] = [ImageFolder(tmp_path, size=56, mean=(0.0,) * 3, deviation=(1.0,) * 3)[0]]
    bright = (image[0].mean(0) > 0.5).nonzero()[:, 0]
    # 64 rows of 128: 18 bright columns around the middle of the 56.
    assert abs(len(bright) - 18) <= 1
    assert abs(float(bright.float().mean()) - 27.5) < 1.0


def test_what_is_no_image_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataNotFound, match="not a folder"):
        ImageFolder(tmp_path / "nowhere")
    with pytest.raises(DataNotFound, match="no image in 0 folders"):
        ImageFolder(tmp_path)
    root = folder(tmp_path)
    path = root / "a" / "deep" / "0.png"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"0\.png is not an image"):
        ImageFolder(root)[0]
