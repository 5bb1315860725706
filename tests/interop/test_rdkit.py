"""Fingerprints of molecules."""

import pytest
import torch

pytest.importorskip("rdkit")

import matheron as mt
from matheron.data import DataNotFound, load
from matheron.interop.rdkit import fingerprints, readable

SMILES = ["CCO", "CCN", "CC(=O)O", "c1ccccc1", "c1ccccc1O", "CC(C)C", "C", "CCCCCC"]


def test_counts_stand_in_sparse_rows():
    X = fingerprints(SMILES, radius=0, bins=64)
    assert X.layout == torch.sparse_csr
    assert X.shape == (8, 64)
    atoms = X.to_dense().sum(1)  # of radius zero there is one neighborhood for each heavy atom
    assert atoms.tolist() == [3, 3, 4, 6, 7, 4, 1, 6]


def test_the_precision_is_that_asked_for():
    assert fingerprints(SMILES, dtype=torch.float64).dtype == torch.float64


def test_they_are_those_of_the_molecule_set():
    try:
        prints, molecules = load("dockstring_f2_morgan"), load("dockstring_partial")
    except DataNotFound as error:
        pytest.skip(str(error))
    rows = torch.arange(40)
    ours = fingerprints([molecules.smiles[int(place)] for place in prints.row[rows]])
    torch.testing.assert_close(ours.to_dense(), prints.dense(rows))


def test_from_molecules_to_error_bars(generator):
    X, y = fingerprints(SMILES), torch.tensor([1.0, 1.1, 2.0, 4.0, 4.5, 1.6, 0.3, 2.2])
    gp = mt.GaussianProcess(mt.kernels.Tanimoto(), 0.01, mean=2.0)
    post = gp.condition(X, y, num_samples=8, generator=generator)
    near, far = post.predict(fingerprints(["CCCO", "O=S(=O)(Cl)Cl"])).variance
    assert near < far


@pytest.mark.usefixtures("unchecked")
def test_what_is_no_molecule_is_refused_by_place_and_name():
    broken = ["CCO", "C1CC", "", "xyz", "C(", "CCN"]
    assert readable(broken).tolist() == [True, False, False, False, False, True]
    with pytest.raises(
        ValueError, match=r"smiles has 4 molecules that cannot be read: 'C1CC' at 1, '' at 2, 'xyz' at 3, …"
    ):
        fingerprints(broken)
    with pytest.raises(TypeError, match="smiles must be a list of strings, got str"):
        fingerprints("CCO")
    with pytest.raises(TypeError, match="smiles must be a list of strings"):
        fingerprints([1, 2])
    with pytest.raises(ValueError, match="smiles is empty"):
        fingerprints([])
    with pytest.raises(ValueError, match="bins must be at least 1"):
        fingerprints(["C"], bins=0)
