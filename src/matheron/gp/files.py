"""Posteriors in files."""

from __future__ import annotations

from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from matheron import kernels, solvers
from matheron.archive import Archive, Kind
from matheron.arguments import require_finite, require_positive
from matheron.gp.conditioning import Conditioning
from matheron.gp.draws import PriorFunctions
from matheron.gp.inducing import InducingConditioning
from matheron.gp.inducing_sgd import InducingSGD
from matheron.gp.observations import require_rows
from matheron.gp.paths import Paths
from matheron.gp.posterior import Posterior
from matheron.gp.report import Report
from matheron.gp.standardization import Standardization
from matheron.kernels import Kernel, Product, Scaled, Sum
from matheron.kernels.rows import csr, take_rows

POSTERIOR = Kind("posterior", 1)

KERNELS: dict[str, type[Kernel]] = {
    name: value
    for name, value in vars(kernels).items()
    if isinstance(value, type) and issubclass(value, Kernel) and value is not Kernel
}
SOLVERS: dict[str, Any] = {
    name: value for name, value in {**vars(solvers), "InducingSGD": InducingSGD}.items() if is_dataclass(value)
}
DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (torch.float32, torch.float64)}
STATISTICS = tuple(field.name for field in fields(Standardization))


def save(posterior: Posterior, path: Path | str) -> None:
    """See :meth:`Posterior.save`."""
    system, paths = posterior.conditioning, posterior.paths
    tensors = {
        "row_noise": system.row_noise,
        "targets": system.targets,
        "center": system.center,
        "mean_weights": paths.mean_weights,
        "sample_weights": paths.sample_weights,
        **{f"units.{name}": getattr(system.units, name) for name in STATISTICS},
        **{f"kernel.{name}": value for name, value in system.kernel.state_dict().items()},
        **_inputs("X", system.X),
    }
    if system.noise is not None:
        tensors["noise"] = system.noise
    if system.support is not system.X:
        tensors |= _inputs("Z", system.support)
    if system.prior is not None:
        tensors["prior.weights"] = system.prior.weights
        tensors |= {f"features.{name}": value for name, value in system.prior.features.state_dict().items()}
    header = {
        "kernel": describe_kernel(system.kernel),
        "solver": describe(system.solver),
        "features": None if system.prior is None else system.prior.num_features,
        "single": system.single,
        "dtype": str(system.dtype).removeprefix("torch."),
        "exact_variance": posterior.exact_variance,
        "report": asdict(posterior.report),
    }
    # A view of the same memory would be refused: every tensor is written as its own.
    Archive(POSTERIOR, {name: value.clone() for name, value in tensors.items()}, header).write(path)


def load_posterior(archive: Archive) -> Posterior:
    """The posterior as it was saved."""
    tensors, header = archive.tensors, archive.header
    try:
        kernel = build_kernel(header["kernel"], {k[7:]: v for k, v in tensors.items() if k.startswith("kernel.")})
        units = Standardization(*(tensors[f"units.{name}"] for name in STATISTICS))
        X = _read_inputs("X", tensors)
        parts: dict[str, Any] = {
            "kernel": kernel,
            "prior": _prior(kernel, X, tensors, header["features"]),
            "X": X,
            "row_noise": tensors["row_noise"],
            "targets": tensors["targets"],
            "center": tensors["center"],
            "noise": tensors.get("noise"),
            "units": units,
            "solver": build(header["solver"]),
            "single": header["single"],
            "dtype": DTYPES[header["dtype"]],
        }
        inducing = "Z" in tensors or "Z.values" in tensors
        system = InducingConditioning(_read_inputs("Z", tensors), **parts) if inducing else Conditioning(**parts)
        paths = Paths(
            kernel, system.support, tensors["mean_weights"], tensors["sample_weights"], parts["prior"],
            tensors["center"], units, single=header["single"], dtype=parts["dtype"],
        )  # fmt: skip
        _require_consistent(system, paths)
        return Posterior(paths, system, Report(**header["report"]), exact_variance=header["exact_variance"])
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError) as error:
        raise ValueError(f"the file is incomplete or was changed ({error!r}); write it again") from error


