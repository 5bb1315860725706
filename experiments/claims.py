"""Claims: a published number, the measured one, and whether the measured one meets a stated requirement."""

from __future__ import annotations

import math
from dataclasses import dataclass

Number = float | int


@dataclass(frozen=True)
class Claim:
    """``holds`` is computed by the functions below from ``measured``; it is never typed in.

    >>> at_most("RMSE on pol", measured=0.079, limit=0.09, published=0.08)
    Claim(name='RMSE on pol', published=0.08, measured=0.079, requirement='≤ 0.09', holds=True)
    """

    name: str
    published: Number | str | None
    measured: Number | None
    requirement: str
    holds: bool


def at_most(name: str, *, measured: Number, limit: Number, published: Number | str | None = None) -> Claim:
    """``measured ≤ limit``; a measurement that is not a number does not hold."""
    return Claim(name, published, measured, f"≤ {limit:g}", bool(measured <= limit))


def at_least(name: str, *, measured: Number, limit: Number, published: Number | str | None = None) -> Claim:
    """``measured ≥ limit``."""
    return Claim(name, published, measured, f"≥ {limit:g}", bool(measured >= limit))


def within(
    name: str, *, measured: Number, target: Number, tolerance: Number, published: Number | str | None = None
) -> Claim:
    """``|measured − target| ≤ tolerance``."""
    holds = math.isfinite(measured) and bool(abs(measured - target) <= tolerance)
    return Claim(name, published, measured, f"{target:g} ± {tolerance:g}", holds)
