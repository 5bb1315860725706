"""What iterative solvers share: scaling, order, sweeps, residuals, checkpoints, progress."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from tqdm import tqdm

from matheron.archive import digest
from matheron.arguments import require_between, require_finite, require_float, require_same
from matheron.operators import Operator
from matheron.seeds import draw_seed, permutation
from matheron.solvers.checkpoint import Checkpoint
from matheron.solvers.result import Result
from matheron.solvers.system import System

Monitor = Callable[[Tensor], Mapping[str, float]]
"""Called with the current solution, shaped like ``Z``, after each sweep; what it returns joins the trace, untimed."""


LIMIT = 30.0
"""Right-hand sides have unit norm, and so has the residual of zero; one this large has blown up."""


@dataclass
class Problem:
    """``(K + N) α = z`` with every column of ``z`` scaled to unit norm, in the order the solver walks it."""

    system: System
    targets: Float[Tensor, "n s"]
    guess: Float[Tensor, "n s"]
    generator: torch.Generator
    epochs: float
    extra: Mapping[str, Tensor]
    memory: dict[str, Tensor]

    def once(self, name: str, compute: Callable[[], Tensor]) -> Tensor:
        """A quantity measured before the first sweep; a resumed solve reads it from the checkpoint."""
        if name not in self.memory:
            self.memory[name] = compute()
        return self.memory[name]


class Iteration(ABC):
    """The state of one solve."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.system, self.targets = problem, problem.system, problem.targets
        self.events: list[str] = []
        self.finished = False
        self.known: Tensor | None = None
        """The residual of a guess that will do as it is, from a solver that begins by measuring it."""
        self.reference = torch.zeros((), dtype=self.system.dtype)

    state: ClassVar[tuple[str, ...]]
    """Names of the tensors that make up the state."""

    @abstractmethod
    def advance(self) -> Float[Tensor, " s"]:
        """About one epoch of work; returns an estimate of the residual that costs nothing more."""

    @property
    @abstractmethod
    def solution(self) -> Float[Tensor, "n s"]:
        """The current answer."""

    def blown_up(self, gradient: Float[Tensor, "b s"]) -> bool:
        """Whether the residual of some rows is far beyond that of zero and of the guess, or not a number."""
        largest = gradient.square().sum(0).max() * (self.system.n / len(gradient))
        if self.reference == 0:
            # What a poor guess begins with is no sign of divergence.
            self.reference = torch.where(largest.isfinite(), largest, 1.0).cpu().clamp_min(1.0)
        return not bool(largest.cpu() < LIMIT**2 * self.reference)


@dataclass(frozen=True)
class IterativeSolver(ABC):
    """``solve(system, Z)`` for at most ``epochs`` passes over the kernel matrix or until ``tolerance``."""

    epochs: float = 60.0
    tolerance: float = 0.01

    shuffles: ClassVar[bool] = True
    """Whether the rows are put in random order once, so that contiguous windows are random blocks."""

    needs_noise: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_between("epochs", self.epochs, 0.0, 1e9)
        require_between("tolerance", self.tolerance, 0.0, 1.0)

    @abstractmethod
    def start(self, problem: Problem) -> Iteration:
        """Measure what is needed and set up the state."""

    def solve(
        self,
        system: Operator,
        Z: Tensor,
        *,
        guess: Tensor | None = None,
        generator: torch.Generator | int | None = None,
        progress: bool = False,
        checkpoint: Checkpoint | Path | str | None = None,
        monitor: Monitor | None = None,
    ) -> Result:
        """Solve ``(K + N) α = Z`` for all columns of ``Z`` at once, ``(n,)`` or ``(n, s)``."""
        return self._solve(system, Z, guess, generator, progress, checkpoint, monitor, {})

    def _solve(
        self,
        operator: Operator,
        Z: Tensor,
        guess: Tensor | None,
        generator: torch.Generator | int | None,
        progress: bool,
        checkpoint: Checkpoint | Path | str | None,
        monitor: Monitor | None,
        extra: dict[str, Tensor],
    ) -> Result:
        system = System(operator, require_noise=self.needs_noise)
        targets = require_targets("Z", Z, system)
        start_from = torch.zeros_like(targets) if guess is None else require_targets("guess", guess, system)
        if start_from.shape != targets.shape:
            raise ValueError(
                f"guess has shape {tuple(start_from.shape)} but Z has {tuple(targets.shape)}; give the same"
            )
        with torch.no_grad():
            run = _Run(self, system, targets, start_from, generator, Checkpoint.of(checkpoint), extra)
            like_Z = None if monitor is None else lambda solution: monitor(solution.reshape(Z.shape))
            result = run.finish(progress, like_Z)
        return replace(result, solution=result.solution.reshape(Z.shape)).warn()


