"""Kernels launched as AQL dispatch packets."""

import gc
import struct
import threading
import weakref

import numpy as np
import pytest

from hsakit import codeobject, compiler, counters
from hsakit.ffi.errors import ClosedError, DeadlineExceeded, InvalidArgument
from hsakit.hsa import Batch, barrier_and
from hsakit.pattern import MASK, Pattern

SEED = 11


def base(rank: int) -> int:
    return Pattern(SEED, rank).base


@pytest.fixture
def load(runtime):
    """``load(family)``: the code object for the first GPU."""
    loaded = {}

    def get(family):
        gpu = runtime.gpus[0]
        if family not in loaded:
            loaded[family] = gpu.load(compiler.kernels(family, gpu.name))
        return loaded[family]

    yield get
    for each in loaded.values():
        each.close()


@pytest.fixture
def fill(load):
    return load("pattern").kernel("pattern_fill")


@pytest.fixture
def stamp(load):
    return load("latch").kernel("stamp")


@pytest.fixture
def done(runtime):
    with runtime.create_signal(1) as made:
        yield made


def test_bytes(gpu, host, queue, fill, done):
    with host(10000) as memory:
        bytes_ = memory.view()
        bytes_[:] = 0xA5
        launch = fill.prepare(3, 256, (memory[5:], 9990, 1234567, base(3)))
        assert launch.launch(queue, done) == 0
        assert done.wait(deadline=30) == 0
        assert (bytes_[5:9995] == Pattern(SEED, 3).bytes(1234567, 9990)).all()
        assert (bytes_[:5] == 0xA5).all() and (bytes_[9995:] == 0xA5).all()


def test_packet(gpu, host, queue, load, done):
    kernel = load("gemm").kernel("gemm_f32_nn_64x64")
    with host(4096) as memory:
        launch = kernel.prepare((3, 2), 256, (memory, memory, memory, *range(1, 7)), lds=512)
        packet = launch.packet(done)
        fields = struct.unpack("<HHHHHHIIIIIQQQQ", bytes(packet))
        header, setup, x, y, z, _, gx, gy, gz, private, group, code, kernarg, _, signal = fields
        assert (header, setup) == (2 | 1 << 8 | 2 << 9 | 2 << 11, 3)
        assert (x, y, z, gx, gy, gz) == (256, 1, 1, 768, 2, 1)
        assert (private, group) == (kernel.info.private_segment_size, kernel.info.group_segment_size + 512)
        assert (code, signal) == (kernel.object, done.handle().raw)
        assert kernarg % 64 == 0 and kernarg % kernel.info.kernarg_align == 0
        assert kernel.agent.runtime.pointer_info(kernarg).kind == "hsa"
        assert (packet.kind, packet.loose, launch.packet().loose) == ("dispatch of gemm_f32_nn_64x64", False, True)
        free = kernel.prepare(1, 256, [0] * 9, barrier=False, acquire="agent", release="none").packet()
        assert struct.unpack_from("<H", bytes(free)) == (2 | 0 << 8 | 1 << 9 | 0 << 11,)
        with pytest.raises(InvalidArgument, match="fence scope 'all' is none of none, agent, system"):
            kernel.prepare(1, 256, [0] * 9, acquire="all")


def test_set_between_launches(runtime, host, queue, fill):
    """Those in flight keep the arguments that they were launched with, however many there are."""
    n = 150  # more than the first argument blocks
    with host(16 * n) as memory, runtime.create_signal(1) as gate, runtime.create_signal(1) as end:
        bytes_ = memory.view()
        launch = fill.prepare(1, 256, (memory, 16, 0, base(0)))
        with runtime.gpus[0].create_queue(256) as gated:
            gated.barrier_and([gate])
            for i in range(n):
                launch.set("dst", memory[16 * i :])
                launch.set(2, 16 * i)
                launch.launch(gated)
            gated.barrier_and(completion=end)
            gate.store(0)
            end.wait(deadline=60)
        assert (bytes_ == Pattern(SEED, 0).bytes(0, 16 * n)).all()


