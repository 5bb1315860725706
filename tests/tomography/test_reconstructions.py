"""Reconstructions against dense twins and closed forms."""

import math
from functools import partial

import pytest
import scipy.optimize
import torch

from matheron.operators import Dense
from matheron.solvers import ConvergenceWarning
from matheron.tomography import ConeBeam, FanBeam, ParallelBeam, cgls, filtered_back_projection, total_variation
from tests.tomography import twins
from tests.tomography.test_scans import grid, turn


def disc(size, radius, center=(0.0, 0.0)):
    y, x = grid(size, size)
    return (radius - torch.hypot(x - center[0], y - center[1]) + 0.5).clamp(0.0, 1.0)


def chords(radius, distance):
    return 2.0 * (radius**2 - distance.square()).clamp(min=0.0).sqrt()


@pytest.mark.parametrize("angles", [turn(160, math.pi), turn(160), turn(160, math.pi).flip(0) + math.pi / 8])
def test_back_projection_recovers_a_disc_from_its_chords(angles):
    """Exact line integrals in, the disc's value out."""
    scan = ParallelBeam(64, angles, 95, pixel_spacing=0.5, detector_spacing=0.4, detector_offset=0.13)
    center = torch.tensor([3.0, -2.0], dtype=torch.float64)
    direction = torch.stack([angles.cos(), angles.sin()], 1)
    y = 0.7 * chords(8.0, scan.coordinates - (direction @ center)[:, None])
    image = scan.image(filtered_back_projection(scan, y.flatten()))
    rows, columns = grid(64, 64, spacing=0.5)
    away = torch.hypot(columns - center[0], rows - center[1])
    assert abs(float(image[away < 6.5].mean()) / 0.7 - 1.0) < 0.02
    assert float((image[away < 6.5] / 0.7 - 1.0).abs().max()) < 0.05
    assert abs(float(image[(away > 9.5) & (away < 12.0)].mean())) < 0.02


def test_back_projection_recovers_a_disc_from_a_fan():
    scan = FanBeam(64, turn(240), 121, 0.5, 0.8, 0.2, source_to_axis=60.0, source_to_detector=100.0)
    center = torch.tensor([3.0, -2.0], dtype=torch.float64)
    y = []
    for origin, direction in scan.rays():
        away = center - origin
        y.append(0.7 * chords(8.0, away[:, 0] * direction[:, 1] - away[:, 1] * direction[:, 0]))
    image = scan.image(filtered_back_projection(scan, torch.cat(y)))
    rows, columns = grid(64, 64, spacing=0.5)
    away = torch.hypot(columns - center[0], rows - center[1])
    assert abs(float(image[away < 6.5].mean()) / 0.7 - 1.0) < 0.02
    assert float((image[away < 6.5] / 0.7 - 1.0).abs().max()) < 0.05
    assert abs(float(image[(away > 9.5) & (away < 12.0)].mean())) < 0.02


def test_uneven_angles_are_weighed_by_what_they_stand_for():
    even = turn(120, math.pi)
    uneven = torch.cat([even, even[30:60] + 0.25 * math.pi / 120])
    image = disc(48, 15.0, (2.0, 1.0))
    scan = ParallelBeam(48, uneven, 69)
    found = filtered_back_projection(scan, scan.operator(dtype=torch.float64) @ image.flatten())
    inside = disc(48, 12.0, (2.0, 1.0)) == 1.0
    assert abs(float(scan.image(found)[inside].mean()) - 1.0) < 0.02


def test_back_projection_of_columns_and_of_short_fans(generator):
    scan = ParallelBeam(12, turn(9, math.pi), 17)
    Y = torch.randn(scan.shape[0], 3, generator=generator)
    together = filtered_back_projection(scan, Y)
    for column, image in zip(Y.mT, together.mT, strict=True):
        torch.testing.assert_close(filtered_back_projection(scan, column), image)
    short = FanBeam(12, turn(9, math.pi), 30, source_to_axis=60.0, source_to_detector=100.0)
    with pytest.raises(ValueError, match="all around"):
        filtered_back_projection(short, torch.zeros(short.shape[0]))


