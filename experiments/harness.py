"""What an experiment is, and how one is run, recorded and drawn."""

from __future__ import annotations

import importlib
import inspect
import json
import math
import os
import pkgutil
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
from tqdm import tqdm

import matheron
from experiments.claims import Claim
from experiments.ledger import Ledger
from matheron.data import describe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BUDGETS = ("quick", "full", "thesis")
"""Five minutes on two cores; twelve hours on two cores; the size of the thesis."""

Config = TypeVar("Config")
Record = dict[str, Any]
"""A run as it stands in ``ID.json``."""


@dataclass(frozen=True)
class Progress:
    """A bar on a terminal, silence elsewhere.

    >>> [square for square in (n * n for n in Progress(visible=False)(range(3), "squares"))]
    [0, 1, 4]
    """

    visible: bool
    ledger: Ledger | None = None

    def __call__(self, items: Iterable[Any], label: str) -> Iterator[Any]:
        """Walk over ``items``."""
        return iter(tqdm(items, desc=label, disable=not self.visible, leave=False))

    def once(self, key: str, compute: Callable[[], Any]) -> Any:
        """A part of a long run, in plain values: measured once, also when the run is interrupted and started again."""
        return compute() if self.ledger is None else self.ledger.once(key, lambda: plain(compute()))

    def lacks(self, key: str) -> bool:
        """Whether a part is to be left out: the run gathers what there is so far, and this is not measured."""
        return self.ledger is not None and self.ledger.lacks(key)

    def note(self, text: str) -> None:
        """A line above the bar."""
        if self.visible:
            tqdm.write(text, file=sys.stderr)


@dataclass(frozen=True)
class Report:
    """What a run measured: rows of plain values, curves for the picture, and claims."""

    table: Sequence[Mapping[str, Any]]
    claims: Sequence[Claim] = ()
    curves: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment(Generic[Config]):
    """Sizes for each budget, a function that measures and one that draws the record of a run.

    ``data`` names the sets a configuration reads and ``sizes`` what it amounts to, both without computing. ``draw``
    sees the JSON only, so that pictures are redrawn without another run.
    """

    id: str
    title: str
    reproduces: tuple[str, ...]
    budgets: Mapping[str, Config]
    run: Callable[[Config, Progress], Report]
    draw: Callable[[Record], Figure]
    data: Callable[[Config], Sequence[str]] = lambda config: ()
    sizes: Callable[[Config], Mapping[str, Any]] = lambda config: {}

    def __post_init__(self) -> None:
        if set(self.budgets) != set(BUDGETS):
            raise ValueError(f"{self.id} has the budgets {sorted(self.budgets)}; give it {', '.join(BUDGETS)}")


def discover(package: str) -> dict[str, Experiment]:
    """Every module of ``package`` with an ``EXPERIMENT``; the ID is the module's name with hyphens."""
    found = {}
    for module_info in pkgutil.iter_modules(importlib.import_module(package).__path__):
        module = importlib.import_module(f"{package}.{module_info.name}") if module_info.name != "__main__" else None
        experiment = getattr(module, "EXPERIMENT", None)
        if experiment is None:
            continue
        if experiment.id != module_info.name.replace("_", "-"):
            raise ValueError(f"{package}/{module_info.name}.py has the ID {experiment.id}; name it after the file")
        found[experiment.id] = experiment
    return found


def plan(experiment: Experiment, budget: str) -> Record:
    """What a run would be, without computing: configuration, how it is shrunk, sets with their rows, sizes."""
    config, whole = experiment.budgets[budget], experiment.budgets["thesis"]
    if type(config) is not type(whole):
        raise TypeError(f"{experiment.id}: the configurations of {budget} and thesis must be of one class")
    here, thesis = asdict(config), asdict(whole)
    return {
        "id": experiment.id,
        "title": experiment.title,
        "reproduces": experiment.reproduces,
        "budget": budget,
        "config": here,
        "shrunk": {
            f.name: {"here": here[f.name], "thesis": thesis[f.name]}
            for f in fields(whole)
            if here[f.name] != thesis[f.name]
        },
        "data": {name: describe(name).rows for name in experiment.data(config)},
        "sizes": dict(experiment.sizes(config)),
    }


def perform(
    experiment: Experiment,
    budget: str,
    progress: Progress,
    directory: Path | None = None,
    *,
    so_far: bool = False,
    only: str | None = None,
) -> Record:
    """Run and return the record; with a ``directory``, parts measured before an interruption are read from there.

    With ``so_far`` nothing is measured, with ``only`` those parts that match: the record is of what there is, and names
    what is missing.
    """
    header = plan(experiment, budget)
    ledger = None
    if directory is not None:
        source = inspect.getsource(importlib.import_module(experiment.run.__module__))
        path, identity = directory / f"{experiment.id}.partial", json.dumps(plain(header)) + source
        ledger = Ledger(path, identity, so_far=so_far, only=only)
    before = 0.0 if ledger is None else ledger.seconds
    began = time.perf_counter()
    report = experiment.run(experiment.budgets[budget], replace(progress, ledger=ledger))
    if ledger is not None:
        ledger.close()
    measured = {
        "seconds": time.perf_counter() - began + before,
        "machine": machine(),
        "table": report.table,
        "curves": report.curves,
        "claims": [asdict(claim) for claim in report.claims],
    }
    pending = {"pending": ledger.pending} if ledger is not None and ledger.pending else {}
    return plain(header | measured | pending)


def machine() -> Record:
    """Where a run was made."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "peak_memory_bytes": peak_memory(resource.RUSAGE_SELF),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "matheron": matheron.__version__,
    }


def processor() -> str:
    """The model where the system tells it, else the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def peak_memory(who: int) -> int:
    """The largest resident set in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(who).ru_maxrss * unit


def plain(value: Any) -> Any:
    """``value`` as JSON writes it: numbers that are not finite become null, tuples become lists."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, torch.Tensor):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    raise TypeError(f"a record holds plain values, got {type(value).__name__}; convert it in run()")


def write(record: Record, directory: Path) -> Path:
    """``ID.json``, whole or not at all."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{record['id']}.json"
    beside = path.with_name(path.name + ".part")
    beside.write_text(json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(beside, path)
    return path


def draw(experiment: Experiment, directory: Path) -> Path:
    """``ID.png`` from ``ID.json``."""
    from experiments import style

    record = json.loads((directory / f"{experiment.id}.json").read_text(encoding="utf-8"))
    path = directory / f"{experiment.id}.png"
    with style.applied():
        style.save(experiment.draw(record), path)
    return path
