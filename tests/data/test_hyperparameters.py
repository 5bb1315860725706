import json
import os
from pathlib import Path

import pytest
import torch

from matheron import data

TEXT = """Dataset: pol, split 0
HparamsTuple(noise_scale=0.5, signal_scale=2.0, length_scale=Array([ 0.25 ,
        1.5e+01], dtype=float32))

Dataset: 3droad, split 3
HparamsTuple(noise_scale=nan, signal_scale=nan, length_scale=Array([nan, nan, nan], dtype=float32))

Dataset: 3droad, split 4
HparamsTuple(noise_scale=0.1, signal_scale=0.3, length_scale=Array([1.,2.,3.],      dtype=float32))
"""
TABLE = {
    "pol": {"0": {"noise_scale": 0.5, "signal_scale": 2.0, "length_scale": [0.25, 15.0]}},
    "3droad": {"4": {"noise_scale": 0.1, "signal_scale": 0.3, "length_scale": [1.0, 2.0, 3.0]}},
}


@pytest.fixture(params=["json", "text"])
def root(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    if request.param == "json":
        (tmp_path / "uci_gp_hparams_linetal2023.json").write_text(json.dumps(TABLE))
    else:
        (tmp_path / "uci_regression_hparams.txt").write_text(TEXT)
    return tmp_path


def test_scales_become_variances(root: Path) -> None:
    found = data.published_hyperparameters("pol", 0, root)
    assert (found.noise_variance, found.signal_variance) == (0.25, 4.0)
    assert found.lengthscale.tolist() == [0.25, 15.0]


def test_missing_entries_name_the_present_ones(root: Path) -> None:
    with pytest.raises(ValueError, match="split 3 of 3droad; choose one of 4"):
        data.published_hyperparameters("3droad", 3, root)
    with pytest.raises(ValueError, match=r"'mnist'; choose one of pol, 3droad"):
        data.published_hyperparameters("mnist", 0, root)


def test_a_missing_table_says_where_it_comes_from(tmp_path: Path) -> None:
    with pytest.raises(data.DataNotFound, match="cambridge-mlg/sgd-gp"):
        data.published_hyperparameters("pol", 0, tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"pol": {"0": {"noise_scale": 1}}}', '{"pol": 3}'])
def test_damaged_json_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "uci_gp_hparams_linetal2023.json").write_text(content)
    with pytest.raises(ValueError, match=r"uci_gp_hparams_linetal2023\.json"):
        data.published_hyperparameters("pol", 0, tmp_path)


def test_text_without_entries_is_named(tmp_path: Path) -> None:
    (tmp_path / "uci_regression_hparams.txt").write_text("nothing here\n")
    with pytest.raises(ValueError, match=r"uci_regression_hparams\.txt has no entries"):
        data.published_hyperparameters("pol", 0, tmp_path)


def test_stored_table_covers_the_benchmarks() -> None:
    if not os.environ.get("MATHERON_DATA"):
        pytest.skip("MATHERON_DATA is not set: no data directory to read")
    try:
        found = data.published_hyperparameters("pol", 0)
    except data.DataNotFound:
        pytest.skip("the published hyperparameters are not in MATHERON_DATA")
    assert found.lengthscale.shape == (26,)
    assert abs(found.noise_variance - 0.03674088791012764**2) < 1e-12
    with pytest.raises(ValueError, match="split 3 of 3droad"):
        data.published_hyperparameters("3droad", 3)
    for name, inputs in (("houseelectric", 11), ("song", 90), ("buzz", 77), ("3droad", 3)):
        lengthscale = data.published_hyperparameters(name, 4).lengthscale
        assert lengthscale.shape == (inputs,)
        assert torch.isfinite(lengthscale).all()
