"""Fixtures shared by all tests."""

import os
from collections.abc import Iterator

import jaxtyping
import pytest
import torch
from hypothesis import settings

# Tests never look at the clock, and a commit has one verdict; --hypothesis-profile=explore looks at other examples.
settings.register_profile("matheron", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("matheron")

# Workers share the cores; threads of their own would only wait for each other.
if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Start every test from the same state of the global generator, whatever ran before it."""
    torch.manual_seed(0)


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
