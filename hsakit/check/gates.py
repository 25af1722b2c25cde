"""Gates, and what is visible to whom and when."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np

from hsakit.check.bench import Bench
from hsakit.check.case import check
from hsakit.check.finding import Finding, at_most, same
from hsakit.check.sizes import KIB, MIB
from hsakit.gate import Gate
from hsakit.platform import Queue

OFFSETS = (0, 5000, 20_000, 20_000)  # nanoseconds
_LATE = 2500  # each member is a store to the host's memory
_PRODUCED = 1 * MIB
_LAST = 16 * KIB  # of it: the kernel's last round
_OLD, _NEW = 0x11, 0xEE


@check("gate.offsets", "a gate with offsets 0, 5, 20, 20 us: when members are let go, and start", times=True)
def offsets(bench: Bench) -> Iterator[Finding]:
    gpu = bench.gpus[0]
    with ExitStack() as stack:
        gate = stack.enter_context(Gate(bench.node, OFFSETS))
        queues: list[Queue] = [stack.enter_context(gpu.create_queue(64)) for _ in OFFSETS]
        done = [stack.enter_context(bench.node.create_signal(1)) for _ in OFFSETS]
        works = [
            queue.prepare(gpu.kernels.empty(), after=[member], completion=signal)
            for queue, member, signal in zip(queues, gate.signals, done)
        ]
        gate.hold(works)
        gate.release()
        gate.wait(bench.deadline)
        for signal in done:
            signal.wait(deadline=bench.deadline)
        late = [start - gate.released - offset for start, offset in zip(gate.starts, OFFSETS)]
        begun = [signal.times[0] for signal in done]
        waits = [start - let_go for start, let_go in zip(begun, gate.starts)]
    worst = min(late) if min(late) < 0 else max(late)
    yield at_most("latest release after its offset", _LATE, worst, "ns")
    yield same("members start in the order of the gate", "yes", "yes" if begun == sorted(begun) else "no")
    yield at_most("from release to start, longest less shortest", _LATE, max(waits) - min(waits), "ns")


@check("gate.together", "kernels of one GPU in queues of their own behind one gate", times=True)
def together(bench: Bench) -> Iterator[Finding]:
    gpu = bench.gpus[0]
    with ExitStack() as stack:
        gate = stack.enter_context(Gate(bench.node))
        queues: list[Queue] = [stack.enter_context(gpu.create_queue(64)) for _ in range(4)]
        done = [stack.enter_context(bench.node.create_signal(1)) for _ in queues]
        gate.hold(
            queue.prepare(gpu.kernels.empty(), after=[gate.signals[0]], completion=signal)
            for queue, signal in zip(queues, done)
        )
        gate.release()
        for signal in done:
            signal.wait(deadline=bench.deadline)
        starts = [signal.times[0] for signal in done]
    yield at_most("from the first start to the last", _LATE, max(starts) - min(starts), "ns")


@check("visible.copy", "a copy beside the kernel that makes its source, and behind it", gpus=2)
def copies(bench: Bench) -> Iterator[Finding]:
    gpu, peer = bench.gpus[:2]
    engine = gpu.engines_to(peer)[0]
    fresh, source = bench.memory(gpu, "fresh", _PRODUCED), bench.memory(gpu, "produced", _PRODUCED)
    target = bench.memory(peer, "arrived", _PRODUCED)
    gpu.put(fresh, lambda view: view.fill(_NEW))
    for name, depends, wanted in (("without a dependency", False, "old"), ("behind its signal", True, "new")):
        gpu.put(source, lambda view: view.fill(_OLD))
        peer.put(target, lambda view: view.fill(0))
        with ExitStack() as stack:
            queue = stack.enter_context(gpu.create_queue(64))
            gate, made = (stack.enter_context(bench.node.create_signal(1)) for _ in range(2))
            # One workgroup: it takes many times as long as the copy, which comes before its last bytes.
            launch = gpu.kernels.copy(source, fresh, workgroups=1)
            queue.prepare(launch, after=[gate], completion=made).submit()
            copied = engine.copy(target, source, after=[gate, made] if depends else [gate])
            gate.store(0)
            for signal in (copied, made):
                signal.wait(deadline=bench.deadline)
        last = set(np.unique(peer.get(target)[-_LAST:]).tolist())
        found = {_OLD: "old", _NEW: "new", 0: "none"}[last.pop()] if len(last) == 1 else "mixed"
        yield same(f"last bytes, {name}", wanted, found)