def _require_consistent(system: Conditioning, paths: Paths) -> None:
    """Refuse tensors that do not belong together, which a changed file may have."""
    for inputs in (system.X, system.support):
        require_rows(system.kernel, inputs, name="the file", least=1)
    n, m, c = system.X.shape[0], system.support.shape[0], len(system.center)
    functions = 0 if system.prior is None else system.prior.num
    units = system.units
    wanted = {
        "row_noise": (system.row_noise, (n,)),
        "targets": (system.targets, (n, c + functions)),
        "center": (system.center, (c,)),
        "mean_weights": (paths.mean_weights, (m, c)),
        "sample_weights": (paths.sample_weights, (m, functions)),
        **{name: (getattr(units, name), (system.X.shape[1],)) for name in STATISTICS[:2]},
        **{name: (getattr(units, name), (c,)) for name in STATISTICS[2:]},
    }
    for name, (tensor, shape) in wanted.items():
        if tuple(tensor.shape) != shape:
            raise TypeError(f"{name} has shape {tuple(tensor.shape)}, not {shape}")
        if name in STATISTICS:
            require_finite(f"{name} of the file", tensor)
        if name not in ("center", *STATISTICS) and tensor.dtype != system.support.dtype:
            raise TypeError(f"{name} are {tensor.dtype}, not {system.support.dtype}")
    require_positive("row_noise of the file", system.row_noise)
    if system.prior is not None and system.prior.weights.shape[0] != system.prior.features.num:
        raise TypeError(f"prior.weights are of {system.prior.weights.shape[0]} features")
    if c == 0 or functions % c:
        raise TypeError(f"there are {functions} functions for {c} outputs")
    for name, value in system.kernel.named_parameters():
        require_finite(f"kernel.{name} of the file", value)
    row = take_rows(system.support, slice(0, 1))
    if any(entry.shape != (1, 1) for entry in (system.kernel(row), system.kernel.diagonal(row)[:, None])):
        raise TypeError("hyperparameters of the kernel have shapes that are not theirs")


def describe_kernel(kernel: Kernel) -> dict[str, Any]:
    """The structure of a kernel in plain values; its numbers are in its state."""
    name = type(kernel).__name__
    if KERNELS.get(name) is not type(kernel):
        raise TypeError(
            f"a posterior with the kernel {name} cannot be saved, as loading would need its code; "
            "save the data and hyperparameters, or use kernels of matheron.kernels"
        )
    if isinstance(kernel, Sum | Product):
        return {"kind": name, "parts": [describe_kernel(part) for part in kernel]}
    if isinstance(kernel, Scaled):
        return {"kind": name, "part": describe_kernel(kernel.part)}
    return {"kind": name, "columns": kernel.columns}


def build_kernel(structure: dict[str, Any], state: dict[str, Tensor]) -> Kernel:
    """The kernel of this structure with these numbers."""
    kernel = _skeleton(structure)
    for name, value in state.items():
        *owners, last = name.split(".")
        owner: nn.Module = kernel
        for step in owners:
            owner = owner.get_submodule(step)
        if last not in owner._parameters:
            raise KeyError(f"kernel.{name}")
        owner._parameters[last] = nn.Parameter(value, requires_grad=False)
    return kernel.requires_grad_(False)


def _skeleton(structure: dict[str, Any]) -> Kernel:
    cls: Any = KERNELS[structure["kind"]]
    if "parts" in structure:
        return cls(*(_skeleton(part) for part in structure["parts"]))
    return cls(_skeleton(structure["part"])) if "part" in structure else cls(columns=structure["columns"])


def describe(value: Any) -> Any:
    """A frozen dataclass such as a solver in plain values, those inside it too."""
    if not is_dataclass(value) and not isinstance(value, Tensor):
        return value
    if isinstance(value, Tensor) or SOLVERS.get(type(value).__name__) is not type(value):
        raise TypeError(
            f"a posterior whose solver holds a {type(value).__name__} cannot be saved, as loading would need its code "
            "or its numbers; condition with a solver of matheron.solvers and its own preconditioners"
        )
    return {"kind": type(value).__name__} | {f.name: describe(getattr(value, f.name)) for f in fields(value)}


def build(structure: Any) -> Any:
    """What :func:`describe` described."""
    if not isinstance(structure, dict):
        return structure
    settings = {name: build(value) for name, value in structure.items() if name != "kind"}
    return SOLVERS[structure["kind"]](**settings)


def _prior(kernel: Kernel, X: Tensor, tensors: dict[str, Tensor], num: int | None) -> PriorFunctions | None:
    if num is None:
        return None
    features = kernel.features(num, dimension=X.shape[1], generator=torch.Generator().manual_seed(0))
    # The draws just made are replaced by those that were saved.
    features.load_state_dict({name[9:]: value for name, value in tensors.items() if name.startswith("features.")})
    return PriorFunctions(features, tensors["prior.weights"], num)


def _inputs(name: str, X: Tensor) -> dict[str, Tensor]:
    if X.layout == torch.strided:
        return {name: X}
    width = torch.tensor(X.shape[1])
    parts = {"rows": X.crow_indices(), "columns": X.col_indices(), "values": X.values(), "width": width}
    return {f"{name}.{part}": value for part, value in parts.items()}


def _read_inputs(name: str, tensors: dict[str, Tensor]) -> Tensor:
    if name in tensors:
        return tensors[name]
    rows, columns, values, width = (tensors[f"{name}.{part}"] for part in ("rows", "columns", "values", "width"))
    return csr(rows, columns, values, int(width))
