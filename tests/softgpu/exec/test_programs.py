"""Compiled programs on the node, from the packet to the last byte: private memory, atomics, waits, and what goes wrong.

Run for gfx942 here, and for gfx90a by a process of its own on a node of such parts.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from hsakit import compiler
from hsakit.ffi.errors import DeadlineExceeded, QueueError
from tests.softgpu.rawhsa import ROOT, child

HERE = Path(__file__).parent
U32 = np.uint32


class Programs:
    def __init__(self, runtime, stack: ExitStack):
        self.runtime, self._stack = runtime, stack
        target = runtime.gpus[0].target.partition(":")[0]
        self._path = compiler.build(HERE / "programs.hip", target)
        self._loaded = {}

    def __getitem__(self, name: str):
        return self.kernel(name)

    def kernel(self, name: str, gpu: int = 0):
        if gpu not in self._loaded:
            self._loaded[gpu] = self._stack.enter_context(self.runtime.gpus[gpu].load(self._path))
        return self._loaded[gpu].kernel(name)

    def memory(self, nbytes: int, gpu: int | None = None):
        """Zeroed memory that all may access, fine-grained of the host or coarse-grained of a GPU, and its bytes."""
        pool = self.runtime.cpus[0].pool("fine") if gpu is None else self.runtime.gpus[gpu].pool("coarse")
        agents = [*self.runtime.gpus, self.runtime.cpus[0]]
        buffer = self._stack.enter_context(pool.allocate(nbytes, access=agents))
        buffer.view()[:] = 0
        return buffer, buffer.view()

    def queue(self, gpu: int = 0):
        return self._stack.enter_context(self.runtime.gpus[gpu].create_queue(64))

    def start(self, name: str, groups: int, *arguments, gpu: int = 0, queue=None):
        kernel = self.kernel(name, gpu)
        size = kernel.info.max_workgroup_size
        done = self._stack.enter_context(self.runtime.create_signal(1))
        kernel.prepare(groups, size, arguments).launch(queue or self.queue(gpu), done)
        return done

    def run(self, name: str, groups: int, *arguments) -> None:
        self.start(name, groups, *arguments).wait(deadline=60)


@pytest.fixture
def programs(runtime):
    with ExitStack() as stack:
        yield Programs(runtime, stack)


# -- private memory ----------------------------------------------------------------------------------------------------


def following(x):
    return x * U32(1664525) + U32(1013904223)


def array_of_lane(a, n):
    a, x, total, lane = a.copy(), np.arange(len(a), dtype=U32), np.zeros(len(a), U32), np.arange(len(a))
    for _ in range(n):
        x = following(x)
        total = total + a[lane, x >> U32(28)]
        a[lane, x >> U32(20) & U32(15)] = total
    for j in range(16):
        total = total * U32(31) + a[:, j]
    return total


def array_of_wave(a, n):
    return a[:, n & 15] + a[:, n >> 4 & 15]


def array_in_scratch(a, n):
    a = np.stack([a[:, j % 16] * U32(j) for j in range(200)], axis=1)
    x, total, lane = np.arange(len(a), dtype=U32), np.zeros(len(a), U32), np.arange(len(a))
    for _ in range(n):
        x = following(x)
        total = total + a[lane, x % U32(200)]
        a[lane, (x >> U32(8)) % U32(200)] = total
    return total


@pytest.mark.parametrize("oracle, n", [(array_of_lane, 17), (array_of_wave, 0x73), (array_in_scratch, 40)])
def test_private_arrays(programs, oracle, n):
    items = 9 * 256
    (source, given), (target, got) = programs.memory(items * 64, gpu=0), programs.memory(items * 4, gpu=0)
    given.view(U32)[:] = np.random.default_rng(n).integers(0, 1 << 32, items * 16, dtype=U32)
    programs.run(oracle.__name__, 9, target, source, n)
    assert (got.view(U32) == oracle(given.view(U32).reshape(items, 16), n)).all()


def test_frames_of_functions_that_are_not_inlined(programs):
    target, got = programs.memory(4 * 64 * 5)
    programs.run("frames", 5, target)
    want = []
    for i in range(5 * 64):
        mine, total = [1, 2, 3, 4], 0
        for seed in (i % 64, 100 * (i // 64)):
            part = 0
            for j in range(8):
                mine[j & 3] += seed + j
                part = part * 7 + seed + j
            total += part
        want.append((total ^ mine[0] ^ mine[1] << 8 ^ mine[2] << 16 ^ mine[3] << 24) & 0xFFFFFFFF)
    assert got.view(U32).tolist() == want


# -- atomics -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpu", [None, 0])
def test_totals(programs, gpu):
    groups = 30
    items = groups * 256
    (totals, t), (ticket, drawn), (histogram, h) = (programs.memory(n, gpu) for n in (4096, 4 * items, 64))
    programs.run("totals", groups, totals, ticket, histogram)
    i = np.arange(items, dtype=np.uint64)
    assert t[:16].view(np.uint64).tolist() == [items, int(i[-256:].sum()) << 20]
    assert t[16:24].view(np.float64)[0] == groups * 3 / 2
    total, most, bits, swaps = t[24:40].view(U32).tolist()
    assert (total, most, bits) == (int(i.sum()) & 0xFFFFFFFF, items - 1, 0xFFFFFFFF)
    assert 1 <= swaps <= items
    assert t[40:44].view(np.float32)[0] == groups * 3
    assert t[44:76].view(U32).tolist() == [int(np.bitwise_xor.reduce(i[k::8])) for k in range(8)]
    assert sorted(drawn.view(U32).tolist()) == list(range(items))
    assert h.view(U32).tolist() == np.bincount(following(i.astype(U32)) >> U32(28), minlength=16).tolist()


# -- waits -------------------------------------------------------------------------------------------------------------


def test_a_chain_of_workgroups_beyond_one_batch(programs):
    """The first to run wait for those that are not resident yet."""
    n = 700
    flags, raised = programs.memory(4 * n, gpu=0)
    programs.start("chain", n, flags, n).wait(deadline=60)
    assert (raised.view(U32)[:n] == 1).all()


def test_two_gpus_hand_a_number_to_and_fro(programs):
    (a, _), (b, at_b) = programs.memory(8), programs.memory(8)
    first = programs.start("rally", 1, a, b, 1, 39, gpu=0)
    second = programs.start("rally", 1, b, a, 2, 40, gpu=1)
    time.sleep(0.05)  # both wait
    assert first.value == second.value == 1
    a.view(np.uint64)[0] = 1  # the host begins
    first.wait(deadline=60)
    second.wait(deadline=60)
    assert a.view(np.uint64)[0] == 41 and at_b.view(np.uint64)[0] == 40


def test_a_kernel_waits_for_an_engine(programs):
    flag, _ = programs.memory(8, gpu=0)
    source, value = programs.memory(8)
    out, got = programs.memory(512)
    done = programs.start("wait_for", 1, flag, 77, out)
    time.sleep(0.05)
    assert done.value == 1
    value.view(np.uint64)[0] = 77
    gpu = programs.runtime.gpus[0]
    gpu.engine(0).copy(flag, source, 8).wait(deadline=20)
    done.wait(deadline=20)
    assert (got.view(np.uint64) == 77).all()


def test_kernels_of_two_queues_of_a_gpu_move_together(programs):
    flag, _ = programs.memory(8, gpu=0)
    out, got = programs.memory(512)
    waiting = programs.start("wait_for", 1, flag, 5, out)
    other, _ = programs.memory(8)
    programs.start("rally", 1, other, flag, 4, 4)
    other.view(np.uint64)[0] = 4
    waiting.wait(deadline=20)
    assert (got.view(np.uint64) == 5).all()


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def good(programs) -> None:
    memory, got = programs.memory(256)
    programs.run("good", 1, memory)
    assert got.view(U32).tolist() == list(range(64))


@pytest.mark.parametrize(
    "name, instruction, why",
    [
        ("trap", "s_trap 2", "the kernel trapped"),
        ("missing", "ds_gws_init", "not implemented by the software node"),
        ("illegal", "(not decodable)", "bytes ffffffff"),
        ("beyond_lds", "store_dword|ds_write", "LDS access to 4 bytes at 256 of 256 that the dispatch asked for"),
        ("beyond_scratch", "load_dword", "scratch access to 4 bytes at "),
        ("beyond_registers", "v_mov_b32", "a register that the kernel does not have"),
    ],
)
def test_a_kernel_that_cannot_go_on_stops_its_queue(programs, caplog, name, instruction, why):
    memory, _ = programs.memory(4096)
    queue = programs.queue()
    with caplog.at_level(logging.ERROR, "hsakit.softgpu"), pytest.raises(QueueError):
        programs.start(name, 20, memory, queue=queue).wait(deadline=20)
    (told,) = [record.getMessage() for record in caplog.records]
    assert f"kernel {name}, '" in told and " of workgroup (18, 0, 0): " in told and why in told
    assert any(part in told.partition(" at +0x")[0] for part in instruction.split("|"))
    queue.close()
    good(programs)


def test_a_kernel_without_an_end_misses_its_deadline(programs):
    memory, _ = programs.memory(4096)
    queue = programs.queue()
    with pytest.raises(DeadlineExceeded):
        programs.start("forever", 40, memory, queue=queue).wait(deadline=0.3)
    begin = time.monotonic()
    queue.close()
    assert time.monotonic() - begin < 2
    good(programs)


def test_one_byte_beyond_a_buffer_is_a_fault():
    done = child(
        """
