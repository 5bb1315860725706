"""Scans against what is known in closed form, and against bad input."""

import dataclasses
import math
import warnings

import numpy as np
import pytest
import torch

import matheron as mt
from matheron.tomography import ConeBeam, FanBeam, Fourier, ParallelBeam, from_counts
from matheron.tomography import joseph as joseph_module
from matheron.tomography import scan as scan_module
from matheron.tomography import slabs as slabs_module


def turn(number, whole=2 * math.pi):
    return torch.arange(number, dtype=torch.float64) * whole / number


def grid(*shape, spacing=1.0):
    """Coordinates of pixels: columns to the right, rows down, layers up."""
    *depth, height, width = shape
    x = (torch.arange(width, dtype=torch.float64) - (width - 1) / 2) * spacing
    y = ((height - 1) / 2 - torch.arange(height, dtype=torch.float64)) * spacing
    z = [(torch.arange(n, dtype=torch.float64) - (n - 1) / 2) * spacing for n in depth]
    return torch.meshgrid(*z, y, x, indexing="ij")


def gaussian(*shape, center, width, spacing=1.0):
    """A bump, whose line integral at distance ``r`` is ``√(2π) width exp(−r² / 2 width²)``."""
    parts = grid(*shape, spacing=spacing)
    squares = sum((part - c) ** 2 for part, c in zip(parts[::-1], center, strict=True))
    return torch.exp(-squares / (2 * width**2))


def distance(origin, target, center):
    """Of a point from the line through two others."""
    d = (target - origin) / (target - origin).norm(dim=-1, keepdim=True)
    away = torch.as_tensor(center, dtype=torch.float64) - origin
    return (away - (away * d).sum(-1, keepdim=True) * d).norm(dim=-1)


def expected(origin, target, center, width):
    r = distance(origin, target, center)
    return math.sqrt(2 * math.pi) * width * torch.exp(-r.square() / (2 * width**2))


def bound(spacing, width, axes):
    """Linear interpolation errs by ``h² / 8`` times the second derivative, which is at most ``1 / width²``; one percent
    for what is cut at the border."""
    return math.sqrt(2 * math.pi) * width * (axes * spacing**2 / (8 * width**2) + 0.01)


SCANS = {
    "parallel": ParallelBeam(24, turn(9, math.pi), 37),
    "parallel, oblong and aside": ParallelBeam(
        (20, 31), turn(7) + 0.1, 50, pixel_spacing=0.6, detector_spacing=0.5, detector_offset=0.35
    ),
    "fan": FanBeam(24, turn(8), 45, 1.0, 1.5, source_to_axis=60.0, source_to_detector=100.0),
    "fan, oblong and aside": FanBeam(
        (17, 26), turn(5) + 0.2, 40, 0.7, 1.3, -0.4, source_to_axis=50.0, source_to_detector=90.0
    ),
    "cone": ConeBeam(10, turn(6), 18, 1.0, 1.2, source_to_axis=40.0, source_to_detector=55.0),
    "cone, oblong and aside": ConeBeam(
        (6, 9, 12), turn(5) + 0.3, (11, 19), 0.8, (1.1, 1.2), (0.3, -0.5), source_to_axis=40.0, source_to_detector=60.0
    ),
}


@pytest.mark.parametrize("scan", SCANS.values(), ids=SCANS)
def test_the_dot_test_in_single_precision(scan, generator):
    A = scan.operator()
    x, y = torch.randn(A.shape[1], 2, generator=generator), torch.randn(A.shape[0], 2, generator=generator)
    forth, back = A @ x, A.T @ y
    gap = ((forth * y).double().sum(0) - (x * back).double().sum(0)).abs()
    assert bool((gap <= 1e-5 * forth.norm(dim=0) * y.norm(dim=0)).all())


@pytest.mark.parametrize("scan", SCANS.values(), ids=SCANS)
def test_some_angles_are_some_rows(scan, generator):
    A = scan.operator(dtype=torch.float64)
    x = torch.randn(A.shape[1], generator=generator, dtype=torch.float64)
    y = A @ x
    for index in ([3, 0], slice(1, 4), torch.tensor([2]), 4, -1):
        part = scan.at(index)
        views = scan.sinogram(y)[index].reshape(part.sinogram_shape)
        torch.testing.assert_close(part.sinogram(part.operator(dtype=torch.float64) @ x), views)
    torch.testing.assert_close(A.rows(scan.rows(2)) @ x, scan.sinogram(y)[2].flatten())
    assert scan.rows(-1) == scan.rows(len(scan.angles) - 1)
    with pytest.raises(IndexError, match="angle"):
        scan.rows(99)


