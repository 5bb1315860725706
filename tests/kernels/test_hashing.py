import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from matheron.kernels import RBF, Tanimoto
from matheron.kernels.hashing import mixed, uniform
from tests.kernels.test_features import assert_unbiased, estimates, seeded
from tests.kernels.test_tanimoto import KINDS, fingerprints
from tests.kernels.twins import tanimoto


@pytest.mark.parametrize("kind", KINDS)
def test_hashes_agree_as_often_as_the_kernel_says(kind: str) -> None:
    x = fingerprints(kind, 20, 40, 0, torch.float64)
    x[3], x[4], x[5] = 0.0, 0.0, x[6]
    num, expected = 6000, tanimoto(x, x)
    phi = Tanimoto().features(num, generator=seeded(0))(x)
    # A product of two signs has mean T and variance 1 − T².
    error = ((1 - expected**2) / num).sqrt()
    assert ((phi @ phi.mT - expected).abs() <= 4.5 * error + 1e-9).all()
    assert (phi[3] == phi[4]).all()
    assert (phi[5] == phi[6]).all()
    assert (phi.abs() - num**-0.5).abs().max() < 1e-12


def test_scales_in_which_floors_matter() -> None:
    x = torch.tensor([[1.0, 1e-6, 0.0], [1.5, 2e-6, 1e-9], [1e5, 0.0, 7e4], [3e4, 1.0, 9e4]], dtype=torch.float64)
    num, expected = 20_000, tanimoto(x, x)
    phi = Tanimoto().features(num, generator=seeded(0))(x)
    assert ((phi @ phi.mT - expected).abs() <= 4.5 * ((1 - expected**2) / num).sqrt() + 1e-9).all()


def test_error_falls_as_one_over_m_and_signs_are_balanced() -> None:
    x = fingerprints("counts", 6, 30, 1, torch.float64)
    kernel = Tanimoto(1.7)
    few, many = estimates(kernel, x, 8), estimates(kernel, x, 128)
    assert_unbiased(few, kernel(x).detach())
    assert_unbiased(many, kernel(x).detach())
    ratio = (few - kernel(x)).square().mean() / (many - kernel(x)).square().mean()
    assert 8 < ratio < 32
    phi = kernel.features(10_000, generator=seeded(2))(x)
    assert (phi.sign().mean(1).abs() < 4.5 / 100).all()


@settings(max_examples=15, deadline=None)
@given(n=st.integers(1, 6), d=st.integers(1, 10), num=st.sampled_from([1, 63, 64, 130]), seed=st.integers(0, 99))
def test_dense_equals_csr_and_rows_do_not_depend_on_company(n: int, d: int, num: int, seed: int) -> None:
    for kind in KINDS:
        x = fingerprints(kind, n, d, seed)
        phi = Tanimoto(0.6).features(num, generator=seeded(seed))
        assert phi(x).shape == (n, num)
        assert (phi(x) == phi(x.to_sparse_csr())).all()
        assert (phi(x)[-1:] == phi(x[-1:])).all()


def test_follows_the_variance_and_composes() -> None:
    x = fingerprints("counts", 8, 12, 0, torch.float64)
    kernel = Tanimoto(2.0)
    phi = kernel.features(64, generator=seeded(0))
    before = phi(x)
    before.sum().backward()
    torch.testing.assert_close(kernel.log_variance.grad, 0.5 * before.sum().detach())
    kernel.variance = 8.0
    torch.testing.assert_close(phi(x), 2.0 * before)
    mixture = 0.5 * Tanimoto(columns=range(8)) + RBF(columns=[9, 10])
    assert_unbiased(estimates(mixture, x, 32), mixture(x).detach())


def test_splitmix64_reference_values() -> None:
    # The first outputs of the reference implementation from state 1234567.
    golden = -7046029254386353131
    outputs = [int(mixed(torch.tensor(1234567) + torch.tensor(golden) * i)) % 2**64 for i in (1, 2, 3)]
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_uniforms_are_uniform() -> None:
    u = uniform(mixed(torch.arange(100_000) * -7046029254386353131)).sort().values
    assert (u - (torch.arange(100_000) + 0.5) / 100_000).abs().max() < 1.95 / 100_000**0.5
