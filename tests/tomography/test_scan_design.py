"""Designs against those of dense covariances, and the loop around them."""

import math

import pytest
import torch

from matheron.operators import Dense
from matheron.tomography import (
    DeepImagePrior,
    Fourier,
    GaussianImage,
    ImagePosterior,
    LinearizedDIP,
    LineIntegrals,
    ScanDesign,
    UNet,
    design_scan,
)
from matheron.tomography.views import Views
from tests.tomography import twins
from tests.tomography.test_dip import problem
from tests.tomography.test_linearized_dip import jacobian

ANGLES = torch.arange(9) * math.pi / 9 + 0.03


def dense_scores(K, T, noise, criterion, everywhere):
    """``tr(T K Tᵀ) / σ²``, ``½ logdet(I + T K Tᵀ / σ²)``, or the variance that ``T`` takes from ``everywhere``."""
    C = T @ K @ T.T / noise
    if criterion == "ese":
        return C.trace()
    noisy = C + torch.eye(len(C), dtype=C.dtype)
    if criterion == "eig":
        return 0.5 * torch.logdet(noisy)
    cross = everywhere @ K @ T.T / noise
    return (cross @ torch.linalg.solve(noisy, cross.T)).trace()


def dense_along(K, pilot, views, noise, indices, criterion):
    """The score of each choice and the best score there was, the covariance conditioned by the textbook formula on
    everything before it from scratch."""
    reached, best = [], []
    for place, index in enumerate(indices):
        before = indices[:place]
        T = torch.cat([pilot, *(views[i] for i in before)])
        G = T @ K @ T.T + noise * torch.eye(len(T), dtype=K.dtype)
        after = K - K @ T.T @ torch.linalg.solve(G, T @ K)
        found = [float(dense_scores(after, view, noise, criterion, torch.cat(views))) for view in views]
        reached.append(found[index])
        best.append(max(score for i, score in enumerate(found) if i not in before))
    return torch.tensor(reached, dtype=torch.float64), torch.tensor(best, dtype=torch.float64)


@pytest.fixture(scope="module")
def gaussian():
    A, y, _ = problem(dtype=torch.float64)
    g = torch.Generator().manual_seed(0)
    return GaussianImage(A, "matern12", shape=(8, 6), noise=0.05).fit(y, final_samples=4, generator=g)


@pytest.fixture(scope="module")
def linearized():
    A, y, _ = problem(dtype=torch.float64)
    g = torch.Generator().manual_seed(3)
    net = UNet(scales=2, channels=2, skip_channels=2, groups=2, generator=g).double()
    dip = DeepImagePrior(A, net, shape=(8, 6)).fit(y, steps=100, generator=g)
    return LinearizedDIP(dip, "g").fit(y, em_steps=2, num_samples=64, final_samples=4, generator=g)


@pytest.fixture(scope="module")
def blockwise(linearized):
    g = torch.Generator().manual_seed(4)
    post = LinearizedDIP(linearized.dip, "blockwise", noise=0.02)
    return post.fit(linearized.y, em_steps=1, num_samples=64, final_samples=4, generator=g)


def views(angles):
    return [twins.parallel((8, 6), [float(angle)], 11) for angle in angles]


@pytest.mark.filterwarnings("ignore::matheron.solvers.ConvergenceWarning")
@pytest.mark.parametrize(
    ("model", "criterion"),
    [(m, c) for m in ("gaussian", "linearized", "blockwise") for c in ("ese", "eig")] + [("gaussian", "evr")],
)
def test_choices_are_the_best_and_scores_those_of_dense_covariances(model, criterion, request):
    post = request.getfixturevalue(model)
    if model == "gaussian":
        K = post.image_prior().covariance.dense()
    else:
        phi, v = jacobian(post.dip)
        K = phi @ post.prior.covariance(torch.eye(len(v), dtype=v.dtype)) @ phi.T
    g = torch.Generator().manual_seed(1)
    found = design_scan(post, ANGLES, 4, criterion, num_samples=20_000, generator=g)
    pilot = post.A.dense()
    chosen = found.indices.tolist()
    reached, best = dense_along(K, pilot, views(ANGLES), 1 / post.noise_precision, chosen, criterion)
    torch.testing.assert_close(found.scores, reached, rtol=0.03, atol=0.0)
    # Candidates whose scores are as near as the samples can tell are as good as each other.
    assert bool((reached >= 0.97 * best).all())
    assert len(set(chosen)) == 4
    torch.testing.assert_close(found.angles, ANGLES.double()[chosen])


