"""Line integrals through an image that is interpolated linearly across each ray."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.operators.sparse import Sparse, compressed, flip
from matheron.tomography.scan import require_memory, require_real

CHUNK = 2**21
"""Entries laid out at a time: a few dozen MiB."""


def joseph(
    rays: Iterable[tuple[Float[Tensor, "r 2"], Float[Tensor, "r 2"]]],
    count: int,
    size: tuple[int, int],
    pixel_spacing: float,
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> Sparse:
    """``A_rp = ∫ over ray r of pixel p's share``, by Joseph's method.

    A ray ``o + t d``, ``‖d‖ = 1``, is followed along the axis it is closest to, one pixel at a time; between the two
    pixels it passes the image is interpolated linearly, and each step is ``spacing / |d_axis|`` long. ``rays`` gives
    origins and directions ``(x, y)``, one pair of tensors for every angle; ``count`` is their number in all.
    """
    require_real(dtype)
    longest = 2 * max(size) * count
    width = 4 + dtype.itemsize
    require_memory(
        3 * longest * width + CHUNK * 32,
        f"a projector of {count:,} rays through {size[0]:,} × {size[1]:,} pixels (up to {longest:,} entries, twice)",
        torch.device("cpu"),
        "take fewer angles with scan.at(index), fewer detectors or larger pixels",
    )
    if longest >= 2**31:
        raise ValueError(
            f"{count:,} rays through {size[0]:,} × {size[1]:,} pixels have up to {longest:,} entries, more than "
            "indices of 32 bits can count; take parts of the scan with scan.at(index)"
        )
    lengths, places, values = [], [], []
    for origins, directions in rays:
        for part in torch.arange(len(origins)).split(max(1, CHUNK // (2 * max(size)))):
            place, value = follow(origins[part], directions[part], size, pixel_spacing)
            hit = value > 0
            lengths.append(hit.sum(1))
            kept = hit.flatten().nonzero().flatten()
            places.append(place.flatten()[kept])
            values.append(value.flatten()[kept].to(dtype))
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), *lengths]).cumsum(0).int()
    # Transposing twice puts the pixels of every ray in order.
    backward = flip(compressed(starts, torch.cat(places), torch.cat(values), math.prod(size)))
    return Sparse(flip(backward).to(device), backward.to(device))


def follow(
    origins: Float[Tensor, "r 2"], directions: Float[Tensor, "r 2"], size: tuple[int, int], pixel_spacing: float
) -> tuple[Tensor, Tensor]:
    """Pixels and lengths ``(r, 2 max(size))``; what a ray does not meet has length zero."""
    height, width = size
    middle = torch.tensor([(width - 1) / 2, (height - 1) / 2], dtype=torch.float64)
    # Columns grow with x, rows against y.
    flip = torch.tensor([1.0, -1.0], dtype=torch.float64)
    origins, directions = origins * flip / pixel_spacing + middle, directions * flip
    places = torch.zeros(len(origins), max(size), 2, dtype=torch.int32)
    values = torch.zeros(len(origins), max(size), 2, dtype=torch.float64)
    flat = directions[:, 0].abs() >= directions[:, 1].abs()
    for axis, picked, (along, across), (step, jump) in (
        (0, flat, (width, height), (1, width)),
        (1, ~flat, (height, width), (width, 1)),
    ):
        # The rays of an angle mostly take one axis, and a slice spares copies.
        rays = slice(None) if bool(picked.all()) else picked.nonzero().flatten()
        o, d = origins[rays], directions[rays]
        if not bool(picked.any()):
            continue
        slope = d[:, 1 - axis] / d[:, axis]
        steps = torch.arange(along, dtype=torch.float64)
        position = o[:, 1 - axis, None] + (steps - o[:, axis, None]) * slope[:, None]
        lower = position.floor()
        share = (position - lower) * (pixel_spacing / d[:, axis, None].abs())
        rest = pixel_spacing / d[:, axis, None].abs() - share
        places[rays, :along, 0] = (lower * jump + steps * step).int()
        places[rays, :along, 1] = places[rays, :along, 0] + jump
        values[rays, :along, 0] = rest * ((lower >= 0) & (lower < across))
        values[rays, :along, 1] = share * ((lower >= -1) & (lower < across - 1))
    return places.flatten(1), values.flatten(1)
