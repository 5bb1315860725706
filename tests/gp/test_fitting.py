"""Learning: gradients agree with the exact ones, known hyperparameters come back, runs repeat and resume."""

import copy
import warnings
from dataclasses import replace

import pytest
import torch

import matheron as mt
from matheron.archive import digest
from matheron.gp.evidence import exact_evidence
from matheron.gp.fitting import Exact, FitWarning, Iterative, LogNormal, Subset
from matheron.gp.fitting.adam import Adam
from matheron.gp.fitting.iterative import Climb
from matheron.gp.fitting.start import start_from_data
from matheron.gp.fitting.subset import maximize_on, nearest
from matheron.gp.fitting.task import Task
from matheron.solvers import CG, Checkpoint

TRUTH = {"lengthscale": torch.tensor([0.3, 1.0]), "variance": 2.0, "noise": 0.05, "mean": 3.0}


def data(rows=300, dtype=torch.float64, outputs=None, seed=0):
    g = torch.Generator().manual_seed(seed)
    X = torch.rand(rows, 2, generator=g, dtype=torch.float64) * 2.0
    kernel = mt.kernels.Matern52(TRUTH["lengthscale"], TRUTH["variance"])
    f = mt.kernels.sample_prior(kernel, X, outputs or 1, generator=g).mT
    y = f + TRUTH["noise"] ** 0.5 * torch.randn(f.shape, generator=g, dtype=torch.float64) + TRUTH["mean"]
    return X.to(dtype), (y if outputs else y[:, 0]).to(dtype)


def process(**options):
    return mt.GaussianProcess(mt.kernels.Matern52(lengthscale=[1.0, 1.0]), **options)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def values(gp):
    return torch.cat([p.detach().reshape(-1) for p in gp.parameters()])


@pytest.mark.parametrize("outputs", [None, 2])
def test_sampled_gradients_are_unbiased(outputs):
    """Over many samples, within five standard errors of the exact gradient."""
    X, y = data(60, outputs=outputs)
    gp = process(noise=0.2)
    task = Task(gp, gp.observations(X, y), {}, seed=0)
    noise, mean = gp.noise.detach().expand(60), gp.mean.detach().expand(outputs or 1)
    found = exact_evidence(gp.kernel, X, task.data.Y, noise, mean)
    exact = task.parameters.gradient(found.kernel, found.noise, found.mean)
    solver = CG(epochs=300, tolerance=1e-10)
    sampled = []
    for seed in range(30):
        task.seed = seed
        climb = Climb(Iterative(num_samples=16, num_features=2000, solver=solver), task)
        sampled.append(climb.gradients(climb.solve().solution)[0])
    draws = torch.stack(sampled)
    error = draws.std(0) / len(draws) ** 0.5
    assert bool(((draws.mean(0) - exact).abs() <= 5.0 * error + 1e-6 * exact.abs()).all())
    assert bool((draws.std(0)[1] <= 1e-6 * exact[1].abs()).all())  # the mean's needs no sample


@pytest.mark.parametrize(
    "method", [Exact(), Iterative(steps=60), Iterative(steps=40, amplitude="mackay")], ids=["exact", "adam", "mackay"]
)
def test_known_hyperparameters_come_back(method):
    X, y = data(500)
    gp = process().fit(X, y, method, generator=seeded())
    torch.testing.assert_close(gp.kernel.lengthscale.detach(), TRUTH["lengthscale"].double(), rtol=0.35, atol=0.0)
    assert gp.noise.item() == pytest.approx(TRUTH["noise"], rel=0.25)
    best = process().fit(X, y, "exact")
    with torch.no_grad():
        assert (best.log_evidence(X, y) - gp.log_evidence(X, y)).item() / 500 < 0.01


def test_neighborhoods_give_about_the_same():
    X, y = data(600)
    gp = process().fit(X, y, "subset", subset_rows=250, centroids=3, generator=seeded())
    assert gp.noise.item() == pytest.approx(TRUTH["noise"], rel=0.4)
    assert {record["centroid"] for record in gp.history} == {0, 1, 2}


def test_nearest_rows_are_nearest():
    X = torch.randn(50, 3, generator=seeded())
    scaled = X / X.std(0, correction=0)
    distance = (scaled - scaled[7]).norm(dim=1)
    assert nearest(mt.kernels.RBF(), X, 7, 10).tolist() == distance.argsort()[:10].tolist()