from hsakit.hsa import Runtime
from hsakit.ffi.errors import GpuMemoryFault
from hsakit import compiler
import logging
logging.basicConfig()
runtime = Runtime()
gpu = runtime.gpus[0]
buffer = gpu.pool("coarse").allocate(4 << 20)
path = compiler.build("tests/softgpu/exec/programs.hip", gpu.target.partition(":")[0])
kernel = gpu.load(path).kernel("beyond_memory")
queue = gpu.create_queue(64)
for n, beyond in ((buffer.nbytes - 64, 0), (buffer.nbytes - 63, 1)):
    done = runtime.create_signal(1)
    kernel.prepare(20, 64, (buffer, n)).launch(queue, done)
    try:
        done.wait(deadline=20)
        print("written")
    except GpuMemoryFault as fault:
        print("fault", fault.address - buffer.address)
os._exit(0)
"""
    )
    assert done.stdout.split() == ["written", "fault", str(4 << 20)], done.stderr
    assert "kernel beyond_memory, 'global_store_byte" in done.stderr
    assert "wave 0 of workgroup (18, 0, 0)" in done.stderr and "0 bytes past memory of GPU 0" in done.stderr


# -- another part ------------------------------------------------------------------------------------------------------


@pytest.mark.deadline(300)
def test_all_of_this_on_gfx90a(tmp_path):
    node = (ROOT / "hsakit/softgpu/nodes/mi210-1.toml").read_text()
    assert "\ngpus = 1\n" in node
    path = tmp_path / "mi210-2.toml"
    path.write_text(node.replace("\ngpus = 1\n", "\ngpus = 2\n"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not gfx90a", __file__],
        env={**os.environ, "HSAKIT_NODE_FILE": str(path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
