"""A scan cut into views is the scan of each."""

import math

import pytest
import torch

from matheron.operators import Dense
from matheron.tomography import ConeBeam, FanBeam, Fourier, ParallelBeam
from matheron.tomography.views import Views

FAR = {"source_to_axis": 20.0, "source_to_detector": 30.0}


@pytest.mark.parametrize(
    "A",
    [
        ParallelBeam((5, 4), [0.1, 0.9], 7).operator(dtype=torch.float64),
        FanBeam((5, 4), [0.1, 0.9], 9, **FAR).operator(dtype=torch.float64),
        ConeBeam((3, 4, 4), [0.1, 0.9], (6, 9), **FAR).operator(dtype=torch.float64),
        Fourier((5, 4), [0, 2], dtype=torch.float64),
    ],
    ids=["parallel", "fan", "cone", "fourier"],
)
def test_rows_are_those_of_the_view_alone(A):
    views = Views.of(A).joined(torch.tensor([1.0], dtype=torch.float64))
    assert len(views.names) == 3
    assert views.operator.dtype == torch.float64
    for i, name in enumerate(views.names):
        torch.testing.assert_close(views.rows(i, i + 1).dense(), views.at([float(name)]).operator.dense())


def test_lines_come_again_after_all_frequencies_and_angles_after_a_turn():
    lines = Views.of(Fourier(8, [0, 7]))
    assert lines.measured(torch.tensor([-1.0, 1.0, 8.0], dtype=torch.float64)).tolist() == [True, False, True]
    angles = Views.of(ParallelBeam(8, [0.0], 11).operator())
    assert angles.measured(torch.tensor([math.pi, -2 * math.pi], dtype=torch.float64)).tolist() == [False, True]


def test_an_operator_without_an_origin_is_refused():
    with pytest.raises(TypeError, match="does not say what its views are"):
        Views.of(Dense(torch.eye(4)))
    with pytest.raises(TypeError, match="does not say what its views are"):
        Views.of(ParallelBeam(8, [0.0, 1.0], 11).operator().rows(slice(0, 11)))
    with pytest.raises(ValueError, match="whole number"):
        Views.of(Fourier(8, [0])).at([0.5])
