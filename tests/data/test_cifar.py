import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from matheron import data
from matheron.data.cifar import read_residuals


def batch(seed: int, labels: int = 1, classes: int = 10, count: int = 4) -> np.ndarray:
    generator = torch.Generator().manual_seed(seed)
    names = torch.randint(0, classes, (count, labels), generator=generator)
    return torch.cat([names, torch.randint(0, 256, (count, 3072), generator=generator)], dim=1).numpy().astype(np.uint8)


def residual(images: np.ndarray) -> np.ndarray:
    planes = images.swapaxes(0, 1).copy()
    planes[0] -= planes[1]
    planes[2] -= planes[1]
    planes[..., 1:] = planes[..., 1:] - planes[..., :-1]
    planes[..., 1:, :] = planes[..., 1:, :] - planes[..., :-1, :]
    return planes


def test_binary_batches_and_recoded_archives_load_alike(tmp_path: Path) -> None:
    batches = [batch(seed) for seed in range(6)]
    binary, archives = tmp_path / "binary", tmp_path / "archives"
    (binary / "cifar-10-batches-bin").mkdir(parents=True)
    archives.mkdir()
    files = [(f"data_batch_{i}.bin", f"cifar10_train_{i}.npz") for i in range(1, 6)]
    for (file, archive), records in zip([*files, ("test_batch.bin", "cifar10_test.npz")], batches, strict=True):
        (binary / "cifar-10-batches-bin" / file).write_bytes(records.tobytes())
        images = records[:, 1:].reshape(-1, 3, 32, 32)
        np.savez(archives / archive, residual=residual(images), labels=records[:, 0])
    read, recoded = (data.load("cifar10", root, partial=True) for root in (binary, archives))
    assert read.train_images.shape == (20, 3, 32, 32)
    assert torch.equal(read.train_images[4:8].flatten(1), torch.from_numpy(batches[1][:, 1:]))
    assert read.test_labels.tolist() == batches[5][:, 0].tolist()
    for field in ("train_images", "train_labels", "test_images", "test_labels"):
        assert torch.equal(getattr(read, field), getattr(recoded, field))


def test_cifar100_has_classes_and_superclasses(tmp_path: Path) -> None:
    (tmp_path / "cifar-100-binary").mkdir()
    train, test = batch(0, labels=2), batch(1, labels=2, count=2)
    (tmp_path / "cifar-100-binary/train.bin").write_bytes(train.tobytes())
    (tmp_path / "cifar-100-binary/test.bin").write_bytes(test.tobytes())
    read = data.load("cifar100", tmp_path, partial=True)
    assert read.train_coarse is not None
    assert read.train_coarse.tolist() == train[:, 0].tolist()
    assert read.train_labels.tolist() == train[:, 1].tolist()
    assert torch.equal(read.test_images.flatten(1), torch.from_numpy(test[:, 2:]))


def test_faults_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "cifar100"
    folder.mkdir()
    whole = batch(0, labels=2).tobytes()
    (folder / "test.bin").write_bytes(whole)
    for content, message in (
        (b"", "is empty"),
        (whole[:-1], "not a whole number of records of 3074 bytes"),
        (bytes((0, 100)) + whole[2:], "has a label 100, where 100 classes"),
    ):
        (folder / "train.bin").write_bytes(content)
        with pytest.raises(ValueError, match=message) as caught:
            data.load("cifar100", tmp_path)
        assert "train.bin" in str(caught.value)


def test_wrong_archives_are_named(tmp_path: Path) -> None:
    for file in (*(f"cifar10_train_{i}.npz" for i in range(1, 6)), "cifar10_test.npz"):
        np.savez(tmp_path / file, residual=np.zeros((3, 2, 32, 32), np.uint8), labels=np.zeros(3, np.uint8))
    with pytest.raises(ValueError, match=r"cifar10_train_1\.npz has uint8 residuals of shape"):
        data.load("cifar10", tmp_path)


def test_stored_test_batch_decodes_to_natural_images() -> None:
    path = Path(os.environ.get("MATHERON_DATA", "")) / "cifar10_test.npz"
    if not path.is_file():
        pytest.skip("cifar10_test.npz is not in the directory MATHERON_DATA names")
    images, labels = read_residuals(path)
    assert images.shape == (10000, 3, 32, 32)
    assert labels[:5, 0].tolist() == [3, 8, 8, 0, 6]
    # Neighboring pixels of photographs are alike; a wrong decoding leaves noise, with a mean step of 85.
    steps = np.abs(np.diff(images[:1000].astype(np.int16), axis=3))
    assert steps.mean() < 15


@pytest.mark.slow
def test_stored_cifar10_has_the_published_channel_moments(stored: Callable[[str], data.Dataset]) -> None:
    cifar = stored("cifar10")
    assert isinstance(cifar, data.Images)
    assert torch.bincount(cifar.train_labels).tolist() == [5000] * 10
    assert torch.bincount(cifar.test_labels).tolist() == [1000] * 10
    # Moments from the counts of the 256 byte values, which are exact and quick.
    values = torch.arange(256, dtype=torch.float64) / 255
    published = [(0.49139968, 0.24703223), (0.48215841, 0.24348513), (0.44653091, 0.26158784)]
    for channel, (mean, deviation) in enumerate(published):
        counts = torch.bincount(cifar.train_images[:, channel].flatten(), minlength=256).double()
        got = float(counts @ values / counts.sum())
        assert abs(got - mean) < 1e-7
        assert abs(float(counts @ (values - got) ** 2 / counts.sum()) ** 0.5 - deviation) < 1e-7
