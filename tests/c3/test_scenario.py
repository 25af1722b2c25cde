"""Scenarios: the shipped file, and what a person writes."""

import re

import pytest

from hsakit.c3.scenario import Scenario, load, parse, select
from hsakit.ffi.errors import InvalidArgument


def test_the_shipped_sets_are_complete():
    groups = {}
    for scenario in load():
        groups.setdefault(scenario.group, []).append(scenario)
    assert {name: len(each) for name, each in groups.items()} == {"llama": 30, "unseen": 30, "quick": 3}
    shapes = {name: {(s.m, s.n, s.k) for s in each} for name, each in groups.items()}
    assert not shapes["llama"] & shapes["unseen"]


def test_derivations_give_the_sizes():
    for scenario in load():
        if scenario.group == "quick":
            continue
        rows, columns = map(int, re.search(r"(\d+) x (\d+) bf16", scenario.derivation).groups())
        assert scenario.nbytes == rows * columns * 2, scenario


def test_figures_of_a_scenario():
    scenario = Scenario("x", "bf16", 2, 3, 4, "all-gather", 8)
    assert scenario.flops == 48
    assert scenario.gemm_bytes == 2 * (8 + 12 + 6)
    assert scenario.intensity == 48 / 52


def test_written_out_and_back():
    text = "bf16:64x32x16:nt+all-to-all:1M+3"
    scenario = parse(text)
    assert (scenario.m, scenario.n, scenario.k, scenario.layout) == (64, 32, 16, "nt")
    assert (scenario.collective, scenario.nbytes) == ("all-to-all", (1 << 20) + 3)
    assert str(scenario) == text


def test_selection():
    assert [s.name for s in select(["cb1", "mb2-a2a", "cb1-ag"])] == ["cb1-ag", "cb1-a2a", "mb2-a2a"]
    assert len(select(["llama", "unseen"])) == 60
    with pytest.raises(InvalidArgument, match="llama, unseen, quick"):
        select(["lama"])


@pytest.mark.parametrize(
    "wrong, message",
    [
        ("bf16:1x1x1+all-gather", "expected GEMM"),
        ("bf16:1x1x1+all-reduce:1M", "all-gather, all-to-all"),
        ("bf17:1x1x1+all-gather:1M", "TYPE:MxNxK"),
        ("bf16:1x1x1+all-gather:0", "at least 1 byte"),
    ],
)
def test_what_is_no_scenario_is_refused(wrong, message):
    with pytest.raises(InvalidArgument, match=message):
        parse(wrong)


def test_a_collective_of_no_bytes_is_refused():
    with pytest.raises(InvalidArgument, match="nothing to overlap"):
        Scenario("x", "bf16", 1, 1, 1, "all-gather", 0)


ENTRY = """[[scenario]]
set = "mine"
name = "a"
gemm = {m = 64, n = 64, k = 64, dtype = "f32"}
collectives = ["all-gather"]
bytes = "4K"
derivation = "made up"
"""


@pytest.mark.parametrize(
    "edit, message",
    [
        (lambda t: t + t, "a-ag is there twice"),
        (lambda t: "", r"no \[\[scenario\]\]"),
        (lambda t: t.replace("m = 64,", ""), "lacks m"),
        (lambda t: t.replace('"4K"', "4096"), "bytes is a str"),
        (lambda t: t.replace("all-gather", "gather"), "'gather'"),
        (lambda t: t + "size = 4", "unknown size"),
        (lambda t: t.replace("=", ""), "mine.toml"),
    ],
)
def test_files_with_mistakes_are_refused(tmp_path, edit, message):
    path = tmp_path / "mine.toml"
    path.write_text(ENTRY)
    assert [s.name for s in select([str(path)])] == ["a-ag"]
    path.write_text(edit(ENTRY))
    with pytest.raises(InvalidArgument, match=message):
        load(path)


def test_a_file_that_is_not_there():
    with pytest.raises(InvalidArgument, match="No such file"):
        load("nowhere.toml")
