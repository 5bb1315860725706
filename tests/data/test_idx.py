import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from matheron import data

PARTS = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def idx(array: torch.Tensor) -> bytes:
    sizes = np.array(array.shape, dtype=">u4").tobytes()
    return bytes((0, 0, 8, array.ndim)) + sizes + array.to(torch.uint8).numpy().tobytes()


def example(train: int = 5, test: int = 3) -> data.Images:
    generator = torch.Generator().manual_seed(0)

    def part(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        images = torch.randint(0, 256, (count, 1, 28, 28), generator=generator).to(torch.uint8)
        return images, torch.randint(0, 10, (count,), generator=generator)

    return data.Images("mnist", *part(train), *part(test))


def write(folder: Path, images: data.Images, *, gzipped: bool = False) -> None:
    folder.mkdir(parents=True)
    arrays = (images.train_images[:, 0], images.train_labels, images.test_images[:, 0], images.test_labels)
    for part, array in zip(PARTS, arrays, strict=True):
        content = idx(array)
        (folder / (part + ".gz" if gzipped else part)).write_bytes(gzip.compress(content) if gzipped else content)


def assert_equal(read: data.Images, written: data.Images) -> None:
    for field in ("train_images", "train_labels", "test_images", "test_labels"):
        assert torch.equal(getattr(read, field), getattr(written, field))


@pytest.mark.parametrize("gzipped", [False, True])
@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw"])
def test_idx_files_load_as_written(tmp_path: Path, folder: str, gzipped: bool) -> None:
    written = example()
    write(tmp_path / folder, written, gzipped=gzipped)
    assert_equal(data.load("mnist", tmp_path, partial=True), written)


def test_the_subset_is_the_start_of_the_whole(tmp_path: Path) -> None:
    written = example(train=7013)
    write(tmp_path / "kmnist", written)
    read = data.load("kmnist_subset", tmp_path, partial=True)
    assert torch.equal(read.train_images, written.train_images[:7011])
    assert torch.equal(read.test_labels, written.test_labels)


def test_faults_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "mnist"
    write(folder, example())
    images, labels = folder / PARTS[0], folder / PARTS[1]
    whole = images.read_bytes()
    for content, message in (
        (b"", "is empty"),
        (whole[:10], "ends after 10 bytes, within its header"),
        (whole[:-1], r"has 3935 bytes, where its header promises 3936"),
        (whole + b"\0", r"has 3937 bytes"),
        (labels.read_bytes(), "starts with 00000801, where an IDX file of 3 dimensions has 00000803"),
        (gzip.compress(whole)[:-20], "cannot be decompressed to its end"),
    ):
        images.write_bytes(content)
        with pytest.raises(ValueError, match=message) as caught:
            data.load("mnist", tmp_path)
        assert str(images) in str(caught.value)
    images.write_bytes(whole)
    labels.write_bytes(idx(torch.zeros(4)))
    with pytest.raises(ValueError, match="4 labels for 5 images"):
        data.load("mnist", tmp_path)


def test_stored_mnist_is_the_published_set(tmp_path: Path, stored: Callable[[str], data.Dataset]) -> None:
    mnist = stored("mnist")
    assert isinstance(mnist, data.Images)
    assert mnist.train_images.shape == (60000, 1, 28, 28)
    assert mnist.test_images.shape == (10000, 1, 28, 28)
    assert mnist.train_labels[:5].tolist() == [5, 0, 4, 1, 9]
    # The mean and deviation that the literature normalizes with.
    pixels = mnist.train_images.float() / 255
    assert abs(float(pixels.mean()) - 0.1307) < 1e-4
    assert abs(float(pixels.std()) - 0.3081) < 1e-4


def test_stored_kmnist_subset_has_all_classes(stored: Callable[[str], data.Dataset]) -> None:
    kmnist = stored("kmnist_subset")
    assert isinstance(kmnist, data.Images)
    assert kmnist.train_images.shape == (7011, 1, 28, 28)
    counts = torch.bincount(kmnist.train_labels)
    assert (int(counts.min()), int(counts.max())) == (672, 757)
    assert torch.bincount(kmnist.test_labels).tolist() == [1000] * 10
