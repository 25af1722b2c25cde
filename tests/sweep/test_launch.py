"""The launch sweep: launches are counted, held while they are made, and seen to have run."""

import pytest

from hsakit import counters
from hsakit.ffi.errors import InvalidArgument
from hsakit.sweep import launch
from hsakit.sweep.launch import LAUNCHES, MODES, ROUND_TRIP, TRIPS, LaunchSweep, table
from hsakit.sweep.sweep import Settings

EVERY = [(api, mode) for api in MODES for mode in MODES[api]]


@pytest.fixture
def sweep(node):
    with LaunchSweep(node, Settings(repeats=2, warmup=0, deadline=60)) as made:
        yield made


@pytest.fixture
def point(sweep):
    return lambda api, mode: next(each for each in sweep.plan([0], [api]) if each.mode == mode)


@pytest.mark.parametrize("api, mode", EVERY)
def test_rows_are_complete(sweep, point, api, mode):
    row = sweep.run(point(api, mode))
    assert row["error"] is None and row["verified"] == "full" and row["clock"] == "host"
    trip = mode == ROUND_TRIP
    assert row["launch"] == ("host" if trip else "gated")
    assert row["parameters"]["launches"] == (1 if trip else LAUNCHES)
    assert len(row["samples"]) == (2 * TRIPS if trip else 2)
    assert all(start == 0 < end for ((start, end),) in row["samples"])
    each = TRIPS + 1 if trip else LAUNCHES
    each += api == "hip"  # the latch that holds the stream
    assert row["packets"]["planned"] == {"aql_dispatch": 2 * each}
    if counters.snapshot() is not None:
        assert row["packets"]["counted"]["aql_dispatch"] == 2 * each
    headers, (line,) = table([row])
    best, median = (float(line[headers.index(name)]) for name in ("ns best", "median"))
    longest = max(end for ((_, end),) in row["samples"]) / row["parameters"]["launches"]
    assert 0 < best <= median <= longest + 1
    assert line[-3:] == ["full", row["launch"], "host"]


@pytest.mark.parametrize("api", MODES)
def test_nothing_runs_while_launches_are_made(sweep, point, api, monkeypatch):
    """What held them back came to an end after the last of them."""
    bench = sweep._benches[0, point(api, "prepared").api]
    seen = []

    def made():
        bench.one.launch(bench.where)
        seen.append(bench.report.view()[:8].tobytes())
        return 1

    monkeypatch.setitem(bench.modes, "prepared", made)
    monkeypatch.setattr(launch, "LAUNCHES", 1)
    assert sweep.run(point(api, "prepared"))["error"] is None
    assert seen == [bytes([0xFF]) * 8] * 2  # poison


@pytest.mark.parametrize("api", MODES)
def test_launches_that_did_not_run_are_an_error(sweep, point, api, monkeypatch):
    bench = sweep._benches[0, point(api, "prepared").api]
    monkeypatch.setitem(bench.modes, "prepared", lambda: 1)
    monkeypatch.setattr(launch, "LAUNCHES", 0)
    row = sweep.run(point(api, "prepared"))
    assert "the report is" in row["error"] and row["verified"] == "none" and row["samples"] == []


def test_too_few_launches_are_an_error(sweep, point, monkeypatch, counted_packets):
    bench = sweep._benches[0, point("hsa", "prepared").api]
    monkeypatch.setitem(bench.modes, "prepared", lambda: bench.one.launch(bench.where))
    row = sweep.run(point("hsa", "prepared"))
    assert f"2 dispatches were counted, {2 * LAUNCHES} planned" in row["error"] and row["verified"] == "none"


def test_the_gate_opens_whatever_happens(sweep, point, monkeypatch):
    bench = sweep._benches[0, point("hsa", "prepared").api]

    def fails():
        raise InvalidArgument("no")

    monkeypatch.setitem(bench.modes, "prepared", fails)
    assert "no" in sweep.run(point("hsa", "prepared"))["error"]
    monkeypatch.undo()
    assert sweep.run(point("hsa", "prepared"))["error"] is None


def test_a_latch_that_let_go_by_itself_is_an_error(sweep, point, monkeypatch):
    bench = sweep._benches[0, point("hip", "prepared").api]
    bench._latch.set("limit", 1)
    hold = bench.hold

    def until_it_let_go():
        hold()
        bench.where.synchronize(10)

    monkeypatch.setattr(bench, "hold", until_it_let_go)
    row = sweep.run(point("hip", "prepared"))
    assert "the latch let go before" in row["error"] and row["verified"] == "none"


def test_other_gpus_and_apis_than_there_are(sweep):
    with pytest.raises(InvalidArgument, match="this node has"):
        sweep.plan([99], ["hsa"])
    with pytest.raises(InvalidArgument, match="hsa, hip"):
        sweep.plan([0], ["cuda"])


def test_hip_that_does_not_see_the_gpu(sweep, node, monkeypatch):
    monkeypatch.setitem(node.__dict__, "hip_devices", {})
    with pytest.raises(InvalidArgument, match="HIP does not see .*go through hsa only"):
        sweep.plan([0], ["hip"])


def test_a_failed_row_has_no_numbers():
    row = {
        "parameters": {"gpu": 0, "api": "hsa", "mode": "batch", "launches": LAUNCHES},
        "samples": [],
        "error": "no",
        "launch": "gated",
        "clock": "host",
    }
    headers, (line,) = table([row])
    assert line == [0, "hsa", "batch of 64", None, None, None, 0, "none", "gated", "host"]
    assert len(line) == len(headers)


def test_after_what_ends_everything_nothing_more_is_measured(sweep, point, monkeypatch, hang):
    monkeypatch.setitem(sweep._benches[0, point("hsa", "prepared").api].modes, "prepared", hang)
    row = sweep.run(point("hsa", "prepared"))
    assert "GPU hang" in row["error"] and "GPU hang" in sweep.broken
