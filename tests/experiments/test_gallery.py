"""The page beside the records."""

import json

from experiments import gallery


def record(id: str, reproduces: str, *, holds: bool, seconds: float = 30.0) -> dict:
    claim = {"name": "a | claim", "measured": 0.12345, "requirement": "≤ 0.1", "published": "low", "holds": holds}
    return {
        "id": id, "title": f"About {id}", "reproduces": [reproduces], "budget": "quick", "seconds": seconds,
        "claims": [claim],
    }  # fmt: skip


def test_records_stand_in_the_order_of_the_thesis_with_what_does_not_hold(tmp_path):
    for entry in (
        record("late", "Figure 10.2", holds=True, seconds=9000.0),
        record("foreign", "no figure of the thesis: section 2.1 measured", holds=True, seconds=600.0),
        record("early", "Table 2.11", holds=False),
    ):
        (tmp_path / f"{entry['id']}.json").write_text(json.dumps(entry))
    (tmp_path / "other.json").write_text("{}")
    text = gallery.index(tmp_path).read_text()
    assert text.index("[early](early.png)") < text.index("[late](late.png)") < text.index("[foreign](foreign.png)")
    assert "| quick, 30 s | 0 of 1 |" in text
    assert "| quick, 2.5 h | 1 of 1 |" in text
    assert "| quick, 10 min | 1 of 1 |" in text
    missed = text.split("## What does not hold")[1]
    assert "- a | claim: 0.123, expected ≤ 0.1 (published: low)" in missed
    assert "late" not in missed


def test_the_page_of_the_repository_is_that_of_its_records(tmp_path):
    here = gallery.Path(__file__).parents[2] / "docs" / "gallery"
    for path in here.glob("*.json"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert gallery.index(tmp_path).read_text() == (here / gallery.PAGE).read_text()
