"""Line integrals through a volume, one slab of voxels at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from torch import Tensor
from torch.nn.functional import grid_sample

from matheron.operators.action import Action
from matheron.operators.base import Index, Operator
from matheron.operators.selection import Selection
from matheron.tomography.scan import require_memory, require_real

CHUNK = 2**22
"""Points sampled at a time: their coordinates take 32 MiB."""

BILINEAR, ZEROS = 0, 0
"""What ``grid_sample`` calls these."""


@dataclass(frozen=True, eq=False)
class View:
    """The rays of one angle in voxels: from ``source`` (row, column) at ``level`` along ``paths`` in the plane, to the
    detectors' columns, and along ``rises`` out of it, to their rows."""

    source: Float64[Tensor, "2"]
    level: float
    paths: Float64[Tensor, "u 2"]
    rises: Float64[Tensor, " v"]


@dataclass(frozen=True, eq=False)
class Slabs:
    """Some columns of a view and where their rays cross the slabs ``first`` to ``last`` of the axis they follow."""

    axis: int
    first: int
    last: int
    columns: Tensor
    lengths: Float[Tensor, "v u"]
    points: Float[Tensor, "slabs v u 2"]


class SlabProjector(Action):
    """``A V``: Joseph's method in space. A ray is followed along ``x`` or ``y``, to which it is closer, and the volume
    interpolated bilinearly in every slab it crosses.

    The rays of a column of detectors lie above each other, so one axis serves them all. Each slab is sampled on the
    detector's grid and the samples added; the transpose spreads them by the same weights. Memory is that of the
    volumes and of a few dozen MiB.

    Built by :meth:`matheron.tomography.ConeBeam.operator`.
    """

    def __init__(
        self,
        views: Sequence[View],
        volume_shape: tuple[int, int, int],
        view_shape: tuple[int, int],
        spacing: float,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        require_real(dtype)
        self.views, self.volume_shape, self.view_shape, self.spacing = list(views), volume_shape, view_shape, spacing
        rows, columns = len(self.views) * math.prod(view_shape), math.prod(volume_shape)
        super().__init__((rows, columns), dtype, device)

    def act(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "n s"]:
        """Adds up what rays collect in each slab."""
        s = V.shape[1]
        self._require_memory(s)
        sinograms = V.new_zeros(len(self.views), s, *self.view_shape)
        if V.numel() == 0:
            return V.new_zeros(self.shape[0], s)
        volume = V.mT.reshape(s, *self.volume_shape)
        # Slabs across y are (y, s, z, x), slabs across x are (x, s, z, y).
        stacks = [volume.permute(2, 0, 1, 3).contiguous(), volume.permute(3, 0, 1, 2).contiguous()]
        for place, view in enumerate(self.views):
            for slabs in self._slabs(view):
                stack = stacks[slabs.axis][slabs.first : slabs.last]
                samples = grid_sample(stack, slabs.points, align_corners=False).sum(0)
                sinograms[place, :, :, slabs.columns] += samples * slabs.lengths
        return sinograms.movedim(1, -1).reshape(self.shape[0], s)

    def act_back(self, U: Float[Tensor, "n s"]) -> Float[Tensor, "m s"]:
        """Spreads each measurement over its ray."""
        s = U.shape[1]
        self._require_memory(s)
        if U.numel() == 0:
            return U.new_zeros(self.shape[1], s)
        depth, height, width = self.volume_shape
        sinograms = U.reshape(len(self.views), *self.view_shape, s).movedim(-1, 1)
        stacks = [U.new_zeros(height, s, depth, width), U.new_zeros(width, s, depth, height)]
        for place, view in enumerate(self.views):
            for slabs in self._slabs(view):
                stack = stacks[slabs.axis][slabs.first : slabs.last]
                weighted = sinograms[place, :, :, slabs.columns] * slabs.lengths
                weighted = weighted.expand(len(stack), *weighted.shape).contiguous()
                stack += torch.ops.aten.grid_sampler_2d_backward(
                    weighted, stack, slabs.points, BILINEAR, ZEROS, False, [True, False]
                )[0]
        volume = stacks[0].permute(1, 2, 0, 3) + stacks[1].permute(1, 2, 3, 0)
        return volume.reshape(s, -1).mT

    def transpose(self) -> Operator:
        """Spreads by the weights with which this collects."""
        return BackProjector(self)

    def rows(self, index: Index) -> Operator:
        """Only the angles that are asked for are followed."""
        width = math.prod(self.view_shape)
        picked = torch.arange(self.shape[0])[index if isinstance(index, slice) else index.cpu()]
        needed, places = torch.unique(picked // width, return_inverse=True)
        part = SlabProjector(
            [self.views[int(view)] for view in needed],
            self.volume_shape,
            self.view_shape,
            self.spacing,
            dtype=self.dtype,
            device=self.device,
        )
        local = places * width + picked % width
        if torch.equal(local, torch.arange(part.shape[0])):
            return part
        return Selection(local.to(self.device), part.shape[0], dtype=self.dtype, device=self.device) @ part

    def _slabs(self, view: View) -> Iterator[Slabs]:
        """One axis after the other, in pieces of bounded size."""
        depth = self.volume_shape[0]
        main = (view.paths[:, 1].abs() >= view.paths[:, 0].abs()).long()
        lengths = (view.paths.square().sum(1) + view.rises[:, None].square()).sqrt() * self.spacing
        for axis in (0, 1):
            columns = (main == axis).nonzero().flatten()
            if len(columns) == 0:
                continue
            along, across = self.volume_shape[1 + axis], self.volume_shape[2 - axis]
            path = view.paths[columns]
            weights = (lengths[:, columns] / path[:, axis].abs()).to(dtype=self.dtype, device=self.device)
            reached = (torch.arange(along, dtype=torch.float64)[:, None] - view.source[axis]) / path[:, axis]
            sideways = normalized(view.source[1 - axis] + reached * path[:, 1 - axis], across)
            # Height above the source's plane: the share of the way that a ray has come, times its rise.
            upward, level = reached * 2.0 / depth, normalized(torch.tensor(view.level), depth)
            sideways, upward, rises = (
                part.to(dtype=self.dtype, device=self.device) for part in (sideways, upward, view.rises)
            )
            number = max(1, CHUNK // (len(rises) * len(columns)))
            for first in range(0, along, number):
                last = min(first + number, along)
                points = torch.empty(last - first, len(rises), len(columns), 2, dtype=self.dtype, device=self.device)
                points[..., 0] = sideways[first:last, None, :]
                torch.mul(upward[first:last, None, :], rises[:, None], out=points[..., 1])
                points[..., 1] += float(level)
                yield Slabs(axis, first, last, columns.to(self.device), weights, points)

    def _require_memory(self, s: int) -> None:
        sizes = f"{s} volumes of {' × '.join(map(str, self.volume_shape))}"
        require_memory(
            3 * s * self.shape[1] * self.dtype.itemsize, sizes, self.device, "multiply with fewer columns at a time"
        )


class BackProjector(Action):
    """``Aᵀ U`` of a :class:`SlabProjector`."""

    def __init__(self, projector: SlabProjector) -> None:
        self.projector = projector
        super().__init__((projector.shape[1], projector.shape[0]), projector.dtype, projector.device)

    def act(self, V: Float[Tensor, "m s"]) -> Float[Tensor, "n s"]:
        """Spreads each measurement over its ray."""
        return self.projector.act_back(V)

    def transpose(self) -> Operator:
        """The projector."""
        return self.projector


def normalized(index: Tensor, size: int) -> Tensor:
    """An index as ``grid_sample`` counts it: the first place begins at −1 and the last ends at 1."""
    return (2.0 * index + 1.0) / size - 1.0
