"""The page of a gallery: every record in a directory with its picture, what it reproduces, and what did not hold."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PAGE = "README.md"

HEAD = """# Gallery

Every experiment and benchmark as it was last run. A record `ID.json` has its settings, seeds, tables, the machine, and
its claims: what the thesis or an aim leads one to expect, the measured number, and whether the two agree. Requirements
stand in the code before a run. `quick` runs are small and take minutes; where one says less than a full run would, its
record says how it was shrunk. A run marked "so far" is not finished; its record names the parts to come.

| picture | what it shows | in the thesis | run | claims that hold |
|---|---|---|---|---|
"""


def index(directory: Path) -> Path:
    """Write the page for what is in ``directory``."""
    found = (json.loads(path.read_text(encoding="utf-8")) for path in directory.glob("*.json"))
    records = sorted((record for record in found if "claims" in record), key=place)
    text = HEAD + "".join(line(record) for record in records) + "\n## What does not hold\n" + exceptions(records)
    path = directory / PAGE
    path.write_text(text, encoding="utf-8")
    return path


def place(record: dict[str, Any]) -> tuple[list[int], str]:
    """By the first chapter, figure or table it names; those without one last."""
    numbers = re.search(r"\d+(\.\d+)*", "; ".join(record["reproduces"]))
    foreign = record["reproduces"][0].startswith("no figure")
    return ([99] if foreign or numbers is None else [int(n) for n in numbers[0].split(".")]), record["id"]


def line(record: dict[str, Any]) -> str:
    """One row of the table."""
    held = sum(claim["holds"] for claim in record["claims"])
    cells = (
        f"[{record['id']}]({record['id']}.png)",
        record["title"],
        "; ".join(record["reproduces"]),
        f"{record['budget']}, {duration(record['seconds'])}" + (" so far" if "pending" in record else ""),
        f"{held} of {len(record['claims'])}",
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def exceptions(records: Sequence[dict[str, Any]]) -> str:
    """Under the ID of each, the claims that do not hold."""
    parts = []
    for record in records:
        missed = [claim for claim in record["claims"] if not claim["holds"]]
        if missed:
            lines = [f"- {claim['name']}: {cell(claim['measured'], 3)}, expected {wanted(claim)}" for claim in missed]
            parts.append("\n".join([f"\n**{record['id']}** ({record['budget']})\n", *lines]) + "\n")
    return "".join(parts)


def wanted(claim: dict[str, Any]) -> str:
    """The requirement, and what was published."""
    published = claim["published"]
    return claim["requirement"] + ("" if published is None else f" (published: {cell(published, 3)})")


def cell(value: Any, digits: int = 4) -> str:
    """A value in few characters."""
    if value is None:
        return "–"
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def duration(seconds: float) -> str:
    """Seconds, minutes or hours."""
    for limit, unit, size in ((120.0, "s", 1.0), (7200.0, "min", 60.0)):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 3600:.1f} h"
