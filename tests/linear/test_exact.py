"""The two sides of the linear model against each other and against ``torch.distributions``."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import MultivariateNormal

from matheron.linear.exact import Dual, Gaussian, Primal, dual_weights, push

FORMS = ("scalar", "diagonal", "matrix")
forms = st.sampled_from(FORMS)
shapes = {"n": st.integers(1, 9), "d": st.integers(1, 9), "seed": st.integers(0, 99)}


def normal(*shape, generator):
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def precision(form, size, generator):
    """Positive definite, with eigenvalues around 1."""
    if form == "matrix":
        factor = normal(size, size, generator=generator)
        return factor @ factor.mT / size + 0.5 * torch.eye(size, dtype=torch.float64)
    values = 0.5 + torch.rand(size, dtype=torch.float64, generator=generator)
    return values if form == "diagonal" else float(values[0])


def dense(value, size):
    value = torch.as_tensor(value, dtype=torch.float64)
    return value if value.ndim == 2 else torch.diag(value.expand(size))


def problem(n, d, seed, prior="scalar", noise="scalar"):
    g = torch.Generator().manual_seed(seed)
    model = Primal(normal(n, d, generator=g), precision(prior, d, g), precision(noise, n, g))
    return model, normal(n, generator=g), normal(4, d, generator=g)


def close(left, right):
    torch.testing.assert_close(left, right, rtol=1e-8, atol=1e-8)


def same(left, right):
    close(left.mean, right.mean)
    close(left.covariance, right.covariance)


def softmax_curvature(n, classes, generator):
    """Blocks ``diag(p) − ppᵀ``, each singular."""
    p = normal(n, classes, generator=generator).softmax(1)
    return torch.block_diag(*(torch.diag(row) - torch.outer(row, row) for row in p))


@settings(max_examples=40, deadline=None)
@given(**shapes, prior=forms, noise=forms)
def test_primal_is_dual(n, d, seed, prior, noise):
    model, Y, Phi_new = problem(n, d, seed, prior, noise)
    dual, prior_covariance = Dual.of(model), torch.linalg.inv(dense(model.A, d))
    same(dual_weights(model, Y), model.weights(Y))
    cross = Phi_new @ prior_covariance @ model.Phi.mT
    same(dual.functions(cross, Phi_new @ prior_covariance @ Phi_new.mT, Y), model.functions(Phi_new, Y))
    close(dual.log_evidence(Y), model.log_evidence(Y))
    gamma = model.effective_dimension()
    close(model.effective_dimension_from_prior(), gamma)
    close(dual.effective_dimension(), gamma)
    assert 0.0 < gamma < min(n, d)


@settings(max_examples=20, deadline=None)
@given(**shapes, prior=forms, noise=forms)
def test_the_evidence_is_a_gaussian_density(n, d, seed, prior, noise):
    model, Y, _ = problem(n, d, seed, prior, noise)
    A, B = dense(model.A, d), dense(model.B, n)
    covariance = model.Phi @ torch.linalg.inv(A) @ model.Phi.mT + torch.linalg.inv(B)
    close(model.log_evidence(Y), MultivariateNormal(torch.zeros(n).double(), covariance).log_prob(Y))


@settings(max_examples=20, deadline=None)
@given(**shapes, prior=forms, noise=forms)
def test_the_posterior_is_bayes_rule(n, d, seed, prior, noise):
    model, Y, w = problem(n, d, seed, prior, noise)
    zero = torch.zeros(d, dtype=torch.float64)
    log_prior = MultivariateNormal(zero, precision_matrix=dense(model.A, d)).log_prob(w)
    log_likelihood = MultivariateNormal(w @ model.Phi.mT, precision_matrix=dense(model.B, n)).log_prob(Y)
    posterior = model.weights(Y)
    log_posterior = MultivariateNormal(posterior.mean, posterior.covariance).log_prob(w)
    close(log_likelihood + log_prior - model.log_evidence(Y), log_posterior)
    close(model.loss(w, Y) - model.loss(w[0], Y), log_posterior[0] - log_posterior)


def test_isotropic_effective_dimension_counts_eigenvalues():
    model, _, _ = problem(7, 5, 0)
    eigenvalues = torch.linalg.eigvalsh(model.curvature)
    close(model.effective_dimension(), (eigenvalues / (eigenvalues + model.A)).sum())


@settings(max_examples=20, deadline=None)
@given(n=st.integers(1, 4), classes=st.integers(2, 4), d=st.integers(1, 9), seed=st.integers(0, 99))
def test_a_singular_noise_precision_is_never_inverted(n, classes, d, seed):
    g = torch.Generator().manual_seed(seed)
    B = softmax_curvature(n, classes, g)
    model, Y = Primal(normal(n * classes, d, generator=g), 0.7, B), normal(n * classes, generator=g)
    same(dual_weights(model, Y), model.weights(Y))
    close(Dual.of(model).effective_dimension(), model.effective_dimension())
    for side in (model, Dual.of(model), Primal(model.Phi.float(), 0.7, B.float())):
        with pytest.raises(ValueError, match="B is singular"):
            side.log_evidence(Y)


def test_a_class_that_is_nearly_sure_leaves_a_singular_precision_too():
    """Where entries of ``diag(p) − p pᵀ`` cancel, the zero eigenvalue comes out larger than rounding of the largest."""
    p = torch.tensor([0.9825, 0.0175], dtype=torch.float64)
    for shift in torch.linspace(0.0, 1e-3, 50, dtype=torch.float64):
        q = p + torch.stack([shift, -shift])
        B = q.diag() - q[:, None] * q
        with pytest.raises(ValueError, match="B is singular"):
            Primal(torch.eye(2, dtype=torch.float64), 0.7, B).log_evidence(torch.ones(2, dtype=torch.float64))


def test_a_datum_of_no_precision_is_as_good_as_absent():
    model, Y, Phi_new = problem(6, 3, 0)
    B = torch.full((6,), model.B, dtype=torch.float64)
    B[2] = 0.0
    keep = torch.tensor([0, 1, 3, 4, 5])
    ignored, absent = Primal(model.Phi, model.A, B), Primal(model.Phi[keep], model.A, model.B)
    same(ignored.functions(Phi_new, Y), absent.functions(Phi_new, Y[keep]))
    assert Dual.of(ignored).representer_weights(Y)[2] == 0.0
    with pytest.raises(ValueError, match="B is singular"):
        ignored.log_evidence(Y)


def test_the_elbo_is_a_bound_and_its_gap_the_divergence():
    model, Y, _ = problem(6, 3, 0, "matrix", "matrix")
    posterior = model.weights(Y)
    close(model.elbo(posterior, Y), model.log_evidence(Y))
    q = Gaussian(posterior.mean + 0.3, 0.4 * torch.eye(3, dtype=torch.float64))
    normals = (MultivariateNormal(p.mean, p.covariance) for p in (q, posterior))
    close(model.log_evidence(Y) - model.elbo(q, Y), torch.distributions.kl_divergence(*normals))


def test_samples_have_the_moments(generator):
    model, Y, Phi_new = problem(6, 3, 0)
    functions, num = model.functions(Phi_new, Y), 40_000
    assert torch.linalg.matrix_rank(functions.covariance) == 3  # of 4: there is no Cholesky factor
    samples = functions.sample(num, generator=generator)
    deviation = functions.variance.sqrt()
    assert ((samples.mean(0) - functions.mean).abs() < 4.5 * deviation / math.sqrt(num)).all()
    error = (samples.mT.cov() - functions.covariance).abs()
    assert (error < 4.5 * math.sqrt(2.0 / num) * torch.outer(deviation, deviation)).all()
    assert (samples == functions.sample(num, generator=torch.Generator().manual_seed(0))).all()


def test_float32_is_computed_in_float64_and_gradients_flow():
    model, Y, _ = problem(5, 2, 0)
    A = torch.tensor(model.A, dtype=torch.float64, requires_grad=True)
    primal = Primal(model.Phi, A, model.B)
    close(*(torch.autograd.grad(side.log_evidence(Y), A)[0] for side in (primal, Dual.of(primal))))
    assert Primal(model.Phi.float(), 1.0, 1.0).weights(Y.float()).mean.dtype == torch.float64


@pytest.mark.usefixtures("unchecked")
class TestBadInput:
    Phi, Y = torch.ones(3, 2), torch.ones(3)
    model = Primal(Phi, 1.0, 1.0)

    @pytest.mark.parametrize(
        ("A", "B", "message"),
        [
            (-1.0, 1.0, "A must not be negative, got -1"),
            (0.0, 1.0, "A is not positive definite"),
            (torch.tensor([[1.0, 2.0], [2.0, 1.0]]), 1.0, "A is not positive definite"),
            (torch.tensor([[1.0, 0.5], [0.0, 1.0]]), 1.0, "A is not symmetric"),
            (torch.ones(3), 1.0, r"A has shape \(3,\); give it a number, a diagonal \(2,\)"),
            (1.0, torch.tensor([1.0, math.nan, 1.0]), "B has 1 NaN"),
            (1.0, torch.ones(2, 2), r"B has shape \(2, 2\)"),
        ],
    )
    def test_precisions(self, A, B, message):
        with pytest.raises(ValueError, match=message):
            Primal(self.Phi, A, B)

    def test_an_indefinite_noise_precision(self):
        B = torch.tensor([[1.0, 2.0], [2.0, 1.0]])
        with pytest.raises(ValueError, match="B has the eigenvalue -1; make it positive semi-definite"):
            Dual(torch.eye(2), B)

    def test_features(self):
        with pytest.raises(ValueError, match=r"Phi must have shape \(n, d\)"):
            Primal(self.Y, 1.0, 1.0)
        with pytest.raises(TypeError, match=r"Phi has dtype torch\.int64"):
            Primal(self.Phi.long(), 1.0, 1.0)
        with pytest.raises(ValueError, match="Phi_new has 3 columns but there are 2 weights"):
            push(torch.ones(1, 3), self.model.weights(self.Y))

    @pytest.mark.parametrize("side", [model, Dual.of(model)])
    def test_targets(self, side):
        with pytest.raises(ValueError, match=r"Y has shape \(2,\) but there are 3 rows"):
            side.log_evidence(self.Y[:2])
        with pytest.raises(TypeError, match=r"Y must be a torch\.Tensor, got list"):
            side.log_evidence([1.0, 2.0, 3.0])
        with pytest.raises(ValueError, match="Y has 3 NaN"):
            side.log_evidence(self.Y / 0.0)

    def test_kernel_matrices(self):
        with pytest.raises(ValueError, match=r"K must be square, got shape \(3, 2\)"):
            Dual(self.Phi, 1.0)
        with pytest.raises(ValueError, match="cross has 2 columns but K has 3 rows"):
            Dual.of(self.model).functions(torch.ones(1, 2), torch.ones(1, 1), self.Y)
        with pytest.raises(ValueError, match="num must be at least 1"):
            self.model.weights(self.Y).sample(0)
