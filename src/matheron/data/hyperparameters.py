"""Hyperparameters published for the large UCI sets."""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor

from matheron.arguments import require_count
from matheron.data.files import Layout, Source, damaged
from matheron.data.tables import read_lines

# Fields as at the origin: scales are standard deviations, squared when handed out.
_Entry = dict[str, Any]
_Table = dict[str, dict[str, _Entry]]


@dataclass(frozen=True, eq=False)
class Hyperparameters:
    """Noise variance, signal variance and one lengthscale per input, for standardized inputs and targets.

    >>> Hyperparameters(0.01, 1.0, torch.tensor([0.5, 2.0], dtype=torch.float64)).lengthscale
    tensor([0.5000, 2.0000], dtype=torch.float64)
    """

    noise_variance: float
    signal_variance: float
    lengthscale: Float64[Tensor, " d"]


def published_hyperparameters(name: str, split: int, root: str | Path | None = None) -> Hyperparameters:
    """Return the Matérn-3/2 hyperparameters of Lin et al. (2023) for one split of a large UCI set."""
    require_count("split", split, least=0)
    table = SOURCE.read("the table of published hyperparameters", root)
    if name not in table:
        raise ValueError(f"no hyperparameters are published for name {name!r}; choose one of {', '.join(table)}")
    entry = table[name].get(str(split))
    if entry is None:
        raise ValueError(
            f"no hyperparameters are published for split {split} of {name}; "
            f"choose one of {', '.join(table[name])} or fit them"
        )
    return Hyperparameters(
        noise_variance=entry["noise_scale"] ** 2,
        signal_variance=entry["signal_scale"] ** 2,
        lengthscale=torch.tensor(entry["length_scale"], dtype=torch.float64),
    )


def read_json(path: Path) -> _Table:
    """Read ``{name: {split: {noise_scale, signal_scale, length_scale}}}``."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        entries = [entry for splits in table.values() for entry in splits.values()]
        whole = all(_complete(entry) for entry in entries)
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        raise damaged(path, f"is not the table of hyperparameters ({error!r})") from error
    if not entries or not whole:
        raise damaged(path, "has entries without a positive noise_scale, signal_scale and length_scale")
    return table


def read_text(path: Path) -> _Table:
    """Read the printed tuples of the original, leaving out the entries that are NaN there."""
    number = r"([-+.\deE]+|nan)"
    pattern = re.compile(
        rf"Dataset: (\w+), split (\d+)\s+\w+\(noise_scale={number}, signal_scale={number}, "
        r"length_scale=\w+\(\[([^\]]*)\]"
    )
    table: _Table = {}
    for name, split, noise, signal, lengths in pattern.findall("\n".join(read_lines(path))):
        entry = {
            "noise_scale": float(noise),
            "signal_scale": float(signal),
            "length_scale": [float(length) for length in lengths.split(",")],
        }
        if _complete(entry):
            table.setdefault(name, {})[split] = entry
    if not table:
        raise damaged(path, "has no entries 'Dataset: NAME, split I' followed by their hyperparameters")
    return table


def _complete(entry: _Entry) -> bool:
    values = [entry["noise_scale"], entry["signal_scale"], *entry["length_scale"]]
    return len(values) > 2 and all(math.isfinite(value) and value > 0 for value in values)


SOURCE: Source[_Table] = Source(
    origin="the repository cambridge-mlg/sgd-gp, scalable_gps/configs/uci_regression_hparams.txt",
    license="MIT",
    layouts=(
        Layout(("uci_gp_hparams_linetal2023.json",), read_json),
        Layout(("uci_regression_hparams.txt",), read_text),
    ),
)
