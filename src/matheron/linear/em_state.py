"""Where expectation maximization stands before an E-step, in a file to go on from."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from matheron.archive import digest
from matheron.linear.data import Data
from matheron.linear.prior import Prior
from matheron.linear.regularizers import Regularizers
from matheron.linear.samples import WarmStart
from matheron.solvers.checkpoint import Checkpoint


@dataclass(frozen=True, eq=False)
class EMState:
    """Prior, data with their noise, regularizers, the last E-step's result, and what was recorded so far."""

    prior: Prior
    data: Data
    regularizers: Regularizers
    warm: WarmStart | None
    history: list[dict[str, Any]]
    epochs: float
    seconds: float
    seed: int
    """Of the regularizers."""

    def save(self, checkpoint: Checkpoint, identity: dict[str, Any], generator: torch.Generator, noise: bool) -> None:
        """Write what the next E-step needs."""
        drawn, warm = self.regularizers, self.warm
        if warm is None:  # nothing has been done yet that would have to be done again
            return
        tensors = {f"regularizers.{name}": getattr(drawn, name) for name in ("unit", "pull", "slope", "noise")}
        tensors |= {f"warm.{name}": getattr(warm, name) for name in ("samples", "mode", "steepness", "dual", "sketch")}
        tensors |= {"precision": self.prior.values, "warm.precision": warm.prior.values}
        tensors["generator"] = generator.get_state()
        header = {
            "identity": identity,
            "history": self.history,
            "epochs": self.epochs,
            "seconds": self.seconds,
            "noise_precision": self.data.noise_precision if noise else None,
            "drawing": drawn.epochs,
            "seed": self.seed,
        }
        # A view of the same memory would be refused: every tensor is written as its own.
        checkpoint.save({name: t.clone() for name, t in tensors.items() if t is not None}, header)

    @classmethod
    def load(
        cls,
        checkpoint: Checkpoint,
        identity: dict[str, Any],
        data: Data,
        prior: Prior,
        generator: torch.Generator,
    ) -> EMState | None:
        """What was saved of the same problem, with ``generator`` put where it was; ``None`` without a file."""
        found = checkpoint.load(identity)
        if found is None:
            return None
        tensors, header = found
        generator.set_state(tensors["generator"])
        here = {name: value if name.endswith("precision") else value.to(data.device) for name, value in tensors.items()}
        drawn = Regularizers(
            here["regularizers.unit"], here["regularizers.pull"], here.get("regularizers.slope"),
            here.get("regularizers.noise"), header["drawing"],
        )  # fmt: skip
        warm = WarmStart(
            here["warm.samples"], here.get("warm.mode"), prior.with_values(here["warm.precision"]),
            here.get("warm.steepness"), here.get("warm.dual"), here.get("warm.sketch"),
        )  # fmt: skip
        if header["noise_precision"] is not None:
            data = data.with_noise_precision(header["noise_precision"])
        if warm.mode is not None:
            data = data.following(warm.mode)
        history, epochs, seconds = header["history"], header["epochs"], header["seconds"]
        return cls(prior.with_values(here["precision"]), data, drawn, warm, history, epochs, seconds, header["seed"])


def identity_of(
    data: Data, prior: Prior, num_samples: int, settings: Any, estimator: str, learn_noise: bool
) -> dict[str, Any]:
    """What must be the same for a run to go on."""
    noise: str | float | None = "learnt" if learn_noise else None
    if noise is None:
        with suppress(ValueError):  # there are several, or the likelihood has none
            noise = data.noise_precision
    one = prior.root(torch.ones(data.num_weights, 1, dtype=data.dtype, device=data.device))
    return data.identity() | {
        "samples": num_samples,
        "settings": repr(settings),
        "estimator": estimator,
        "noise precision": noise,
        "prior (learn it from the same seed)": digest(one),
    }
