"""Posterior mean and 64 functions at given hyperparameters: seconds and memory to a good test NLL, ours and GPyTorch's.

Every method runs in a fresh child process under a memory limit and sees no test target before it ends. The clock starts
with the data in memory. GPyTorch's exact GP is asked for mean and variance at the test inputs only, in both of its
ways; its SVGP is trained to the plateau of its bound. Peers are stopped after ``patience`` times the seconds of ours,
where nothing is left to be decided, and the record says so; what SVGP had reached by then stays in it. ``growth`` times
our posterior alone on more and more rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from matplotlib.figure import Figure

import matheron as mt
from experiments import style
from experiments.claims import Claim, at_least, at_most
from experiments.gp_methods import gpytorch_exact, gpytorch_svgp, posterior
from experiments.harness import Experiment, Progress, Record, Report
from experiments.peer import GIB, Peer
from experiments.uci_regression import make_task

CLOSE = 0.02
"""How far above the best NLL of all methods counts as equal quality."""

OURS = "matheron"
HOUSE = "houseelectric_subset"


@dataclass(frozen=True)
class Config:
    """Sizes; ``rows`` training rows of each set at most, and fewer epochs where the matrix is too large to be kept."""

    rows: int | None
    sets: tuple[str, ...] = ("pol", "elevators", "bike", "protein", HOUSE)
    house_rows: int = 100_000
    house_epochs: float = 20.0
    samples: int = 64
    svgp_points: tuple[int, ...] = (1024,)
    svgp_epochs: int = 200
    growth: tuple[int, ...] = (5_000, 10_000, 20_000, 50_000, 100_000, 230_000)
    growth_epochs: float = 4.0
    memory: int = 20 * GIB
    timeout: float = 2 * 3600.0
    patience: float = 2.0
    least_patience: float = 300.0
    seed: int = 0


def matheron(name: str, rows: int | None, samples: int, seed: int, epochs: float = 60.0) -> Callable[[], Any]:
    """Ours, as a user calls it."""
    task = make_task(name, 0, rows)
    return lambda: posterior(task, mt.solvers.Auto(epochs=epochs), num_samples=samples, seed=seed).as_dict()


def peer_exact(name: str, rows: int | None, fast_variance: bool) -> Callable[[], Any]:
    """GPyTorch's exact GP."""
    task = make_task(name, 0, rows)
    return lambda: gpytorch_exact(task, fast_variance=fast_variance).as_dict()


def peer_svgp(name: str, rows: int | None, points: int, epochs: int, seed: int, seconds: float) -> Callable[[], Any]:
    """GPyTorch's SVGP."""
    task = make_task(name, 0, rows)
    return lambda: gpytorch_svgp(task, points=points, seed=seed, most_epochs=epochs, most_seconds=seconds).as_dict()


def data_of(config: Config, name: str) -> dict[str, Any]:
    """Which rows every child loads."""
    if name != HOUSE:
        return {"name": name, "rows": config.rows}
    return {"name": name, "rows": min(config.rows or config.house_rows, config.house_rows)}


def peers(config: Config, name: str, seconds: float) -> dict[str, tuple[str, dict[str, Any]]]:
    """What each child of GPyTorch is asked for."""
    data = data_of(config, name)
    found = {
        "exact, GPyTorch": ("peer_exact", {**data, "fast_variance": False}),
        "exact, GPyTorch, fast variance": ("peer_exact", {**data, "fast_variance": True}),
    }
    for points in config.svgp_points:
        settings = {"points": points, "epochs": config.svgp_epochs, "seed": config.seed, "seconds": seconds}
        found[f"SVGP {points:,}, GPyTorch"] = ("peer_svgp", data | settings)
    return found


def measure(config: Config, target: str, arguments: dict[str, Any], seconds: float | None = None) -> dict[str, Any]:
    """One run in one child, of so many seconds at most; SVGP ends by itself and is only given time to score."""
    peer = Peer(f"benchmarks.gp_posterior:{target}", arguments, memory=config.memory, timeout=config.timeout)
    if seconds is not None and target == "peer_exact":
        peer.timeout = seconds
    peer.run()
    answer = {"ended": peer.ended} if peer.ended else dict(peer.runs[-1])
    peer.close()
    return answer


def run(config: Config, progress: Progress) -> Report:
    """Every set and method, then the growth."""
    table, curves = [], {}
    for name in progress(config.sets, "sets"):
        arguments = {**data_of(config, name), "samples": config.samples, "seed": config.seed}
        if name == HOUSE:
            arguments["epochs"] = config.house_epochs
        ours = progress.once(f"{name} {OURS}", lambda arguments=arguments: measure(config, "matheron", arguments))
        mine = ours["trace"][-1]["seconds"] if "trace" in ours else config.timeout
        seconds = max(config.least_patience, config.patience * mine)
        answers = {OURS: ours}
        for method, (target, arguments) in progress(peers(config, name, seconds).items(), "peers"):
            answers[method] = progress.once(
                f"{name} {method}", lambda a=(target, arguments, seconds): measure(config, *a)
            )
        curves[name] = {method: answer.get("trace", []) for method, answer in answers.items()}
        table += compare(name, answers)
    growth = []
    for n in progress(config.growth, "growth"):
        arguments = {"name": HOUSE, "rows": n, "samples": config.samples, "seed": config.seed}
        arguments["epochs"] = config.growth_epochs
        answer = progress.once(f"growth {n}", lambda arguments=arguments: measure(config, "matheron", arguments))
        if "trace" in answer:
            last = answer["trace"][-1]
            growth.append({"rows": n, "seconds": last["seconds"], "peak": answer["peak"], "rmse": last["rmse"]})
    curves["growth"] = growth
    return Report(table, claims(table, growth), curves)


