"""The collective sweep on a node: rows are right when collectives are, and say what is wrong when they are not."""

import pytest

from hsakit import counters
from hsakit.ffi.errors import InvalidArgument
from hsakit.hsa import CopyEngine
from hsakit.sweep import collective, collective_table
from hsakit.sweep.collective import CollectiveSweep, Settings
from hsakit.sweep.collective_plan import ENGINES, KERNELS, Point, operation_of


@pytest.fixture
def sweep(node):
    with CollectiveSweep(node, Settings(repeats=2, warmup=1, deadline=60)) as made:
        yield made


def point(name="all-gather", size=999, launch="host", ranks=3, in_place=False, by=ENGINES, **more):
    return Point(operation_of(name, ranks, size, in_place, "bf16"), by, launch, **more)


@pytest.mark.parametrize("launch", ["host", "gated"])
@pytest.mark.parametrize("name, copies, kernels", [("all-gather", 9, 0), ("all-reduce", 12, 3), ("scatter", 3, 0)])
def test_rows_are_complete(sweep, name, copies, kernels, launch):
    row = sweep.run(point(name, launch=launch))
    assert (row["kind"], row["error"], row["verified"], row["launch"]) == ("collective", None, "full", launch)
    p, gated = row["parameters"], launch == "gated"
    repeats = 1 if gated and row["clock"] == "model" else 2
    assert (p["op"], p["gpus"], p["implementation"], p["in_place"]) == (name, 3, ENGINES, False)
    assert p["repeats"] == len(row["samples"]) == repeats
    assert all(len(sample) == len(p["parts"]) == copies + kernels for sample in row["samples"])
    for sample in row["samples"]:
        assert max(end for _, end in sample) > 0
        if not gated:
            assert min(start for start, _ in sample) == 0
    runs = repeats + 1
    planned = row["packets"]["planned"]
    assert planned["sdma_copy"] == sum(planned["engines"].values()) == runs * copies
    assert planned["aql_dispatch"] == runs * (kernels + gated)  # the gate's conductor
    if counters.snapshot() is None:
        assert row["packets"]["counted"] is None
    else:
        counted = row["packets"]["counted"]  # which engine a number is nobody knows yet
        assert (counted["sdma_copy"], counted["aql_dispatch"]) == (planned["sdma_copy"], planned["aql_dispatch"])
        assert sorted(counted["engines"].values()) == sorted(planned["engines"].values())
    headers, (line,) = collective_table.table([row])
    assert line[headers.index("verified")] == "full" and float(line[headers.index("busbw GB/s")]) > 0


@pytest.mark.parametrize("by", KERNELS)
@pytest.mark.parametrize("name, kernels", [("all-gather", {1}), ("all-reduce", {1, 3})])
def test_kernels_make_no_copy(sweep, name, kernels, by):
    row = sweep.run(point(name, launch="gated", ranks=2, by=by, workgroups=2, cus=8))
    assert row["error"] is None and row["verified"] == "full"
    p, runs = row["parameters"], row["parameters"]["repeats"] + 1
    assert (p["by"], p["workgroups"], p["cus"]) == (f"{by}, 2 workgroups, 8 CUs", 2, 8)
    assert len(p["parts"]) in {2 * each for each in kernels} and p["parts"][0].startswith("rank 0: ")
    planned = row["packets"]["planned"]
    assert planned == {"sdma_copy": 0, "aql_dispatch": runs * (len(p["parts"]) + 1), "engines": {}}
    if counters.snapshot() is not None:
        assert {name: row["packets"]["counted"][name] for name in planned} == planned


def test_every_rank_copies_on_engines_of_its_own(sweep, node):
    assert sweep.wake([point()]) == []  # from here on it is known which engine a number is
    row = sweep.run(point(launch="gated", in_place=True))
    assert row["error"] is None
    used = row["packets"]["planned"]["engines"]
    assert len(used) == 6 and {name.partition("/")[0] for name in used} == {"0", "1", "2"}


def test_transfers_in_pieces(sweep, monkeypatch):
    monkeypatch.setitem(collective.engines.prepare.__kwdefaults__, "split_from", 1000)
    row = sweep.run(point(size=2 * 4096, ranks=2, in_place=True, split=2))
    assert row["error"] is None and row["parameters"]["by"] == "engines, 2 pieces"
    assert row["packets"]["planned"]["sdma_copy"] == 3 * 4


