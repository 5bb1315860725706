"""Labeled images in a folder for each class, read one by one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.data import Dataset

from matheron.arguments import require_count
from matheron.data.files import DataNotFound, damaged

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".ppm")

AROUND = 8 / 7
"""The shorter side before the middle is cut out, over the size wanted: 256 to 224."""

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of the channels of ImageNet, which networks trained on it expect."""


class ImageFolder(Dataset):
    """``root/CLASS/IMAGE``: pairs of an image ``(3, size, size)`` and its class, in the order of their names.

    Images are read when they are asked for, so that a folder may be larger than memory: give it to a ``DataLoader``.
    The shorter side is scaled to 8/7 of ``size`` and the middle cut out; images of that size are taken as they are.
    Channels are standardized by ``mean`` and ``deviation``. ``most`` takes so many images of every class at most.

    >>> import tempfile
    >>> from PIL import Image
    >>> root = Path(tempfile.mkdtemp())
    >>> for name in ("cat", "dog"):
    ...     (root / name).mkdir()
    ...     Image.new("RGB", (40, 30)).save(root / name / "first.png")
    >>> images = ImageFolder(root, size=16)
    >>> images.classes, images[1][0].shape, images[1][1]
    (('cat', 'dog'), torch.Size([3, 16, 16]), 1)
    """

    def __init__(
        self,
        root: str | Path,
        *,
        size: int = 224,
        mean: Sequence[float] = MEAN,
        deviation: Sequence[float] = DEVIATION,
        most: int | None = None,
    ) -> None:
        self.root, self.size = Path(root).expanduser(), require_count("size", size)
        self.mean, self.deviation = (torch.tensor(v).reshape(3, 1, 1) for v in (mean, deviation))
        if not self.root.is_dir():
            raise DataNotFound(f"root is {self.root}, which is not a folder; give one that has a folder for each class")
        self.classes = tuple(sorted(path.name for path in self.root.iterdir() if path.is_dir()))
        self.paths: list[tuple[Path, int]] = []
        for label, name in enumerate(self.classes):
            found = sorted(path for path in (self.root / name).rglob("*") if path.suffix.lower() in SUFFIXES)
            self.paths += [(path, label) for path in (found if most is None else found[: require_count("most", most)])]
        if not self.paths:
            raise DataNotFound(
                f"{self.root} has no image in {len(self.classes)} folders; put images ({', '.join(SUFFIXES)}) into a "
                "folder for each class"
            )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Float[Tensor, "3 h w"], int]:
        path, label = self.paths[index]
        return (self._read(path) - self.mean) / self.deviation, label

    @property
    def labels(self) -> Tensor:
        """All of them, without reading an image."""
        return torch.tensor([label for _, label in self.paths])

    def _read(self, path: Path) -> Float[Tensor, "3 h w"]:
        """Between 0 and 1."""
        try:
            from PIL import Image
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError("images are read with Pillow; install it with pip install pillow") from error
        try:
            with Image.open(path) as file:
                image = file.convert("RGB")
        except (OSError, SyntaxError) as error:
            raise damaged(path, f"is not an image that can be read ({error})") from error
        if image.size != (self.size, self.size):
            scale = AROUND * self.size / min(image.size)
            width, height = (max(self.size, round(scale * side)) for side in image.size)
            left, top = (width - self.size) // 2, (height - self.size) // 2
            resized = image.resize((width, height), Image.Resampling.BILINEAR)
            image = resized.crop((left, top, left + self.size, top + self.size))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255.0
