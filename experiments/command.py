"""The command line shared by ``python -m experiments`` and ``python -m benchmarks``."""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from experiments.gallery import cell, index
from experiments.harness import BUDGETS, Experiment, Progress, Record, discover, draw, perform, plain, plan, write
from experiments.ledger import NotMeasured
from matheron.data import DataNotFound

GALLERY = Path("docs/gallery")


def main(package: str, arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, or 2 where an ID is unknown or a data set is missing."""
    options = parser(package).parse_args(arguments)
    found = discover(package)
    if options.id == "list":
        for experiment in found.values():
            print(f"{experiment.id:24} {experiment.title}\n{'':24} {'; '.join(experiment.reproduces)}")
        return 0
    if options.id == "index":
        print(f"wrote {index(options.out)}")
        return 0
    if options.id != "all" and options.id not in found:
        print(f"{options.id} is not one of the {package}: {', '.join(found)}", file=sys.stderr)
        return 2
    chosen = list(found.values()) if options.id == "all" else [found[options.id]]
    try:
        chosen = [altered(experiment, options.budget, options.set) for experiment in chosen]
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return max(attempt(experiment, options) for experiment in chosen)


def parser(package: str) -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(prog=f"python -m {package}", description=f"Run {package} and draw their pictures.")
    parser.add_argument("id", help="an ID, `all`, `list` for the IDs, or `index` for the page of a gallery")
    parser.add_argument("--budget", choices=BUDGETS, default="quick", help="minutes, hours, or the thesis' size")
    parser.add_argument("--out", type=Path, default=GALLERY, help=f"where ID.json and ID.png land ({GALLERY})")
    parser.add_argument(
        "--set", action="append", default=[], metavar="FIELD=VALUE", help="another value in the budget's configuration"
    )
    parser.add_argument(
        "--parts",
        type=pattern,
        metavar="PATTERN",
        help="of a long run those parts whose name has this regular expression, so that several processes can share it",
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--dry-run", action="store_true", help="say what would be run, without computing")
    kind.add_argument("--so-far", action="store_true", help="a record of the parts measured so far, of a long run")
    kind.add_argument("--redraw", action="store_true", help="draw ID.png again from ID.json")
    return parser


def pattern(text: str) -> str:
    """A regular expression, or argparse's error."""
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None
    return text


def altered(experiment: Experiment, budget: str, changes: Sequence[str]) -> Experiment:
    """With other values in one budget's configuration, each of the kind that stands there: ``depth=18``."""
    config = experiment.budgets[budget]
    known = {f.name: getattr(config, f.name) for f in fields(config)}
    values: dict[str, Any] = {}
    for change in changes:
        name, given, text = change.partition("=")
        if not given or name not in known:
            raise ValueError(f"--set {change}: write FIELD=VALUE with one of {', '.join(known)}")
        try:
            value = text if isinstance(known[name], str) else ast.literal_eval(text)
        except (ValueError, SyntaxError):
            value = text
        if isinstance(known[name], float) and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if known[name] is not None and type(value) is not type(known[name]):
            kind = type(known[name]).__name__
            raise ValueError(f"--set {change}: {name} is a {kind}, such as {known[name]!r}")
        values[name] = value
    return (
        replace(experiment, budgets={**experiment.budgets, budget: replace(config, **values)}) if values else experiment
    )


def attempt(experiment: Experiment, options: argparse.Namespace) -> int:
    """One experiment; a missing data set is said and not raised."""
    try:
        if options.dry_run:
            print(json.dumps(plain(plan(experiment, options.budget)), indent=1, ensure_ascii=False))
            return 0
        if not options.redraw:
            progress = Progress(visible=sys.stderr.isatty())
            record = perform(
                experiment, options.budget, progress, options.out, so_far=options.so_far, only=options.parts
            )
            path = write(record, options.out)
            print(summary(record))
            print(f"wrote {path}")
        print(f"wrote {draw(experiment, options.out)}")
        index(options.out)
    except (DataNotFound, NotMeasured) as error:
        print(f"{experiment.id}: {error}", file=sys.stderr)
        return 2
    except FileNotFoundError as error:
        if not options.redraw:
            raise
        print(f"{experiment.id}: there is no {error.filename} to draw; run it first", file=sys.stderr)
        return 2
    return 0


def summary(record: Record) -> str:
    """The table and the claims, as text."""
    lines = [f"{record['title']} ({record['budget']}, {record['seconds']:.0f} s)", *grid(record["table"])]
    for claim in record["claims"]:
        mark = "holds" if claim["holds"] else "DOES NOT HOLD"
        published = "" if claim["published"] is None else f", published {cell(claim['published'])}"
        lines.append(f"  {mark}: {claim['name']}: {cell(claim['measured'])} ({claim['requirement']}{published})")
    if pending := record.get("pending"):
        lines.append(f"  not measured yet: {', '.join(pending)}")
    return "\n".join(lines)


def grid(table: Sequence[Record]) -> list[str]:
    """Rows under the union of their columns."""
    columns = list(dict.fromkeys(key for row in table for key in row))
    cells = [columns, *([cell(row.get(column)) for column in columns] for row in table)]
    widths = [max(len(row[position]) for row in cells) for position in range(len(columns))]
    return ["  " + "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in cells]
