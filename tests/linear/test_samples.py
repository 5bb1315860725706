"""What one pass measures, against dense matrices."""

import pytest
import torch

from matheron.linear import (
    DiagonalPrior,
    draw_regularizers,
    measure,
    sample_then_optimize,
    solve_dense,
)
from tests.linear.twins import DOUBLE, gaussian, normal, prior, softmax


def dense(Phi, B, A):
    M = Phi.mT @ B @ Phi
    return M, M + torch.diag(A)


def test_gradients_fits_and_loss(generator):
    data, Phi, Y = gaussian(batch_size=7)
    groups, scale = torch.tensor([0, 0, 1, 1, 1, 2, 2, 2]), 1.0 + torch.arange(8, dtype=DOUBLE)
    a = torch.tensor([0.5, 2.0, 3.0], dtype=DOUBLE)
    p, A = prior(a, 8, groups=groups, scale=scale), a[groups] / scale.square()
    M, H = dense(Phi, data.curvature.dense(), A)
    drawn = draw_regularizers(data, 3, generator, mode=True)
    samples, mode = normal(3, 8, generator=generator), normal(8, generator=generator)
    found = measure(data, p, drawn, samples, mode, generator)

    def size(gradient):
        return (gradient.square() / A).sum(-1).sqrt()

    residual = size(samples @ H - A * drawn.center(p)) / size(drawn.pull)
    slope = H @ mode - 2.0 * Phi.mT @ Y
    torch.testing.assert_close(found.residual, torch.cat([residual, (size(slope) / size(2.0 * Phi.mT @ Y))[None]]))
    torch.testing.assert_close(found.fits, torch.einsum("si,ij,sj->s", samples, M, samples))
    torch.testing.assert_close(found.curvature_forms.sum(0), found.fits)
    by_group = torch.stack([(samples * (samples @ M))[:, groups == g].sum(1) for g in range(3)])
    torch.testing.assert_close(found.curvature_forms, by_group)
    pulled = (drawn.start(p) - samples).square() * A
    torch.testing.assert_close(found.pulled_forms, torch.stack([pulled[:, groups == g].sum(1) for g in range(3)]))
    torch.testing.assert_close(found.prior_forms.sum(0), (samples.square() * A).sum(1))
    torch.testing.assert_close(found.mode_forms.sum(), (mode.square() * A).sum())
    torch.testing.assert_close(torch.tensor(found.loss, dtype=DOUBLE), (Y - Phi @ mode).square().sum())


def test_nothing_is_left_at_the_optimum(generator):
    data, Phi, _, _ = softmax(batch_size=5)
    p = prior(0.3, 6)
    H = dense(Phi, data.curvature.dense(), torch.full((6,), 0.3, dtype=DOUBLE))[1]
    drawn = draw_regularizers(data, 4, generator)
    samples = torch.linalg.solve(H, 0.3 * drawn.center(p).mT).mT
    found = measure(data, p, drawn, samples, None, generator)
    assert float(found.residual.max()) < 1e-10
    assert found.loss is None
    assert found.mode_forms is None


def test_which_objective_varies_less_is_judged_by_leverages(generator):
    """``Σ_j tr[M_j (I − 2H⁻¹M_j)]`` by datum, though only batches are seen; both signs occur."""
    signs = []
    for a in (0.05, 200.0):
        data, Phi, _, p = softmax(30, 3, 40, batch_size=6)
        A, blocks = torch.full((40,), a, dtype=DOUBLE), Phi.reshape(30, 3, 40)
        B = torch.diag_embed(p) - p[:, :, None] * p[:, None]
        M_j = blocks.mT @ B @ blocks
        H = M_j.sum(0) + torch.diag(A)
        exact = (
            M_j.diagonal(dim1=1, dim2=2).sum() - 2.0 * (M_j @ torch.linalg.solve(H, M_j)).diagonal(dim1=1, dim2=2).sum()
        )
        white = prior(a, 40)
        drawn = draw_regularizers(data, 4000, generator)
        samples = torch.linalg.solve(H, a * drawn.center(white).mT).mT
        margins = [a * measure(data, white, drawn, samples, None, generator).margin for _ in range(20)]
        # Random batches are what varies most.
        found = torch.tensor(margins, dtype=DOUBLE)
        total = float(M_j.diagonal(dim1=1, dim2=2).sum())
        assert abs(float(found.mean() - exact)) < 4.0 * float(found.std()) / 20**0.5 + 0.03 * total
        signs.append(float(exact) > 0)
        assert (float(found.mean()) > 0) == signs[-1]
    assert signs == [False, True]


def test_one_batch_says_nothing_of_variance(generator):
    data, _, _ = gaussian()
    drawn = draw_regularizers(data, 2, generator)
    assert measure(data, prior(1.0, 8), drawn, drawn.unit, None, generator).margin is None


@pytest.mark.parametrize("solve", [solve_dense, sample_then_optimize])
def test_what_is_not_a_number_is_no_posterior(solve):
    data, _, _ = gaussian(dtype=torch.float32)
    drawn = draw_regularizers(data, 2, torch.Generator().manual_seed(0), mode=True, keep_noise=True)
    drawn.unit[1, 3] = torch.nan
    with pytest.raises(ValueError, match="ended in NaN or infinite weights: prior precisions of 1 to 1"):
        solve(data, DiagonalPrior(1.0, num_weights=8), drawn)
