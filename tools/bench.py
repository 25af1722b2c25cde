#!/usr/bin/env python3
"""What Python costs: FFI calls, AQL packets, kernel launches and engine copies, each beside a plain C loop on the same
library; and what a C3 run at full size costs.

    python tools/bench.py [--node soft|hw|auto] [--only WORD]

Nanoseconds for one call, packet, launch or copy *submitted*; what the device then does is not in it. Python's and C's
samples alternate in one process. The work waits behind a gate while it is timed, so that the device (or the software
node's threads) does not compete for the processor.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import _launch

HERE = Path(__file__).parent

# Many short samples: where the software node's thread gets the interpreter for a moment, it spoils one of them.
SAMPLES = 51
CALLS = 2000  # in one sample
SINGLES = 256
BATCH = 64
BATCHES = 8
DISPATCHES = 64
GROUPS = 2  # batches of dispatches
LAUNCHES = 32  # through HIP, which holds back what is submitted behind a host function
COPIES = 64  # 11 KiB of an engine's ring of 1 MiB
RING = 4096  # packets: several samples, so that the look for room at its end weighs as it does in use
COPY_BYTES = 4096
SETTLE = 3e-2  # seconds, for the device (the software node's thread) to reach the gate and fall asleep there
DEADLINE = 60.0  # seconds, for the gated work to be done
PAPER = "cb10-ag"  # the largest scenario: 16384 x 16384 x 53248 beside an all-gather of 3328 MiB
RUNS = 7
WARM = 8  # operations before those timed: what slept has cold caches

C_LOOPS = """
    struct ring {
        uint64_t queue, base, mask, doorbell, store_write_index, store_signal, write;
    };
    uint64_t bench_call0(uint64_t function, uint64_t rounds);
    uint64_t bench_call3(uint64_t function, uint64_t a, uint32_t b, uint64_t c, uint64_t rounds);
    uint64_t bench_call11(uint64_t function, uint64_t rounds);
    uint64_t bench_launches(uint64_t function, uint64_t kernel, uint64_t stream, uint64_t extra, uint64_t rounds);
    void bench_hold(uint64_t *flag);
    uint64_t bench_packets(struct ring *ring, const uint32_t *body, uint32_t word, uint64_t rounds);
    uint64_t bench_batches(struct ring *ring, const uint32_t *bodies, uint64_t packets, uint32_t word, uint64_t rounds);
    uint64_t bench_copies(uint64_t function, uint64_t dst, uint64_t dst_agent, uint64_t src, uint64_t src_agent,
                          uint64_t size, const uint64_t *dependency, const uint64_t *signals, uint32_t engine,
                          uint64_t rounds);
    uint64_t bench_collective(uint64_t function, const uint64_t *copies, uint64_t count, uint64_t *const *signals,
                              const uint64_t *values, uint64_t signal_count);
