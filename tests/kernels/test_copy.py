"""Copies by compute units: every byte arrives, no other byte changes, flags come after the bytes."""

import numpy as np
import pytest

SIZES = [1, 15, 16, 255, 4096, 16384, 16385, 70001]  # 16384 is a workgroup's tile
MARGIN = 64
FEW = 3  # peers


@pytest.fixture
def peers(bench):
    """GPUs to push to: several of one GPU's memory where the node has no more."""
    return [i % len(bench.gpus) for i in range(1, FEW + 1)]


def random_bytes(seed: int, nbytes: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, nbytes, dtype=np.uint8)


def expected(data: np.ndarray, offset: int) -> np.ndarray:
    out = np.full(data.size + MARGIN, 0xEE, np.uint8)
    out[offset : offset + data.size] = data
    return out


@pytest.mark.parametrize("to, source", [(0, 0), (1, 1), (3, 8), (16, 5)])
@pytest.mark.parametrize("groups", [1, 3])
def test_copy(bench, groups, to, source):
    for nbytes in SIZES:
        data = random_bytes(nbytes, nbytes)
        src = bench.put(np.concatenate([np.zeros(source, np.uint8), data]))
        dst = bench.put(np.full(nbytes + MARGIN, 0xEE, np.uint8))
        bench.run("copy", "copy", groups, dst[to:], src[source:], nbytes)
        assert (bench.get(dst) == expected(data, to)).all(), nbytes


@pytest.mark.parametrize("groups", [1, 2, 7])  # fewer workgroups than peers, and shares that are not equal
@pytest.mark.parametrize("flagged", [False, True])
def test_push(bench, addresses, peers, groups, flagged):
    flags = bench.shared(np.zeros(8, np.uint64))
    places = [flags[8 * i : 8 * i + 8] for i in range(FEW)]
    arrived = bench.put(np.zeros(1, np.uint32))
    tail = (addresses(places),) if flagged else ()
    suffix = "_flag" if flagged else ""
    for value, nbytes in enumerate([1, 5000, 70001], 41):
        ending = (value, arrived) if flagged else ()
        data = [random_bytes(nbytes + i, nbytes) for i in range(FEW)]
        sources = [bench.put(each) for each in data]
        to = [bench.put(np.full(nbytes + MARGIN, 0xEE, np.uint8), gpu=peer) for peer in peers]
        outs = addresses([t[7:] for t in to])
        bench.run("copy", f"push_all{suffix}", groups, outs, *tail, FEW, sources[0], nbytes, *ending)
        for each in to:
            assert (bench.get(each) == expected(data[0], 7)).all(), nbytes

        to = [bench.put(np.full(nbytes + MARGIN, 0xEE, np.uint8), gpu=peer) for peer in peers]
        outs = (addresses([t[7:] for t in to]), addresses(sources))
        flags.view(np.uint64)[:] = 0
        bench.run("copy", f"push_each{suffix}", groups, *outs, *tail, FEW, nbytes, *ending)
        for each, bytes_ in zip(to, data):
            assert (bench.get(each) == expected(bytes_, 7)).all(), nbytes
        assert list(flags.view(np.uint64)) == [value if flagged else 0] * FEW + [0] * (8 - FEW)
        assert bench.get(arrived, np.uint32)[0] == 0


def test_bytes_are_there_when_a_peer_sees_the_flag(bench, addresses):
    """A peer's kernel waits before the bytes are on their way, and copies on what it was sent."""
    if len(bench.gpus) < 2:
        pytest.skip("this node has one GPU")
    nbytes = 50_000
    data = random_bytes(1, nbytes)
    src, landed = bench.put(data), bench.put(np.zeros(nbytes, np.uint8), gpu=1)
    onward = bench.put(np.zeros(nbytes, np.uint8), gpu=1)
    flag, late = bench.shared(np.zeros(1, np.uint64)), bench.put(np.full(1, 77, np.uint64), gpu=1)
    arrived = bench.put(np.zeros(1, np.uint32))
    waits = bench.start("copy", "wait_flags", 1, flag, 1, 5, 1_000_000, late, gpu=1)
    copied = bench.start("copy", "copy", 2, onward, landed, nbytes, gpu=1)
    assert (waits.value, copied.value) == (1, 1)
    bench.run("copy", "push_all_flag", 4, addresses([landed]), addresses([flag]), 1, src, nbytes, 5, arrived)
    copied.wait(deadline=30)
    assert bench.get(late, np.uint64)[0] == 0
    assert (bench.get(onward) == data).all()


def test_wait_names_the_peers_that_are_late(bench):
    flags = bench.shared(np.array([9, 8, 10, 0, 9], np.uint64))
    late = bench.put(np.full(1, 77, np.uint64))
    for count, value, bits in [(5, 9, 0b01010), (3, 9, 0b010), (1, 9, 0), (5, 0, 0)]:
        bench.run("copy", "wait_flags", 1, flags, count, value, 10, late)
        assert bench.get(late, np.uint64)[0] == bits