def compare(name: str, answers: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Final scores, and seconds until within ``CLOSE`` of the best NLL of all."""
    finals = [answer["trace"][-1]["nll"] for answer in answers.values() if answer.get("trace")]
    goal = min((nll for nll in finals if math.isfinite(nll)), default=math.nan) + CLOSE
    rows = []
    for method, answer in answers.items():
        trace = answer.get("trace") or [{}]
        there = next((step["seconds"] for step in trace if step.get("nll", math.inf) <= goal), None)
        rows.append(
            {
                "set": name,
                "method": method,
                **{key: trace[-1].get(key) for key in ("rmse", "nll", "seconds")},
                "seconds_to_goal": there,
                "peak_gib": answer["peak"] / GIB if "peak" in answer else None,
                "ended": answer.get("ended") or ("stopped before its plateau" if answer.get("capped") else None),
            }
        )
    return rows


def claims(table: list[dict[str, Any]], growth: list[dict[str, Any]]) -> list[Claim]:
    """The fastest on each set, and at least three times GPyTorch's exact GP where that is as good."""
    found = []
    for name in dict.fromkeys(row["set"] for row in table):
        here = {row["method"]: row for row in table if row["set"] == name}
        mine = here[OURS]["seconds_to_goal"] or math.inf
        others = {m: row["seconds_to_goal"] for m, row in here.items() if m != OURS and row["seconds_to_goal"]}
        best = min(others.values(), default=math.inf)
        ratio = 0.0 if math.isinf(best) and math.isfinite(mine) else mine / best
        found.append(at_most(f"{name}: seconds to a good NLL over the best peer's", measured=ratio, limit=1))
        exact = [seconds for method, seconds in others.items() if method.startswith("exact")]
        if exact:
            found.append(
                at_least(f"{name}: times faster than GPyTorch's exact GP", measured=min(exact) / mine, limit=3)
            )
    if len(growth) > 1:
        found.append(at_most("slope of log seconds against log rows", measured=slope(growth), limit=2.1))
    return found


def slope(growth: list[dict[str, Any]]) -> float:
    """By least squares on the logarithms."""
    x = torch.tensor([math.log(row["rows"]) for row in growth], dtype=torch.float64)
    y = torch.tensor([math.log(row["seconds"]) for row in growth], dtype=torch.float64)
    return float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())


def draw(record: Record) -> Figure:
    """Test NLL against seconds per set, and seconds against rows."""
    curves = dict(record["curves"])
    growth = curves.pop("growth")
    figure, axes = style.panels(len(curves) + 1, width=3.4, height=3.4)
    colors: dict[str, str] = {}
    for ax, (name, traces) in zip(axes, curves.items(), strict=False):
        for method, trace in traces.items():
            color = colors.setdefault(method, style.COLORS[len(colors) % len(style.COLORS)])
            steps = [step for step in trace if step.get("nll") is not None]
            label = method if ax is axes[0] else None
            ax.plot([s["seconds"] for s in steps], [s["nll"] for s in steps], "o-", ms=3, color=color, label=label)
        finals = [trace[-1]["nll"] for trace in traces.values() if trace and trace[-1].get("nll") is not None]
        if finals:
            ax.axhspan(min(finals), min(finals) + CLOSE, color=style.LIGHT, zorder=0)
            ax.set_ylim(min(finals) - 0.1, max(min(finals) + 2.0, sorted(finals)[len(finals) // 2] + 0.2))
        ax.set(title=name, xlabel="seconds")
        style.log_seconds(ax)
    axes[0].set_ylabel("test NLL")
    last = axes[-1]
    if growth:
        last.plot([g["rows"] for g in growth], [g["seconds"] for g in growth], "o-", color=style.BLUE)
        last.set(title=f"Growth, slope {slope(growth):.2f}" if len(growth) > 1 else "Growth")
    last.set(xscale="log", yscale="log", xlabel="rows", ylabel="seconds")
    figure.legend(loc="outside lower center", ncols=5, frameon=False)
    return figure


FULL = Config(rows=None)

EXPERIMENT = Experiment(
    id="gp-posterior",
    title="Gaussian-process posteriors: seconds to a good NLL, beside GPyTorch",
    reproduces=("no figure of the thesis: section 4.5.1 against today's library",),
    budgets={
        "quick": replace(
            FULL,
            rows=6_000,
            sets=("elevators",),
            svgp_points=(512,),
            svgp_epochs=20,
            growth=(5_000, 10_000, 20_000),
            growth_epochs=5.0,
            least_patience=60.0,
        ),
        "full": FULL,
        "thesis": replace(FULL, svgp_points=(1024, 3000)),
    },
    run=run,
    draw=draw,
    data=lambda config: tuple(dict.fromkeys((*config.sets, HOUSE))),
    sizes=lambda config: {"rows": config.rows or "all", "sets": len(config.sets), "samples": config.samples},
)
