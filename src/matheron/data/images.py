"""Labeled images."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Images:
    """Training and test images as bytes in the order (image, channel, row, column), with one class label each.

    ``train_coarse`` and ``test_coarse`` are the twenty superclasses of CIFAR-100.

    >>> black, zero = torch.zeros(2, 1, 28, 28, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64)
    >>> images = Images("black", black, zero, black, zero)
    >>> images.train_images.float().div(255).shape
    torch.Size([2, 1, 28, 28])
    """

    name: str
    train_images: UInt8[Tensor, "n c h w"]
    train_labels: Int64[Tensor, " n"]
    test_images: UInt8[Tensor, "m c h w"]
    test_labels: Int64[Tensor, " m"]
    train_coarse: Int64[Tensor, " n"] | None = None
    test_coarse: Int64[Tensor, " m"] | None = None

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            images, labels = getattr(self, f"{part}_images"), getattr(self, f"{part}_labels")
            if images.ndim != 4 or images.dtype != torch.uint8:
                raise ValueError(
                    f"{part}_images must be uint8 of shape (n, channels, rows, columns), "
                    f"got {images.dtype} of shape {tuple(images.shape)}"
                )
            if labels.shape != images.shape[:1]:
                raise ValueError(f"{part}_labels has shape {tuple(labels.shape)} for {len(images)} {part}_images")

    @property
    def rows(self) -> int:
        """The number of images, training and test together."""
        return len(self.train_images) + len(self.test_images)

    def first(self, name: str, count: int) -> "Images":
        """Return the set of the given name with the first ``count`` training images and all test images."""
        coarse = None if self.train_coarse is None else self.train_coarse[:count]
        return replace(
            self,
            name=name,
            train_images=self.train_images[:count],
            train_labels=self.train_labels[:count],
            train_coarse=coarse,
        )
