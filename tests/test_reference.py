"""Every public name stands on the page of names, and every public class has an example."""

import importlib
import importlib.util
import inspect
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

pytest.importorskip("sklearn")
pytest.importorskip("gpytorch")
pytest.importorskip("botorch")
pytest.importorskip("rdkit")

location = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "reference.py")
assert location is not None
assert location.loader is not None
reference = importlib.util.module_from_spec(location)
location.loader.exec_module(reference)


def test_the_page_is_that_of_the_names():
    written = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    assert written == reference.page(), "run `make reference`"


@pytest.mark.parametrize("package", reference.PACKAGES)
def test_every_public_class_has_an_example(package):
    module = importlib.import_module(package)
    classes = [(name, getattr(module, name)) for name in reference.public(module)]
    silent = [name for name, value in classes if inspect.isclass(value) and ">>>" not in (value.__doc__ or "")]
    assert not silent


def test_a_summary_is_the_first_paragraph_in_markdown():
    def f():
        """``a + b`` of :func:`~matheron.load`,
        on two lines.

        More.
        """

    assert reference.summary(f) == "`a + b` of `load`, on two lines."