@pytest.mark.parametrize("model", ["gaussian", "linearized"])
def test_a_level_is_the_prior_variance_of_a_ray_beside_the_noise(model, request):
    """The design of the same covariance with noise of ``tr(T K Tᵀ) / (m level)``, whatever was learnt."""
    post, level = request.getfixturevalue(model), 0.2
    g = torch.Generator().manual_seed(1)
    found = design_scan(post, ANGLES, 4, "ese", level=level, num_samples=20_000, generator=g)
    if model == "gaussian":
        K = post.image_prior().covariance.dense()
    else:
        phi, v = jacobian(post.dip)
        K = phi @ post.prior.covariance(torch.eye(len(v), dtype=v.dtype)) @ phi.T
    pilot = post.A.dense()
    noise = float((pilot @ K @ pilot.T).trace()) / (len(pilot) * level)
    reached, best = dense_along(K, pilot, views(ANGLES), noise, found.indices.tolist(), "ese")
    torch.testing.assert_close(found.scores, reached, rtol=0.03, atol=0.0)
    assert bool((reached >= 0.97 * best).all())


def pilot_weights(y):
    return 0.2 + 4.0 * torch.rand(len(y), dtype=y.dtype, generator=torch.Generator().manual_seed(8))


@pytest.fixture(scope="module")
def weighed():
    A, y, _ = problem(dtype=torch.float64)
    g = torch.Generator().manual_seed(0)
    post = GaussianImage(A, "matern12", noise=0.05)
    return post.fit(y, weights=pilot_weights(y), final_samples=4, generator=g)


@pytest.mark.parametrize("criterion", ["ese", "eig", "evr"])
def test_rays_of_unequal_precision_are_designed_by_it(weighed, criterion):
    """``√w T`` in place of ``T``: what was measured, what would be, and what was told to be other than expected."""
    width = 11
    expected = weighed.weights.reshape(-1, width).mean(0)
    told = torch.linspace(0.5, 6.0, width, dtype=torch.float64)
    design = ScanDesign(
        weighed, ANGLES, criterion=criterion, num_samples=20_000, generator=torch.Generator().manual_seed(1)
    )
    K, pilot = weighed.image_prior().covariance.dense(), weighed.weights.sqrt()[:, None] * weighed.A.dense()
    T = [expected.sqrt()[:, None] * view for view in views(ANGLES)]
    for weights in (None, told, told, None):
        design.ask()
        reached, best = dense_along(K, pilot, T, 0.05, [*design.indices.tolist(), design._pending], criterion)
        assert float(design.candidate_scores[-1].nan_to_num(-torch.inf).max()) == pytest.approx(
            float(reached[-1]), rel=0.03
        )
        assert float(reached[-1]) >= 0.97 * float(best[-1])
        if weights is not None:
            T[design._pending] = weights.sqrt()[:, None] * views(ANGLES[[design._pending]])[0]
        design.tell(weights=weights)