@pytest.mark.usefixtures("unchecked")
def test_back_projection_says_what_to_take_for_a_cone():
    solid = ConeBeam(4, turn(3), 7, source_to_axis=50.0, source_to_detector=90.0)
    with pytest.raises(TypeError, match=r"ParallelBeam or a FanBeam, got ConeBeam; .* cgls"):
        filtered_back_projection(solid, torch.zeros(solid.shape[0]))


@pytest.fixture
def small(generator):
    """More rays than pixels, noisy, with weights."""
    scan = ParallelBeam((4, 5), turn(8, math.pi), 9)
    A = scan.operator(dtype=torch.float64)
    image = torch.zeros(4, 5, dtype=torch.float64)
    image[1:3, 1:4] = 1.0
    y = A @ image.flatten() + 0.3 * torch.randn(A.shape[0], generator=generator, dtype=torch.float64)
    return A, y, 0.2 + torch.rand(A.shape[0], generator=generator, dtype=torch.float64)


def test_conjugate_gradients_end_at_weighted_least_squares(small):
    A, y, weights = small
    root = weights.sqrt()
    exact = torch.linalg.lstsq(root[:, None] * A.dense(), (root * y)[:, None]).solution[:, 0]
    found = cgls(A, y, iterations=40, weights=weights)
    torch.testing.assert_close(found.image, exact, rtol=1e-8, atol=1e-8)
    misfit = (root * (A.dense() @ exact - y)).norm() / (root * y).norm()
    torch.testing.assert_close(found.residuals[-1], misfit)
    assert found.residuals[0] == 1.0
    assert bool((found.residuals.diff() <= 1e-12).all())


def test_each_step_is_the_best_of_its_krylov_space(small):
    A, y, weights = small
    M, b = A.dense().T @ (weights[:, None] * A.dense()), A.dense().T @ (weights * y)
    space = torch.linalg.qr(torch.stack([torch.linalg.matrix_power(M, k) @ b for k in range(3)], 1)).Q
    best = space @ torch.linalg.solve(space.T @ M @ space, space.T @ b)
    torch.testing.assert_close(cgls(A, y, iterations=3, weights=weights).image, best)


def test_conjugate_gradients_for_columns_starts_and_nothing(small, generator):
    A, y, weights = small
    Y = torch.stack([y, torch.zeros_like(y), y.flip(0)], 1)
    found = cgls(A, Y, iterations=6, weights=weights)
    assert found.residuals.shape == (7, 3)
    torch.testing.assert_close(found.image[:, 2], cgls(A, Y[:, 2], iterations=6, weights=weights).image)
    assert not found.image[:, 1].any()
    exact = cgls(A, y, iterations=40).image
    torch.testing.assert_close(cgls(A, y, iterations=1, start=exact).image, exact)


