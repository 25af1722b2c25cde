"""Going through the points of a sweep, with a file of results and without."""

import os
import signal
from types import SimpleNamespace

import pytest

from hsakit.counters import Counters
from hsakit.ffi.errors import InvalidArgument
from hsakit.results import Writer, make_row, read
from hsakit.sweep.sweep import Settings, Sweep, dispatched, find_gpu, measure


class Fake(Sweep):
    kind = "fake"

    def __init__(self, failing=(), breaking=(), waking=()):
        self._settings = Settings(repeats=2, warmup=0)
        self.clock, self.versions, self.broken = "device", {"hsa": "1"}, None
        self.failing, self.breaking, self.waking = failing, breaking, waking
        self.ran = []
        self.interrupt_at = None

    def wake(self, points):
        self.woken = list(points)
        return [self._made(f"wake {each}", "it does not wake") for each in self.waking]

    def run(self, point):
        self.ran.append(point)
        if point == self.interrupt_at:
            os.kill(os.getpid(), signal.SIGINT)
        if point in self.breaking:
            self.broken = "nothing goes on"
        return self._made(point, f"{point} failed" if point in self.failing else None)

    def _made(self, point, error):
        return self.row(
            point,
            parameters={},
            samples=[],
            verified="none" if error or point == "unchecked" else "full",
            launch="host",
            packets={"planned": {}, "counted": None},
            error=error,
        )


@pytest.fixture
def said():
    return []


def test_every_point_becomes_a_row(said):
    sweep = Fake()
    outcome = measure(sweep, ["a", "b", "unchecked"], None, said.append)
    assert sweep.ran == sweep.woken == ["a", "b", "unchecked"]
    assert [row["key"] for row in outcome.rows] == ["fake a r2 w0", "fake b r2 w0", "fake unchecked r2 w0"]
    assert (outcome.good, outcome.verified, outcome.failed, outcome.interrupted) == (3, 2, 0, False)
    assert said == []


def test_what_fails_is_said_and_the_rest_goes_on(said):
    outcome = measure(Fake(failing=["b"], waking=["x"]), ["a", "b", "c"], None, said.append)
    assert (outcome.good, outcome.failed, len(outcome.rows)) == (2, 2, 3)  # what does not wake is no point
    assert said == ["FAILED it does not wake", "FAILED b failed"]


def test_a_broken_sweep_ends(said):
    sweep = Fake(breaking=["b"])
    assert len(measure(sweep, ["a", "b", "c"], None, said.append).rows) == 2
    assert sweep.ran == ["a", "b"]


def test_only_what_is_missing_or_went_wrong_is_measured(tmp_path, said):
    path = tmp_path / "r.jsonl"
    with Writer(path) as out:
        measure(Fake(failing=["b"]), ["a", "b"], out, said.append)
    sweep = Fake()
    with Writer(path, resume=True) as out:
        outcome = measure(sweep, ["a", "b", "c"], out, said.append)
    assert sweep.ran == sweep.woken == ["b", "c"]
    assert (outcome.good, outcome.failed, len(outcome.rows)) == (3, 0, 3)
    assert "1 of them are in" in said[-1] and len(read(path)) == 4


def test_rows_of_other_sweeps_are_left_alone(tmp_path, said):
    path = tmp_path / "r.jsonl"
    with Writer(path) as out:
        measure(Fake(), ["a"], out, said.append)
        other = make_row(
            "other", "other a", parameters={}, samples=[], verified="full", launch="host", clock="device",
            packets={"planned": {}, "counted": None}, versions={"hsa": "1"},
        )  # fmt: skip
        out.write(other)
    with Writer(path, resume=True) as out:
        outcome = measure(Fake(), ["a"], out, said.append)
    assert [row["kind"] for row in outcome.rows] == ["fake"]


def test_an_interrupt_ends_after_the_point(said, capfd):
    sweep = Fake()
    sweep.interrupt_at = "b"
    before = signal.getsignal(signal.SIGINT)
    outcome = measure(sweep, ["a", "b", "c"], None, said.append)
    assert outcome.interrupted and len(outcome.rows) == 2
    assert "stopping after what is being measured" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before


class Together(Fake):
    """Points are measured together by their first letter."""

    def together(self, point):
        return point[0]


def test_what_is_measured_together_is_measured_as_a_whole(tmp_path, said):
    points = ["a1", "a2", "b1", "b2", "c1"]
    sweep = Together(breaking=["b1"])
    with Writer(tmp_path / "r.jsonl") as out:
        assert measure(sweep, points, out, said.append).rows[-1]["key"] == "fake b2 r2 w0"
    interrupted = Together()
    interrupted.interrupt_at = "a1"
    assert len(measure(interrupted, points, None, said.append).rows) == 2


def test_a_part_of_what_belongs_together_is_not_enough(tmp_path, said):
    points, path = ["a1", "a2", "b1", "b2"], tmp_path / "r.jsonl"
    with Writer(path) as out:
        measure(Together(failing=["b1"]), points, out, said.append)
    sweep = Together()
    with Writer(path, resume=True) as out:
        outcome = measure(sweep, points, out, said.append)
    assert sweep.ran == ["b1", "b2"]
    assert [row["key"] for row in outcome.rows] == [f"fake {point} r2 w0" for point in points]


def test_progress_goes_through_the_points(said):
    sweep = Fake()
    measure(sweep, ["a", "b"], None, said.append, progress=reversed)
    assert sweep.ran == ["b", "a"]


def test_dispatches_are_compared_with_the_plan():
    tally = SimpleNamespace(totals=lambda: None)
    assert dispatched(tally, 3) == ({"planned": {"aql_dispatch": 3}, "counted": None}, None)
    counted = Counters({1: {"aql_dispatch": 4, "aql_barrier_and": 2, "sdma_copy": 0}})
    tally = SimpleNamespace(totals=lambda: counted.nodes[1])
    packets, difference = dispatched(tally, 4)
    assert packets["counted"] == {"aql_dispatch": 4, "aql_barrier_and": 2} and difference is None
    assert dispatched(tally, 3)[1] == "4 dispatches were counted, 3 planned"


def test_gpus_are_found_by_index():
    node = SimpleNamespace(gpus=("first", "second"))
    assert find_gpu(node, 1) == "second"
    for wrong in (2, -1):
        with pytest.raises(InvalidArgument, match="0 to 1"):
            find_gpu(node, wrong)


@pytest.mark.parametrize("wrong", [{"repeats": 0}, {"warmup": -1}, {"deadline": 0}, {"deadline": float("nan")}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidArgument):
        Settings(**wrong)