def test_weights_of_new_rays_may_be_given(gaussian):
    """A number, one for each detector or for each candidate: candidates of little dose say little."""
    seed = torch.Generator().manual_seed
    plain = design_scan(gaussian, ANGLES, 3, num_samples=100, generator=seed(5))
    for weights in (1.0, torch.ones(11), torch.ones(9, 11)):
        same = design_scan(gaussian, ANGLES, 3, weights=weights, num_samples=100, generator=seed(5))
        assert torch.equal(same.scores, plain.scores)
    weights = torch.full((9, 11), 1e-4)
    weights[[2, 6]] = 1.0
    found = design_scan(gaussian, ANGLES, 2, weights=weights, num_samples=100, generator=seed(5))
    assert sorted(found.indices.tolist()) == [2, 6]
    with pytest.raises(ValueError, match="weights has shape"):
        ScanDesign(gaussian, ANGLES, weights=torch.ones(3))
    with pytest.raises(ValueError, match="weights must be zero or positive"):
        ScanDesign(gaussian, ANGLES, weights=-1.0)


@pytest.mark.filterwarnings("ignore::matheron.solvers.ConvergenceWarning")
@pytest.mark.parametrize("model", ["gaussian", "linearized"])
def test_counts_come_with_their_weights(model, request):
    """Into the prior that follows the scan, and into the refit."""
    post = request.getfixturevalue(model)

    def measure(angle):
        return LineIntegrals(torch.full((11,), angle, dtype=torch.float64), torch.full((11,), 2.0 + angle))

    g = torch.Generator().manual_seed(0)
    found = design_scan(post, ANGLES, 2, measure=measure, rescale_every=1, num_samples=20, generator=g)
    expected = torch.cat([torch.ones(55), *(torch.full((11,), 2.0 + a) for a in found.angles.tolist())]).double()
    torch.testing.assert_close(found._scanned(), expected)
    found = design_scan(post, ANGLES, 1, measure=measure, refit_every=1, num_samples=20, generator=g)
    torch.testing.assert_close(found.posterior.weights[-11:], measure(float(found.angles[0])).weights.double())
    assert found.posterior.weights.shape == found.posterior.y.shape == (66,)
    assert math.isfinite(found.ask())


def test_a_score_that_is_no_number_is_an_error(gaussian):
    design = ScanDesign(gaussian, ANGLES, num_samples=10, generator=torch.Generator().manual_seed(0))
    design.ask()
    design._pending = None
    design._state.samples[:, -11:] = math.nan
    with pytest.raises(FloatingPointError, match=r"1 candidates are not numbers, that of 2\.8"):
        design.ask()


def test_lines_of_frequencies_are_designed_alike():
    A = Fourier((8, 6), [0, 1], dtype=torch.float64)
    g = torch.Generator().manual_seed(0)
    y = A @ torch.rand(48, dtype=torch.float64, generator=g)
    post = GaussianImage(A, "matern12", shape=(8, 6), lengthscale=3.0, variance=1.0, noise=0.1).fit(y, generator=g)
    lines = [0, 1, 2, 3, 4]
    found = design_scan(post, lines, 2, "eig", num_samples=20_000, generator=g)
    T = [twins.fourier(8, 6, [line]) for line in lines[2:]]
    chosen = [index - 2 for index in found.indices.tolist()]
    K = post.image_prior().covariance.dense()
    reached, best = dense_along(K, twins.fourier(8, 6, [0, 1]), T, 0.1, chosen, "eig")
    torch.testing.assert_close(found.scores, reached, rtol=0.03, atol=0.0)
    assert bool((reached >= 0.97 * best).all())
    assert found.left == 1


def test_what_was_measured_is_not_a_candidate_again(gaussian):
    """Neither a pilot angle, a turn away even, nor one that was chosen."""
    pilot = torch.tensor(gaussian.A.origin.angles)
    candidates = torch.cat([pilot[:2] + torch.tensor([0.0, -2 * math.pi]), ANGLES[:3].double()])
    found = design_scan(gaussian, candidates, 3, num_samples=50, generator=torch.Generator().manual_seed(0))
    assert sorted(found.indices.tolist()) == [2, 3, 4]
    assert torch.isnan(found.candidate_scores[0][:2]).all()
    with pytest.raises(RuntimeError, match="all 5 candidates"):
        found.ask()