def test_a_copy_to_the_wrong_place_is_named_and_the_next_point_is_right(sweep, monkeypatch):
    prepare = CopyEngine.prepare

    def shifted(self, dst, src, nbytes=None, *arguments, **named):
        if nbytes == 333:
            dst = dst.buffer[dst.offset + 1 : dst.offset + 334]
        return prepare(self, dst, src, nbytes, *arguments, **named)

    monkeypatch.setattr(CopyEngine, "prepare", shifted)
    row = sweep.run(point())
    assert row["verified"] == "none" and row["samples"] == []
    assert row["error"].startswith("all-gather, 333 B, 3 ranks, out of place, by engines, host, warm-up 1 of 1: ")
    assert "the shard of rank" in row["error"] and "written by" in row["error"]
    monkeypatch.undo()
    assert sweep.run(point())["error"] is None
    headers, lines = collective_table.table([row])
    assert lines[0][headers.index("median us")] is None and lines[0][headers.index("verified")] == "none"


def test_more_packets_than_planned_are_an_error(sweep, monkeypatch, counted_packets):
    submissions = collective.engines.EngineCollective.submissions.fget
    fewer = property(lambda self: submissions(self)._replace(copies=submissions(self).copies[1:]))
    monkeypatch.setattr(collective.engines.EngineCollective, "submissions", fewer)
    row = sweep.run(point())
    assert "packets differ from the plan: sdma_copy counted 27, planned 24" in row["error"]
    assert row["verified"] == "none"


def test_what_missed_a_deadline_is_not_run_again(sweep, monkeypatch):
    def late(self, deadline=30.0):
        real(self, 30.0)
        raise collective.DeadlineExceeded("too late")

    real = collective.engines.EngineCollective.wait
    monkeypatch.setattr(collective.engines.EngineCollective, "wait", late)
    assert "too late" in sweep.run(point())["error"]
    monkeypatch.undo()
    assert "not run: engines missed a deadline at 999" in sweep.run(point(size=2000))["error"]
    assert sweep.run(point(size=500))["error"] is None  # a smaller one may be in time


def test_what_is_not_verified_is_verified_small(node, monkeypatch):
    big, alike = point(size=3 << 16, launch="gated"), point(size=4 << 16, launch="gated")
    small = point(size=1 << 16, launch="gated")
    checked = []
    check = collective.Buffers.check
    monkeypatch.setattr(collective.Buffers, "check", lambda self, *a: (checked.append(self.operation), check(self, *a)))
    with CollectiveSweep(node, Settings(repeats=1, warmup=0, scaled=True)) as sweep:
        rows = [sweep.run(each) for each in (big, alike, small)]
        assert [row["verified"] for row in rows] == ["scaled", "scaled", "full"]
        assert [row["parameters"]["scaled"] for row in rows] == [str(small), str(small), None]
        assert checked == [small.operation] * 2  # once for both large ones, once as a point
        assert all(row["samples"] and row["error"] is None for row in rows)
    prepare = CopyEngine.prepare

    def shifted(self, dst, src, nbytes=None, *arguments, **named):
        if nbytes == small.operation.nbytes:  # the large ones are right
            dst = dst.buffer[dst.offset + 1 : dst.offset + 1 + nbytes]
        return prepare(self, dst, src, nbytes, *arguments, **named)

    monkeypatch.setattr(CopyEngine, "prepare", shifted)
    with CollectiveSweep(node, Settings(repeats=1, warmup=0, scaled=True)) as sweep:
        row = sweep.run(big)
        assert row["verified"] == "none" and "the shard of rank" in row["error"]


def test_plans_in_words(sweep):
    text = sweep.explain(point("all-to-all", in_place=True, launch="gated"))
    assert text.startswith("all-to-all, 333 B, 3 ranks, in place, by engines, gated\n")
    assert "rank 0 recv+333 -> rank 1 scratch+0 on engine" in text and "after the signals of both ranks" in text


def test_what_this_node_does_not_have(sweep, node, monkeypatch):
    gpus = len(node.gpus)
    with pytest.raises(InvalidArgument, match=f"{gpus + 1} GPUs: this node has {gpus}"):
        sweep.check([point(ranks=gpus + 1)])
    with pytest.raises(InvalidArgument, match="99 pieces: a GPU has"):
        sweep.check([point(split=99)])
    monkeypatch.setattr(type(node), "check_engines", lambda self: (_ for _ in ()).throw(InvalidArgument("SDMA is off")))
    with pytest.raises(InvalidArgument, match="SDMA is off"):
        sweep.check([point()])


def test_what_fits(node):
    with CollectiveSweep(node, Settings(memory=1 << 23)) as sweep:
        assert sweep.fits(point(size=1 << 20, ranks=4)) and not sweep.fits(point(size=1 << 21, ranks=4))


def test_after_what_ends_everything_nothing_more_is_measured(sweep, monkeypatch, hang):
    monkeypatch.setattr("hsakit.sweep.collective._Trial.all", hang)
    row = sweep.run(point())
    assert "GPU hang" in row["error"] and "GPU hang" in sweep.broken