def test_a_smooth_bump_in_parallel_rays():
    """Coordinates are ``x cos θ + y sin θ``, with rows of the image counted downward."""
    scan, center, width = SCANS["parallel, oblong and aside"], (2.0, -1.1), 1.4
    image = gaussian(20, 31, center=center, width=width, spacing=0.6)
    y = scan.sinogram(scan.operator(dtype=torch.float64) @ scan.flatten(image))
    s = (torch.arange(50, dtype=torch.float64) - 24.5) * 0.5 + 0.35
    for angle, view in zip(scan.angles, y, strict=True):
        where = center[0] * math.cos(angle) + center[1] * math.sin(angle)
        exact = math.sqrt(2 * math.pi) * width * torch.exp(-(s - where).square() / (2 * width**2))
        torch.testing.assert_close(view, exact, rtol=0.0, atol=bound(0.6, width, 1))


def test_a_smooth_bump_in_a_fan():
    scan, center, width = SCANS["fan, oblong and aside"], (1.9, 0.8), 1.5
    image = gaussian(17, 26, center=center, width=width, spacing=0.7)
    y = scan.sinogram(scan.operator(dtype=torch.float64) @ scan.flatten(image))
    s = (torch.arange(40, dtype=torch.float64) - 19.5) * 1.3 - 0.4
    for angle, view in zip(scan.angles, y, strict=True):
        toward = torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)
        along = torch.tensor([-math.sin(angle), math.cos(angle)], dtype=torch.float64)
        exact = expected(50.0 * toward, -40.0 * toward + s[:, None] * along, center, width)
        torch.testing.assert_close(view, exact, rtol=0.0, atol=bound(0.7, width, 1))


def test_a_smooth_bump_in_a_cone():
    center, width = (0.9, -1.2, 1.1), 1.5
    scan = ConeBeam(
        (11, 13, 15),
        turn(5) + 0.3,
        (21, 19),
        0.8,
        (1.1, 1.2),
        (0.3, -0.5),
        source_to_axis=40.0,
        source_to_detector=60.0,
    )
    image = gaussian(11, 13, 15, center=center, width=width, spacing=0.8)
    y = scan.sinogram(scan.operator(dtype=torch.float64) @ scan.flatten(image))
    v = (torch.arange(21, dtype=torch.float64)[:, None, None] - 10.0) * 1.1 + 0.3
    u = (torch.arange(19, dtype=torch.float64)[:, None] - 9.0) * 1.2 - 0.5
    for angle, view in zip(scan.angles, y, strict=True):
        toward = torch.tensor([math.cos(angle), math.sin(angle), 0.0], dtype=torch.float64)
        along = torch.tensor([-math.sin(angle), math.cos(angle), 0.0], dtype=torch.float64)
        up = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
        exact = expected(40.0 * toward, -20.0 * toward + u * along + v * up, center, width)
        torch.testing.assert_close(view, exact, rtol=0.0, atol=bound(0.8, width, 2))


@pytest.mark.parametrize("kind", ["parallel", "fan", "cone"])
def test_chords_of_a_disc_and_of_a_ball(kind):
    """``2 √(r² − s²)`` at distance ``s``, on average to a fraction of a pixel."""
    far = {"source_to_axis": 150.0, "source_to_detector": 200.0}
    scan = {
        "parallel": lambda: ParallelBeam(64, turn(12), 91),
        "fan": lambda: FanBeam(64, turn(12), 91, detector_spacing=4 / 3, **far),
        "cone": lambda: ConeBeam(32, turn(6), 46, detector_spacing=4 / 3, **far),
    }[kind]()
    radius = 0.4 * scan.image_shape[-1]
    # A soft rim, as wide as a pixel, in place of a staircase.
    away = sum(part.square() for part in grid(*scan.image_shape)).sqrt()
    image = (radius - away + 0.5).clamp(0.0, 1.0)
    y = scan.sinogram(scan.operator(dtype=torch.float64) @ scan.flatten(image))
    if kind == "parallel":
        s = scan.coordinates.abs().expand_as(y)
    else:
        parts = (scan.coordinates,) if kind == "fan" else torch.meshgrid(*scan.coordinates, indexing="ij")
        square = sum(part.square() for part in parts)
        s = (150.0 * (square / (square + 200.0**2)).sqrt()).expand_as(y)
    chord = 2 * (radius**2 - s.square()).clamp(min=0.0).sqrt()
    assert float((y - chord).abs().mean()) < 0.005 * 2 * radius
    inner = s < 0.8 * radius
    torch.testing.assert_close(y[inner], chord[inner], rtol=0.02, atol=0.0)