@pytest.mark.parametrize("method", [Iterative(steps=6), Iterative(steps=6, amplitude="mackay"), Subset(80, 2, steps=5)])
def test_a_seed_fixes_the_result(method):
    X, y = data(200, torch.float32)
    first, second = (process().fit(X, y, method, generator=seeded(5)) for _ in range(2))
    assert torch.equal(values(first), values(second))
    other = process().fit(X, y, method, generator=seeded(6))
    assert not torch.equal(values(first), values(other))


@pytest.mark.parametrize(
    "method",
    [Exact(steps=8), Iterative(steps=8, first_rows=60), Iterative(steps=8, amplitude="mackay"), Subset(80, 4, steps=5)],
)
def test_an_interrupted_fit_goes_on_to_the_same_result(method, tmp_path, monkeypatch):
    X, y = data(200, torch.float32)
    whole = process().fit(X, y, method, generator=seeded(5))
    path = tmp_path / "fit.checkpoint"
    calls, save = 0, Checkpoint.save

    def interrupted(self, tensors, header):
        nonlocal calls
        save(self, tensors, header)
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        process().fit(X, y, method, generator=seeded(5), checkpoint=Checkpoint(path, seconds=0.0))
    resumed = process().fit(X, y, method, generator=seeded(9), checkpoint=path)
    assert torch.equal(values(resumed), values(whole))
    assert len(resumed.history) == len(whole.history)
    assert not path.exists()
    if whole.warm is not None:
        assert torch.equal(resumed.warm.solution, whole.warm.solution)


def test_a_few_rows_first_save_steps_on_all_rows():
    X, y = data(600)
    few = Iterative(steps=3, first_rows=150)
    gp = process().fit(X, y, few, generator=seeded())
    first = [record for record in gp.history if record.get("rows") == 150]
    assert first == gp.history[: len(first)]
    assert len(gp.history) == len(first) + 3
    assert {record["method"] for record in gp.history} == {"iterative"}
    plain = process().fit(X, y, replace(few, first_rows=0), generator=seeded())
    best = process().fit(X, y, "exact").log_evidence(X, y)
    assert best - gp.log_evidence(X, y) < 0.2 * (best - plain.log_evidence(X, y))
    # Values of one's own are where it begins, and few rows are taken as they are.
    assert len(process().fit(X, y, few, start="current", generator=seeded()).history) == 3
    assert len(process().fit(X[:150], y[:150], few, generator=seeded()).history) == 3


def test_learning_from_some_rows_is_that_from_these_rows():
    X, y = data(600)
    some = process().fit(X, y, Iterative(steps=20, first_rows=100, rows=300), generator=seeded())
    assert some.warm is None
    exact = process().fit(X, y, "exact")
    assert float((values(some) - values(exact)).abs().max()) < 1.0
    same = process().fit(X[:300], y[:300], Iterative(steps=5, rows=900), generator=seeded())
    plain = process().fit(X[:300], y[:300], Iterative(steps=5), generator=seeded())
    assert torch.equal(values(same), values(plain))
    assert same.warm is not None


def test_a_few_rows_do_not_run_away_with_what_they_say_nothing_of():
    # Pairs of the same row and target in data that are all noise: the evidence of a few rows wants none.
    X = torch.randn(100, 2, generator=seeded(), dtype=torch.float64).repeat(2, 1)
    y = torch.randn(100, generator=seeded(1), dtype=torch.float64).repeat(2)
    gp = process()
    task = Task(gp, gp.observations(X, y), {}, seed=0)
    start_from_data(gp, task.data)
    start = task.parameters.vector()
    free, _ = maximize_on(task, torch.arange(200), 40, {})
    task.parameters.assign(start)
    tied, _ = maximize_on(task, torch.arange(200), 40, {}, spread=0.1)
    noise = task.parameters.places["noise"]
    assert float(free[noise] - start[noise]) < -5.0
    assert float((tied[noise] - start[noise]).abs()) < 2.0
    given = Task(gp, task.data, {"noise": LogNormal(0.3, 1.0)}, seed=0).prior.tied(start, 0.5)
    assert given.center[noise].exp().item() == pytest.approx(0.3)
    assert given.precision[task.parameters.places["mean"]].item() == 0.0


def test_a_checkpoint_of_another_fit_is_refused(tmp_path):
    X, y = data(100)
    path = tmp_path / "fit.checkpoint"
    gp = process()
    task = Task(gp, gp.observations(X, y), {}, seed=0, checkpoint=Checkpoint(path))
    climb = Climb(Iterative(steps=5), task)
    climb.step()
    climb.save()
    with pytest.raises(ValueError, match="its method is"):
        process().fit(X, y, "iterative", steps=6, start="current", checkpoint=path)
    with pytest.raises(ValueError, match="its data is"):
        process().fit(X, y + 1.0, "iterative", steps=5, start="current", checkpoint=path)


