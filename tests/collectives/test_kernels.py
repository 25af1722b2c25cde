"""Collectives by kernels, direct and ring: every byte right, dependencies, what an interruption leaves, refusals."""

import time
from functools import partial

import numpy as np
import pytest

from hsakit.collectives import Buffers, Collective, kernels
from hsakit.collectives.operation import REDUCTIONS, Operation
from hsakit.ffi.errors import DeadlineExceeded, InvalidArgument
from hsakit.gate import Gate
from hsakit.kernels import Kernels


@pytest.fixture(params=kernels.ALGORITHMS)
def algorithm(request):
    return request.param


ON_HOST = 1 << 40


@pytest.fixture
def run(run_prepared):
    """``run(operation, **options)``: two runs, each verified."""
    return partial(run_prepared, kernels.prepare)


def test_it_is_a_collective_and_a_work(node, algorithm):
    operation = Operation("all-gather", 1, 16)
    with Buffers(node, operation) as buffers:
        with kernels.prepare(node, operation, buffers.send, buffers.recv, algorithm=algorithm) as collective:
            assert isinstance(collective, Collective) and len(collective.done) == 1
            assert [cost for _, cost in collective.costs]


def test_every_byte_is_right(make_operation, run, skewed, sizes, name, ranks, in_place):
    """Every size with some number of ranks for each operation, in place or not; alignments in turn."""
    for number, nbytes in enumerate(sizes):
        if number % 10 == (2 * ranks + in_place) % 10 and nbytes < 20_000:
            operation = make_operation(name, ranks, nbytes, in_place)
            run(operation, runs=1, skew=skewed(operation, number))


def test_every_byte_is_right_in_a_ring(make_operation, run, skewed, sizes, name, ranks, in_place):
    """The same with fewer sizes: what a wait costs on a software node, a ring has often."""
    for number, nbytes in enumerate(sizes):
        if number % 20 == 2 * ranks + in_place and nbytes < 20_000:
            operation = make_operation(name, ranks, nbytes, in_place)
            run(operation, runs=1, skew=skewed(operation, number), algorithm="ring")


@pytest.mark.slow
@pytest.mark.deadline(3600)
def test_every_size(make_operation, run, skewed, sizes, large, name, ranks, in_place, algorithm):
    """Compared by the host, which a software node's GPUs are slower than."""
    for number, nbytes in enumerate([*sizes, *large(name, ranks)]):
        operation = make_operation(name, ranks, nbytes, in_place)
        options = {"algorithm": algorithm, "device_from": ON_HOST, "deadline": 600}
        run(operation, runs=1, skew=skewed(operation, number), **options)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_sums_of_floats(node, run, name, dtype, algorithm):
    run(Operation(name, min(3, len(node.gpus)), 2 * 1002, dtype=dtype), runs=1, skew=4, algorithm=algorithm)


def test_large_sizes(node, run, large):
    n = min(len(node.gpus), 3)
    smallest, _, largest, *_ = large("all-gather", n)
    run(Operation("all-gather", n, smallest), runs=1, skew=1)
    run(Operation("all-reduce", n, smallest - 1), runs=1)
    run(Operation("all-gather", n, smallest), runs=1, skew=3, algorithm="ring", workgroups=8)
    run(Operation("broadcast", min(n, 2), largest), runs=1)


@pytest.mark.parametrize("workgroups", [1, 2, 11])
def test_any_number_of_workgroups(node, run, workgroups, algorithm):
    n = min(len(node.gpus), 3)
    options = {"workgroups": workgroups, "algorithm": algorithm, "slice_": 2048, "slots": 2}
    run(Operation("all-gather", n, 10_001), runs=2, skew=1, **options)
    run(Operation("all-to-all", n, 5_001, in_place=True), runs=1, skew=1, **options)
    run(Operation("reduce-scatter", n, 9_996), runs=1, **options)


def test_a_cu_mask_and_the_packets_of_the_plan(node, algorithm):
    """Kernels alone: as many as the plan says, no engine; on the CUs of the mask."""
    n = min(len(node.gpus), 3)
    operation = Operation("all-reduce", n, 4000)
    mask = range(8)  # a CU of each XCC
    options = {"algorithm": algorithm, "cu_mask": mask, "workgroups": 2}
    with Buffers(node, operation) as buffers:
        with kernels.prepare(node, operation, buffers.send, buffers.recv, **options) as collective:
            assert all(tuple(queue.cu_mask) == tuple(mask) for queue in collective._queues)
            buffers.prepare(collective)
            tally = node.tally()
            with tally:
                collective.submit()
                collective.wait()
            buffers.check(collective)
            assert len(collective.parts) == len(collective._works)
            assert all(part.start < part.end for part in collective.parts)
            if tally.counted is not None:
                totals = tally.totals()
                assert (totals["aql_dispatch"], totals["sdma_copy"]) == (len(collective.parts), 0)


def test_a_cu_holds_one_of_its_workgroups(node, monkeypatch):
    """Crowded on the few CUs that a GEMM leaves first, they would not fill the links for as long as they run."""
    made, exchange = [], Kernels.exchange
    monkeypatch.setattr(Kernels, "exchange", lambda *a, **b: made.append(exchange(*a, **b)) or made[-1])
    operation = Operation("all-to-all", 2, 16)
    with Buffers(node, operation) as buffers, kernels.prepare(node, operation, buffers.send, buffers.recv):
        assert [node.gpus[rank].workgroups_a_cu(launch) for rank, launch in enumerate(made)] == [1, 1]