def test_mass_is_kept_by_parallel_rays():
    """``Σ y · spacing`` is the image's integral at every angle."""
    scan = ParallelBeam(40, turn(11), 120, pixel_spacing=0.5, detector_spacing=0.25)
    image = gaussian(40, 40, center=(1.0, -2.0), width=2.0, spacing=0.5)
    y = scan.sinogram(scan.operator(dtype=torch.float64) @ scan.flatten(image))
    mass = (0.25 * y.sum(1)) / (0.25 * image.sum())
    torch.testing.assert_close(mass, torch.ones_like(mass), rtol=2e-3, atol=0.0)


def test_lengths_are_in_the_unit_of_the_spacings():
    small = SCANS["fan"]
    large = dataclasses.replace(
        small, pixel_spacing=10.0, detector_spacing=15.0, source_to_axis=600.0, source_to_detector=1000.0
    )
    torch.testing.assert_close(large.operator().dense(), 10.0 * small.operator().dense(), rtol=1e-4, atol=1e-4)


def test_the_middle_of_a_cone_is_a_fan(generator):
    far = {"source_to_axis": 60.0, "source_to_detector": 100.0}
    image = torch.randn(15, 17, generator=generator, dtype=torch.float64)
    flat = FanBeam((15, 17), turn(7), 31, detector_spacing=1.3, **far)
    solid = ConeBeam((1, 15, 17), turn(7), (1, 31), detector_spacing=1.3, **far)
    torch.testing.assert_close(
        solid.operator(dtype=torch.float64) @ image.flatten(), flat.operator(dtype=torch.float64) @ image.flatten()
    )


def test_a_fan_from_afar_is_parallel():
    far = FanBeam(16, turn(6) - math.pi / 2, 25, source_to_axis=1e6, source_to_detector=1e6 + 1.0)
    near = ParallelBeam(16, turn(6), 25)
    image = gaussian(16, 16, center=(1.0, 2.0), width=3.0)
    close = far.operator(dtype=torch.float64) @ far.flatten(image), near.operator(dtype=torch.float64) @ image.flatten()
    torch.testing.assert_close(*close, rtol=1e-3, atol=1e-3)


def test_pieces_of_the_work_do_not_change_it(monkeypatch):
    scan = SCANS["cone"]
    flat = SCANS["fan"]
    whole, plane = scan.operator(dtype=torch.float64).dense(), flat.operator(dtype=torch.float64).dense()
    monkeypatch.setattr(slabs_module, "CHUNK", 700)
    monkeypatch.setattr(joseph_module, "CHUNK", 700)
    torch.testing.assert_close(scan.operator(dtype=torch.float64).dense(), whole)
    torch.testing.assert_close(scan.operator(dtype=torch.float64).T.dense(), whole.T)
    torch.testing.assert_close(flat.operator(dtype=torch.float64).dense(), plane)


def test_indices_take_four_bytes():
    A = SCANS["fan"].operator()
    for matrix in (A.matrix, A.transposed):
        assert matrix.values().dtype == torch.float32
        assert matrix.crow_indices().dtype == matrix.col_indices().dtype == torch.int32
        torch.sparse_csr_tensor(
            matrix.crow_indices(), matrix.col_indices(), matrix.values(), matrix.shape, check_invariants=True
        )


def test_images_and_sinograms_are_columns(generator):
    scan = SCANS["fan, oblong and aside"]
    images = torch.randn(3, 17, 26, generator=generator)
    columns = scan.flatten(images)
    assert columns.shape == (17 * 26, 3)
    assert torch.equal(scan.image(columns), images)
    y = scan.operator() @ columns
    assert scan.sinogram(y).shape == (3, 5, 40)
    assert torch.equal(scan.flatten(scan.sinogram(y)), y)
    assert torch.equal(scan.sinogram(y[:, 1]), scan.sinogram(y)[1])


def test_scans_are_values():
    first = ParallelBeam(8, turn(3), 13)
    assert first == ParallelBeam((8, 8), tuple(turn(3).tolist()), 13)
    assert hash(first) == hash(first.at(slice(None)))
    assert first != first.at([0, 1])
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.detectors = 4
    assert mt.tomography.ParallelBeam is ParallelBeam


