"""The checker: what it lets pass, and the mistakes of kernels and of plans that it finds.

The mistakes are planted in the kernels of kernels_src and in the launches of collectives, in processes of their own.
"""

import signal

import numpy as np
import pytest

from hsakit.softgpu.coherence import EPOCHS, Checker, Incoherent, from_environment
from hsakit.softgpu.memory import AddressSpace

BASE, SIZE = 0x10000, 0x4000
FINE = 0x20000
SYSTEM, AGENT = 2, 1


def header(acquire: int = SYSTEM, release: int = SYSTEM) -> int:
    return acquire << 9 | release << 11


@pytest.fixture
def checker():
    space = AddressSpace()
    space.add(BASE, SIZE, BASE, "memory of GPU 0", vram_of=0, coarse=True)
    space.add(FINE, SIZE, FINE, "memory of GPU 0", vram_of=0)
    space.add(2 * FINE, SIZE, 2 * FINE, "host memory")
    return Checker(space, gpus=2)


def write(checker, gpu, start=BASE, nbytes=4, lanes=64, past_caches=False):
    checker.lanes(
        gpu, np.arange(lanes, dtype=np.uint64) * np.uint64(nbytes) + np.uint64(start), nbytes, True, past_caches
    )


def read(checker, gpu, start=BASE, nbytes=4, lanes=64, past_caches=False):
    at = np.arange(lanes, dtype=np.uint64) * np.uint64(nbytes) + np.uint64(start)
    checker.lanes(gpu, at, nbytes, False, past_caches)


def test_a_release_and_an_acquire_after_it(checker):
    write(checker, 0)
    read(checker, 0)  # its own
    with pytest.raises(Incoherent, match="kernel of GPU 1 reads what a kernel of GPU 0 wrote .* 0 has not released"):
        read(checker, 1)
    checker.acquire(1)
    with pytest.raises(Incoherent, match="GPU 0 has not released"):
        read(checker, 1)
    checker.release(0)
    with pytest.raises(Incoherent, match="GPU 1 has acquired nothing since"):
        read(checker, 1)
    checker.acquire(1)
    read(checker, 1)
    write(checker, 0)  # a new epoch
    with pytest.raises(Incoherent):
        read(checker, 1)


def test_the_first_byte_and_lane_at_fault_are_named(checker):
    write(checker, 0, BASE + 30, lanes=1)
    read(checker, 1, BASE, lanes=7)  # bytes 0 to 27
    read(checker, 1, BASE + 34)
    with pytest.raises(Incoherent) as caught:
        read(checker, 1, BASE, lanes=8)
    assert (caught.value.address, caught.value.lane) == (BASE + 30, 7)
    scattered = np.array([BASE + 100, BASE + 8, BASE + 31], np.uint64)
    with pytest.raises(Incoherent) as caught:
        checker.lanes(1, scattered, 1, False, False)
    assert (caught.value.address, caught.value.lane) == (BASE + 31, 2)


def test_packets_say_what_kernels_acquire_and_release(checker):
    for acquire, release, fine in ((SYSTEM, SYSTEM, True), (AGENT, SYSTEM, False), (SYSTEM, AGENT, False)):
        write(checker, 0)
        checker.kernel_ends(0, header(release=release))
        checker.kernel_begins(1, header(acquire=acquire))
        if fine:
            read(checker, 1)
        else:
            with pytest.raises(Incoherent):
                read(checker, 1)


def test_fine_grained_memory_is_for_flags(checker):
    write(checker, 0, FINE, past_caches=True)
    read(checker, 1, FINE, past_caches=True)
    read(checker, 1, FINE)
    write(checker, 0, BASE, past_caches=True)
    with pytest.raises(Incoherent, match="coarse-grained"):
        read(checker, 1, BASE, past_caches=True)
    write(checker, 0, FINE + 1024)  # data, which caches may hold back there, too
    with pytest.raises(Incoherent, match="fine-grained"):
        read(checker, 1, FINE + 1024)
    write(checker, 0, 2 * FINE)
    read(checker, 1, 2 * FINE)  # host memory