"""


@dataclass(frozen=True)
class Row:
    """Nanoseconds per operation, one value a sample."""

    what: str
    python: list[float]
    c: list[float]

    def cells(self) -> list:
        best, best_c = min(self.python), min(self.c)
        medians = statistics.median(self.python), statistics.median(self.c)
        return [self.what, best, medians[0], best_c, medians[1], best - best_c, best / best_c]


def compile_loops(folder: str):
    """The C loops as a cffi library."""
    import cffi

    cc = next(filter(None, map(shutil.which, ("cc", "gcc", "clang", str(HERE.parent / "build/rocm/cc")))), None)
    if cc is None:
        sys.exit(
            "bench: no C compiler for the loops to compare with: neither cc, gcc nor clang; `make rocm` brings one"
        )
    target = f"{folder}/bench.so"
    subprocess.run([cc, "-O2", "-shared", "-fPIC", "-nostdlib", "-o", target, str(HERE / "bench.c")], check=True)
    ffi = cffi.FFI()
    ffi.cdef(C_LOOPS)
    return ffi, ffi.dlopen(target)


def alternate(operations: int, runs: Sequence[Callable[[], int]], between=None) -> list[list[float]]:
    """Samples of each, in turn; they return the nanoseconds that ``operations`` took. ``between`` gets the sample to
    run, to gate and drain it."""
    times: list[list[float]] = [[] for _ in runs]
    for sample in range(SAMPLES + 1):
        for run, into in zip(runs, times, strict=True):
            taken = between(run) if between else run()
            if sample:  # the first warms up: caches, lazily created queues
                into.append(taken / operations)
    return times


def measure(what: str, operations: int, python: Callable[[], int], c: Callable[[], int], between=None) -> Row:
    return Row(what, *alternate(operations, (python, c), between))


def address(ffi, pointer) -> int:
    return int(ffi.cast("uintptr_t", pointer))


def call_rows(loops, agent) -> list[Row]:
    """FFI calls that do next to nothing in the library, called as one writes them."""
    from hsakit.ffi import HIP, HSA, hip, hsa

    hsa_ffi, hip_ffi = hsa().ffi, hip().ffi
    none, get, launch = hip().lib.hipGetLastError, hsa().lib.hsa_agent_get_info, hip().lib.hipModuleLaunchKernel
    raw, attribute, out, null = agent.raw, HSA.HSA_AGENT_INFO_DEVICE, hsa_ffi.new("uint32_t *"), hip_ffi.NULL

    def none_loop() -> int:
        start = time.perf_counter_ns()
        for _ in repeat(None, CALLS):
            none()
        return time.perf_counter_ns() - start

    def get_loop() -> int:
        start = time.perf_counter_ns()
        for _ in repeat(None, CALLS):
            # hsa_status_t hsa_agent_get_info(hsa_agent_t agent, hsa_agent_info_t attribute, void *value)
            get(raw, attribute, out)
        return time.perf_counter_ns() - start

    def launch_loop() -> int:
        start = time.perf_counter_ns()
        for _ in repeat(None, CALLS):
            # hipError_t hipModuleLaunchKernel(hipFunction_t f, ...): no function, so HIP refuses it at once
            launch(0, 1, 1, 1, 64, 1, 1, 0, 0, null, null)
        return time.perf_counter_ns() - start

    if launch(0, 1, 1, 1, 64, 1, 1, 0, 0, null, null) == HIP.hipSuccess:
        raise AssertionError("hipModuleLaunchKernel accepted a null function")
    none_at, get_at, launch_at = address(hip_ffi, none), address(hsa_ffi, get), address(hip_ffi, launch)
    out_at = address(hsa_ffi, out)
    return [
        measure("call, 0 arguments", CALLS, none_loop, lambda: loops.bench_call0(none_at, CALLS)),
        measure("call, 3 arguments", CALLS, get_loop, lambda: loops.bench_call3(get_at, raw, attribute, out_at, CALLS)),
        measure("call, 11 arguments", CALLS, launch_loop, lambda: loops.bench_call11(launch_at, CALLS)),
    ]


class Ring:
    """A queue driven by hand: what a script does with the bare C API, and what the C loops write to."""

    def __init__(self, runtime, agent, bench_ffi):
        from hsakit.ffi import HSA, hsa
        from hsakit.ffi.errors import check_hsa
        from hsakit.hsa import packet

        self.ffi, self.lib = hsa().ffi, hsa().lib
        out = self.ffi.new("hsa_queue_t **")
        # hsa_status_t hsa_queue_create(hsa_agent_t agent, uint32_t size, hsa_queue_type32_t type,
        #     void (*callback)(hsa_status_t status, hsa_queue_t *source, void *data), void *data,
        #     uint32_t private_segment_size, uint32_t group_segment_size, hsa_queue_t **queue)
        status = self.lib.hsa_queue_create(
            agent.raw, RING, HSA.HSA_QUEUE_TYPE_MULTI, self.ffi.NULL, self.ffi.NULL, 0, 0, out
        )
        check_hsa("hsa_queue_create", status)
        self.queue = out[0]
        self.gate, self.done = runtime.create_signal(1), runtime.create_signal(1)
        self.gated, self.end = packet.barrier_and([self.gate]), packet.barrier_and(completion=self.done)
        self.slots = self.ffi.cast("hsa_barrier_and_packet_t *", self.queue.base_address)
        self.words = self.ffi.cast("uint32_t *", self.queue.base_address)
        self.c = bench_ffi.new(
            "struct ring *",
            {
                "queue": address(self.ffi, self.queue),
                "base": self.queue.base_address,
                "mask": RING - 1,
                "doorbell": self.queue.doorbell_signal,
                "store_write_index": address(self.ffi, self.lib.hsa_queue_store_write_index_relaxed),
                "store_signal": address(self.ffi, self.lib.hsa_signal_store_screlease),
            },
        )

    def close(self) -> None:
        from hsakit.ffi.errors import check_hsa

        # hsa_status_t hsa_queue_destroy(hsa_queue_t *queue)
        check_hsa("hsa_queue_destroy", self.lib.hsa_queue_destroy(self.queue))
        self.gate.close()
        self.done.close()

    def submit(self, one, rounds: int = 1) -> int:
        """Submit a prepared packet so many times, with nothing between Python and the C API."""
        slots, words, body, word, mask = self.slots, self.words, one.body, one.word, RING - 1
        queue, doorbell = self.queue, self.queue.doorbell_signal
        store, ring = self.lib.hsa_queue_store_write_index_relaxed, self.lib.hsa_signal_store_screlease
        index = self.c.write
        start = time.perf_counter_ns()
        for _ in repeat(None, rounds):
            slot = index & mask
            slots[slot] = body[0]
            words[slot * 16] = word
            index += 1
            store(queue, index)
            ring(doorbell, index - 1)
        taken = time.perf_counter_ns() - start
        self.c.write = index
        return taken

    def behind_gate(self, run: Callable[[], int]) -> int:
        self.gate.store(1)
        self.done.store(1)
        self.submit(self.gated)
        time.sleep(SETTLE)
        taken = run()
        self.submit(self.end)
        self.gate.store(0)
        self.done.wait(deadline=DEADLINE)
        return taken


def packet_rows(bench_ffi, loops, runtime, agent) -> list[Row]:
    """Prepacked barrier packets, that wait for nothing and complete nothing."""
    from hsakit.hsa import packet

    one = packet.barrier_and()
    ring, queue = Ring(runtime, agent, bench_ffi), agent.create_queue(size=RING)
    with queue:
        rows = ring_rows(
            bench_ffi, loops, ring, queue, "packet", "Queue.submit", one, lambda: queue.submit(one), SINGLES, BATCHES
        )
    ring.close()
    return rows


def dispatch_rows(bench_ffi, loops, runtime, agent) -> list[Row]:
    """Prepared launches of an empty kernel, that complete no signal."""
    from hsakit.kernels import Kernels

    ring = Ring(runtime, agent, bench_ffi)
    with Kernels(agent) as kernels, agent.create_queue(size=RING) as queue:
        launch = kernels.empty()
        rows = ring_rows(
            bench_ffi,
            loops,
            ring,
            queue,
            "dispatch",
            "Launch.launch",
            launch.packet(),
            lambda: launch.launch(queue),
            DISPATCHES,
            GROUPS,
        )
    ring.close()
    return rows


def ring_rows(bench_ffi, loops, ring, queue, what, how, one, submit_one, count, groups) -> list[Row]:
    """One packet again and again: by ``submit_one``, by a script, in batches."""
    from hsakit.hsa import packet

    batch = packet.Batch([one] * BATCH)
    with queue.agent.runtime.create_signal(1) as gate:
        gated = packet.barrier_and([gate])

        def singles() -> int:
            submit = submit_one
            for _ in repeat(None, WARM):
                submit()
            start = time.perf_counter_ns()
            for _ in repeat(None, count):
                submit()
            return time.perf_counter_ns() - start

        def batches() -> int:
            submit = queue.submit_batch
            submit(batch)
            start = time.perf_counter_ns()
            for _ in repeat(None, groups):
                submit(batch)
            return time.perf_counter_ns() - start

        def on_queue(run: Callable[[], int]) -> int:
            gate.store(1)
            queue.submit(gated)
            time.sleep(SETTLE)
            taken = run()
            gate.store(0)
            queue.drain(DEADLINE)
            return taken

        body = bench_ffi.cast("uint32_t *", address(ring.ffi, one.body))
        bodies = bench_ffi.cast("uint32_t *", address(ring.ffi, batch.body))

        def scripted() -> int:
            ring.submit(one, WARM)
            return ring.submit(one, count)

        def c_singles() -> int:
            loops.bench_packets(ring.c, body, one.word, WARM)
            return loops.bench_packets(ring.c, body, one.word, count)

        def c_batches() -> int:
            loops.bench_batches(ring.c, bodies, BATCH, batch.word, 1)
            return loops.bench_batches(ring.c, bodies, BATCH, batch.word, groups)

        def between(run: Callable[[], int]) -> int:
            return (on_queue if run in (singles, batches) else ring.behind_gate)(run)

        return [
            measure(f"{what}, {how}", count, singles, c_singles, between),
            measure(f"{what}, scripted", count, scripted, c_singles, between),
            measure(f"{what}, in batches of {BATCH}", BATCH * groups, batches, c_batches, between),
        ]


def launch_rows(bench_ffi, loops) -> list[Row]:
    """Launches through HIP of a kernel that has four arguments and nothing to do, one C loop for all."""
    import ctypes

    import cffi

    from hsakit import hip
    from hsakit.ffi import hip as hip_library
    from hsakit.kernels import Kernels
    from hsakit.pattern import Pattern

    device = hip.devices()[0]
    hip_ffi, library = hip_library().ffi, hip_library().lib.hipModuleLaunchKernel
    more = cffi.FFI()
    more.cdef("int hipLaunchHostFunc(uint64_t stream, uint64_t fn, uint64_t userData);")
    host_function = more.dlopen(str(hip_library().path)).hipLaunchHostFunc
    hold, flag = address(bench_ffi, bench_ffi.addressof(loops, "bench_hold")), bench_ffi.new("uint64_t *")
    flag_at = address(bench_ffi, flag)
    with Kernels(device) as kernels, device.create_stream() as stream, device.malloc(4096) as memory:
        launch = kernels.fill(memory[:0], Pattern(0, 0))
        kernel, raw = launch.kernel, stream.state().raw
        block = hip_ffi.from_buffer(launch.block)
        size = hip_ffi.new("size_t *", launch.nbytes)
        # HIP_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE, _END of hip_runtime_api.h
        items = (1, block, 2, size, 3)
        extra = hip_ffi.new("void *[]", [hip_ffi.cast("void *", item) for item in items])
        extra_at, library_at, null = address(hip_ffi, extra), address(hip_ffi, library), hip_ffi.NULL
        by_ctypes = ctypes.CDLL(str(hip_library().path)).hipModuleLaunchKernel
        by_ctypes.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3]

        statements = {
            "Launch.launch": "prepared(stream)",
            "1 argument set": "put('offset', 0); prepared(stream)",
            "prepared each time": "kernel.prepare(1, 256, (memory, 0, 0, 0)).launch(stream)",
            "scripted": "library(function, 1, 1, 1, 256, 1, 1, 0, raw, null, extra)",
            "ctypes": "by_ctypes(function, 1, 1, 1, 256, 1, 1, 0, raw, None, extra_at)",
        }
        names = {"prepared": launch.launch, "put": launch.set, "kernel": kernel, "memory": memory, "stream": stream}
        names |= {"library": library, "by_ctypes": by_ctypes, "function": kernel.function, "raw": raw, "null": null}
        names |= {"extra": extra, "extra_at": extra_at}
        amds = hip_python()
        if amds:
            names["hip_python"] = amds.hipModuleLaunchKernel
            statements["hip-python"] = "hip_python(function, 1, 1, 1, 256, 1, 1, 0, raw, None, extra_at)"

        def python(statement: str) -> Callable[[], int]:
            timer = timeit.Timer(statement, timer=time.perf_counter_ns, globals=names)

            def run() -> int:
                timer.timeit(WARM)
                return int(timer.timeit(LAUNCHES))

            return run

        def c() -> int:
            loops.bench_launches(library_at, kernel.function, raw, extra_at, WARM)
            taken = loops.bench_launches(library_at, kernel.function, raw, extra_at, LAUNCHES)
            if not taken:
                raise AssertionError("HIP refused the C loop's launch")
            return taken

        def behind_gate(run: Callable[[], int]) -> int:
            flag[0] = 1
            if host_function(raw, hold, flag_at):
                raise AssertionError("hipLaunchHostFunc failed")
            time.sleep(SETTLE)
            taken = run()
            flag[0] = 0
            stream.synchronize(DEADLINE)
            return taken

        *times, in_c = alternate(LAUNCHES, [*map(python, statements.values()), c], behind_gate)
    return [Row(f"launch, {how}", taken, in_c) for how, taken in zip(statements, times)]


def hip_python():
    """AMD's own binding: this Python's, or what tools/rocm.sh put beside it."""
    beside = str(Path(sys.prefix, "hip-python"))
    if beside not in sys.path:
        sys.path.append(beside)
    try:
        from hip import hip
    except ImportError:
        print("hip-python is not installed: no row for it (tools/rocm.sh hip-python fetches it)", file=sys.stderr)
        return None
    return hip


def copy_rows(bench_ffi, loops, runtime) -> list[Row]:
    """Copies to a peer (to the host, if there is only one GPU), each with its own signal, all after one gate."""
    from hsakit.ffi import hsa

    source = runtime.gpus[0]
    peer = runtime.gpus[1] if len(runtime.gpus) > 1 else None
    pool = peer.pool("coarse") if peer else runtime.cpus[0].pool("fine")
    # Engines 0 and 1 serve the host, the others the peers; of MI210 the first takes nothing to the host.
    engine = source.copy_engines[2 if peer else min(1, len(source.copy_engines) - 1)]
    copy = hsa().lib.hsa_amd_memory_async_copy_on_engine
    copy_at = address(hsa().ffi, copy)
    with (
        source.pool("coarse").allocate(COPY_BYTES) as src,
        pool.allocate(COPY_BYTES, access=(source,)) as dst,
        runtime.create_signal(1) as gate,
    ):
        signals = [runtime.create_signal(1) for _ in range(COPIES)]
        raws = hsa().ffi.new("hsa_signal_t[]", [signal.handle().raw for signal in signals])
        gates = hsa().ffi.new("hsa_signal_t[]", [gate.handle().raw])

        def objects() -> int:
            run, after = engine.copy, (gate,)
            start = time.perf_counter_ns()
            for signal in signals:
                run(dst, src, COPY_BYTES, after=after, signal=signal)
            return time.perf_counter_ns() - start

        copies = [engine.prepare(dst, src, COPY_BYTES, after=(gate,), signal=signal) for signal in signals]

        def prepared() -> int:
            start = time.perf_counter_ns()
            for each in copies:
                each.submit()
            return time.perf_counter_ns() - start

        def scripted() -> int:
            to, to_agent, of, of_agent, mask = dst.address, dst.agent.raw, src.address, source.raw, engine.mask
            start = time.perf_counter_ns()
            for raw in raws:
                # hsa_status_t hsa_amd_memory_async_copy_on_engine(void *dst, hsa_agent_t dst_agent, const void *src,
                #     hsa_agent_t src_agent, size_t size, uint32_t num_dep_signals, const hsa_signal_t *dep_signals,
                #     hsa_signal_t completion_signal, hsa_amd_sdma_engine_id_t engine_id, bool force_copy_on_sdma)
                copy(to, to_agent, of, of_agent, COPY_BYTES, 1, gates, raw, mask, True)
            return time.perf_counter_ns() - start

        def c() -> int:
            taken = loops.bench_copies(
                copy_at,
                dst.address,
                dst.agent.raw,
                src.address,
                source.raw,
                COPY_BYTES,
                bench_ffi.cast("uint64_t *", address(hsa().ffi, gates)),
                bench_ffi.cast("uint64_t *", address(hsa().ffi, raws)),
                engine.mask,
                COPIES,
            )
            if not taken:
                raise AssertionError(f"{engine} refused the C loop's copy")
            return taken

        def behind_gate(run: Callable[[], int]) -> int:
            gate.store(1)
            for signal in signals:
                signal.store(1)
            time.sleep(SETTLE)
            taken = run()
            gate.store(0)
            for signal in signals:
                signal.wait(deadline=DEADLINE)
            return taken

        rows = [
            measure("copy, CopyEngine.copy", COPIES, objects, c, behind_gate),
            measure("copy, prepared", COPIES, prepared, c, behind_gate),
            measure("copy, scripted", COPIES, scripted, c, behind_gate),
        ]
        for signal in signals:
            signal.close()
    return rows


def collective_rows(bench_ffi, loops) -> list[Row]:
    """An all-gather over all GPUs by engines, prepared: all its copies, all after one gate. Another one before it warms
    up the caches; in C as well."""
    from hsakit.collectives import Buffers, Operation, engines
    from hsakit.ffi import hsa
    from hsakit.node import Node

    ffi, copy_at = hsa().ffi, address(hsa().ffi, hsa().lib.hsa_amd_memory_async_copy_on_engine)
    with Node() as node:
        gate = node.create_signal(0)
        operation = Operation("all-gather", len(node.gpus), COPY_BYTES)
        after = [[gate]] * operation.ranks
        with Buffers(node, operation) as buffers:
            collectives = [
                engines.prepare(node, operation, buffers.send, buffers.recv, after=after, form="shared")
                for _ in range(2)
            ]
            warm, timed = collectives
            buffers.run(timed)

            def c_of(collective) -> Callable[[], int]:
                plan, place = collective.plan, {"send": buffers.send, "recv": buffers.recv}
                dependency = ffi.new("hsa_signal_t[]", [gate.handle().raw])
                words: list[int] = []
                for transfer, engine in zip(plan.transfers, collective.engines, strict=True):
                    dst, src = (place[end.buffer][end.rank] for end in (transfer.dst, transfer.src))
                    words += [dst.address + transfer.dst.offset, dst.agent.raw]
                    words += [src.address + transfer.src.offset, src.agent.raw, transfer.nbytes]
                    completion = collective.done[transfer.dst.rank].handle().raw
                    words += [address(ffi, dependency), completion, engine.mask]
                copies = bench_ffi.new("uint64_t[]", words)
                counts = [sum(t.dst.rank == rank for t in plan.transfers) for rank in range(operation.ranks)]
                values = bench_ffi.new("uint64_t[]", counts)
                cells = [bench_ffi.cast("uint64_t *", done.address) for done in collective.done]
                signals = bench_ffi.new("uint64_t *[]", cells)

                def run(keep=dependency) -> int:
                    count = len(plan.transfers)
                    return loops.bench_collective(copy_at, copies, count, signals, values, len(counts))

                return run

            c_warm, c_timed = map(c_of, collectives)

            def prepared() -> int:
                warm.submit()
                start = time.perf_counter_ns()
                timed.submit()
                return time.perf_counter_ns() - start

            def c() -> int:
                taken = c_timed() if c_warm() else 0
                if not taken:
                    raise AssertionError("an engine refused the C loop's copy")
                return taken

            def behind_gate(run: Callable[[], int]) -> int:
                gate.store(1)
                time.sleep(SETTLE)
                taken = run()
                gate.store(0)
                for done in (*warm.done, *timed.done):
                    done.wait(deadline=DEADLINE)
                return taken

            count = len(timed.plan.transfers)
            row = measure("all-gather, prepared", count, prepared, c, behind_gate)
            buffers.check(timed)
            for collective in collectives:
                collective.close()
        gate.close()
    return [row]


def c3_rows(name: str = PAPER, runs: int = RUNS) -> list[list]:
    """A GEMM beside a collective on all GPUs, gated, at its full size: the processor time of whole runs, submission and
    (on the software node) the model included, and the most memory that the process ever had. No byte is compared.
    """
    from hsakit.c3.run import RELEASE, Run
    from hsakit.c3.scenario import select
    from hsakit.c3.stage import Stage
    from hsakit.node import Node

    rows = []
    with Node() as node:
        (scenario,) = select([name])
        for means in ("engines", "kernels"):
            with Stage(node, scenario, verify=False) as stage, Run(stage) as run:
                first, second = run.gate(0, 0)
                run.gemm(after=first)
                getattr(run, means)(after=second)
                seconds = []
                for _ in range(1 + runs):
                    start = time.process_time()
                    works, spans = run.once(node.tally())
                    seconds.append(time.process_time() - start)
                released = next(span[0] for work, span in zip(works, spans) if work.part == RELEASE)
                took = max(end for _, end in spans) - released
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            rows.append([f"{name}, {len(node.gpus)} GPUs, by {means}", seconds[0], min(seconds[1:]),
                         statistics.median(seconds[1:]), peak, took / 1e6])  # fmt: skip
    return rows


def c3_table(node: str | None) -> str:
    from tabulate import tabulate

    from hsakit.ffi import node_choice

    os.environ["HSAKIT_SOFTGPU_EXECUTE"] = "sampled"  # hardware does not look at it
    node_choice.choose(node)
    headers = ("processor seconds of a run", "first", "best", "median", "most MiB", "device ms")
    return tabulate(c3_rows(), headers, floatfmt=(None, ".2f", ".3f", ".3f", ".0f", ".1f"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--node", choices=("soft", "hw", "auto"), help="default: HSAKIT_NODE, else auto")
    groups = ("call", "packet", "dispatch", "launch", "copy", "collective", "c3")
    parser.add_argument("--only", choices=groups, help="default: all of them")
    arguments = parser.parse_args()
    _launch.ensure_runtime()
    if arguments.only == "c3":
        print(c3_table(arguments.node))
        return 0

    from tabulate import tabulate

    from hsakit.ffi import hip, hsa, node_choice
    from hsakit.hsa import Runtime

    node_choice.choose(arguments.node)
    with tempfile.TemporaryDirectory() as folder, Runtime() as runtime:
        bench_ffi, loops = compile_loops(folder)
        agent = runtime.gpus[0]
        measured = {
            "call": lambda: call_rows(loops, agent),
            "packet": lambda: packet_rows(bench_ffi, loops, runtime, agent),
            "dispatch": lambda: dispatch_rows(bench_ffi, loops, runtime, agent),
            "launch": lambda: launch_rows(bench_ffi, loops),
            "copy": lambda: copy_rows(bench_ffi, loops, runtime),
            "collective": lambda: collective_rows(bench_ffi, loops),
        }
        rows = [row for name, group in measured.items() if arguments.only in (None, name) for row in group()]
    headers = ("ns per", "Python best", "median", "C best", "median", "best - C", "best / C")
    print(tabulate([row.cells() for row in rows], headers, floatfmt=(None, ".0f", ".0f", ".0f", ".0f", ".0f", ".1f")))
    libraries = f"{hsa().path.name}, {hip().path.name}"
    print(f"\n{SAMPLES} samples each, alternating. {libraries}; {agent.product}.\n", flush=True)
    if arguments.only:
        return 0
    # In a process of its own: for the most memory that it had, and since a software node samples from its start or not.
    again = [sys.executable, __file__, "--only", "c3", *(["--node", arguments.node] if arguments.node else [])]
    return subprocess.run(again, check=False).returncode


if __name__ == "__main__":
    sys.exit(_launch.run(main))