FAR = {"source_to_axis": 50.0, "source_to_detector": 90.0}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: ParallelBeam(0, turn(3), 5), "size"),
        (lambda: ParallelBeam((4, 4, 4), turn(3), 5), "size"),
        (lambda: ParallelBeam(4, turn(3), 0), "detectors"),
        (lambda: ParallelBeam(4, turn(3)[:0], 7), "angles"),
        (lambda: ParallelBeam(4, turn(4).reshape(2, 2), 7), "angles"),
        (lambda: ParallelBeam(4, [0.0, math.nan], 7), "angles has 1 NaN"),
        (lambda: ParallelBeam(4, turn(3), 7, pixel_spacing=0.0), "pixel_spacing must be positive"),
        (lambda: ParallelBeam(4, turn(3), 7, detector_spacing=-1.0), "detector_spacing must be positive"),
        (lambda: ParallelBeam(4, turn(3), 7, detector_offset=math.nan), "detector_offset"),
        (lambda: FanBeam(4, turn(3), 7, source_to_axis=90.0, source_to_detector=90.0), "must be less than"),
        (lambda: FanBeam(4, turn(3), 7, source_to_axis=2.0, source_to_detector=90.0), "pass through the object"),
        (lambda: FanBeam(4, turn(3), 7, source_to_axis=-2.0, source_to_detector=90.0), "source_to_axis must be pos"),
        (lambda: ConeBeam((4, 4), turn(3), 7, **FAR), "size"),
        (lambda: ConeBeam(4, turn(3), (7, 0), **FAR), "detectors"),
        (lambda: ConeBeam(4, turn(3), 7, 1.0, (1.0, 0.0), **FAR), "detector_spacing"),
        (lambda: ConeBeam(4, turn(3), 7, 1.0, 1.0, (1.0, 0.0, 2.0), **FAR), "detector_offset"),
        (lambda: ConeBeam(4, turn(3), 7, source_to_axis=95.0, source_to_detector=90.0), "must be less than"),
        (lambda: Fourier(4, [4]), "between -4 and 3"),
        (lambda: Fourier(4, [0, -4]), "twice"),
        (lambda: Fourier(4, [0.5]), "whole number"),
        (lambda: Fourier(4, []), "at least one"),
        (lambda: SCANS["fan"].flatten(torch.ones(24, 23)), r"\(24, 24\) and a sinogram .* \(8, 45\)"),
        (lambda: SCANS["fan"].flatten(torch.full((24, 24), math.nan)), "NaN"),
        (lambda: SCANS["fan"].sinogram(torch.ones(7)), r"give a column \(360,\)"),
        (lambda: SCANS["fan"].sinogram(torch.ones(8, 45)), "which scan.flatten makes of"),
        (lambda: from_counts(torch.tensor([3.0, -1.0]), 10.0), "negative entries, the least -1 at index"),
        (lambda: from_counts(torch.tensor([3.0, math.nan]), 10.0), "NaN"),
        (lambda: from_counts(torch.tensor([3.0]), 0.0), "blank must be positive"),
        (lambda: from_counts(torch.tensor([3.0]), torch.ones(2)), "blank has shape"),
        (lambda: from_counts(torch.ones(3), torch.ones(4)), "blank has shape"),
        (lambda: ParallelBeam(4, None, 7), "angles must be a number, or a list"),
        (lambda: ParallelBeam(4, torch.ones(3, dtype=torch.complex64), 7), "angles is complex"),
        (lambda: ParallelBeam(4, turn(3), 7, pixel_spacing=(1.0, 2.0)), "pixel_spacing must be one number, got 2"),
        (lambda: ParallelBeam(4, turn(3), 7, detector_spacing=torch.ones(2)), "detector_spacing must be one number"),
        (lambda: ParallelBeam(4, turn(3), 7, detector_offset=(1.0, 2.0)), "detector_offset must be one number"),
        (lambda: ParallelBeam(4, turn(3), 7, detector_offset="aside"), "detector_offset must be a number"),
        (lambda: FanBeam(4, turn(3), 7, source_to_axis=(50.0, 60.0), source_to_detector=90.0), "source_to_axis must"),
        (lambda: ConeBeam(4, turn(3), 7, 1.0, "wide", **FAR), "detector_spacing must be a number, or a list"),
        (lambda: ConeBeam(4, turn(3), 7, 1.0, 1.0, None, **FAR), "detector_offset must be a number, or a list"),
        (lambda: SCANS["fan"].rows(1.0), "integer"),
        (lambda: SCANS["fan"].operator(dtype=torch.int64), "dtype must be that of real numbers"),
        (lambda: SCANS["cone"].operator(dtype=torch.complex64), "dtype must be that of real numbers"),
        (lambda: Fourier(4, [0], dtype=torch.complex64), "dtype must be that of real numbers"),
        (lambda: Fourier(4, None), "lines must be a list of whole numbers"),
        (lambda: Fourier(4, [0]) @ torch.ones(16, dtype=torch.complex64), "view_as_real"),
        (lambda: from_counts(torch.ones(3, dtype=torch.complex64), 10.0), "counts is complex"),
    ],
)
def test_bad_input_is_named(build, words):
    with pytest.raises((TypeError, ValueError), match=words):
        build()


