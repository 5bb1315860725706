"""The networks of the thesis' appendix, and that training is decided by its seed and read back as it was."""

from dataclasses import replace

import pytest
import torch
from torch.utils.data import TensorDataset

from experiments.harness import Progress
from experiments.ledger import Ledger
from experiments.lenet import LARGE, MEDIUM, SMALL, freeze_norms, lenet, num_weights
from experiments.training import Recipe, augmented, trained

RECIPE = Recipe("lenet", images=64, epochs=2, seed=0, batch=16)


def build():
    return lenet((2, 3, 4))


def images(seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(64, 1, 28, 28, generator=g), torch.randint(10, (64,), generator=g)


def weights(found):
    return torch.cat([value.flatten().double() for value in found.model.state_dict().values()])


def test_sizes_are_those_of_the_appendix():
    assert [num_weights(filters) for filters in (SMALL, MEDIUM)] == [14_634, 29_226]
    assert sum(p.numel() for p in lenet(LARGE).parameters()) - (42 + 48 + 60) == 46_024


def test_the_seed_decides():
    one, again, other = (trained(replace(RECIPE, seed=s), build, images(), Progress(False)) for s in (0, 0, 1))
    torch.testing.assert_close(weights(one), weights(again), rtol=0.0, atol=0.0)
    assert not torch.allclose(weights(one), weights(other))


def test_a_data_set_is_trained_on_as_it_is_read():
    data = TensorDataset(*images())
    one, again = (trained(RECIPE, build, data, Progress(False)) for _ in range(2))
    torch.testing.assert_close(weights(one), weights(again), rtol=0.0, atol=0.0)
    with torch.random.fork_rng():
        torch.manual_seed(RECIPE.seed)
        assert not torch.allclose(
            weights(one)[:50], torch.cat([p.flatten() for p in build().parameters()])[:50].double()
        )


def test_a_trained_network_is_kept_beside_the_results(tmp_path, monkeypatch):
    progress = Progress(False, Ledger(tmp_path / "id.partial", "v1"))
    first = trained(RECIPE, build, images(), progress)
    monkeypatch.setattr("experiments.training.train", lambda *arguments: pytest.fail("trained again"))
    second = trained(RECIPE, build, images(), progress)
    torch.testing.assert_close(weights(first), weights(second), rtol=0.0, atol=0.0)
    assert second.seconds == first.seconds
    assert [path.name for path in (tmp_path / "networks").iterdir()] == [f"{RECIPE.key}.safetensors"]
    assert not second.model.training


def test_norms_are_held():
    norms = [m for m in freeze_norms(build()).modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert norms
    assert not any(p.requires_grad for norm in norms for p in norm.parameters())


def test_augmented_images_are_shifted_or_mirrored_ones():
    """A single bright pixel moves by at most an eighth of the image, or to its mirror image."""
    image = torch.zeros(200, 1, 16, 16)
    image[:, 0, 8, 5] = 1.0
    found = augmented(image, torch.Generator().manual_seed(0)).nonzero()
    rows, columns = found[:, 2], found[:, 3]
    assert len(found) == 200
    assert set(rows.tolist()) == {6, 7, 8, 9, 10}
    assert set(columns.tolist()) == {3, 4, 5, 6, 7} | {8, 9, 10, 11, 12}
