"""Clocks: GPUs' counters, the system's time, and the times of signals."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np

from hsakit.check.bench import Bench
from hsakit.check.case import check
from hsakit.check.finding import Finding, at_most, near, same, unmeasured
from hsakit.check.sizes import KIB
from hsakit.ffi import HSA
from hsakit.ffi._hsa import ffi
from hsakit.ffi.errors import check_hsa
from hsakit.kernels import MEMBER, REPORT
from hsakit.node import Gpu

_APART = 0.2  # seconds
_CLOSE = 20_000  # nanoseconds in which one packet follows another
_ONE_DOMAIN = 10_000


@check("clocks.rate", "a GPU's counter", ledger="C1")
def rate(bench: Bench) -> Iterator[Finding]:
    gpu = bench.gpus[0]
    said = gpu.tick_frequency
    yield same("ticks a second, as the runtime says", bench.assumed.gpu["counter_khz"] * 1000, said, "Hz",
               gpu__counter_khz=said // 1000)  # fmt: skip
    if bench.node.clock == "model":
        yield unmeasured("ticks a second, by the host's clock", said, "the clock is a model: an idle one stands still")
        return
    with bench.node.allocate(64) as word, gpu.create_queue(64) as queue:
        stamp = gpu.kernels.stamp(word[0:8])
        found = []
        for _ in range(2):
            before = time.monotonic_ns()
            bench.kernel(queue, stamp)
            found.append(((before + time.monotonic_ns()) / 2, int(word.view(np.uint64)[0])))
            time.sleep(_APART)
        (t, a), (u, b) = found
    yield near("ticks a second, by the host's clock", said, (b - a) / (u - t) * 1e9, "Hz", within=0.01)


@check("clocks.system", "a kernel's tick is in the system's time between readings before and after")
def system(bench: Bench) -> Iterator[Finding]:
    for gpu in bench.gpus:
        with bench.node.allocate(64) as word, gpu.create_queue(64) as queue:
            before = _now(bench)
            times = bench.kernel(queue, gpu.kernels.stamp(word[0:8]))
            after = _now(bench)
            tick = gpu.time_of_tick(int(word.view(np.uint64)[0]))
        if not before <= tick <= after or not times[0] <= tick <= times[1] + 1000:
            order = f"{before} to {after}, signal {times}, tick {tick}"
            yield same(f"{gpu.label}", "between", "outside", note=order)
            return
    yield same(f"{len(bench.gpus)} GPUs", "between", "between")


def _now(bench: Bench) -> int:
    out = ffi.new("uint64_t *")
    # hsa_status_t hsa_system_get_info(hsa_system_info_t attribute, void *value)
    check_hsa("hsa_system_get_info", bench.node.runtime.lib.hsa_system_get_info(HSA.HSA_SYSTEM_INFO_TIMESTAMP, out))
    return out[0] * 1_000_000_000 // bench.node.runtime.timestamp_frequency


@check("clocks.order", "engine, kernel, barrier, engine, each behind the one before", ledger="C2 Q3", times=True)
def order(bench: Bench) -> Iterator[Finding]:
    gpu = bench.gpus[0]
    engine = gpu.engines_to(gpu)[0]
    source, target = bench.memory(gpu, "source", 64 * KIB), bench.memory(gpu, "target", 64 * KIB)
    with ExitStack() as stack:
        queue = stack.enter_context(gpu.create_queue(64))
        gate, ran, joined = (stack.enter_context(bench.node.create_signal(1)) for _ in range(3))
        first = engine.prepare(target, source, after=[gate])
        copied = first.submit()
        works = [queue.prepare(gpu.kernels.empty(), after=[copied], completion=ran),
                 queue.prepare(after=[ran], completion=joined)]  # fmt: skip
        for work in works:
            work.submit()
        last = engine.copy(target, source, after=[joined])
        gate.store(0)
        last.wait(deadline=bench.deadline)
        times = [signal.times for signal in (copied, ran, joined, last)]
    gaps = [b[0] - a[1] for a, b in zip(times, times[1:])]
    for name, gap in zip(("from a copy's end to its kernel's start", "from the kernel's end to its barrier's start",
                          "from the barrier's end to its copy's start"), gaps):  # fmt: skip
        yield at_most(name, _CLOSE, gap, "ns")


@check("clocks.domain", "counters of two GPUs that show each other flags", ledger="C1", times=True, gpus=2)
def domain(bench: Bench) -> Iterator[Finding]:
    first = bench.gpus[0]
    raw: dict[str, float] = {}
    looks: list[float] = []
    for gpu in bench.gpus[1:]:
        (there, raw_there), (back, raw_back) = _told(bench, first, gpu), _told(bench, gpu, first)
        raw[gpu.label] = abs(raw_there - raw_back) / 2 * 1e9 / first.tick_frequency
        looks += [there, back]
    worst = max(raw, key=lambda label: raw[label])
    yield at_most("farthest apart, as they are", _ONE_DOMAIN, raw[worst], "ns", note=f"{first.label} and {worst}")
    look = sorted(looks)[len(looks) // 2]
    memory = 2 * bench.assumed.latency_ns  # a store there, and a load
    yield near("from a store to who polls for it", bench.assumed.look_ns + memory, look, "ns",
               model__look_ns=max(look - memory, 1.0))  # fmt: skip


def _told(bench: Bench, sender: Gpu, receiver: Gpu) -> tuple[float, int]:
    """From a store of one GPU until the other, which polls, has seen it: nanoseconds, and ticks as they are."""
    with ExitStack() as stack:
        memory = stack.enter_context(bench.node.allocate(4096))
        words = memory.view().view(np.uint64)
        words[:] = 0
        words[:2] = 1  # the conductor's own flag; the one that is polled
        table = memory[128 : 128 + MEMBER.itemsize]
        table.view().view(MEMBER)[0] = (memory.address + 8, 2000)
        queues = [stack.enter_context(gpu.create_queue(64)) for gpu in (receiver, sender)]
        done = [stack.enter_context(bench.node.create_signal(1)) for _ in range(2)]
        patience = 10 * sender.tick_frequency
        launches = [
            receiver.kernels.latch(memory[8:16], memory[512 : 512 + REPORT.itemsize], released=0),
            sender.kernels.conduct(memory[0:8], table, 1, memory[1024:1056], patience=patience),
        ]
        for queue, launch, signal in zip(queues, launches, done):
            launch.launch(queue, signal)
        words[0] = 0
        for signal in done:
            signal.wait(deadline=bench.deadline)
        stored, seen = int(words[128 + 3]), int(words[64 + 2])
        times = receiver.time_of_tick(seen), sender.time_of_tick(stored)
    return times[0] - times[1], seen - stored
