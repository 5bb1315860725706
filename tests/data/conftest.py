import os
from collections.abc import Callable, Iterator

import jaxtyping
import pytest

from matheron import data


@pytest.fixture(scope="session")
def stored() -> Callable[[str], data.Dataset]:
    """Load a set from MATHERON_DATA once per session, or skip the test where it is not there."""
    loaded: dict[str, data.Dataset] = {}

    def load(name: str) -> data.Dataset:
        if not os.environ.get("MATHERON_DATA"):
            pytest.skip("MATHERON_DATA is not set: no data directory to read")
        if name not in loaded:
            try:
                loaded[name] = data.load(name)
            except data.DataNotFound as error:
                pytest.skip(f"{name} is not in MATHERON_DATA: {str(error).splitlines()[0]}")
        return loaded[name]

    return load


@pytest.fixture
def without_shape_checks() -> Iterator[None]:
    """Construct sets as a user would, to whom the library's own errors speak and not those of the test run."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
