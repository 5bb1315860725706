"""MNIST and KMNIST, in the IDX format or as one archive."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from matheron.data.arrays import read_arrays, require_rows, tensor
from matheron.data.files import Layout, Source, damaged
from matheron.data.images import Images
from matheron.data.tables import read_bytes

_UNSIGNED_BYTE = 8
_PARTS = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_SUBSET = 7011


def read_idx(path: Path, ndim: int) -> np.ndarray:
    """Return the bytes of an IDX file: a magic number, the sizes as big-endian integers, then the values."""
    content = read_bytes(path)
    magic = bytes((0, 0, _UNSIGNED_BYTE, ndim))
    if content[:4] != magic:
        raise damaged(
            path, f"starts with {content[:4].hex()}, where an IDX file of {ndim} dimensions has {magic.hex()}"
        )
    header = 4 + 4 * ndim
    if len(content) < header:
        raise damaged(path, f"ends after {len(content)} bytes, within its header")
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", ndim, offset=4))
    wanted = header + int(np.prod(shape))
    if len(content) != wanted:
        raise damaged(path, f"has {len(content)} bytes, where its header promises {wanted}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape).copy()


def read_idx_images(*paths: Path, name: str) -> Images:
    """Read the four IDX files: training images, training labels, test images, test labels."""
    arrays = [read_idx(path, ndim) for path, ndim in zip(paths, (3, 1, 3, 1), strict=True)]
    for images, labels in ((0, 1), (2, 3)):
        if len(arrays[images]) != len(arrays[labels]):
            raise damaged(paths[labels], f"has {len(arrays[labels])} labels for {len(arrays[images])} images")
    return _images(name, *arrays)


def read_npz_images(path: Path, name: str) -> Images:
    """Read members ``train_images``, ``train_labels``, ``test_images`` and ``test_labels``."""
    arrays = read_arrays(path, train_images=3, train_labels=1, test_images=3, test_labels=1)
    require_rows(path, arrays, "train_images", "train_labels")
    require_rows(path, arrays, "test_images", "test_labels")
    return _images(name, *arrays.values())


def read_first(*paths: Path, name: str, count: int) -> Images:
    """Read the four IDX files and keep the first ``count`` training images."""
    return read_idx_images(*paths, name=name).first(name, count)


def _images(name: str, *arrays: np.ndarray) -> Images:
    train, train_labels, test, test_labels = arrays
    return Images(
        name,
        tensor(train, torch.uint8)[:, None],
        tensor(train_labels, torch.int64),
        tensor(test, torch.uint8)[:, None],
        tensor(test_labels, torch.int64),
    )


def _folders(folder: str, read: Callable[..., Images]) -> tuple[Layout[Images], ...]:
    places = (folder, f"{folder.upper()}/raw")
    return tuple(Layout(tuple(f"{place}/{part}" for part in _PARTS), read) for place in places)


_KMNIST = "the KMNIST dataset of the Center for Open Data in the Humanities (CODH)"

SOURCES: dict[str, Source[Images]] = {
    "mnist": Source(
        origin="the MNIST database of LeCun, Cortes and Burges",
        license="not stated with the data",
        layouts=(
            Layout(("mnist.npz",), partial(read_npz_images, name="mnist")),
            *_folders("mnist", partial(read_idx_images, name="mnist")),
        ),
        rows=70000,
    ),
    "kmnist": Source(
        origin=_KMNIST,
        license="CC BY-SA 4.0",
        layouts=(
            Layout(("kmnist.npz",), partial(read_npz_images, name="kmnist")),
            *_folders("kmnist", partial(read_idx_images, name="kmnist")),
        ),
        rows=70000,
    ),
    "kmnist_subset": Source(
        origin=_KMNIST,
        license="CC BY-SA 4.0",
        layouts=(
            Layout(("kmnist_subset.npz",), partial(read_npz_images, name="kmnist_subset")),
            *_folders("kmnist", partial(read_first, name="kmnist_subset", count=_SUBSET)),
        ),
        rows=_SUBSET + 10000,
        note=f"The first {_SUBSET} training images and all test images.",
    ),
}