@pytest.mark.parametrize("unit", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("weighed", [False, True])
def test_total_variation_is_the_dense_convex_solution(small, unit, weighed):
    """The dual is least squares in a box: ``min ½ ‖L⁻¹(AᵀBy − Dᵀq)‖²`` over ``|q| ≤ strength``, ``LLᵀ = AᵀBA``."""
    A, y, weights = small
    weights, y, strength = weights if weighed else torch.ones_like(weights), unit * y, 0.3 * unit
    M, D = A.dense(), twins.edges((4, 5))
    H, b = M.T @ (weights[:, None] * M), M.T @ (weights * y)
    L = torch.linalg.cholesky(H)
    matrix, target = (torch.linalg.solve_triangular(L, part, upper=False) for part in (D.T, b[:, None]))
    q = scipy.optimize.lsq_linear(matrix.numpy(), target[:, 0].numpy(), (-strength, strength), tol=1e-14).x
    exact = torch.linalg.solve(H, b - D.T @ torch.from_numpy(q))
    found = total_variation(A, y, shape=(4, 5), strength=strength, weights=weights if weighed else None, tolerance=1e-8)
    torch.testing.assert_close(found.image, exact, rtol=1e-5, atol=1e-5 * unit)
    objective = 0.5 * (weights * (M @ exact - y).square()).sum() + strength * (D @ exact).abs().sum()
    assert found.objective == pytest.approx(float(objective), rel=1e-6)


def test_total_variation_at_its_extremes(small):
    """Very strong it leaves the constant that fits best; without data it is zero."""
    A, y, _ = small
    ones = A @ torch.ones(20, dtype=torch.float64)
    flat = total_variation(A, y, shape=(4, 5), strength=1e3, tolerance=1e-8).image
    torch.testing.assert_close(flat, (ones @ y / ones.square().sum()).expand(20), rtol=1e-5, atol=1e-5)
    nothing = total_variation(A, torch.zeros_like(y), shape=(4, 5), strength=1.0)
    assert nothing.objective == 0.0
    assert not nothing.image.any()


def test_what_no_image_explains_leaves_it_empty():
    """Rays that miss the image: ``Aᵀy = 0``, and zero is the best there is."""
    A = ParallelBeam(4, [0.0], 21).operator(dtype=torch.float64)
    y = torch.zeros(21, dtype=torch.float64)
    y[:3] = 2.0
    found = total_variation(A, y, strength=1.0)
    assert not found.image.any()
    assert found.objective == pytest.approx(6.0)


def test_no_columns_are_no_images():
    scan = ParallelBeam(4, turn(6, math.pi), 7)
    nothing = torch.zeros(42, 0)
    assert filtered_back_projection(scan, nothing).shape == (16, 0)
    assert cgls(scan.operator(), nothing, iterations=3).image.shape == (16, 0)


def test_an_unfinished_total_variation_says_so(small):
    A, y, _ = small
    with pytest.warns(ConvergenceWarning, match="stopped after 3 iterations"):
        total_variation(A, y, shape=(4, 5), strength=0.1, iterations=3)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"y": torch.ones(5)}, r"y has shape \(5,\) but the operator has 6 rows"),
        ({"y": torch.ones(2, 3)}, "angle by angle"),
        ({"y": torch.full((6,), math.nan)}, "y has 6 NaN"),
        ({"weights": torch.ones(5)}, "weights has shape"),
        ({"weights": -torch.ones(6)}, "weights must be zero or positive"),
        ({"iterations": 0}, "iterations"),
    ],
)
def test_bad_input_is_named(changes, words):
    arguments = {"A": Dense(torch.ones(6, 4)), "y": torch.ones(6)} | changes
    with pytest.raises(ValueError, match=words):
        cgls(**arguments)
    with pytest.raises(ValueError, match=words):
        total_variation(**arguments, shape=(2, 2), strength=1.0)


@pytest.mark.usefixtures("unchecked")
def test_bad_input_of_one_kind(small):
    A, y, _ = small
    with pytest.raises(ValueError, match="start has shape"):
        cgls(A, y, start=torch.zeros(3))
    with pytest.raises(ValueError, match="pixels"):
        total_variation(A, y, shape=(3, 5), strength=1.0)
    with pytest.raises(ValueError, match="strength"):
        total_variation(A, y, shape=(4, 5), strength=0.0)
    with pytest.raises(ValueError, match="one sinogram"):
        total_variation(A, y[:, None], shape=(4, 5), strength=1.0)
    with pytest.raises(TypeError, match="convert one"):
        cgls(A, y.float())
    with pytest.raises(TypeError, match=r"start is torch\.float32"):
        cgls(A, y, start=torch.zeros(20))
    with pytest.raises(ValueError, match="start has 20 NaN"):
        cgls(A, y, start=torch.full((20,), math.nan, dtype=torch.float64))
    with pytest.raises(ValueError, match="strength must be one number"):
        total_variation(A, y, shape=(4, 5), strength=torch.ones(2))
    with pytest.raises(ValueError, match="one sinogram"):
        total_variation(A, y.new_zeros(len(y), 0), shape=(4, 5), strength=1.0)
    with pytest.raises(ValueError, match="tolerance must be positive"):
        total_variation(A, y, shape=(4, 5), strength=1.0, tolerance=0.0)
    scan = ParallelBeam(4, [0.0, 1.0], 7)
    for reconstruct in (cgls, partial(total_variation, strength=1.0)):
        with pytest.raises(TypeError, match=r"A is a ParallelBeam.*scan.operator\(\)"):
            reconstruct(scan, torch.ones(14))


def test_total_variation_takes_the_shape_of_the_scan():
    scan = ParallelBeam((4, 9), turn(5, math.pi), 11)
    A = scan.operator(dtype=torch.float64)
    y = A @ torch.arange(36, dtype=torch.float64)
    known = total_variation(A, y, strength=0.3)
    given = total_variation(Dense(A.dense()), y, shape=(4, 9), strength=0.3)
    assert known.objective == pytest.approx(given.objective, rel=1e-3)