def test_argument_blocks_are_used_again(runtime, host, queue, fill, done):
    with host(4096) as memory:
        launch = fill.prepare(1, 256, (memory, 16, 0, base(0)))
        launch.launch(queue, done)
        done.wait(deadline=30)
        for i in range(300):
            launch.set("offset", i)
            done.store(1)
            launch.launch(queue, done)
            done.wait(deadline=30)
            assert (memory.view()[:16] == Pattern(SEED, 0).bytes(i, 16)).all()
        assert fill.kernargs.blocks <= 128


def test_unchanged_launches_share_a_packet(queue, stamp, host, done):
    with host(8) as tick:
        launch = stamp.prepare(1, 64, (tick,))
        launch.launch(queue, done)
        packet = launch._packet
        done.wait(deadline=30)
        done.store(1)
        launch.launch(queue, done)
        assert launch._packet is packet
        done.wait(deadline=30)
        launch.launch(queue)
        assert launch._packet is not packet and launch._packet.held == packet.held
        queue.drain()


def test_alternating_kernels_and_queues(runtime, gpu, host, load):
    fill, compare = (load("pattern").kernel(f"pattern_{name}") for name in ("fill", "compare"))
    n, nbytes = 12, 5000
    with (
        host(nbytes) as memory,
        host(16 * n) as found,
        gpu.create_queue(64) as first,
        gpu.create_queue(64) as second,
    ):
        mismatches = found.view(np.uint64).reshape(n, 2)
        mismatches[:] = [0, MASK]
        filling = fill.prepare(4, 256, (memory, nbytes, 0, base(0)))
        comparing = compare.prepare(4, 256, (memory, nbytes, 0, base(0), found))
        signals = [runtime.create_signal(1) for _ in range(2 * n)]
        for i in range(n):
            filling.set("offset", 3 * i)
            comparing.set("offset", 3 * i + (i == 7))  # one that must not fit
            comparing.set("mismatch", found[16 * i :])
            filling.launch(first, signals[2 * i], after=signals[2 * i - 1 : 2 * i] if i else ())
            comparing.launch(second, signals[2 * i + 1], after=[signals[2 * i]])
        signals[-1].wait(deadline=60)
        wrong = [i for i in range(n) if mismatches[i, 0]]
        assert wrong == [7] and mismatches[7, 0] > nbytes * 0.9
        for signal in signals:
            signal.close()


def test_after_more_signals_than_a_packet_holds(runtime, queue, stamp, host, done):
    with host(8) as tick:
        ticks = tick.view(np.uint64)
        ticks[0] = 0
        gates = [runtime.create_signal(1) for _ in range(7)]
        assert stamp.prepare(1, 64, (tick,)).launch(queue, done, after=gates) == 2
        for gate in gates:
            assert (done.value, ticks[0]) == (1, 0)
            gate.store(0)
        done.wait(deadline=30)
        assert ticks[0]
        for gate in gates:
            gate.close()


def test_batches(runtime, gpu, host, fill):
    """One doorbell for many, prepared once and submitted again, over the ring's end."""
    n = 40
    with host(64 * n) as memory, gpu.create_queue(64) as queue:
        bytes_ = memory.view()
        launch = fill.prepare(1, 256, (memory, 64, 0, base(1)))
        packets = []
        counted = runtime.create_signal(5)
        for i in range(n):
            launch.set("dst", memory[64 * i :])
            launch.set("offset", 64 * i)
            packets.append(launch.packet(counted if i == n - 1 else None))
        batch = Batch(packets)
        before = counters.snapshot()
        for _ in range(5):
            bytes_[:] = 0
            queue.submit_batch(batch, deadline=30)
            queue.drain(deadline=30)
            assert (bytes_ == Pattern(SEED, 1).bytes(0, 64 * n)).all()
        if before is not None:
            assert (counters.snapshot() - before).total("aql_dispatch") == 5 * n
        assert counted.value == 0
        counted.close()


def test_times(runtime, queue, load, stamp, host, done):
    with host(16) as ticks:
        launch = load("latch").kernel("empty").prepare(1, 64)
        first, second = stamp.prepare(1, 64, (ticks,)), stamp.prepare(1, 64, (ticks[8:],))
        first.launch(queue)
        launch.launch(queue, done)
        second.launch(queue)
        done.wait(deadline=30)
        queue.drain()
        start, end = done.times
        assert 0 < end - start < 30e9
        before, after = ticks.view(np.uint64)
        assert before < after


