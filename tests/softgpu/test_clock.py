"""The node under the model clock, through the real libraries: what is held by a gate has the same ticks in every run,
copies move what is there when they begin, and what shares a queue does not overlap."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from contextlib import ExitStack
from functools import partial

import numpy as np
import pytest

from hsakit import compiler

RUNS = 20
DIGEST = "2d7edbadf8645448"  # of all times, relative to the release
SIZE = 256 << 10


@pytest.fixture
def held(runtime):
    """Makes mixed work on all GPUs behind one gate: run() gives (name, start, end) in ns from the release."""
    with ExitStack() as stack:
        yield _mixed(runtime, stack)


def _mixed(runtime, stack):
    gpus = runtime.gpus
    gate = stack.enter_context(runtime.create_signal(1))
    names, signals, plan = [], [], []

    def done(name):
        names.append(name)
        signals.append(stack.enter_context(runtime.create_signal(1)))
        return signals[-1]

    memory = [stack.enter_context(gpu.pool("coarse").allocate(16 * SIZE, access=gpus)) for gpu in gpus]
    queues = [stack.enter_context(gpu.create_queue(64)) for gpu in gpus]
    released = done("release")
    plan.append(lambda: queues[0].barrier_and(after=[gate], completion=released))
    for g, gpu in enumerate(gpus):
        target = gpu.target.partition(":")[0]
        copy = stack.enter_context(gpu.load(compiler.kernels("copy", target))).kernel("copy")
        peer = memory[(g + 1) % len(gpus)]
        push = copy.prepare(16, 256, (peer[SIZE:], memory[g], SIZE))
        local = copy.prepare(304, 256, (memory[g][2 * SIZE :], memory[g], SIZE))
        pushed, copied = done(f"push {g}"), done(f"local {g}")
        plan.append(lambda q=queues[g]: q.barrier_and(after=[gate]))
        plan.append(lambda q=queues[g], launch=push, signal=pushed: launch.launch(q, signal))
        plan.append(lambda q=queues[g], launch=local, signal=copied: launch.launch(q, signal))
        for i, to in enumerate(memory[:g] + memory[g + 1 :]):
            signal = done(f"engine {g} {i}")
            dst, src = to[(3 + g) * SIZE : (4 + g) * SIZE], memory[g][:SIZE]
            plan.append(partial(gpu.engine(2 + i).copy, dst, src, after=[gate], signal=signal))

    def run():
        gate.store(1)
        for signal in signals:
            signal.store(1)
        for submit in plan:
            submit()
        gate.store(0)
        for signal in signals:
            signal.wait(deadline=60)
        zero = signals[0].times[0]
        return [(name, *(time - zero for time in signal.times)) for name, signal in zip(names, signals)]

    return run


def _digest(trace) -> str:
    return hashlib.sha256(repr(trace).encode()).hexdigest()[:16]


@pytest.mark.deadline(300)
def test_gated_work_has_the_same_times_in_every_run(held):
    first = held()
    load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        traces = [held() for _ in range(RUNS // 2)]
    finally:
        for process in load:
            process.kill()
            process.wait()
    traces += [held() for _ in range(RUNS - 1 - len(traces))]
    assert {_digest(trace) for trace in traces} == {_digest(first)}
    assert _digest(first) == DIGEST, "did the model, its constants or a kernel's code change on purpose?"
    starts = {name: start for name, start, _ in first}
    assert len({starts[name] for name in starts if name.startswith("engine")}) == 1  # all at one tick
    assert all(end > start >= 0 for _, start, end in first)


def test_a_copy_moves_what_is_there_when_it_begins(runtime):
    """Started before its producer has ended, it moves the old bytes; with the producer's signal, the new ones."""
    gpu, host = runtime.gpus[0], runtime.cpus[0].pool("fine")
    with ExitStack() as stack:
        source = stack.enter_context(gpu.pool("coarse").allocate(SIZE, access=runtime.gpus))
        new, out = (stack.enter_context(host.allocate(SIZE, access=runtime.gpus)) for _ in range(2))
        queue = stack.enter_context(gpu.create_queue(64))
        gate, done = (stack.enter_context(runtime.create_signal(1)) for _ in range(2))
        kernel = stack.enter_context(gpu.load(compiler.kernels("copy", gpu.target.partition(":")[0]))).kernel("copy")
        produce = kernel.prepare(1, 256, (source, new, SIZE))
        engine = gpu.engine(1)
        for waits, expected in ((False, 1), (True, 2)):
            new.view()[:], out.view()[:] = 1, 0
            gpu.engine(0).copy(source, new).wait(deadline=30)
            new.view()[:] = 2
            gate.store(1)
            done.store(1)
            queue.barrier_and(after=[gate])
            produce.launch(queue, done)
            moved = engine.copy(out, source, after=[gate, done] if waits else [gate])
            gate.store(0)
            moved.wait(deadline=30)
            done.wait(deadline=30)
            assert (out.view() == expected).all(), waits
            moved.close()


def test_kernels_of_one_queue_wait_for_each_other_and_those_of_two_overlap(runtime):
    gpu = runtime.gpus[0]
    with ExitStack() as stack:
        kernel = stack.enter_context(gpu.load(compiler.kernels("census", gpu.target.partition(":")[0]))).kernel(
            "census"
        )
        places = stack.enter_context(gpu.pool("coarse").allocate(4096, access=runtime.gpus))
        nap = kernel.prepare(1, 64, (places, 20))
        one, other = (stack.enter_context(gpu.create_queue(64)) for _ in range(2))
        gate, first, second = (stack.enter_context(runtime.create_signal(1)) for _ in range(3))
        for queues, overlap in (((one, one), False), ((one, other), True)):
            for signal in (gate, first, second):
                signal.store(1)
            for queue, signal in zip(queues, (first, second)):
                queue.barrier_and(after=[gate])
                nap.launch(queue, signal)
            gate.store(0)
            first.wait(deadline=30)
            second.wait(deadline=30)
            assert (second.times[0] < first.times[1]) == overlap


def test_the_clock_of_an_idle_node_stands_still_but_for_being_read(raw):
    now = raw.ffi.new("uint64_t *")
    raw.wait(raw.queue().barrier())
    readings = []
    for _ in range(3):
        raw.lib.hsa_system_get_info(2, now)
        readings.append(now[0])
    assert np.diff(readings).tolist() == [10, 10]  # a tick of 10 ns for each reading
