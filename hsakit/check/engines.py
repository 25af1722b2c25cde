"""Copy engines: which take what, how fast each is, and what a packet of one costs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from statistics import median

from hsakit.check.bench import Bench, slope
from hsakit.check.case import check
from hsakit.check.finding import Finding, at_most, near, same
from hsakit.check.sizes import KIB, MIB
from hsakit.ffi import HSA
from hsakit.ffi._hsa import ffi
from hsakit.ffi.errors import HsakitError
from hsakit.hsa.engine import HOST_ENGINES
from hsakit.hsa.transfer import ranges
from hsakit.pattern import Pattern
from hsakit.verify import check as compare
from hsakit.verify import poison

NUMBERS = range(20)  # more than HSA_AMD_SDMA_ENGINE_k names: 6.1.2 takes what the part has
_PROBE = 64 * KIB
_TOGETHER = 1000  # nanoseconds


@check("engines.accept", "engines that take a copy to a peer, and bring its bytes", gpus=2)
def accepted(bench: Bench) -> Iterator[Finding]:
    gpu, peer = bench.gpus[:2]
    pattern = Pattern(7, 0)
    source, target = bench.memory(gpu, "probe", _PROBE), bench.memory(peer, "probe", _PROBE)
    gpu.put(source, pattern.fill)
    taken: list[int] = []
    refused: list[int] = []
    for number in NUMBERS:
        peer.put(target, lambda view: poison(view, pattern))
        if not _asked(bench, number, target, source):
            refused.append(number)
            continue
        with suppress(HsakitError):
            compare(peer.get(target), pattern)
            taken.append(number)
    there = bench.assumed.gpu["sdma_xgmi_engines"]
    right = range(HOST_ENGINES, min(HOST_ENGINES + there, len(NUMBERS)))
    yield same("take it, and every byte comes", ranges(right), ranges(taken))
    yield same("refuse it", ranges(set(NUMBERS) - set(right)), ranges(refused))


def _asked(bench: Bench, number: int, target, source) -> bool:
    """Whether the library takes a copy for this engine. What hsakit itself would refuse is asked, too."""
    gpu, peer = bench.gpus[:2]
    lib = bench.node.runtime.lib
    with bench.node.create_signal(1) as done:
        # hsa_status_t hsa_amd_memory_async_copy_on_engine(void *dst, hsa_agent_t dst_agent, const void *src,
        #     hsa_agent_t src_agent, size_t size, uint32_t num_dep_signals, const hsa_signal_t *dep_signals,
        #     hsa_signal_t completion_signal, hsa_amd_sdma_engine_id_t engine_id, bool force_copy_on_sdma)
        status = lib.hsa_amd_memory_async_copy_on_engine(
            target.address, peer.agent.raw, source.address, gpu.agent.raw, target.nbytes,
            0, ffi.NULL, done.handle().raw, 1 << number, True,
        )  # fmt: skip
        if status != HSA.HSA_STATUS_SUCCESS:
            return False
        done.wait(deadline=bench.deadline)
    return True


@check("engines.rate", "each engine to one peer", times=True, gpus=2)
def rates(bench: Bench) -> Iterator[Finding]:
    gpu, peer = bench.gpus[:2]
    source, target = bench.memory(gpu, "source", bench.sizes.copy), bench.memory(peer, "target", bench.sizes.copy)
    measured = {
        engine.index: bench.sizes.copy / bench.copy_ns(engine, target, source) for engine in gpu.engines_to(peer)
    }
    ordered = sorted(measured, key=lambda engine: measured[engine])
    for name, index in (("slowest", ordered[0]), ("fastest", ordered[-1])):
        rate = measured[index]
        yield near(f"{name} of {len(measured)}", bench.assumed.link_gb_s, rate, "GB/s", note=f"engine {index}")


@check("engines.link", "one link, one copy, by size", times=True, gpus=2)
def link(bench: Bench) -> Iterator[Finding]:
    gpu = bench.gpus[0]
    peer, engine = bench.ways_out(gpu)[0]
    assumed = bench.assumed
    times: dict[int, int] = {}
    for nbytes in bench.sizes.by_size:
        source, target = bench.memory(gpu, "source", nbytes), bench.memory(peer, "target", nbytes)
        times[nbytes] = bench.copy_ns(engine, target, source)
    rate, _ = slope(*list(times.items())[-2:])
    for nbytes, ns in times.items():
        wanted = nbytes / (assumed.engine_wait_ns + nbytes / assumed.link_gb_s)
        yield near(f"{_size(nbytes)}", wanted, nbytes / ns, "GB/s")
    reported = gpu.link_to(peer).max_bandwidth or assumed.link["max_bandwidth"]
    yield near("without what precedes the first byte", assumed.link_gb_s, rate, "GB/s",
               model__link_efficiency=min(rate * 1000 / reported, 1.0))  # fmt: skip
    smallest = min(times)
    waits = times[smallest] - smallest / rate
    yield near("what precedes the first byte", assumed.engine_wait_ns, waits, "ns",
               model__engine_start_ns=max(waits - assumed.engine_packet_ns, 0.0))  # fmt: skip


@check("engines.egress", "all peers at once, an engine each", times=True, gpus=2)
def egress(bench: Bench) -> Iterator[Finding]:
    gpu = bench.gpus[0]
    ways = bench.ways_apart(gpu)
    source = bench.memory(gpu, "source", bench.sizes.copy)
    copies = [(engine, bench.memory(peer, "target", bench.sizes.copy), source) for peer, engine in ways]
    for _ in range(2):
        times = bench.copies(copies)
    one = bench.sizes.copy / (bench.assumed.engine_wait_ns + bench.sizes.copy / bench.assumed.link_gb_s)
    took = max(end for _, end in times) - min(start for start, _ in times)
    yield near(f"{len(ways)} links out", len(ways) * one, len(ways) * bench.sizes.copy / took, "GB/s")
    into = []
    for peer in bench.gpus[1:]:
        engine = next(engine for other, engine in bench.ways_out(peer) if other == gpu)
        into.append(
            (
                engine,
                bench.memory(gpu, f"from {peer.index}", bench.sizes.copy),
                bench.memory(peer, "source", bench.sizes.copy),
            )
        )
    for _ in range(2):
        times = bench.copies(into)
    took = max(end for _, end in times) - min(start for start, _ in times)
    yield near(f"{len(into)} links in", len(into) * one, len(into) * bench.sizes.copy / took, "GB/s")


@check("engines.local", "an engine's copy within its GPU, which no link holds back", times=True)
def local(bench: Bench) -> Iterator[Finding]:
    gpu = bench.gpus[0]
    engine = gpu.engines_to(gpu)[0]
    times = []
    for nbytes in (bench.sizes.copy // 4, bench.sizes.copy):
        source, target = bench.memory(gpu, "source", nbytes), bench.memory(gpu, "target", nbytes)
        times.append((nbytes, bench.copy_ns(engine, target, source)))
    rate, _ = slope(*times)
    yield near("rate", bench.assumed.engine_gb_s, rate, "GB/s",
               model__engine_headroom=rate / bench.assumed.link_gb_s)  # fmt: skip


@check("engines.order", "copies of one engine run in order; those of two side by side", times=True, gpus=3)
def order(bench: Bench) -> Iterator[Finding]:
    gpu = bench.gpus[0]
    nbytes = bench.sizes.copy // 4
    (first, engine), (second, other) = bench.ways_out(gpu)[:2]
    source = bench.memory(gpu, "source", nbytes)
    targets = [bench.memory(peer, "target", nbytes) for peer in (first, second)]
    for name, engines, wanted in (
        ("of one engine", (engine, engine), "in order"),
        ("of two engines", (engine, other), "together"),
    ):
        (_, end), (start, _) = bench.copies([(e, target, source) for e, target in zip(engines, targets)])
        yield same(name, wanted, "in order" if start >= end else "together")


@check("engines.packet", "what a dependency that is met costs an engine", times=True, gpus=2)
def packet(bench: Bench) -> Iterator[Finding]:
    gpu, peer = bench.gpus[:2]
    engine = gpu.engines_to(peer)[0]
    source, target = bench.memory(gpu, "source", KIB), bench.memory(peer, "target", KIB)
    more, found = 16, []
    with ExitStack() as stack:
        met = [stack.enter_context(bench.node.create_signal(0)) for _ in range(more)]
        for _ in range(3):
            # Both behind one copy, which lets the first go; the second begins when the first is complete.
            first = engine.prepare(target, source)
            second = engine.prepare(target, source, after=met)
            third = engine.prepare(target, source)
            gate = stack.enter_context(bench.node.create_signal(1))
            signals = [work.submit() for work in (engine.prepare(target, source, after=[gate]), first, second, third)]
            gate.store(0)
            for signal in signals:
                signal.wait(deadline=bench.deadline)
            times = [signal.times for signal in signals]
            without, with_ = times[1][0] - times[0][1], times[2][0] - times[1][1]
            found.append((with_ - without) / (2 * more))
    value = median(found)
    yield near("a poll", bench.assumed.engine_packet_ns, value, "ns", model__engine_packet_ns=max(value, 0.0))


@check("engines.fanout", "an engine to each peer: submitted by the host, and behind a gate", times=True, gpus=3)
def fanout(bench: Bench) -> Iterator[Finding]:
    gpu = bench.gpus[0]
    ways = bench.ways_apart(gpu)
    nbytes = bench.sizes.copy // 4
    source = bench.memory(gpu, "source", nbytes)
    copies = [(engine, bench.memory(peer, "target", nbytes), source) for peer, engine in ways]
    works = [engine.prepare(target, source) for engine, target, source in copies]
    steps: list[float] = []
    for attempt in range(3):
        signals = [work.submit() for work in works]
        for signal in signals:
            signal.wait(deadline=bench.deadline)
        starts = sorted(signal.times[0] for signal in signals)  # a node may see what was rung last first
        if attempt:  # the first finds engines that were never used this way
            steps += [b - a for a, b in zip(starts, starts[1:])]
    value = median(steps)
    yield near("from one start to the next, host", bench.assumed.host_copy_ns, value, "ns", within=0.25,
               note="launch: host", model__host_copy_ns=max(value, 1.0))  # fmt: skip
    starts = [start for start, _ in bench.copies(copies)]
    apart = max(starts) - min(starts)
    yield at_most("from the first start to the last, gated", _TOGETHER, apart, "ns", note="launch: gated")


def _size(nbytes: int) -> str:
    return f"{nbytes // MIB} MiB" if nbytes >= MIB else f"{nbytes // KIB} KiB"
