"""Checks of arguments: each error names the argument, what was wrong with it, and what to do."""

import math
import numbers
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def require_float(name: str, value: Any) -> Tensor:
    """Return ``value`` as it is if it is a floating-point tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}; convert it with torch.as_tensor")
    if value.dtype.is_complex:
        raise TypeError(
            f"{name} has dtype {value.dtype}; real numbers in floating point are needed: "
            f"torch.view_as_real({name}) has the real parts and the imaginary ones"
        )
    if not value.dtype.is_floating_point:
        raise TypeError(f"{name} has dtype {value.dtype}; convert it to floating point, for example {name}.float()")
    return value


def require_finite(name: str, value: Tensor) -> Tensor:
    """Return ``value`` as it is if no entry is NaN or infinite."""
    finite = torch.isfinite(value)
    if not bool(finite.all()):
        bad = int((~finite).sum())
        first = tuple(int(i) for i in (~finite).nonzero()[0])
        raise ValueError(
            f"{name} has {bad} NaN or infinite entries, the first at index {first}; remove or impute these rows"
        )
    return value


def require_inputs(name: str, value: Any) -> Tensor:
    """Return ``value`` if it is a finite floating-point matrix ``(n, d)`` with at least one row and one column."""
    value = require_float(name, value)
    if value.ndim != 2:
        raise ValueError(
            f"{name} must have shape (n, d), got {tuple(value.shape)}; one input column is {name}[:, None]"
        )
    if value.shape[0] == 0:
        raise ValueError(f"{name} has no rows; give it at least one")
    if value.shape[1] == 0:
        raise ValueError(f"{name} has no columns; give it at least one")
    return require_finite(name, value)


def require_same(name: str, value: Any, other_name: str, other: Any) -> None:
    """Refuse ``value`` if its dtype or device is not that of ``other``."""
    if value.dtype != other.dtype:
        raise TypeError(
            f"{name} is {value.dtype} but {other_name} is {other.dtype}; "
            f"convert one, for example {name}.to({other.dtype})"
        )
    if value.device != other.device:
        raise ValueError(f"{name} is on {value.device} but {other_name} is on {other.device}; move one of them")


def require_numbers(name: str, value: Any) -> Tensor:
    """Return ``value``, a number, a sequence, an array or a tensor of them, as a float64 tensor without history."""
    if isinstance(value, Tensor):
        if value.dtype.is_complex:
            raise TypeError(f"{name} is complex, {value.dtype}; give real numbers")
        return value.detach().to(torch.float64)
    try:
        # A Python number must not pass through float32 on its way to float64.
        return torch.as_tensor(value, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} must be a number, or a list or tensor of numbers, got {value!r}") from error


def require_positive(name: str, value: float | Sequence[float] | Tensor, *, zero: bool = False) -> Tensor:
    """Return ``value`` as a float64 tensor if it is finite and positive (``zero=True`` allows zeros)."""
    tensor = require_numbers(name, value)
    if tensor.numel() == 0:
        raise ValueError(f"{name} is empty; give it at least one value")
    require_finite(name, tensor)
    if bool((tensor < 0).any()) or (not zero and bool((tensor == 0).any())):
        wanted = "zero or positive" if zero else "positive"
        raise ValueError(f"{name} must be {wanted}, got {float(tensor.min()):g}; in natural units, not as a logarithm")
    return tensor


def require_number(name: str, value: Any) -> float:
    """Return ``value`` if it is one finite number, of Python, NumPy or PyTorch."""
    tensor = require_finite(name, require_numbers(name, value))
    if tensor.numel() != 1:
        raise ValueError(f"{name} must be one number, got {tensor.numel()} of them, of shape {tuple(tensor.shape)}")
    return float(tensor)


def require_positive_number(name: str, value: Any, *, zero: bool = False) -> float:
    """Return ``value`` if it is one finite positive number (``zero=True`` allows zero)."""
    require_positive(name, value, zero=zero)
    return require_number(name, value)


def require_count(name: str, value: Any, *, least: int = 1) -> int:
    """Return ``value`` if it is a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return int(value)


def require_between(name: str, value: float, low: float, high: float) -> float:
    """Return ``value`` if ``low < value <= high``."""
    if not (isinstance(value, numbers.Real) and math.isfinite(value) and low < value <= high):
        raise ValueError(f"{name} must lie in ({low:g}, {high:g}], got {value!r}")
    return float(value)
