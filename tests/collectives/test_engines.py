"""Collectives by engines: every byte right, no kernel, refusals, dependencies, what an interruption leaves."""

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from hsakit.collectives import Buffers, Collective, engines, sums
from hsakit.collectives.operation import REDUCTIONS, Operation
from hsakit.ffi.errors import DeadlineExceeded, HsaError, InvalidArgument
from hsakit.gate import Gate

ON_HOST = 1 << 40


@pytest.fixture
def run(run_prepared):
    """``run(operation, **options)``: two runs, each verified."""
    return partial(run_prepared, engines.prepare)


def test_it_is_a_collective_and_a_work(node):
    operation = Operation("all-gather", 1, 16)
    with Buffers(node, operation) as buffers:
        with engines.prepare(node, operation, buffers.send, buffers.recv) as collective:
            assert isinstance(collective, Collective) and len(collective.done) == 1
            assert [cost for _, cost in collective.costs]


def test_every_byte_is_right(make_operation, run, skewed, sizes, name, ranks, in_place):
    """All sizes for each operation, number of ranks, and place, over the forms and alignments in turn."""
    for number, nbytes in enumerate(sizes):
        if (number + ranks) % 4 == 0 or nbytes < 2:
            if name in REDUCTIONS and nbytes > 9000:
                break  # those of whole numbers of elements, below; a software node adds slowly
            operation = make_operation(name, ranks, nbytes, in_place)
            run(operation, runs=1, skew=skewed(operation, number), form=engines.FORMS[number // 2 % 2])


@pytest.mark.slow
@pytest.mark.deadline(1800)
@pytest.mark.parametrize("form", engines.FORMS)
def test_every_size(make_operation, run, skewed, sizes, large, name, ranks, in_place, form):
    """Compared by the host, which a software node's GPUs are slower than."""
    for number, nbytes in enumerate([*sizes, *large(name, ranks)]):
        operation = make_operation(name, ranks, nbytes, in_place)
        run(operation, runs=1, skew=skewed(operation, number), form=form, device_from=ON_HOST, deadline=600)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_sums_of_floats(node, run, name, dtype):
    run(Operation(name, min(5, len(node.gpus)), 4 * 1001, dtype=dtype), runs=1, skew=4)


def test_sums_of_more_ranks_than_a_kernel_adds(node, monkeypatch):
    monkeypatch.setattr(sums, "SOURCES", 3)
    operation = Operation("all-reduce", len(node.gpus), 4 * 77)
    with Buffers(node, operation) as buffers:
        with engines.prepare(node, operation, buffers.send, buffers.recv) as collective:
            for _ in range(2):
                buffers.run(collective)


def test_the_largest_sizes(node, run, large):
    n = min(len(node.gpus), 3)
    for nbytes in large("all-gather", n)[:-1]:
        run(Operation("all-gather", n, nbytes), runs=1, skew=1)
    run(Operation("broadcast", min(n, 2), 64 << 20), runs=1)


@pytest.mark.parametrize("order", engines.ORDERS[1:])
def test_other_orders(node, make_operation, name, order):
    operation = make_operation(name, min(3, len(node.gpus)), 3001, True)
    with Buffers(node, operation, skew=4) as buffers:
        with engines.prepare(node, operation, buffers.send, buffers.recv, order=order) as collective:
            for _ in range(2):
                buffers.run(collective)
            copies = [part for part in collective.parts if " on " in part.what]
            if order == "stepwise":
                assert all(before.end <= after.start for before, after in zip(copies, copies[1:]))
            else:
                half = len(copies) // 2 if collective.plan.scratch(0) and name != "reduce-scatter" else len(copies)
                for some in (copies[:half], copies[half:]):  # to scratch memory, and from there
                    assert [part.rank for part in some] == sorted(part.rank for part in some)


@pytest.mark.parametrize("split", [2, 5])
def test_split_over_several_engines(node, run, split):
    operation = Operation("all-to-all", min(3, len(node.gpus)), 100_003)
    with Buffers(node, operation) as buffers:
        with engines.prepare(node, operation, buffers.send, buffers.recv, split=split, split_from=50_000) as collective:
            buffers.run(collective)
            used = {(part.rank, part.what.rpartition(" on ")[2]) for part in collective.parts}
            assert len(collective.parts) == len(operation.blocks) * split
            assert len(used) == min(len(operation.blocks) * split, len(used)) >= split
    run(
        Operation("all-gather", 2 if len(node.gpus) > 1 else 1, 300), split=3, split_from=1
    )  # too small to cut so often


@pytest.mark.parametrize("form", engines.FORMS)
def test_no_kernel_runs(node, counted_packets, form):
    """Every byte is moved by an engine, the local shard too, and the packets are those of the plan."""
    operation = Operation("all-gather", len(node.gpus), 5000)
    with Buffers(node, operation) as buffers:
        with engines.prepare(node, operation, buffers.send, buffers.recv, form=form) as collective:
            tally = node.tally()
            for _ in range(3):
                buffers.prepare()
                with tally:
                    collective.submit()
                    collective.wait()
                buffers.check(collective)
            totals = tally.totals()
            copies, ranks = len(collective.plan.transfers), len(node.gpus)
            joins = -(-ranks // 5) * ranks if form == "timed" else 0
            assert (totals["aql_dispatch"], totals["sdma_copy"]) == (0, 3 * copies)
            assert (totals["aql_barrier_and"], totals["sdma_rect"]) == (3 * joins, 0)
            for gpu in node.gpus:  # one engine a peer, and one for the local shard
                assert list(tally.counted.engine_copies(gpu.agent.driver_node).values()) == [3] * ranks


def test_engines_that_are_kernels_are_refused(node, script):
    done = script(
        """
        from hsakit import Node
        from hsakit.collectives import Buffers, Operation, engines
        with Node() as node, Buffers(node, Operation("all-gather", 1, 100)) as buffers:
            engines.prepare(node, buffers.operation, buffers.send, buffers.recv)
        """,
        HSA_ENABLE_SDMA="0",
    )
    assert done.returncode and "HSA_ENABLE_SDMA=0 runs engine copies as kernels" in done.stderr


def test_times_are_those_of_the_copies(node):
    operation = Operation("all-gather", min(3, len(node.gpus)), 100_000)
    with Buffers(node, operation) as buffers:
        with engines.prepare(node, operation, buffers.send, buffers.recv) as collective:
            for _ in range(2):
                buffers.run(collective)
                parts = collective.parts
                assert len(parts) == len(operation.blocks) and all(part.start < part.end for part in parts)
                assert [part.rank for part in parts] == [t.src.rank for t in collective.plan.transfers]
        with engines.prepare(node, operation, buffers.send, buffers.recv, form="shared") as collective:
            buffers.run(collective)
            with pytest.raises(InvalidArgument, match="overwrite each other's times"):
                collective.parts  # noqa: B018


@pytest.mark.parametrize("form", engines.FORMS)
def test_a_gate_holds_all_of_it(node, make_operation, form, name):
    operation = make_operation(name, min(4, len(node.gpus)), 3001, True)
    with Gate(node) as gate, Buffers(node, operation) as buffers:
        after = [gate.signals] * operation.ranks
        with engines.prepare(node, operation, buffers.send, buffers.recv, after=after, form=form) as collective:
            for _ in range(2):
                buffers.prepare(collective)
                gate.hold([collective])
                time.sleep(0.01)
                assert all(signal.value > 0 for signal in collective.done)
                gate.release()
                collective.wait()
                buffers.check(collective)


def test_a_rank_waits_for_its_own_signals(node):
    """Nothing of a rank's memory is read or written before its signals are 0; the others go on."""
    ranks = min(4, len(node.gpus))
    operation = Operation("all-to-all", ranks, 2000)
    ready = [node.create_signal(1) for _ in range(ranks)]
    with Buffers(node, operation) as buffers:
        with engines.prepare(
            node, operation, buffers.send, buffers.recv, after=[[signal] for signal in ready]
        ) as collective:
            buffers.prepare(collective)
            collective.submit()
            for signal in ready[1:]:
                signal.store(0)
            time.sleep(0.05)
            assert all(signal.value == 1 for signal in collective.done)  # everybody has something from rank 0
            poisoned = np.array(node.gpus[0].get(buffers.recv[0]))
            assert all((poisoned[b.dst_offset] != buffers._sent(b)[0]) for b in operation.blocks if b.dst == 0)
            done = {part.src.rank for part in collective.plan.transfers if 0 not in (part.src.rank, part.dst.rank)}
            assert done == set(range(1, ranks))
            ready[0].store(0)
            collective.wait()
            buffers.check(collective)


def test_what_was_submitted_is_submitted_once(node):
    operation = Operation("all-gather", min(2, len(node.gpus)), 64)
    with Gate(node) as gate, Buffers(node, operation) as buffers:
        after = [gate.signals] * operation.ranks
        with engines.prepare(node, operation, buffers.send, buffers.recv, after=after) as collective:
            buffers.prepare(collective)
            gate.hold([collective])
            with pytest.raises(InvalidArgument, match="still to be decremented"):
                collective.submit()
            gate.release()
            collective.wait()
            buffers.check(collective)


class Interrupted:
    def submit(self, deadline):
        raise KeyboardInterrupt


@pytest.mark.parametrize("form", engines.FORMS)
@pytest.mark.parametrize("name", ["all-gather", "all-to-all"])
def test_a_submission_that_is_broken_off_leaves_all_usable(node, monkeypatch, name, form):
    """By Ctrl-C between two works, and by the runtime's refusal of one of the copies."""
    operation = Operation(name, min(4, len(node.gpus)), 5001, in_place=True)
    with Buffers(node, operation) as buffers:
        with engines.prepare(node, operation, buffers.send, buffers.recv, form=form) as collective:
            parts = collective._submission._parts
            for number, part in enumerate(parts):
                copies = len(getattr(part, "copies", ()))
                for stop in sorted({0, copies // 2, copies - 1}) if copies else [None]:
                    with monkeypatch.context() as patched:
                        if stop is None:
                            broken = [*parts[:number], Interrupted(), *parts[number + 1 :]]
                            patched.setattr(collective._submission, "_parts", broken)
                        else:  # no engine at all
                            patched.setattr(part._arguments[-1][stop], "engine_id", 0)
                        with pytest.raises(KeyboardInterrupt if stop is None else HsaError):
                            collective.submit()
                    with pytest.raises(InvalidArgument, match="not submitted to its end"):
                        collective.wait()
                    collective._come_to_rest(10)  # before senders get new bytes
                    buffers.run(collective)


def test_a_killed_process_leaves_the_node_usable(node, script):
    """Killed with copies in flight behind a gate that nobody opens; then another process, and this one."""
    text = """
        import os, signal
        from hsakit import Gate, Node
        from hsakit.collectives import Buffers, Operation, engines
        node = Node()
        operation = Operation("all-gather", len(node.gpus), 4097)
        gate, buffers = Gate(node), Buffers(node, operation)
        after = [gate.signals] * operation.ranks
        collective = engines.prepare(node, operation, buffers.send, buffers.recv, after=after)
        buffers.prepare()
        gate.hold([collective])
        if DIES:
            os.kill(os.getpid(), signal.SIGKILL)
        gate.release()
        collective.wait()
        buffers.check(collective)
    """
    assert script(text.replace("DIES", "True")).returncode == -9
    after = script(text.replace("DIES", "False"))
    assert after.returncode == 0, after.stderr
    operation = Operation("all-gather", len(node.gpus), 4097)
    with Buffers(node, operation) as buffers:
        with engines.prepare(node, operation, buffers.send, buffers.recv) as collective:
            buffers.run(collective)


def test_two_threads(node, run):
    """Each with a collective of its own over the same GPUs."""
    ranks = min(4, len(node.gpus))
    operations = Operation("all-gather", ranks, 200_003), Operation("all-to-all", ranks, 150_001)
    with ThreadPoolExecutor(2) as threads:
        for ended in [threads.submit(run, operation, runs=5, skew=1) for operation in operations]:
            ended.result()


def test_closed_while_in_flight(node):
    operation = Operation("all-to-all", min(3, len(node.gpus)), 5001, in_place=True)
    with Gate(node) as gate, Buffers(node, operation) as buffers:
        after = [gate.signals] * operation.ranks
        collective = engines.prepare(node, operation, buffers.send, buffers.recv, after=after)
        buffers.prepare(collective)
        gate.hold([collective])
        collective.close()
        collective.close()
        gate.release()
        for signal in collective.done:
            signal.wait(deadline=30)
    with Buffers(node, operation) as buffers:
        with engines.prepare(node, operation, buffers.send, buffers.recv) as collective:
            buffers.run(collective)


def test_closing_twice_and_after_the_node(node, script):
    operation = Operation("all-gather", 1, 64)
    with Buffers(node, operation) as buffers:
        with engines.prepare(node, operation, buffers.send, buffers.recv) as collective:
            collective.close()
    text = """
        from hsakit import Node
        from hsakit.collectives import Buffers, Operation, engines
        for _ in range(2):
            with Node() as node:
                operation = Operation("all-to-all", len(node.gpus), 64, in_place=True)
                buffers, never = Buffers(node, operation), node.create_signal(1)
                after = [[never]] * operation.ranks
                collective = engines.prepare(node, operation, buffers.send, buffers.recv, after=after)
                collective.submit()
                collective.close()
        collective.close()
    """
    done = script(text)
    assert done.returncode == 0, done.stderr


def test_a_missed_deadline_says_what_is_missing(node):
    operation = Operation("all-gather", min(2, len(node.gpus)), 64)
    never = node.create_signal(1)
    with Buffers(node, operation) as buffers:
        after = [[never]] * operation.ranks
        for form in engines.FORMS:
            with engines.prepare(node, operation, buffers.send, buffers.recv, after=after, form=form) as collective:
                never.store(1)
                collective.submit()
                missing = "copy 0, 64 B rank" if form == "timed" else "copies of the result of rank 0"
                with pytest.raises(DeadlineExceeded, match=f"rank 0 is not done within 0.02 s: .*{missing}"):
                    collective.wait(0.02)
                never.store(0)
                collective.wait()


@pytest.mark.parametrize("form", engines.FORMS)
def test_what_stays_within_a_rank_may_be_copied_by_a_kernel(node, form):
    operation = Operation("all-to-all", 2, 5001)
    queues = [gpu.create_queue(64) for gpu in node.gpus[:2]]
    with Buffers(node, operation) as buffers:
        made = engines.prepare(node, operation, buffers.send, buffers.recv, form=form, within=queues)
        with made as exchanged:
            for _ in range(3):
                buffers.run(exchanged)
            assert exchanged.submissions.kernels == 2 and len(exchanged.submissions.copies) == 2
            if form == "timed":
                assert all(part.end > part.start for part in exchanged.parts) and len(exchanged.parts) == 4
        with pytest.raises(InvalidArgument, match="within: 1 queues for 2 ranks"):
            engines.prepare(node, operation, buffers.send, buffers.recv, within=queues[:1])
    for queue in queues:
        queue.close()


def test_refusals(node):
    operation = Operation("all-gather", 1, 64)
    with Buffers(node, operation) as buffers:
        send, recv = buffers.send, buffers.recv

        def prepare(*arguments, **options):
            with pytest.raises(InvalidArgument) as caught:
                engines.prepare(node, *arguments, **options)
            return str(caught.value)

        assert "form 'quick' is none of timed, shared" in prepare(operation, send, recv, form="quick")
        assert "order 'any' is none of fan-out, by-rank, step" in prepare(operation, send, recv, order="any")
        assert "own signal: form='timed'" in prepare(operation, send, recv, form="shared", order="stepwise")
        assert "both are at least 1" in prepare(operation, send, recv, split=0)
        assert "engines for copies" in prepare(operation, send, recv, split=99)
        assert "1 buffers for 2 ranks" in prepare(Operation("all-gather", 2, 64), send, recv) or len(node.gpus) < 2
        assert "64 bytes, not none" in prepare(operation, [None], recv)
        assert "64 bytes, not 63 bytes" in prepare(operation, [send[0][1:]], recv)
        assert "signals for 2 ranks, of 1" in prepare(operation, send, recv, after=[(), ()])


def test_a_plan_that_exceeds_a_ring_is_refused_before_anything_is_submitted(node):
    """More copies than an engine's ring holds: all to one peer, each with dependencies."""
    operation = Operation("all-gather", min(2, len(node.gpus)), 64)
    signals = [node.create_signal(1) for _ in range(12_000)]
    with Buffers(node, operation) as buffers:
        with pytest.raises(InvalidArgument, match="of a ring of|do not fit the ring"):
            engines.prepare(node, operation, buffers.send, buffers.recv, after=[signals] * operation.ranks)
        with engines.prepare(node, operation, buffers.send, buffers.recv) as collective:
            buffers.run(collective)
    for signal in signals:
        signal.close()


def test_two_threads_may_give_the_same_collective_back(monkeypatch):
    """Looking whether it is at rest takes a while, in which another may have done it all."""
    closed = []

    class Collective:
        _closing = SimpleNamespace(close=lambda: closed.append(1))
        _asked = False

        @property
        def _at_rest(self):
            if not self._asked:
                self._asked = True
                engines._sweep()  # as the other does
            return True

    monkeypatch.setattr(engines, "_lingering", [Collective()])
    engines._sweep()
    assert closed == [1] and not engines._lingering


def test_explained(node):
    operation = Operation("all-gather", min(2, len(node.gpus)), 64)
    with Buffers(node, operation) as buffers:
        with engines.prepare(node, operation, buffers.send, buffers.recv) as collective:
            lines = collective.explain().splitlines()
            n = operation.ranks
            assert lines[0] == f"{operation}: {n * n} copies, 0 sums, form timed"
            assert len(lines) == 1 + n * n
            engine = collective._pieces[collective.plan.transfers[0]][0].engine.label
            assert lines[1].endswith(f"-> rank {1 % n} recv+0 on {engine}")
