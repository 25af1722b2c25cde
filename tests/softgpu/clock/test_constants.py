"""Constants: both sets are there, and what is wrong with a table that is no model."""

from __future__ import annotations

import re

import pytest

from hsakit.softgpu.node import NODES, load


@pytest.mark.parametrize("name", ["mi300x-8", "mi210-1"])
def test_both_sets_ship_and_every_constant_has_its_source_beside_it(name):
    spec = load(name)
    assert spec.model["untuned"] != spec.model["calibrated"]
    text = (NODES / f"{name}.toml").read_text()
    section = text[text.index("[model]") :].split("\n[recommended")[0]
    lines = [line for line in section.splitlines() if re.match(r"\w+ = ", line)]
    assert len(lines) >= 20
    assert [line for line in lines if "#" not in line] == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("beta = 2.1 ", "beta = -1 ", "model.calibrated.beta = -1"),
        ("beta = 2.1 ", "beta = '2' ", "model.calibrated.beta = '2'"),
        ("beta = 2.1 ", "gamma = 2.1 ", "[model] has no gamma"),
        ("launch_ns = 6000 ", "# ", "[model.untuned] lacks launch_ns"),
        ("[model.untuned]", "[model.tuned]", "[model.untuned] is missing"),
    ],
)
def test_a_bad_table_is_a_value_error_that_says_what_is_wrong(old, new, said, tmp_path):
    text = (NODES / "mi300x-8.toml").read_text()
    assert text.count(old) == 1
    path = tmp_path / "other.toml"
    path.write_text(text.replace(old, new))
    with pytest.raises(ValueError) as caught:
        load(str(path))
    assert said in str(caught.value)