def test_degrees_and_short_detectors_are_pointed_out():
    with pytest.warns(UserWarning, match="deg2rad"):
        ParallelBeam(4, torch.arange(0.0, 180.0, 10.0), 7)
    for build in (
        lambda: ParallelBeam(40, turn(4), 30),
        lambda: ParallelBeam(40, turn(4), 41, detector_offset=5.0),
        lambda: FanBeam(40, turn(4), 45, **FAR),
        lambda: ConeBeam(40, turn(4), 45, **FAR),
    ):
        with pytest.warns(UserWarning, match="shadow"):
            build()
    with warnings.catch_warnings(action="error"):
        ParallelBeam(40, turn(4) + 2 * math.pi / 4, 40)


@pytest.mark.usefixtures("unchecked")
def test_whole_numbers_of_numpy_are_whole_numbers():
    size, detectors = np.int64(4), np.array(7)
    flat = ParallelBeam(size, np.linspace(0.0, 1.0, 3), detectors)
    assert flat == ParallelBeam(4, [0.0, 0.5, 1.0], 7)
    assert type(flat.detectors) is int
    assert ConeBeam((size, size, size), turn(3), np.array([7, 7]), **FAR) == ConeBeam(4, turn(3), 7, **FAR)
    assert Fourier(size, [0]).shape == (8, 16)
    with pytest.raises(TypeError, match="size must be a whole number"):
        ParallelBeam(4.0, turn(3), 7)
    with pytest.raises(TypeError, match="detectors must be a whole number"):
        ParallelBeam(4, turn(3), True)


@pytest.mark.usefixtures("unchecked")
def test_lengths_may_be_tensors_and_lines_of_any_type():
    """A file may have them in any form; the scan is the same value."""
    lengths = {"pixel_spacing": 0.5, "detector_spacing": 2.0, "detector_offset": 0.25}
    tensors = {name: torch.tensor(value) for name, value in lengths.items()}
    assert ParallelBeam(4, turn(3), 7, **tensors) == ParallelBeam(4, turn(3), 7, **lengths)
    far = {name: torch.tensor(value) for name, value in FAR.items()}
    assert FanBeam(4, turn(3), 9, **far, **tensors) == FanBeam(4, turn(3), 9, **FAR, **lengths)
    assert ConeBeam(4, turn(3), 9, **far, **tensors) == ConeBeam(4, turn(3), 9, **FAR, **lengths)
    for dtype in (torch.uint8, torch.int16, torch.int32):
        assert Fourier(4, torch.tensor([0, 3], dtype=dtype)).lines.tolist() == [0, 3]


def test_a_panel_of_too_few_rows_is_pointed_out():
    """As wide as it takes, but low: the shadow of the ball within 40³ reaches 90 · 20 / √(50² − 20²) up."""
    with pytest.warns(UserWarning, match=r"reaches 20 from the plane of the source but the object's shadow 39\.27"):
        ConeBeam(40, turn(4), (40, 80), **FAR)
    with warnings.catch_warnings(action="error"):
        ConeBeam((20, 40, 40), turn(4), (40, 80), **FAR)
        ConeBeam((1, 40, 40), turn(4), (1, 80), **FAR)


def test_what_does_not_fit_is_refused_with_its_size(monkeypatch):
    scan, solid = SCANS["fan"], SCANS["cone"]
    operator = solid.operator()
    monkeypatch.setattr(scan_module, "free_memory", lambda device: 1000)
    with pytest.raises(MemoryError, match=r"360 rays through 24 × 24 pixels .* needs 0\.\d GiB"):
        scan.operator()
    with pytest.raises(MemoryError, match="1 volumes of 10 × 10 × 10"):
        operator @ torch.ones(1000)
    monkeypatch.setattr(scan_module, "free_memory", lambda device: 2**60)
    with pytest.raises(ValueError, match="32 bits"):
        ParallelBeam(4096, torch.linspace(0.0, 3.0, 1000), 4096).operator()