class _Run:
    """One call of ``solve``."""

    def __init__(
        self,
        solver: IterativeSolver,
        system: System,
        Z: Tensor,
        guess: Tensor,
        generator: torch.Generator | int | None,
        checkpoint: Checkpoint | None,
        extra: dict[str, Tensor],
    ) -> None:
        self.solver, self.checkpoint = solver, checkpoint
        self.scale = torch.where(Z.norm(dim=0) > 0, Z.norm(dim=0), 1.0)
        self.identity = {
            "solver": repr(solver),
            "rows": system.n,
            "columns": Z.shape[1],
            "targets": digest(Z),
            "system": digest(torch.cat([system.noise, system.block(slice(0, 8)).flatten()])),
        }
        saved = checkpoint.load(self.identity) if checkpoint else None
        tensors, header = saved if saved else ({}, {})
        self.seed = header["seed"] if saved else draw_seed(generator)
        source = torch.Generator().manual_seed(self.seed)
        self.order = permutation(system.n, source, system.device) if solver.shuffles else None
        self.trace: list[dict[str, Any]] = header.get("trace", [])
        self.before = header.get("seconds", 0.0)
        self.began = time.perf_counter()
        place = (lambda V: V) if self.order is None else (lambda V: V[self.order])
        self.problem = Problem(
            system if self.order is None else system.permuted(self.order),
            place(Z / self.scale),
            place(torch.where(Z.norm(dim=0) > 0, guess / self.scale, 0.0)),
            source,
            solver.epochs,
            {name: place(value / self.scale) for name, value in extra.items()},
            {name[5:]: value.to(system.device) for name, value in tensors.items() if name.startswith("once.")},
        )
        self.iteration = solver.start(self.problem)
        if saved:
            for name in self.iteration.state:
                setattr(self.iteration, name, tensors[f"state.{name}"].to(getattr(self.iteration, name).device))
            self.problem.generator.set_state(tensors["generator"])
            self.problem.system.entries = header["entries"]
            self.iteration.events = header["events"]
        elif checkpoint:
            self.save()

    def finish(self, progress: bool, monitor: Monitor | None) -> Result:
        """Sweep until the tolerance or the epochs are reached, then measure."""
        system, tolerance = self.problem.system, self.solver.tolerance
        known = self.iteration.known
        trust, measured = 1.0, None if known is None else (known, system.n)
        bar = tqdm(total=self.solver.epochs, disable=not progress, unit="epoch", desc=type(self.solver).__name__)
        bar.update(round(system.epochs, 2))
        while system.epochs + system.residual_cost < self.solver.epochs and not self.iteration.finished:
            seen, before = len(self.iteration.events), system.epochs
            estimate = self.iteration.advance()
            measured = None
            record: dict[str, Any] = {
                "epochs": system.epochs,
                "seconds": self.seconds,
                "estimate": float(estimate.max()),
            }
            self.trace.append(record)
            if self.iteration.events[seen:]:
                record["event"] = "; ".join(self.iteration.events[seen:])
            if monitor is not None:
                paused = time.perf_counter()
                record.update(monitor(self.unscaled()))
                self.began += time.perf_counter() - paused
            bar.update(round(system.epochs - before, 2))
            bar.set_postfix(residual=f"{float(estimate.max()):.2g}")
            if float(estimate.max()) * trust <= tolerance:
                measured = self.measure()
                if bool((measured[0] <= tolerance).all()):
                    break
                # Ask again only when the estimate has fallen by what it was off this time, so that checks stay few.
                trust = 1.2 * float(measured[0].max()) / max(float(estimate.max()), 1e-30)
            if self.checkpoint is not None and self.checkpoint.due:
                self.save()
        bar.close()
        residual, rows = measured if measured is not None else self.measure()
        if self.checkpoint is not None:
            self.checkpoint.remove()
        return Result(
            solution=self.unscaled(),
            residual=residual,
            residual_rows=rows,
            tolerance=tolerance,
            epochs=system.epochs,
            seconds=self.seconds,
            solver=repr(self.solver),
            trace=self.trace,
            seed=self.seed,
        )

    def measure(self) -> tuple[Tensor, int]:
        """The true residual, in units of the right-hand sides."""
        rows = torch.Generator().manual_seed(self.seed + 1)
        return self.problem.system.residual(self.iteration.solution, self.problem.targets, rows)

    def unscaled(self) -> Tensor:
        """The solution in the caller's units and order."""
        solution = self.iteration.solution * self.scale
        return solution if self.order is None else torch.empty_like(solution).index_copy_(0, self.order, solution)

    @property
    def seconds(self) -> float:
        """Time in the solve, earlier parts of an interrupted one too."""
        return self.before + time.perf_counter() - self.began

    def save(self) -> None:
        """Write a checkpoint."""
        assert self.checkpoint is not None
        tensors = {f"state.{name}": getattr(self.iteration, name) for name in self.iteration.state}
        tensors |= {f"once.{name}": value for name, value in self.problem.memory.items()}
        tensors["generator"] = self.problem.generator.get_state()
        header = {
            "identity": self.identity,
            "seed": self.seed,
            "entries": self.problem.system.entries,
            "events": self.iteration.events,
            "seconds": self.seconds,
            "trace": self.trace,
        }
        self.checkpoint.save(tensors, header)


def require_targets(name: str, value: Any, system: System) -> Float[Tensor, "n s"]:
    """Return ``value`` as columns ``(n, s)`` if it fits the system."""
    value = require_float(name, value)
    if value.ndim not in (1, 2) or value.shape[0] != system.n:
        raise ValueError(
            f"{name} has shape {tuple(value.shape)} but the system has {system.n} rows; "
            f"give ({system.n},) or ({system.n}, s)"
        )
    require_same(name, value, "the system", system)
    return require_finite(name, value.detach().reshape(system.n, -1))
