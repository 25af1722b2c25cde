"""Packets and doorbells: what a packet processor does with what is written in a ring."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial

import numpy as np

from hsakit.check.bench import Bench
from hsakit.check.case import check
from hsakit.check.finding import Finding, near, same, unmeasured
from hsakit.ffi import HSA
from hsakit.ffi._hsa import ffi
from hsakit.ffi.errors import check_hsa
from hsakit.hsa import Signal, packet
from hsakit.hsa.packet import SIZE, Packet
from hsakit.kernels import PLACE, REPORT, Kernels

_LONG = 0.1  # seconds after which what has not happened does not happen
_NAPS = 20
_STREAMS = 6


class Ring:
    """A queue whose packets, write index and doorbell are written one by one, as no producer should."""

    SIZE = 64

    def __init__(self, bench: Bench):
        self._lib = bench.node.runtime.lib
        out = ffi.new("hsa_queue_t **")
        # hsa_status_t hsa_queue_create(hsa_agent_t agent, uint32_t size, hsa_queue_type32_t type,
        #     void (*callback)(hsa_status_t status, hsa_queue_t *source, void *data), void *data,
        #     uint32_t private_segment_size, uint32_t group_segment_size, hsa_queue_t **queue)
        check_hsa(
            "hsa_queue_create",
            self._lib.hsa_queue_create(bench.gpus[0].agent.raw, self.SIZE, HSA.HSA_QUEUE_TYPE_MULTI, ffi.NULL, ffi.NULL,
                                       0xFFFFFFFF, 0xFFFFFFFF, out),
        )  # fmt: skip
        self._queue = out[0]
        self._held: list[Packet] = []

    def write(self, index: int, what: Packet) -> None:
        """A packet, its first word last."""
        self._held.append(what)
        base = ffi.cast("char *", self._queue.base_address) + index * SIZE
        ffi.memmove(base + 4, ffi.buffer(what.body)[4:SIZE], SIZE - 4)
        ffi.cast("uint32_t *", base)[0] = what.word

    def announce(self, packets: int) -> None:
        # void hsa_queue_store_write_index_relaxed(const hsa_queue_t *queue, uint64_t value)
        self._lib.hsa_queue_store_write_index_relaxed(self._queue, packets)

    def ring(self, index: int) -> None:
        # void hsa_signal_store_screlease(hsa_signal_t signal, hsa_signal_value_t value)
        self._lib.hsa_signal_store_screlease(self._queue.doorbell_signal, index)

    def close(self) -> None:
        # hsa_status_t hsa_queue_destroy(hsa_queue_t *queue)
        check_hsa("hsa_queue_destroy", self._lib.hsa_queue_destroy(self._queue))


def _comes_down(signal: Signal, seconds: float = _LONG) -> bool:
    end = time.monotonic() + seconds
    while signal.value >= 1 and time.monotonic() < end:
        time.sleep(1e-3)
    return signal.value < 1


def _says(done: Signal) -> str:
    return "completes" if _comes_down(done) else "waits"


@check("queues.dependency", "a barrier-AND whose dependency is -1, then 0", ledger="Q1")
def dependency(bench: Bench) -> Iterator[Finding]:
    with ExitStack() as stack:
        ring = stack.enter_context(closing(Ring(bench)))
        needed, done = (stack.enter_context(bench.node.create_signal(1)) for _ in range(2))
        ring.write(0, packet.barrier_and([needed], done))
        ring.announce(1)
        ring.ring(0)
        for value, wanted in ((-1, "waits"), (0, "completes")):
            needed.store(value)
            yield same(f"dependency {value}", wanted, _says(done))


@check("queues.late", "a packet that is written after a later packet's doorbell", ledger="Q2 Q5")
def late(bench: Bench) -> Iterator[Finding]:
    for name, rings in (("not rung again", (1,)), ("rung with smaller numbers last", (1, 0))):
        with ExitStack() as stack:
            ring = stack.enter_context(closing(Ring(bench)))
            first, second = (stack.enter_context(bench.node.create_signal(1)) for _ in range(2))
            ring.announce(2)
            ring.write(1, packet.barrier_and((), second))
            for index in rings:
                ring.ring(index)
            yield same(f"{name}: before it is written", "waits", _says(second))
            ring.write(0, packet.barrier_and((), first))
            yield same(f"{name}: then", "completes", _says(second))
            if second.value:  # leave no queue behind that waits
                ring.ring(1)


@check("queues.unrung", "a packet that is written and never rung, behind one that is", ledger="Q10")
def unrung(bench: Bench) -> Iterator[Finding]:
    with ExitStack() as stack:
        ring = stack.enter_context(closing(Ring(bench)))
        first, second = (stack.enter_context(bench.node.create_signal(1)) for _ in range(2))
        ring.announce(2)
        ring.write(0, packet.barrier_and((), first))
        ring.write(1, packet.barrier_and((), second))
        ring.ring(0)
        yield same("packet 0, which is rung", "completes", _says(first))
        yield same("packet 1, which is not", "completes", _says(second), note="hardware is expected to wait")
        ring.ring(1)
        _comes_down(second)


@check("queues.packets", "what packets cost: dispatch, barrier, dispatch in one queue", ledger="Q3", times=True)
def costs(bench: Bench) -> Iterator[Finding]:
    gpu, assumed = bench.gpus[0], bench.assumed
    found: list[tuple[float, float, float]] = []
    with ExitStack() as stack:
        queue = stack.enter_context(gpu.create_queue(64))
        gate, *done = (stack.enter_context(bench.node.create_signal(1)) for _ in range(4))
        empty = gpu.kernels.empty()
        works = [
            queue.prepare(empty, after=[gate], completion=done[0]),
            queue.prepare(completion=done[1]),
            queue.prepare(empty, completion=done[2]),
        ]
        for _ in range(4):
            for signal in (gate, *done):
                signal.store(1)
            for work in works:
                work.submit()
            gate.store(0)
            done[2].wait(deadline=bench.deadline)
            (_, first), (start, end), (second, _) = (signal.times for signal in done)
            found.append((start - first, end - start, second - end))
    complete, barrier, launch = (sorted(each)[len(each) // 2] for each in zip(*found))
    if not 0 <= complete < 1e6:  # a processor that writes no times of barriers
        yield unmeasured("barrier packets", None, "its signals have no times (Q3 of the ledger)")
        return
    yield near("from a kernel's end to the next packet", assumed.complete_ns, complete, "ns",
               model__complete_ns=max(complete, 0))  # fmt: skip
    yield near("a barrier", assumed.barrier_ns, barrier, "ns", model__barrier_ns=max(barrier, 0))
    yield near("from a barrier to the next kernel's start", assumed.launch_ns, launch, "ns",
               model__launch_ns=max(launch, 0))  # fmt: skip


@check("queues.host", "kernels in queues of their own, submitted by the host", times=True)
def host(bench: Bench) -> Iterator[Finding]:
    gpu = bench.gpus[0]
    steps: list[int] = []
    with ExitStack() as stack:
        queues = [stack.enter_context(gpu.create_queue(64)) for _ in range(8)]
        done = [stack.enter_context(bench.node.create_signal(1)) for _ in queues]
        works = [queue.prepare(gpu.kernels.empty(), completion=signal) for queue, signal in zip(queues, done)]
        for attempt in range(3):
            for signal in done:
                signal.store(1)
            for work in works:
                work.submit()
            for signal in done:
                signal.wait(deadline=bench.deadline)
            starts = sorted(signal.times[0] for signal in done)
            steps += [b - a for a, b in zip(starts, starts[1:])] if attempt else []
    value = sorted(steps)[len(steps) // 2]
    yield near("from one start to the next, host", bench.assumed.host_packet_ns, value, "ns", within=0.25,
               note="launch: host", model__host_packet_ns=max(value, 1))  # fmt: skip


@check("queues.streams", "HIP streams: two on one hardware queue, and two on two")
def streams(bench: Bench) -> Iterator[Finding]:
    gpu = bench.gpus[0]
    device = gpu.device
    if device is None:
        yield unmeasured("streams", None, "there is no HIP library, or it does not see this GPU")
        return
    with ExitStack() as stack:
        kernels = stack.enter_context(Kernels(device))
        opened = [stack.enter_context(device.create_stream()) for _ in range(_STREAMS)]
        memory = stack.enter_context(bench.node.allocate(64 + _STREAMS * (PLACE.itemsize + REPORT.itemsize)))
        flag = memory[0:8]
        released = flag.view().view(np.uint64)
        released[0] = 0
        stack.callback(partial(np.copyto, released, np.uint64(1)))  # whatever happens
        places = memory[64 : 64 + _STREAMS * PLACE.itemsize]
        reports = memory[places.nbytes + 64 : places.nbytes + 64 + _STREAMS * REPORT.itemsize]
        for i, stream in enumerate(opened):  # every stream is held until all have their kernels
            report = reports[i * REPORT.itemsize : (i + 1) * REPORT.itemsize]
            kernels.latch(flag, report).launch(stream)
            place = places[i * PLACE.itemsize : (i + 1) * PLACE.itemsize]
            kernels.census(place, 1, naps=_NAPS).launch(stream)
        released[0] = 1
        for stream in opened:
            stream.synchronize(bench.deadline)
        ran = [(int(start), int(end)) for start, end in places.view().view(PLACE)[["start", "end"]]]
    at_once = max(sum(start <= at < end for start, end in ran) for at, _ in ran)
    yield same(f"most of {_STREAMS} kernels at a time (GPU_MAX_HW_QUEUES)", 4, at_once)
    alone = sum(all(a is b or a[1] <= b[0] or b[1] <= a[0] for b in ran) for a in ran)
    yield same("streams that share a queue take turns", "yes", "yes" if at_once < _STREAMS else "no",
               note=f"{alone} ran alone" if alone else "")  # fmt: skip