def test_counts_become_line_integrals(generator):
    """Their mean and variance, within the standard error of many draws."""
    paths = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    rate = 2000.0 * torch.exp(-paths)
    counts = torch.poisson(rate.expand(20_000, 3), generator=generator)
    y, weights = from_counts(counts, 2000.0)
    torch.testing.assert_close(y.mean(0), paths, rtol=0.0, atol=0.003)
    torch.testing.assert_close(y.var(0), 1.0 / rate, rtol=0.05, atol=0.0)
    torch.testing.assert_close(weights.mean(0), rate, rtol=0.01, atol=0.0)
    assert from_counts(torch.tensor([5, 0]), torch.tensor([10.0, 20.0])).weights.tolist() == [5.0, 0.5]


def test_fourier_lines_are_rows_of_the_transform(generator):
    image = torch.randn(6, 8, generator=generator, dtype=torch.float64)
    A = Fourier((6, 8), [2, -1, 0], dtype=torch.float64)
    whole = torch.fft.fft2(image, norm="ortho")
    for place, line in enumerate((2, -1, 0)):
        part = (A @ image.flatten())[A.line(place)]
        torch.testing.assert_close(part, torch.cat([whole[line].real, whole[line].imag]))
    every = Fourier((6, 8), list(range(6)), dtype=torch.float64)
    torch.testing.assert_close(every.T @ (every @ image.flatten()), image.flatten())


def test_scikit_image_agrees():
    transform = pytest.importorskip("skimage.transform")
    image = gaussian(64, 64, center=(5.0, -7.0), width=6.0) + 0.5 * gaussian(64, 64, center=(-9.0, 3.0), width=4.0)
    angles = turn(12, math.pi)
    ours = ParallelBeam(64, angles, 64)
    y = ours.sinogram(ours.operator(dtype=torch.float64) @ image.flatten())
    # Its axis runs through pixel 32, half a pixel from the middle both ways.
    theirs = torch.from_numpy(transform.radon(image.numpy(), torch.rad2deg(angles).numpy(), circle=True)).T
    shift = [0.5 * (math.cos(a) - math.sin(a)) - 0.5 for a in angles]
    for view, other, s in zip(y, theirs, shift, strict=True):
        k = torch.arange(64, dtype=torch.float64) + s
        lower = k.floor().long().clamp(0, 62)
        between = torch.lerp(view[lower], view[lower + 1], k - lower)
        torch.testing.assert_close(other[2:-2], between[2:-2], rtol=0.0, atol=0.02 * float(y.max()))


@pytest.mark.parametrize("kind", ["parallel", "fan"])
def test_astra_agrees(kind, generator):
    astra = pytest.importorskip("astra")
    angles = turn(10) + 0.05
    volume = astra.create_vol_geom(40, 48)
    if kind == "parallel":
        scan = ParallelBeam((40, 48), angles, 70, detector_spacing=0.9)
        geometry = astra.create_proj_geom("parallel", 0.9, 70, angles.numpy())
        projector = astra.create_projector("linear", geometry, volume)
    else:
        scan = FanBeam((40, 48), angles, 70, 1.0, 1.6, source_to_axis=120.0, source_to_detector=200.0)
        rows = [
            (120 * c, 120 * s, -80 * c, -80 * s, -1.6 * s, 1.6 * c)
            for c, s in zip(angles.cos(), angles.sin(), strict=True)
        ]
        geometry = astra.create_proj_geom("fanflat_vec", 70, torch.tensor(rows, dtype=torch.float64).numpy())
        projector = astra.create_projector("line_fanflat", geometry, volume)
    image = gaussian(40, 48, center=(4.0, -6.0), width=5.0)
    theirs = torch.from_numpy(astra.OpTomo(projector) @ image.numpy().ravel()).double()
    ours = scan.operator(dtype=torch.float64) @ scan.flatten(image)
    # Its fans measure the way through each pixel instead of interpolating.
    tolerance = 1e-4 if kind == "parallel" else 0.05
    torch.testing.assert_close(ours, theirs, rtol=0.0, atol=tolerance * float(ours.max()))
    assert float((ours - theirs).abs().mean()) < 0.1 * tolerance * float(ours.max())