def test_scaling_covariance_and_noise_together_changes_no_choice():
    A, y, _ = problem(dtype=torch.float64)
    plans = []
    for scale in (1.0, 9.0):
        given = {"variance": scale, "noise": 0.05 * scale, "lengthscale": 4.0}
        g = torch.Generator().manual_seed(0)
        post = GaussianImage(A, "matern12", shape=(8, 6), **given).fit(y, generator=g)
        plans.append(design_scan(post, ANGLES, 5, num_samples=100, generator=g))
    assert plans[0].indices.tolist() == plans[1].indices.tolist()
    torch.testing.assert_close(plans[0].scores, plans[1].scores)


def test_the_loop_is_ask_and_tell(gaussian):
    seed = torch.Generator().manual_seed
    plan = design_scan(gaussian, ANGLES, 4, num_samples=100, generator=seed(5))
    design = ScanDesign(gaussian, ANGLES, num_samples=100, generator=seed(5))
    for angle in plan.angles.tolist():
        assert design.ask() == design.ask() == angle
        design.tell()
    assert torch.equal(design.scores, plan.scores)


@pytest.mark.filterwarnings("ignore::matheron.solvers.ConvergenceWarning")
def test_the_g_prior_follows_the_scan(linearized):
    """``A ∝ diag(φᵀTᵀTφ)`` of all angles, as much per measurement as before; other priors stay."""
    wider = Views.of(linearized.A).joined(ANGLES.double()).operator
    g = torch.Generator().manual_seed(0)
    linearized._again["scale_draws"], before = 20_000, linearized._again["scale_draws"]
    found = linearized.image_prior(wider, g).weights.precision(torch.ones(linearized.prior.num_weights, 1).double())
    linearized._again["scale_draws"] = before
    phi, _ = jacobian(linearized.dip)
    M = (wider.dense() @ phi).square().sum(0)
    seen = 0.01 * M.mean() < M  # below, entries are floored
    # What was learnt is a multiple of the former scan's diagonal, estimated from fewer draws.
    ones, former = torch.ones(len(M), 1).double(), (linearized.A.dense() @ phi).square().sum(0)
    multiple = (linearized.prior.precision(ones)[seen, 0] / former[seen]).mean()
    expected = multiple * M * len(linearized.y) / wider.shape[0]
    torch.testing.assert_close(found[seen, 0], expected[seen], rtol=0.08, atol=0.0)
    start = linearized.image_prior()
    assert start.weights is linearized.prior
    assert isinstance(start.features, Dense)


@pytest.mark.filterwarnings("ignore::matheron.solvers.ConvergenceWarning")
def test_refits_see_all_measurements(linearized):
    _, _, truth = problem(dtype=torch.float64)
    taken = []

    def measure(angle):
        taken.append(angle)
        return twins.parallel((8, 6), [angle], 11) @ truth.flatten()

    g = torch.Generator().manual_seed(0)
    before = linearized.mean.clone()
    found = design_scan(linearized, ANGLES, 4, measure=measure, refit_every=2, num_samples=50, generator=g)
    assert taken == found.angles.tolist()
    assert found.posterior.y.shape == (9 * 11,)
    torch.testing.assert_close(found.posterior.y[:55], linearized.y)
    torch.testing.assert_close(found.posterior.y[-11:], measure(taken[-1]))
    assert found.posterior.A.origin.angles[5:] == pytest.approx(taken[:4])
    assert found.posterior.dip.network is not linearized.dip.network
    assert torch.equal(linearized.mean, before)
    error = (found.posterior.mean - truth).norm()
    assert error < (linearized.mean - truth).norm()