@pytest.mark.parametrize("name", ["all-gather", "all-reduce", "all-to-all"])
def test_a_gate_holds_all_of_it(node, make_operation, name, algorithm):
    operation = make_operation(name, min(3, len(node.gpus)), 3000, True)
    with Gate(node) as gate, Buffers(node, operation) as buffers:
        after = [gate.signals] * operation.ranks
        options = {"after": after, "algorithm": algorithm}
        with kernels.prepare(node, operation, buffers.send, buffers.recv, **options) as collective:
            for _ in range(2):
                buffers.prepare(collective)
                gate.hold([collective])
                time.sleep(0.01)
                assert all(signal.value > 0 for signal in collective.done)
                with pytest.raises(InvalidArgument, match="its last run is in flight"):
                    collective.submit()
                gate.release()
                collective.wait()
                buffers.check(collective)


def test_a_rank_waits_for_its_own_signals(node, algorithm):
    """Nothing of a rank's memory is read or written before its signals are 0."""
    ranks = min(3, len(node.gpus))
    operation = Operation("all-to-all", ranks, 2000)
    ready = [node.create_signal(1) for _ in range(ranks)]
    options = {"after": [[signal] for signal in ready], "algorithm": algorithm}
    with Buffers(node, operation) as buffers:
        with kernels.prepare(node, operation, buffers.send, buffers.recv, **options) as collective:
            buffers.prepare(collective)
            before = np.array(node.gpus[0].get(buffers.recv[0]))
            collective.submit()
            for signal in ready[1:]:
                signal.store(0)
            time.sleep(0.05)
            assert collective.done[0].value == 1
            assert (np.array(node.gpus[0].get(buffers.recv[0])) == before).all()
            ready[0].store(0)
            collective.wait()
            buffers.check(collective)


class Interrupted:
    def submit(self, deadline):
        raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["all-gather", "all-to-all", "all-reduce"])
def test_an_interrupted_submission_leaves_all_usable(node, monkeypatch, name, algorithm):
    """Kernels that wait for others which never came are let go."""
    operation = Operation(name, min(3, len(node.gpus)), 5000, in_place=True)
    with Buffers(node, operation) as buffers:
        with kernels.prepare(node, operation, buffers.send, buffers.recv, algorithm=algorithm) as collective:
            buffers.run(collective)
            works = len(collective._works)
            for stop in {0, 1, works // 2, works - 1}:
                broken = list(collective._works)
                broken[stop] = Interrupted()
                with monkeypatch.context() as patched:
                    patched.setattr(collective, "_works", broken)
                    with pytest.raises(KeyboardInterrupt):
                        collective.submit()
                with pytest.raises(InvalidArgument, match="not submitted to its end"):
                    collective.wait()
                collective._let_go(10)  # before senders get new bytes
                buffers.run(collective)


def test_closed_while_in_flight(node, algorithm):
    """Once before its gate opens, once while kernels wait for a rank that never comes."""
    operation = Operation("all-to-all", min(3, len(node.gpus)), 5001, in_place=True)
    with Gate(node) as gate, Buffers(node, operation) as buffers:
        after = [gate.signals] * operation.ranks
        collective = kernels.prepare(node, operation, buffers.send, buffers.recv, after=after, algorithm=algorithm)
        buffers.prepare(collective)
        gate.hold([collective])
        collective.close()
        collective.close()
        gate.release()
    with Buffers(node, operation) as buffers:
        after = [[node.create_signal(1)]] + [[]] * (operation.ranks - 1)
        collective = kernels.prepare(node, operation, buffers.send, buffers.recv, after=after, algorithm=algorithm)
        collective.submit()
        collective.close()
    with Buffers(node, operation) as buffers:
        with kernels.prepare(node, operation, buffers.send, buffers.recv, algorithm=algorithm) as collective:
            buffers.run(collective)


def test_a_missed_deadline_says_what_is_missing(node, need_gpus, algorithm):
    need_gpus(node.gpus, 2)
    operation = Operation("all-gather", 2, 64)
    never = node.create_signal(1)
    with Buffers(node, operation) as buffers:
        options = {"after": [[], [never]], "algorithm": algorithm}
        with kernels.prepare(node, operation, buffers.send, buffers.recv, **options) as collective:
            collective.submit()
            said = (
                "rank 1 has sent it 0 slices" if algorithm == "ring" else "waits for the kernels before it|no flag came"
            )
            with pytest.raises(DeadlineExceeded, match=f"not complete within 0.05 s are rank 0, .*({said})"):
                collective.wait(0.05)
            never.store(0)
            collective.wait()


def test_refusals(node):
    operation = Operation("all-gather", 1, 64)
    with Buffers(node, operation) as buffers:
        send, recv = buffers.send, buffers.recv

        def prepare(*arguments, **options):
            with pytest.raises(InvalidArgument) as caught:
                kernels.prepare(node, *arguments, **options)
            return str(caught.value)

        assert "algorithm 'tree' is none of direct, ring" in prepare(operation, send, recv, algorithm="tree")
        assert "at least 1" in prepare(operation, send, recv, workgroups=0)
        assert "2 slots" in prepare(operation, send, recv, algorithm="ring", slots=1)
        assert "64 bytes, not none" in prepare(operation, [None], recv)
        assert "signals for 2 ranks, of 1" in prepare(operation, send, recv, after=[(), ()])


def test_explained_and_blamed(node, algorithm):
    operation = Operation("all-gather", min(2, len(node.gpus)), 64)
    n = operation.ranks
    with Buffers(node, operation) as buffers:
        with kernels.prepare(node, operation, buffers.send, buffers.recv, algorithm=algorithm) as collective:
            lines = collective.explain().splitlines()
            assert lines[0] == f"{operation}: {n} kernels, {algorithm}"
            assert sum(line.startswith("rank ") for line in lines) == n
            where = operation.target(n - 1, 64 * (n - 1) + 5)
            assert "64 B rank" in collective.writer(where)
            assert collective.writer(where._replace(offset=99_999)) == "nothing"