def test_the_warm_start_solves_the_last_system_in_the_callers_order():
    X, y = data(300)
    gp = process().fit(X, y, "iterative", steps=5, generator=seeded(), solver=CG(epochs=500, tolerance=1e-6))
    assert gp.warm.digest == digest(X, y[:, None])
    last = gp.history[-1]["hyperparameters"]
    kernel = mt.kernels.Matern52(last["kernel.lengthscale"], last["kernel.variance"])
    after = values(gp)
    gp.kernel.load_state_dict(kernel.state_dict())
    noise = torch.full((300,), last["noise"], dtype=X.dtype)
    with torch.no_grad():
        targets = torch.cat([(y - last["mean"])[:, None], gp.warm.draws.noisy(X, noise)], dim=1)
        residual = (gp.kernel(X) + noise.diag()) @ gp.warm.solution - targets
    assert float((residual.norm(dim=0) / targets.norm(dim=0)).max()) < 1e-5
    assert not torch.equal(after, values(gp))  # the last step was taken after the last solve


def test_standardized_data_learn_the_same_function():
    X, y = data(200)
    plain = process().fit(X, y)
    scaled = process(standardize=True).fit(100.0 * X - 7.0, 1000.0 * y + 5.0)
    shift = 200 * torch.tensor(1000.0, dtype=torch.float64).log()
    torch.testing.assert_close(
        scaled.log_evidence(100.0 * X - 7.0, 1000.0 * y + 5.0), plain.log_evidence(X, y) - shift, rtol=1e-4, atol=1e-2
    )


def test_a_fit_to_other_data_takes_their_units():
    X, y = data(60)
    X, y = X.float(), y.float()
    once = process(standardize=True).fit(X, y)
    again = process(standardize=True).fit(1e3 * X, 1e3 * y + 1e7).fit(X, y)
    torch.testing.assert_close(again.noise, once.noise)
    torch.testing.assert_close(again.condition(X, y).mean(X), once.condition(X, y).mean(X))
    units = again.units
    assert again.fit(X + 1.0, y, start="current").units is units
    with pytest.raises(ValueError, match="y has shape"):
        again.fit(X, y[1:])
    assert again.units is units


def test_fixed_values_stay_fixed():
    X, y = data(100)
    noise = torch.linspace(0.01, 0.1, 100)
    gp = mt.GaussianProcess(mt.kernels.Matern52([1.0, 1.0]), noise=noise)
    gp.kernel.log_variance.requires_grad_(False)
    for method in (Exact(steps=5), Iterative(steps=3)):
        gp.fit(X, y, method, generator=seeded())
        torch.testing.assert_close(gp.noise.detach(), noise.double())
        assert gp.kernel.variance.item() == 1.0
        assert set(gp.history[0]["hyperparameters"]) == {"mean", "kernel.lengthscale"}


def test_priors_pull():
    X, y = data(60)
    free = process().fit(X, y)
    held = process().fit(X, y, priors={"*lengthscale": LogNormal(5.0, 0.01), "noise": LogNormal(0.3, 0.01)})
    torch.testing.assert_close(held.kernel.lengthscale.detach(), torch.full((2,), 5.0).double(), rtol=0.05, atol=0.0)
    assert held.noise.item() == pytest.approx(0.3, rel=0.05)
    assert free.kernel.lengthscale.max().item() < 4.0


def test_the_start_speaks_the_units_of_the_data():
    X, y = data(200)
    kernel = mt.kernels.RBF([1.0, 1.0]) + 2.0 * mt.kernels.Linear(columns=[1]) * mt.kernels.Periodic(period=7.0)
    gp = mt.GaussianProcess(kernel)
    start_from_data(gp, gp.observations(10.0 * X, 100.0 * y))
    spread = (10.0 * X).std(0, correction=0)
    torch.testing.assert_close(gp.kernel.parts[0].lengthscale.detach(), 2.0**0.5 * spread)
    assert gp.mean.item() == pytest.approx(float(100.0 * y.mean()))
    prior = gp.kernel.diagonal(10.0 * X).mean().item() / (100.0 * y).var().item()
    assert 0.9 < prior < 1.1
    assert gp.kernel.parts[1].parts[1].period.item() == pytest.approx(7.0)


