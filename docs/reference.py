"""Write ``reference.md``: every public name in a line, from its docstring."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGES = (
    "matheron",
    "matheron.kernels",
    "matheron.operators",
    "matheron.solvers",
    "matheron.gp",
    "matheron.gp.fitting",
    "matheron.linear",
    "matheron.linear.exact",
    "matheron.linear.bounds",
    "matheron.networks",
    "matheron.tomography",
    "matheron.decisions",
    "matheron.evaluation",
    "matheron.data",
    "matheron.interop.sklearn",
    "matheron.interop.gpytorch",
    "matheron.interop.botorch",
    "matheron.interop.rdkit",
)

HEAD = """# Reference

Every public name in a line. `help(mt.solvers.CG)` has the rest: shapes, what the arguments mean, and an example that
runs. `mt` is `matheron`; `mt.data` and what is under `mt.interop` are imported by their names. This page is written by
`make reference`.
"""


def page() -> str:
    """The text of all of it."""
    return HEAD + "".join(section(importlib.import_module(name)) for name in PACKAGES)


def section(module: ModuleType) -> str:
    """A package: what it is, and its names."""
    title = module.__name__.replace("matheron", "mt", 1)
    names = public(module)
    return f"\n## `{title}`\n\n{summary(module)}\n\n" + "".join(line(name, getattr(module, name)) for name in names)


def public(module: ModuleType) -> list[str]:
    """Classes, functions and values that it means to show; what is a package has a section of its own."""
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    shown = getattr(module, "__all__", [name for name in own if not name.startswith("_")])
    return sorted((name for name in shown if not inspect.ismodule(getattr(module, name))), key=str.casefold)


def line(name: str, value: Any) -> str:
    """Its arguments and the first paragraph of its docstring."""
    return f"- **`{name}{arguments(value)}`**: {summary(value)}\n" if callable(value) else f"- **`{name}`**\n"


def arguments(value: Any) -> str:
    """Names alone."""
    abstract = inspect.isclass(value) and (inspect.isabstract(value) or getattr(value, "_is_protocol", False))
    if abstract or (inspect.isclass(value) and issubclass(value, Exception)):
        return ""
    names = (name for name in inspect.signature(value).parameters if not name.startswith("_"))
    return f"({', '.join(name for name in names if name not in ('args', 'kwargs'))})"


def summary(value: Any) -> str:
    """The first paragraph, in Markdown."""
    text = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
    text = re.sub(r":\w+:`~?([^`]*?)`", lambda found: f"`{found[1].rsplit('.', 1)[-1]}`", text)
    return text.replace("``", "`")


if __name__ == "__main__":
    Path(__file__).with_suffix(".md").write_text(page(), encoding="utf-8")