def test_what_is_refused_by_name(gaussian, unchecked):
    A, y, _ = problem(dtype=torch.float64)
    bad = [
        (TypeError, "posterior must be", lambda: design_scan(A, ANGLES, 1)),
        (RuntimeError, "call fit", lambda: design_scan(GaussianImage(A, shape=(8, 6)), ANGLES, 1)),
        (
            ValueError,
            "of ese, eig, evr, got 'bald'",
            lambda: design_scan(gaussian, ANGLES, 1, "bald"),
        ),
        (ValueError, "num is 10 but 9 candidates are left", lambda: design_scan(gaussian, ANGLES, 10)),
        (ValueError, "num must be at least 1", lambda: design_scan(gaussian, ANGLES, 0)),
        (ValueError, "refit_every is given but measure", lambda: design_scan(gaussian, ANGLES, 1, refit_every=1)),
        (ValueError, "candidates has 1 NaN", lambda: design_scan(gaussian, [0.0, math.nan], 1)),
        (ValueError, "candidates 0 and 2 are the same view", lambda: design_scan(gaussian, [0.1, 0.2, 0.1], 1)),
        (ValueError, "candidates must be a list", lambda: design_scan(gaussian, [], 1)),
        (TypeError, "candidates must be a number, or a list", lambda: design_scan(gaussian, ["a"], 1)),
        (TypeError, "candidates must be a number, or a list", lambda: design_scan(gaussian, None, 1)),
        (TypeError, "measure must be a function", lambda: design_scan(gaussian, ANGLES, 1, measure=y)),
        (ValueError, "level must be one number", lambda: ScanDesign(gaussian, ANGLES, level=(1.0, 2.0))),
        (ValueError, "level must be", lambda: ScanDesign(gaussian, ANGLES, level=0.0)),
        (ValueError, "num_samples must be at least 2", lambda: ScanDesign(gaussian, ANGLES, num_samples=1)),
    ]
    for error, message, call in bad:
        with pytest.raises(error, match=message):
            call()
    plain = GaussianImage(Dense(A.dense()), shape=(8, 6)).fit(y)
    with pytest.raises(TypeError, match=r"fit it to scan.operator\(\)"):
        ScanDesign(plain, ANGLES)
    bare = ImagePosterior()
    bare.adopt(gaussian.mean, gaussian.deviations, 1.0)
    with pytest.raises(TypeError, match="posterior must be a GaussianImage or LinearizedDIP, got ImagePosterior"):
        ScanDesign(bare, ANGLES)
    with pytest.raises(NotImplementedError, match="keeps no prior"):
        bare.image_prior()


def test_measurements_are_checked(gaussian, unchecked):
    design = ScanDesign(gaussian, ANGLES, num_samples=10, refit_every=3, generator=torch.Generator().manual_seed(0))
    with pytest.raises(RuntimeError, match="call ask"):
        design.tell(torch.zeros(11, dtype=torch.float64))
    design.ask()
    with pytest.raises(ValueError, match="measurement has shape"):
        design.tell(torch.zeros(12, dtype=torch.float64))
    with pytest.raises(ValueError, match="measurement has 11 NaN"):
        design.tell(torch.full((11,), math.nan, dtype=torch.float64))
    with pytest.raises(ValueError, match="measurement is missing"):
        design.tell()
    assert design.indices.tolist() == [], "what was refused was not taken"
    design.tell(torch.zeros(11))
    assert len(design.indices) == 1
    design.ask()
    design.tell(torch.zeros(1, 11))  # as the sinogram of one angle comes
    assert len(design.indices) == 2


def test_lines_are_checked(unchecked):
    """Complex coefficients are not to be made real by leaving out half of them."""
    F = Fourier((8, 6), [0, 1])
    post = GaussianImage(F, "matern12", lengthscale=2.0, noise=0.1).fit(F @ torch.rand(48), generator=0)
    for candidates in ([2.5], [8], [2, -9]):
        with pytest.raises(ValueError, match="candidates must be whole numbers from -8 to 7"):
            ScanDesign(post, candidates)
    design = ScanDesign(post, [2, 3], num_samples=10, generator=0)
    design.ask()
    line = torch.randn(6, dtype=torch.complex64)
    with pytest.raises(TypeError, match=r"torch.view_as_real\(measurement\).mT"):
        design.tell(line)
    design.tell(torch.view_as_real(line).mT)
    assert len(design.indices) == 1
