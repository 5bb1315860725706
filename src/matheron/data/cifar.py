"""CIFAR-10 and CIFAR-100, in their binary version or as recoded archives."""

from functools import partial
from pathlib import Path

import numpy as np
import torch

from matheron.data.arrays import read_arrays, tensor
from matheron.data.files import Layout, Source, damaged
from matheron.data.images import Images
from matheron.data.tables import read_bytes

_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32


def read_records(path: Path, labels: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return images and labels of a binary batch: per record the label bytes, then 3072 pixels, red first."""
    content = read_bytes(path)
    record = labels + _PIXELS
    if not content or len(content) % record:
        raise damaged(path, f"has {len(content)} bytes, which is not a whole number of records of {record} bytes")
    table = np.frombuffer(content, np.uint8).reshape(-1, record)
    if table[:, labels - 1].max() >= classes:
        raise damaged(path, f"has a label {table[:, labels - 1].max()}, where {classes} classes are counted from 0")
    return table[:, labels:].reshape(-1, *_SHAPE).copy(), table[:, :labels].copy()


def read_residuals(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return images and labels of an archive of differences along rows and columns, red and blue minus green."""
    arrays = read_arrays(path, residual=4, labels=1)
    residual, labels = arrays["residual"], arrays["labels"]
    if residual.dtype != np.uint8 or residual.shape != (3, len(labels), 32, 32):
        raise damaged(path, f"has {residual.dtype} residuals of shape {residual.shape} for {len(labels)} labels")
    # All sums are modulo 256, as the differences were.
    planes = residual.cumsum(2, dtype=np.uint8).cumsum(3, dtype=np.uint8)
    planes[0] += planes[1]
    planes[2] += planes[1]
    return np.ascontiguousarray(planes.swapaxes(0, 1)), labels[:, None]


def read_cifar10(*paths: Path) -> Images:
    """Read ``data_batch_1`` to ``data_batch_5`` and ``test_batch``."""
    return _cifar10([read_records(path, 1, 10) for path in paths])


def read_cifar10_residuals(*paths: Path) -> Images:
    """Read the archives of the five training batches and of the test batch."""
    return _cifar10([read_residuals(path) for path in paths])


def read_cifar100(train: Path, test: Path) -> Images:
    """Read ``train.bin`` and ``test.bin``, whose records start with the superclass and then the class."""
    (images, labels), (test_images, test_labels) = read_records(train, 2, 100), read_records(test, 2, 100)
    return Images(
        "cifar100",
        torch.from_numpy(images),
        tensor(labels[:, 1], torch.int64),
        torch.from_numpy(test_images),
        tensor(test_labels[:, 1], torch.int64),
        train_coarse=tensor(labels[:, 0], torch.int64),
        test_coarse=tensor(test_labels[:, 0], torch.int64),
    )


def _cifar10(batches: list[tuple[np.ndarray, np.ndarray]]) -> Images:
    *training, (test_images, test_labels) = batches
    return Images(
        "cifar10",
        torch.from_numpy(np.concatenate([images for images, _ in training])),
        tensor(np.concatenate([labels[:, 0] for _, labels in training]), torch.int64),
        torch.from_numpy(test_images),
        tensor(test_labels[:, 0], torch.int64),
    )


_BATCHES = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
_ORIGIN = "the CIFAR page of the University of Toronto (Krizhevsky 2009), binary version"

SOURCES: dict[str, Source[Images]] = {
    "cifar10": Source(
        origin=_ORIGIN,
        license="not stated with the data",
        layouts=(
            Layout((*(f"cifar10_train_{i}.npz" for i in range(1, 6)), "cifar10_test.npz"), read_cifar10_residuals),
            *(
                Layout(tuple(f"{folder}/{file}" for file in (*_BATCHES, "test_batch.bin")), read_cifar10)
                for folder in ("cifar-10-batches-bin", "cifar10")
            ),
        ),
        rows=60000,
    ),
    "cifar100": Source(
        origin=_ORIGIN,
        license="not stated with the data",
        layouts=tuple(
            Layout((f"{folder}/train.bin", f"{folder}/test.bin"), partial(read_cifar100))
            for folder in ("cifar-100-binary", "cifar100")
        ),
        rows=60000,
    ),
}
