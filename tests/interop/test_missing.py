import importlib.util
import sys

import pytest


@pytest.mark.parametrize(
    ("adapter", "dependency"),
    [
        ("sklearn", "sklearn.base"),
        ("gpytorch", "gpytorch.kernels"),
        ("botorch", "botorch.models.ensemble"),
        ("rdkit", "rdkit"),
    ],
)
def test_a_missing_dependency_is_named_with_its_cure(adapter, dependency, monkeypatch):
    spec = importlib.util.find_spec(f"matheron.interop.{adapter}")
    monkeypatch.setitem(sys.modules, dependency, None)
    with pytest.raises(ImportError, match=rf"pip install 'matheron\[{adapter}\]'"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
