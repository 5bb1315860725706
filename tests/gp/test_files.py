import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import matheron as mt
from matheron.kernels import RBF, Kernel, Linear, Matern32, Periodic, RationalQuadratic, Tanimoto
from tests.gp.test_posterior import problem

GP = {
    "plain": mt.GaussianProcess(RBF(1.0), 0.05),
    "standardized": mt.GaussianProcess(Matern32([0.7, 2.0], 3.0), 0.05, mean=1.0, standardize=True),
    "composite": mt.GaussianProcess(
        2.0 * (RBF(columns=[0]) + Linear(columns=[1])) + RationalQuadratic(0.3) * Periodic(2.0), 0.05
    ),
}


@pytest.mark.parametrize("name", GP)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"solver": mt.solvers.CG(epochs=50, preconditioner=mt.solvers.Nystrom(20))},
        {"inducing": 20},
        {"num_samples": 0},
        {"noise": torch.full((60,), 0.1)},
    ],
    ids=str,
)
def test_a_loaded_posterior_predicts_bit_for_bit_the_same(name, options, tmp_path):
    X, y, x = problem(dtype=torch.float32)
    post = GP[name].condition(X, y, **{"num_samples": 3, "num_features": 200} | options)
    post.save(tmp_path / "model.matheron")
    again = mt.load(tmp_path / "model.matheron")
    noise = 0.1 if "noise" in options else None
    assert torch.equal(again.mean(x), post.mean(x))
    assert torch.equal(again.predict(x, noise=noise).variance, post.predict(x, noise=noise).variance)
    if len(post.paths):
        assert torch.equal(again.sample(x), post.sample(x))
    assert again.report == post.report
    assert again.conditioning.solver == post.conditioning.solver


def test_a_loaded_posterior_goes_on(tmp_path):
    X, y, x = problem(dtype=torch.float32)
    post = GP["plain"].condition(X, y, num_samples=3)
    post.save(tmp_path / "model")
    again = mt.load(tmp_path / "model")
    more = [p.condition_on(x, x[:, 0], generator=torch.Generator().manual_seed(0)) for p in (post, again)]
    assert torch.equal(more[0].sample(X), more[1].sample(X))


def test_sparse_inputs_are_saved(tmp_path):
    X = (torch.rand(30, 20, generator=torch.Generator().manual_seed(0)) < 0.3).float().to_sparse_csr()
    post = mt.GaussianProcess(Tanimoto(), 0.1).condition(X, torch.arange(30.0), num_samples=2)
    post.save(tmp_path / "model")
    assert torch.equal(mt.load(tmp_path / "model").sample(X), post.sample(X))


def test_files_that_are_not_posteriors_get_a_clear_error(tmp_path):
    X, y, _ = problem(dtype=torch.float32)
    path = tmp_path / "model"
    GP["plain"].condition(X, y, num_samples=1).save(path)
    whole = path.read_bytes()
    (tmp_path / "short").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="damaged"):
        mt.load(tmp_path / "short")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ValueError, match="is not a saved posterior"):
        mt.load(tmp_path / "text")
    save_file({"a": torch.zeros(1)}, tmp_path / "foreign")
    with pytest.raises(ValueError, match="format 'unknown'"):
        mt.load(tmp_path / "foreign")
    save_file({"a": torch.zeros(1)}, tmp_path / "newer", {"format": "matheron-posterior/9", "header": "{}"})
    with pytest.raises(ValueError, match="newer version"):
        mt.load(tmp_path / "newer")
    with safe_open(path, framework="pt") as file:
        header, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    del tensors["targets"]
    save_file(tensors, tmp_path / "less", header)
    with pytest.raises(ValueError, match="incomplete"):
        mt.load(tmp_path / "less")
    changed = json.loads(header["header"])
    changed["kernel"]["kind"] = "os.system"
    save_file(tensors, tmp_path / "evil", header | {"header": json.dumps(changed)})
    with pytest.raises(ValueError, match="incomplete or was changed"):
        mt.load(tmp_path / "evil")
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    changes = {
        "X": lambda t: t[:-1],
        "mean_weights": lambda t: t.float(),
        "row_noise": lambda t: -t,
        "center": lambda t: t[:0],
        "prior.weights": lambda t: t[1:],
        "kernel.log_variance": lambda t: t.repeat(3),
        "kernel.log_lengthscale": lambda t: t * torch.nan,
        "units.x_scale": lambda t: t.repeat(2),
    }
    for name, change in changes.items():
        save_file(tensors | {name: change(tensors[name]).contiguous()}, tmp_path / "other", header)
        with pytest.raises(ValueError, match=r"incomplete or was changed|the file"):
            mt.load(tmp_path / "other")
    save_file(tensors | {"kernel.parts.log_scale": torch.zeros(())}, tmp_path / "more", header)
    with pytest.raises(ValueError, match="incomplete or was changed"):
        mt.load(tmp_path / "more")
    with pytest.raises(FileNotFoundError, match="not a file"):
        mt.load(tmp_path / "nothing")


def test_nothing_is_lost_when_a_save_fails(tmp_path):
    X, y, x = problem(dtype=torch.float32)

    class Own(Kernel):
        def covariance(self, x, z):
            return (-torch.cdist(x, z)).exp()

        def diagonal(self, x):
            return torch.ones_like(x[:, 0])

    post = mt.GaussianProcess(Own(), 0.05).condition(X, y, num_samples=0)
    (tmp_path / "model").write_text("precious")
    with pytest.raises(TypeError, match="kernel Own cannot be saved"):
        post.save(tmp_path / "model")
    assert (tmp_path / "model").read_text() == "precious"
    assert post.variance(x, exact=True).shape == (17,)
    known = mt.solvers.CG(preconditioner=mt.solvers.Factored(known=torch.ones(len(X), 2)))
    with pytest.raises(TypeError, match="solver holds a Tensor cannot be saved"):
        GP["plain"].condition(X, y, num_samples=1, solver=known).save(tmp_path / "model")
    with pytest.raises(ValueError, match="existing directory"):
        GP["plain"].condition(X, y, num_samples=1).save(tmp_path / "nowhere" / "model")
