"""Rows of the c3 sweep on a node, and cheats that must not get one."""

from types import SimpleNamespace

import pytest

from hsakit.c3.metrics import Undefined
from hsakit.c3.scenario import parse
from hsakit.c3.strategy import Description, Strategy, select
from hsakit.c3.sweep import C3Sweep, Settings, difference, smaller, wrong_with
from hsakit.c3.ticks import COLLECTIVE, GEMM, Work
from hsakit.ffi.errors import DeadlineExceeded, GpuException, InvalidArgument
from hsakit.results import Writer
from hsakit.sweep.sweep import measure

SMALL = parse("bf16:130x40x16+all-gather:2K+2")  # two tiles, shards of 1025 bytes
LONGER = parse("bf16:130x40x1024+all-gather:2K+2")  # a GEMM that is still running when copies are under way


LARGER = parse("bf16:130x40x100+all-gather:64K")  # of which a smaller one is verified, if rows are scaled


@pytest.fixture(params=[False, True], ids=["full", "scaled"])
def cheated(request, sweep):
    """The row that a strategy gets whose results are wrong."""

    def row_of(strategy):
        (row,) = rows_of(sweep(scaled=request.param), strategy, scenario=LARGER if request.param else SMALL)
        assert row["verified"] == "none" and ("at the smaller size" in row["error"]) == request.param
        return row

    return row_of


@pytest.fixture
def sweep(few):
    made = []

    def make(**settings):
        given = Settings(**{"repeats": 1, "warmup": 0, "quick": True, "deadline": 30.0, **settings})
        made.append(C3Sweep(few, given))
        return made[-1]

    yield make
    for each in made:
        each.close()


def rows_of(sweep, *strategies, scenario=SMALL):
    return [sweep.run(point) for point in sweep.plan([scenario], strategies)]


def test_rows_say_what_ran_and_that_it_was_right(sweep):
    gemm, engines, gated = rows_of(sweep(), *select(["gemm", "engines", "conccl_gated"]))
    assert [row["error"] for row in (gemm, engines, gated)] == [None] * 3
    assert [row["verified"] for row in (gemm, engines, gated)] == ["full"] * 3
    p = gated["parameters"]
    assert (p["strategy"], p["order"], p["collective_by"], p["apart"]) == (
        "conccl_gated",
        ["gemm", "collective"],
        "engines",
        8000,
    )
    parts = [part for part, _, _ in p["works"]]
    assert (parts.count("gemm"), parts.count("collective"), parts.count("release")) == (2, 2, 1)
    assert gated["packets"]["planned"] == {"aql_dispatch": 3, "aql_barrier_and": 4, "sdma_copy": 2}
    assert gated["launch"] == "gated" and len(gated["samples"][0]) == 5
    assert p["workgroups"]["gemm"] == 2 and p["machine"]["cus"] == 304
    if gated["packets"]["counted"]:
        assert {name: gated["packets"]["counted"][name] for name in ("aql_dispatch", "sdma_copy")} == {
            "aql_dispatch": 3,
            "sdma_copy": 2,
        }


def test_the_host_driven_form_says_so(sweep):
    (row,) = rows_of(sweep(warmup=1), *select(["conccl"]), scenario=LONGER)
    assert row["error"] is None and row["launch"] == "host"
    assert len(row["samples"]) == 1
    assert row["packets"]["planned"]["aql_dispatch"] == 2 * 2  # the warm-up's as well


def test_scaled_rows_ran_in_full_at_a_smaller_size(sweep):
    scenario = parse("bf16:130x40x100+all-gather:64K")
    (row,) = rows_of(sweep(scaled=True), *select(["conccl_gated"]), scenario=scenario)
    assert row["error"] is None and row["verified"] == "scaled"
    assert row["parameters"]["scaled"] == "bf16:130x40x64+all-gather:16000"


def test_going_on_measures_what_is_missing(sweep, tmp_path):
    other = parse("bf16:64x64x16+all-gather:2K")
    strategies = select(["engines", "engines_quarter"])
    with Writer(tmp_path / "r.jsonl") as out:
        made = sweep()
        before = measure(made, made.plan([SMALL], strategies), out, print).rows
    with Writer(tmp_path / "r.jsonl", resume=True) as out:
        made = sweep()
        rows = measure(made, made.plan([SMALL, other], strategies), out, print).rows
    assert rows[:2] == before and len(rows) == 4 and not any(row["error"] for row in rows)


class Cheat(Strategy):
    """conccl_gated, but for what a subclass does otherwise."""

    name, place = "cheat", 99

    def describe(self, facts):
        return Description("it cheats", "gated", (GEMM, COLLECTIVE), "engines")

    def enqueue(self, run, facts):
        first, second = run.gate(0, 8000)
        run.gemm(first)
        run.engines(second)


def test_a_skipped_transfer_is_caught(cheated):
    class SkipsATransfer(Cheat):
        def enqueue(self, run, facts):
            super().enqueue(run, facts)
            copies = run.parts[-1].collective._submission._parts[0]
            elsewhere = run.own(run.stage.gpus[0].allocate(copies.copies[0].nbytes))
            copies._arguments[0][0].first = elsewhere.address  # where the first copy goes

    row = cheated(SkipsATransfer())
    assert "never written" in row["error"] and "rank" in row["error"]


def test_a_skipped_tile_is_caught(cheated):
    class SkipsATile(Cheat):
        def enqueue(self, run, facts):
            launch = run.stage.launch(1)
            launch.set("m", 128)  # the second tile has no rows
            super().enqueue(run, facts)

    row = cheated(SkipsATile())
    assert "GEMM on GPU 1" in row["error"] and "elements of C wrong" in row["error"]


