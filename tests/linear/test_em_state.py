"""An interrupted EM goes on to the same result."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from matheron.linear import (
    Data,
    DenseSolve,
    Descent,
    DiagonalPrior,
    DualSolve,
    EStep,
    GaussianCurvature,
    Learned,
    Samples,
    StoredData,
    learn_prior,
)
from matheron.operators import Dense

STEPS: dict[str, EStep] = {
    "descent": Descent(epochs=10.0, tolerance=0.5),
    "dual": DualSolve(),
    "dense": DenseSolve(),
}


def observations() -> StoredData:
    g = torch.Generator().manual_seed(0)
    Phi, w = torch.randn(60, 12, generator=g), torch.randn(12, generator=g)
    Y = Phi @ w + 0.5 * torch.randn(60, generator=g)
    return StoredData(Dense(Phi), GaussianCurvature(1.0, size=60), Y, batch_size=20)


@dataclass(frozen=True, eq=False)
class Interrupted:
    """An E-step that fails at its third call."""

    step: EStep
    calls: list[int] = field(default_factory=list)

    @property
    def keep_noise(self) -> bool:
        return self.step.keep_noise

    def posterior(self, *arguments: Any, **options: Any) -> Samples:
        self.calls.append(1)
        if len(self.calls) == 3:
            raise KeyboardInterrupt
        return self.step.posterior(*arguments, **options)

    def __repr__(self) -> str:
        return repr(self.step)


def learn(step: Any, data: Data, checkpoint: Path | None = None, seed: int = 3, learn_noise: bool = True) -> Learned:
    prior = DiagonalPrior(torch.tensor([5.0, 5.0]), num_weights=12, groups=torch.arange(12) // 6)
    return learn_prior(
        data, prior, em_steps=5, num_samples=3, settings=step, tolerance=1e-9, learn_noise=learn_noise,
        generator=torch.Generator().manual_seed(seed), checkpoint=checkpoint,
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", STEPS)
def test_an_interrupted_run_goes_on_to_the_same_result(name: str, tmp_path: Path) -> None:
    whole = learn(STEPS[name], observations())
    path, interrupted = tmp_path / "em.checkpoint", Interrupted(STEPS[name])
    with pytest.raises(KeyboardInterrupt):
        learn(interrupted, observations(), path)
    assert path.exists()
    before = len(interrupted.calls)
    resumed = learn(interrupted, observations(), path)
    assert len(interrupted.calls) - before == 3  # the step that was cut off, and the two that were left
    assert not path.exists()
    torch.testing.assert_close(resumed.prior.values, whole.prior.values, rtol=0, atol=0)
    torch.testing.assert_close(resumed.samples.samples, whole.samples.samples, rtol=0, atol=0)
    assert resumed.data.noise_precision == whole.data.noise_precision
    assert [record["precision"] for record in resumed.history] == [record["precision"] for record in whole.history]


@pytest.mark.filterwarnings("ignore")
def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "em.checkpoint"
    with pytest.raises(KeyboardInterrupt):
        learn(Interrupted(STEPS["dense"]), observations(), path)
    with pytest.raises(ValueError, match="of another solve: its settings"):
        learn(STEPS["dual"], observations(), path)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match="checkpoint"):
        learn(STEPS["dense"], observations(), path)


@pytest.mark.filterwarnings("ignore")
def test_a_checkpoint_of_other_observations_is_refused(tmp_path: Path) -> None:
    path, data = tmp_path / "em.checkpoint", observations()
    with pytest.raises(KeyboardInterrupt):
        learn(Interrupted(STEPS["dense"]), data, path)
    assert data.targets is not None
    others = {
        "targets": StoredData(data.features, data.curvature, data.targets + 1.0, 20),
        "features": StoredData(Dense(2.0 * data.features.dense()), data.curvature, data.targets, 20),
    }
    for name, other in others.items():
        with pytest.raises(ValueError, match=f"of another solve: its {name}"):
            learn(STEPS["dense"], other, path)


@pytest.mark.filterwarnings("ignore")
def test_a_checkpoint_of_another_noise_is_refused(tmp_path: Path) -> None:
    """What was learnt does not stand in for what is given, nor one that was given for another."""
    path, data = tmp_path / "em.checkpoint", observations()
    with pytest.raises(KeyboardInterrupt):
        learn(Interrupted(STEPS["dense"]), data, path)
    with pytest.raises(ValueError, match=r"its noise precision is learnt, here it is 1\.0"):
        learn(STEPS["dense"], data, path, learn_noise=False)
    path.unlink()
    with pytest.raises(KeyboardInterrupt):
        learn(Interrupted(STEPS["dense"]), data, path, learn_noise=False)
    with pytest.raises(ValueError, match=r"its noise precision is 1\.0, here it is 2\.0"):
        learn(STEPS["dense"], data.with_noise_precision(2.0), path, learn_noise=False)