def test_engines_publish_what_they_write_and_see_what_is_published(checker):
    write(checker, 0)
    with pytest.raises(Incoherent, match="an engine of GPU 0 reads what a kernel of GPU 0 wrote"):
        checker.copy(0, BASE + 1024, BASE, 64)
    checker.release(0)
    checker.copy(0, BASE + 1024, BASE, 64)
    checker.copy(0, BASE + 2048, BASE + 1024, 64)
    with pytest.raises(Incoherent, match="reads what an engine wrote .* GPU 1 has acquired nothing since"):
        read(checker, 1, BASE + 2048, lanes=4)
    checker.acquire(1)
    read(checker, 1, BASE + 2048, lanes=4)
    checker.copy(0, BASE + 2048, BASE + 1024, 64)
    with pytest.raises(Incoherent):
        read(checker, 1, BASE + 2048, lanes=4)


def test_more_epochs_than_it_tells_apart(checker):
    write(checker, 1, BASE + 4096)
    for _ in range(EPOCHS):
        write(checker, 0, lanes=1)
        checker.release(0)
    with pytest.raises(Incoherent):
        read(checker, 1, lanes=1)
    read(checker, 0, BASE + 4096)  # forgotten


def test_only_this_check(monkeypatch):
    monkeypatch.setenv("HSAKIT_SOFTGPU_CHECK", "everything")
    with pytest.raises(ValueError, match="there is only the check coherence"):
        from_environment(AddressSpace(), 1)


# -- planted -----------------------------------------------------------------------------------------------------------

ALL_GATHER = """
    import pathlib
    from hsakit import Node, compiler
    from hsakit.collectives import Buffers, Operation, kernels

    def without(family, text):
        "Kernels of a family whose source lacks a line."
        folder = pathlib.Path({folder!r})
        whole = compiler.kernels_source(family)
        for header in whole.parent.glob("*.h"):
            (folder / header.name).write_text(header.read_text())
        source = whole.read_text()
        assert text in source
        (folder / whole.name).write_text(source.replace(text, ""))
        others = compiler.kernels_source
        compiler.kernels_source = lambda name, *of: folder / whole.name if name == family else others(name, *of)

    def in_coarse_memory(cls):
        cls._device = lambda self, rank, nbytes, kind="coarse", old=cls._device: old(self, rank, nbytes)

    {plant}
    with Node() as node:
        operation = Operation("all-gather", 3, 5000)
        with Buffers(node, operation) as buffers:
            with kernels.prepare(node, operation, buffers.send, buffers.recv, algorithm={algorithm!r}) as gathered:
                for _ in range(2):
                    buffers.prepare(gathered)
                    gathered.submit()
                    gathered.wait(20)
                    buffers.check(gathered)
    print("all right")
"""
RELEASE, ACQUIRE = "release_all();", "acquire_all();"


@pytest.fixture
def gather(script, tmp_path):
    """An all-gather with something planted before: the process that ran it."""

    def run(plant, algorithm, check="coherence"):
        text = ALL_GATHER.format(plant=plant, algorithm=algorithm, folder=str(tmp_path))
        return script(text, timeout=100, HSAKIT_SOFTGPU_CHECK=check)

    return run


EVERYTHING = """
    from hsakit import Node
    from hsakit.collectives import Buffers, Operation, engines, kernels
    from hsakit.collectives.operation import OPERATIONS
    with Node() as node:
        for name in OPERATIONS:
            for in_place in (False, True):
                counts = ((5, 0, 99), (1, 2, 3), (700, 8, 1001)) if name == "all-to-all-v" else None
                operation = Operation(name, 3, 0 if counts else 1004, counts=counts, in_place=in_place)
                with Buffers(node, operation) as buffers:
                    ways = [(kernels, {"algorithm": each}) for each in kernels.ALGORITHMS]
                    for way, options in [*ways, (engines, {"form": "timed"}), (engines, {"form": "shared"})]:
                        with way.prepare(node, operation, buffers.send, buffers.recv, **options) as collective:
                            for _ in range(2):
                                buffers.run(collective)
    print("all right")
"""