def test_held_until_done(runtime, gpu, gate, host, load, done):
    """Closing everything does not take it from a launch in flight."""
    memory = host(4096)
    view = memory.view()
    with gpu.create_queue(64) as queue, gpu.load(load("pattern").code.data) as code:
        launch = code.kernel("pattern_fill").prepare(1, 256, (memory, 4096, 0, base(2)))
        queue.barrier_and([gate])
        launch.launch(queue, done)
        handle = weakref.ref(code.handle())
        code.close()
        memory.close()
        del launch, code, memory
        gc.collect()
        runtime.registry.sweep()
        assert handle() is not None and done.value == 1
        gate.store(0)
        done.wait(deadline=30)
        assert (view == Pattern(SEED, 2).bytes(0, 4096)).all()
        assert handle() is None


def test_a_launch_without_completion_is_held_until_a_later_one_shows_that_it_is_done(
    runtime, gpu, gate, host, fill, done
):
    with gpu.create_queue(64) as queue:
        memory = host(64)
        handle = weakref.ref(memory.handle())
        launch = fill.prepare(1, 256, (memory, 64, 0, base(2)))
        launch.launch(queue)
        memory.close()
        del launch, memory
        queue.barrier_and([gate])
        runtime.settle()
        assert handle() is not None
        gate.store(0)
        queue.barrier_and(completion=done)
        done.wait(deadline=30)
        runtime.settle()
        gc.collect()
        assert handle() is None


def test_many_launches_without_completion_do_not_pile_up(runtime, gpu, load):
    empty = load("latch").kernel("empty").prepare(1, 64)
    with gpu.create_queue(64) as queue:
        for _ in range(1000):
            empty.launch(queue, deadline=30)
        state = queue._state
        state.prune()
        assert len(state.late) + len(state.flights) <= 4 * 64
        queue.drain(deadline=30)
        assert not state.late and not state.flights


