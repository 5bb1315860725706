"""What stochastic descents share: an iterate, its velocity, a geometric average, and a way back."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from matheron.solvers.iteration import Iteration, Problem


class Descent(Iteration):
    """``v ← ρ v − β g``, ``α ← α + v``, ``ᾱ ← χ α + (1 − χ) ᾱ``; on divergence back to the best sweep, ``β`` halved."""

    state = ("alpha", "velocity", "average", "step", "safe_alpha", "safe_average", "least", "reference")

    def __init__(self, problem: Problem, step: Float[Tensor, ""], momentum: float, chi: float) -> None:
        super().__init__(problem)
        self.step, self.momentum, self.chi = step, momentum, min(1.0, chi)
        self.alpha = problem.guess.clone()
        self.velocity = torch.zeros_like(self.alpha)
        self.average = self.alpha.clone()
        # Where a restart goes back to: the start of the last sweep could be on its way up already.
        self.safe_alpha, self.safe_average = self.alpha.clone(), self.average.clone()
        self.least = torch.full_like(self.step, torch.inf)

    @property
    def solution(self) -> Float[Tensor, "n s"]:
        """``ᾱ``."""
        return self.average

    def lookahead(self) -> Float[Tensor, "n s"]:
        """``α + ρ v``, where Nesterov takes the gradient."""
        return torch.add(self.alpha, self.velocity, alpha=self.momentum)

    def move(self) -> None:
        """Along the velocity, and the average after it."""
        self.alpha += self.velocity
        self.average.lerp_(self.alpha, self.chi)

    def remember(self, start: tuple[Tensor, Tensor], squares: Float[Tensor, " s"]) -> Float[Tensor, " s"]:
        """Keep where the sweep with the smallest residual began; returns the residual."""
        if squares.max() < self.least:
            self.least = squares.max()
            self.safe_alpha, self.safe_average = start
        return squares.sqrt()

    def restart(self) -> Float[Tensor, " s"]:
        """Back to the start of the best sweep, with half the step."""
        self.alpha, self.average = self.safe_alpha.clone(), self.safe_average.clone()
        self.velocity = torch.zeros_like(self.alpha)
        self.step = self.step / 2.0
        self.events.append(f"diverged: step halved to {float(self.step):.3g}")
        return torch.full_like(self.targets[0], torch.inf)