def test_our_collectives_pass(script):
    done = script(EVERYTHING, timeout=110, HSAKIT_SOFTGPU_CHECK="coherence")
    assert done.stdout == "all right\n", done.stderr
    assert "coherent" not in done.stderr


PLANTS = {
    "a flag in coarse-grained memory": (
        "in_coarse_memory(kernels.KernelCollective)",
        "direct",
        "reads what a kernel of GPU",
    ),
    "slots and flags in coarse-grained memory": (
        "in_coarse_memory(kernels.KernelCollective)",
        "ring",
        "coarse-grained",
    ),
    "no release in a kernel": (f"without('ring', {RELEASE!r})", "ring", "has not released it since"),
    "no acquire in a kernel": (f"without('ring', {ACQUIRE!r})", "ring", "has acquired nothing since"),
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_mistake_in_a_collective_is_found(gather, name):
    plant, algorithm, said = PLANTS[name]
    unseen = gather(plant, algorithm, check="")
    assert unseen.stdout == "all right\n", unseen.stderr  # without the checker nobody notices
    done = gather(plant, algorithm)
    assert done.returncode and "not coherent" in done.stderr and said in done.stderr, done.stderr
    assert "kernel exchange" in done.stderr or "kernel ring_copy" in done.stderr  # which instruction of which kernel


PLAN = """
    from hsakit import Node
    with Node() as node:
        here, there = node.gpus[:2]
        first, second, third = here.allocate(8192), there.allocate(8192), there.allocate(8192)
        with here.create_queue(64) as one, there.create_queue(64) as two:
            for _ in range(2):
                # The host orders the two. A barrier packet between them would release, or acquire, as well.
                with node.create_signal(1) as done:
                    here.kernels.copy(second, first, release={release!r}).launch(one, done)
                    done.wait()
                with node.create_signal(1) as done:
                    there.kernels.copy(third, second, acquire={acquire!r}).launch(two, done)
                    done.wait()
    print("all right")
"""


@pytest.mark.parametrize(
    "acquire, release, said",
    [
        ("system", "system", ""),
        ("agent", "system", "GPU 1 has acquired nothing since that was released"),
        ("system", "agent", "GPU 0 has not released it since"),
    ],
)
def test_a_packet_without_a_fence_is_found(script, acquire, release, said):
    done = script(PLAN.format(acquire=acquire, release=release), HSAKIT_SOFTGPU_CHECK="coherence")
    if not said:
        assert done.stdout == "all right\n", done.stderr
    else:
        assert done.returncode and said in done.stderr, done.stdout + done.stderr


HOST = """
    import ctypes
    from hsakit import Node
    with Node() as node:
        gpu, cpu = node.gpus[0].agent, node.cpus[0]
        granted, other = (gpu.pool("coarse").allocate(100_000) for _ in range(2))
        granted.allow_access(cpu)
        granted.view()[:] = 7
        assert ctypes.string_at(granted.address, 3) == bytes([7, 7, 7])
        try:
            other.view()
        except TypeError as refused:
            print(refused)
        for memory in (granted, other):  # the engines may
            with gpu.engine(2).copy(memory[:100], memory[200:], 100) as done:
                done.wait()
        ctypes.string_at(other.address + 5000, 8)
    print("read")
"""


def test_a_host_read_of_memory_not_granted_to_it_is_found(script):
    unseen = script(HOST, HSAKIT_SOFTGPU_CHECK="")
    assert unseen.returncode == 0 and unseen.stdout.endswith("read\n"), unseen.stderr
    done = script(HOST, HSAKIT_SOFTGPU_CHECK="coherence", PYTHONFAULTHANDLER="1")
    assert done.returncode == -signal.SIGSEGV, done.stderr
    assert "not granted to the host: it touched" in done.stderr and "byte 5000 of memory of GPU 0" in done.stderr
    assert "in string_at" in done.stderr  # where, by Python's own handler