def test_auto_says_what_it_took_and_why():
    X, y = data(40)
    gp = process().fit(X, y)
    assert gp.history[0]["method"] == "exact"
    assert "40 rows" in gp.history[0]["reason"]
    from matheron.gp.fitting.fit import automatic

    many = torch.zeros(3000, 2)
    assert isinstance(automatic(process(), many)[0], Iterative)
    without = mt.GaussianProcess(mt.kernels.Linear() * mt.kernels.RBF())
    assert isinstance(automatic(without, many)[0], Subset)
    method, reason = automatic(process(), torch.zeros(60_000, 2))
    assert isinstance(method, Iterative)
    assert method.rows == 30_000
    assert "30000 random rows; steps on all 60000 take long" in reason


def test_learning_stops_when_nothing_is_to_be_gained():
    X, y = data(200)
    gp = process().fit(X, y, "iterative", steps=500, tolerance=1e-3, generator=seeded())
    assert len(gp.history) < 100


def test_values_at_the_bounds_are_reported():
    X = torch.linspace(0, 1, 30, dtype=torch.float64)[:, None]
    with pytest.warns(FitWarning, match="noise ended at the bounds"):
        mt.GaussianProcess(mt.kernels.RBF()).fit(X, X[:, 0].sin(), "exact")


def test_few_rows_have_weak_priors_unless_told_otherwise():
    g = seeded()
    X = torch.randn(30, 10, generator=g, dtype=torch.float64)
    y = X[:, 0] + 0.3 * torch.randn(30, generator=g, dtype=torch.float64)

    def fitted(priors):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)
            return mt.GaussianProcess(mt.kernels.RBF(torch.ones(10))).fit(X, y, priors=priors)

    held, free = fitted(None), fitted({})
    assert "30 are few for 13 hyperparameters: lengthscale, noise have weak priors" in held.history[0]["reason"]
    assert "few for" not in free.history[0]["reason"]
    start = 10**0.5 * X.std(0, correction=0)
    near, far = ((gp.kernel.lengthscale / start).log().square().sum() for gp in (held, free))
    assert near < 0.5 * far
    assert held.log_evidence(X, y) < free.log_evidence(X, y)
    mine = fitted({"noise": LogNormal(0.09, 0.1)})
    assert "few for" not in mine.history[0]["reason"]


def test_many_rows_have_none():
    X, y = data(60)
    assert "few for" not in process().fit(X, y).history[0]["reason"]


def test_a_simulator_without_noise_is_followed():
    X = torch.rand(250, 3, generator=seeded(), dtype=torch.float64)
    y = torch.sin(3.0 * X[:, 0]) * torch.exp(X[:, 1]) + X[:, 2] ** 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # of noise at its bound, where it belongs
        gp = mt.GaussianProcess(mt.kernels.RBF(torch.ones(3)), standardize=True).fit(X[:200], y[:200], "exact")
    assert gp.noise.item() < 1e-6
    error = gp.condition(X[:200], y[:200], generator=seeded()).mean(X[200:]) - y[200:]
    assert error.square().mean().sqrt() < 2e-4 * y.std()


def test_a_gradient_that_breaks_keeps_the_last_good_values(monkeypatch):
    X, y = data(100)
    steps = []

    def broken(self, solution, original=Climb.gradients):
        first, second = original(self, solution)
        steps.append(self.vector)
        return (first * float("nan"), second) if len(steps) == 3 else (first, second)

    monkeypatch.setattr(Climb, "gradients", broken)
    gp = process()
    with pytest.warns(FitWarning, match="not finite"):
        gp.fit(X, y, "iterative", steps=10, generator=seeded())
    assert len(gp.history) == 2
    # The third point was the bad one.
    assert gp.noise.item() == pytest.approx(gp.history[-1]["hyperparameters"]["noise"], rel=1e-12)


@pytest.mark.parametrize("start", ["data", "current"])
def test_an_interrupted_fit_leaves_the_process_as_it_was_and_finds_its_checkpoint(start, tmp_path, monkeypatch):
    X, y = data(60)
    kernel = mt.kernels.RBF() * mt.kernels.Periodic(period=2.0)
    whole = mt.GaussianProcess(copy.deepcopy(kernel)).fit(X, y, Exact(steps=8), start=start)
    gp = mt.GaussianProcess(kernel, standardize=False)
    before, calls = values(gp), []

    def interrupted(*arguments, original=exact_evidence):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr("matheron.gp.fitting.exact.exact_evidence", interrupted)
    checkpoint = Checkpoint(tmp_path / "fit.checkpoint", seconds=0.0)
    with pytest.raises(KeyboardInterrupt):
        gp.fit(X, y, Exact(steps=8), start=start, checkpoint=checkpoint)
    assert torch.equal(values(gp), before)
    assert torch.equal(values(gp.fit(X, y, Exact(steps=8), start=start, checkpoint=checkpoint)), values(whole))


