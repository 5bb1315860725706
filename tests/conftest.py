"""Fixtures shared by all tests."""

from collections.abc import Iterator

import jaxtyping
import pytest
import torch
from hypothesis import settings

# Tests never look at the clock.
settings.register_profile("matheron", deadline=None)
settings.load_profile("matheron")


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Turn the run-time shape checks off: what users see of bad input are the library's own errors."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def generator() -> torch.Generator:
    """A fresh generator with a fixed seed."""
    return torch.Generator().manual_seed(0)