def test_a_smaller_size_that_cannot_be_staged_is_an_error_in_the_rows(sweep, monkeypatch):
    made = sweep(scaled=True)
    stage = made._stage

    def refusing(scenario, verify=True):
        if verify:
            raise InvalidArgument("no room")
        return stage(scenario, verify)

    monkeypatch.setattr(made, "_stage", refusing)
    (row,) = rows_of(made, *select(["gemm"]), scenario=LARGER)
    assert "at the smaller size" in row["error"] and "no room" in row["error"]
    assert row["verified"] == "none"


@pytest.mark.parametrize("scaled", [False, True])
def test_a_kernel_that_is_not_in_the_plan_is_caught(sweep, counted_packets, scaled):
    class Dispatches(Cheat):
        def enqueue(self, run, facts):
            super().enqueue(run, facts)
            queue = run.own(run.stage.gpus[0].create_queue(64))
            work, submit = queue.prepare(run.stage.gpus[0].kernels.empty()), run.parts[-1].submit
            run.parts[-1].submit = lambda deadline=30.0: (submit(deadline), work.submit(deadline), queue.drain())

    (row,) = rows_of(sweep(scaled=scaled), Dispatches(), scenario=LONGER)
    assert row["error"].endswith("4 aql_dispatch packets crossed the library, 3 were planned")
    assert row["verified"] == "none"


@pytest.mark.parametrize("scaled", [False, True])
def test_a_run_without_overlap_is_caught(sweep, scaled):
    class NotConcurrent(Cheat):
        def enqueue(self, run, facts):
            (go,) = run.gate(0)
            run.engines(run.gemm(go).done)

    (row,) = rows_of(sweep(scaled=scaled), NotConcurrent())
    assert row["verified"] == "none" and "did not overlap on GPU 0" in row["error"]


@pytest.mark.parametrize("scaled", [False, True])
def test_another_order_than_stated_is_caught(sweep, scaled):
    class OtherOrder(Cheat):
        def describe(self, facts):
            return Description("it cheats", "gated", (COLLECTIVE, GEMM), "engines", concurrent=False)

        def enqueue(self, run, facts):
            (go,) = run.gate(0)
            run.engines(run.gemm(go).done)

    (row,) = rows_of(sweep(scaled=scaled), OtherOrder())
    assert row["verified"] == "none" and "not the order stated" in row["error"]


def test_another_launch_than_stated_is_caught(sweep):
    class SaysHost(Cheat):
        def describe(self, facts):
            return Description("it cheats", "host", (GEMM, COLLECTIVE), "engines")

    (row,) = rows_of(sweep(), SaysHost())
    assert "launched host, and is gated" in row["error"]


def test_what_goes_wrong_leaves_other_strategies_alone(sweep):
    class Raises(Cheat):
        def enqueue(self, run, facts):
            raise InvalidArgument("no such thing")

    wrong, right = rows_of(sweep(), Raises(), *select(["engines"]))[::-1]
    assert "no such thing" in wrong["error"] and right["error"] is None


def test_a_strategy_is_told_which_isolated_time_it_lacks(sweep):
    (row,) = rows_of(sweep(), select(["conccl_tuned"])[-1])
    assert row["verified"] == "none" and "the time of gemm alone is not known" in row["error"]


@pytest.mark.parametrize("ends", [DeadlineExceeded("late"), GpuException("GPU 0", 0x1026, "GPU exception", "GPU hang")])
def test_after_what_ends_everything_no_other_strategy_runs(sweep, ends):
    class Ends(Cheat):
        def enqueue(self, run, facts):
            raise ends

    class Later(Cheat):
        name = "later"

    made = sweep()
    first, second = rows_of(made, Ends(), Later())
    assert str(ends) in made.broken and str(ends) in first["error"] and "not run" in second["error"]


def test_a_machine_that_cannot_be_measured_is_an_error_of_every_row(sweep, monkeypatch):
    def never(*_):
        raise DeadlineExceeded("the GEMM did not end")

    monkeypatch.setattr("hsakit.c3.machine.measure", never)
    made = sweep()
    first, second = rows_of(made, *select(["engines", "conccl"]))
    assert "the GEMM did not end" in first["error"] and "the GEMM did not end" in second["error"]
    assert made.broken and first["parameters"]["machine"] is None


def test_scenarios_that_cannot_run_are_refused_before_any_does(few, node):
    made = C3Sweep(few, Settings())
    with pytest.raises(InvalidArgument, match="no 2 equal shards"):
        made.plan([parse("bf16:8x8x8+all-gather:1K+1")], select(None))
    one = SimpleNamespace(gpus=node.gpus[:1], versions=node.versions, clock=node.clock)
    with pytest.raises(Undefined, match="1 GPU moves nothing"):
        C3Sweep(one, Settings()).plan([SMALL], select(None))


def test_the_hosts_own_pace_may_keep_short_parts_apart():
    works, sample = [Work(GEMM, 0, "queue"), Work(COLLECTIVE, 0, "engine 2")], [[0, 10], [12, 20]]
    host, gated = (Description("", launch, (GEMM, COLLECTIVE), "engines") for launch in ("host", "gated"))
    assert wrong_with(host, works, sample) is None
    assert "did not overlap" in wrong_with(gated, works, sample)
    assert "not the order stated" in wrong_with(host, works, [[5, 10], [0, 20]])


def test_differences_of_packets_in_words():
    assert difference({"sdma_copy": 2}, {"sdma_copy": 2, "sdma_trap": 9}) is None
    assert difference({"sdma_copy": 2}, {}) == "0 sdma_copy packets crossed the library, 2 were planned"


def test_what_stands_for_a_large_scenario():
    small = smaller(parse("bf16:8192x100x8192+all-to-all:448M"), 8)
    assert str(small) == "bf16:256x100x64+all-to-all:64000"
    assert small.name == str(small)