def test_parts_that_share_a_kernel_share_its_gradient():
    X, y = data(40)
    shared = mt.kernels.RBF(0.7)
    joint = mt.GaussianProcess(shared + shared * mt.kernels.Periodic(period=3.0))
    apart = mt.GaussianProcess(mt.kernels.RBF(0.7) + mt.kernels.RBF(0.7) * mt.kernels.Periodic(period=3.0))
    joint.log_evidence(X, y).backward()
    apart.log_evidence(X, y).backward()
    first, second = (part.log_lengthscale.grad for part in (apart.kernel.parts[0], apart.kernel.parts[1].parts[0]))
    torch.testing.assert_close(shared.log_lengthscale.grad, first + second)
    assert len(joint.fit(X, y).history) > 1


def test_adam_is_that_of_torch():
    vector = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    theirs, ours, place = torch.optim.Adam([vector], lr=0.3, maximize=True), Adam(torch.zeros(3).double(), 0.3), 0.0
    for _ in range(20):
        gradient = torch.randn(3, dtype=torch.float64, generator=seeded())
        vector.grad = gradient
        theirs.step()
        place = place + ours.step(gradient)
    torch.testing.assert_close(place, vector.detach())


def test_several_outputs_share_the_kernel():
    X, y = data(150, outputs=3)
    gp = mt.GaussianProcess(mt.kernels.Matern52([1.0, 1.0]), mean=torch.zeros(3))
    gp.fit(X, y, "iterative", steps=20, num_samples=10, generator=seeded())
    assert gp.mean.shape == (3,)
    assert gp.warm.solution.shape == (150, 3 + 12)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"method": "magic"}, ValueError, "method must be 'auto', 'exact', 'subset', 'iterative'"),
        ({"start": "middle"}, ValueError, "start must be 'data' or 'current'"),
        ({"priors": LogNormal(1.0, 1.0)}, TypeError, "priors must map patterns of names"),
        ({"method": "exact", "stepz": 3}, TypeError, "stepz"),
        ({"steps": 3}, TypeError, "steps given with method='auto'"),
        ({"method": Exact(), "steps": 3}, TypeError, "steps given beside method="),
        ({"method": "iterative", "steps": 0}, ValueError, "steps must be at least 1"),
        ({"method": "iterative", "amplitude": "em"}, ValueError, "amplitude must be 'gradient' or 'mackay'"),
        ({"method": "iterative", "solver": "cg"}, TypeError, "solver must be"),
        ({"method": "iterative", "learning_rate": -1.0}, ValueError, "learning_rate must lie in"),
        ({"method": "subset", "subset_rows": 1}, ValueError, "subset_rows must be at least 2"),
        ({"priors": {"period": LogNormal(1.0, 1.0)}}, ValueError, "'period', which matches none"),
        ({"priors": {"noise": 1.0}}, TypeError, r"priors\['noise'\] must be a LogNormal"),
    ],
)
def test_bad_arguments_are_named(options, error, message):
    X, y = data(20)
    with pytest.raises(error, match=message):
        process().fit(X, y, **options)


def test_a_kernel_without_features_is_sent_elsewhere():
    X, y = data(20)
    gp = mt.GaussianProcess(mt.kernels.Linear() * mt.kernels.RBF())
    with pytest.raises(mt.kernels.feature_map.NoFeaturesError, match="use 'subset'"):
        gp.fit(X, y, "iterative")


def test_nothing_to_learn_is_said():
    X, y = data(20)
    with pytest.raises(ValueError, match="nothing to learn"):
        process().requires_grad_(False).fit(X, y)


def test_mackay_and_priors_do_not_mix():
    X, y = data(20)
    with pytest.raises(ValueError, match="knows no priors on noise"):
        process().fit(X, y, Iterative(amplitude="mackay"), priors={"noise": LogNormal(1.0, 1.0)})


def test_a_good_fit_does_not_warn():
    X, y = data(200)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        process().fit(X, y, "iterative", steps=10, generator=seeded())


def test_inputs_that_say_nothing_are_left_out_where_there_is_no_noise():
    X = torch.rand(150, 4, generator=seeded(), dtype=torch.float64)
    y = (4.0 * X[:, 0]).sin() + X[:, 1].square()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        gp = mt.GaussianProcess(mt.kernels.Matern32(torch.ones(4))).fit(X, y, "exact")
    told, nothing = gp.kernel.lengthscale[:2].max(), gp.kernel.lengthscale[2:].min()
    assert nothing > 100.0 * told