def test_threads(runtime, gpu, host, fill):
    """Each with a launch of its own, on one queue."""
    threads, each, nbytes = 4, 25, 1000
    with host(threads * nbytes) as memory, gpu.create_queue(64) as queue:
        bytes_ = memory.view().reshape(threads, nbytes)
        wrong = []

        def work(t):
            with runtime.create_signal(1) as done:
                launch = fill.prepare(1, 256, (memory[t * nbytes :], nbytes, 0, base(t)))
                for i in range(each):
                    launch.set("offset", i)
                    done.store(1)
                    launch.launch(queue, done, deadline=30)
                    done.wait(deadline=30)
                    if (bytes_[t] != Pattern(SEED, t).bytes(i, nbytes)).any():
                        wrong.append((t, i))

        workers = [threading.Thread(target=work, args=(t,)) for t in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert not wrong


def test_refusals(host, queue, fill, done):
    with host(4096) as memory:
        with pytest.raises(InvalidArgument, match=r"argument 1 \(nbytes\) of pattern_fill is 8 bytes by value, not a"):
            fill.prepare(1, 256, (memory, memory, 0, 0))
        good = (memory, 16, 0, base(0))
        with pytest.raises(InvalidArgument, match="pattern_fill takes workgroups of at most 256"):
            fill.prepare(1, 512, good)
        launch = fill.prepare(1, 256, good, lds=65536)  # LDS for a kernel that declares none only bounds occupancy
        launch.launch(queue, done)
        done.wait(deadline=30)
        assert (memory.view()[:16] == Pattern(SEED, 0).bytes(0, 16)).all()
        with pytest.raises(InvalidArgument, match="cannot complete another"):
            launch.launch(queue, done)


def test_memory_of_others(gpu, peer, fill, queue):
    with peer.pool("coarse").allocate(4096) as theirs:
        with pytest.raises(InvalidArgument, match="GPU 0 was not granted access to"):
            fill.prepare(1, 256, (theirs, 16, 0, base(0)))


def test_the_queue_of_another_gpu(peer, fill, load, host):
    with host(64) as memory, peer.create_queue(64) as queue:
        launch = fill.prepare(1, 256, (memory, 16, 0, 0))
        for submit in (
            lambda: launch.launch(queue),
            lambda: queue.submit_batch([barrier_and(), launch.packet()]),
        ):
            with pytest.raises(InvalidArgument, match="the kernel was loaded for GPU 0, this queue is on GPU 1"):
                submit()
        assert queue.packets == 0


def test_closed(gpu, queue, load, done):
    code = gpu.load(load("latch").code.data)
    launch = code.kernel("empty").prepare(1, 64)
    launch.launch(queue, done)
    code.close()
    done.wait(deadline=30)
    for use in (lambda: launch.launch(queue), launch.packet):
        with pytest.raises(ClosedError):
            use()
    with gpu.create_queue(64) as closed, pytest.raises(ClosedError):
        closed.close()
        load("latch").kernel("empty").prepare(1, 64).launch(closed)
    with pytest.raises(ClosedError):
        done.close()
        load("latch").kernel("empty").prepare(1, 64).launch(queue, done)


def test_an_endless_kernel_meets_its_deadline(runtime, gpu, load, host, done):
    with host(8) as flag, host(32) as report, gpu.create_queue(64) as queue, gpu.create_queue(64) as other:
        flag.view(np.uint64)[0] = 0
        latch = load("latch").kernel("latch").prepare(1, 64, (flag, 1, MASK, report))
        latch.launch(queue, done)
        with pytest.raises(
            DeadlineExceeded, match=r"to be completed by packet 0 \(dispatch of latch\) of queue \d+ on"
        ):
            done.wait(deadline=0.5)
        assert runtime.kernels(gpu) == [f"dispatch of latch (packet 0 of {queue._state.label})"]
        with runtime.create_signal(1) as elsewhere:  # it holds its queue, nothing else
            load("latch").kernel("empty").prepare(1, 64).launch(other, elsewhere)
            elsewhere.wait(deadline=30)
        flag.view(np.uint64)[0] = 1
        done.wait(deadline=30)
        assert report.view(np.uint64)[0] == 1 and runtime.kernels(gpu) == []


V5 = """
#define IMPLICIT __attribute__((address_space(4)))
extern "C" __attribute__((global)) void hidden(unsigned char* out, char c, short s, double d) {
    const IMPLICIT unsigned char* in = (const IMPLICIT unsigned char*)__builtin_amdgcn_implicitarg_ptr();
    if (__builtin_amdgcn_workitem_id_x() == 0 && __builtin_amdgcn_workgroup_id_x() == 0)
        for (int i = 0; i < 256; i++) out[i] = in[i];
    if (__builtin_amdgcn_workitem_id_x() == 1 && __builtin_amdgcn_workgroup_id_x() == 0) {
        out[256] = c, *(short*)(out + 258) = s, *(double*)(out + 264) = d;
        *(unsigned*)(out + 272) = __builtin_amdgcn_workgroup_size_x();
    }
}
"""


def test_hidden_arguments(gpu, host, queue, done, tmp_path):
    source = tmp_path / "hidden.hip"
    source.write_text(V5)
    flags = ("-O3", "-nogpuinc", "-nogpulib", "-mcode-object-version=5")
    path = compiler.build(source, gpu.name, flags)
    info = codeobject.read(path).kernel("hidden")
    start = min(a.offset for a in info.arguments if a.hidden)
    with gpu.load(path) as code, host(512) as memory:
        memory.view()[:] = 0
        code.kernel("hidden").prepare((5, 4, 3), (64, 2), (memory, -7, -300, 0.1)).launch(queue, done)
        done.wait(deadline=30)
        out = bytes(memory.view())
    assert struct.unpack_from("<bxh4xdI", out, 256) == (-7, -300, 0.1, 64)
    values = {a.kind: int.from_bytes(out[a.offset - start :][: a.size], "little") for a in info.arguments if a.hidden}
    shown = {kind: value for kind, value in values.items() if value}
    assert shown == {
        "hidden_block_count_x": 5, "hidden_block_count_y": 4, "hidden_block_count_z": 3,
        "hidden_group_size_x": 64, "hidden_group_size_y": 2, "hidden_group_size_z": 1,
        "hidden_grid_dims": 3,
    }  # fmt: skip
