"""Exchanges: blocks straight into others' memory, flags that come after the bytes, and the wait for others' flags."""

import numpy as np
import pytest

MARGIN = 64
SIZES = [0, 1, 16, 5000, 70_001]
BLOCK = np.dtype([("src", "<u8"), ("nbytes", "<u8"), ("first", "<u4"), ("targets", "<u4")])
TARGET = np.dtype([("dst", "<u8"), ("flag", "<u8")])
NEVER = 1 << 40  # looks


class Exchange:
    """What a rank of an exchange has of its own: flags, late and runs; on GPU ``rank``."""

    def __init__(self, bench, rank: int, senders: int):
        self.bench, self.rank, self.senders = bench, rank % len(bench.gpus), senders
        self.inbox = bench.shared(np.zeros(max(senders, 1), np.uint64))
        self.late = bench.shared(np.zeros(1, np.uint64))
        self.runs = bench.put(np.zeros(2, np.uint64), gpu=self.rank)

    def start(self, blocks, targets, groups: int, limit: int = NEVER):
        tables = [self.bench.shared(np.array(rows or [(0,) * len(kind)], kind)) for rows, kind in
                  ((blocks, BLOCK), (targets, TARGET))]  # fmt: skip
        rest = (self.runs, self.inbox, self.senders, limit, self.late)
        arguments = (tables[0], len(blocks), tables[1], len(targets), *rest)
        return self.bench.start("exchange", "exchange", groups, *arguments, gpu=self.rank)


def random_bytes(seed: int, nbytes: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, nbytes, dtype=np.uint8)


def expected(data: np.ndarray, offset: int, room: int) -> np.ndarray:
    out = np.full(room, 0xEE, np.uint8)
    out[offset : offset + data.size] = data
    return out


@pytest.mark.parametrize("groups", [1, 2, 7])  # fewer workgroups than blocks, and shares that are not equal
def test_blocks_to_their_targets(bench, groups):
    """One block for two peers and one of another size for a third, at any alignment; a flag for each but one."""
    peers = [i % len(bench.gpus) for i in range(1, 4)]
    flags = bench.shared(np.zeros(3, np.uint64))
    rank = Exchange(bench, 0, 0)
    for run, nbytes in enumerate(SIZES, 1):
        room = nbytes + MARGIN
        data = [random_bytes(nbytes + i, size) for i, size in enumerate((nbytes, nbytes // 3))]
        src = [bench.put(np.concatenate([each, np.zeros(1, np.uint8)])).address for each in data]
        to = [bench.put(np.full(room, 0xEE, np.uint8), gpu=peer) for peer in peers]
        targets = [(each.address + 7, flags.address + 8 * t if t != 1 else 0) for t, each in enumerate(to)]
        blocks = [(src[0], len(data[0]), 0, 2), (src[1], len(data[1]), 2, 1)]
        rank.start(blocks, targets, groups).wait(deadline=60)
        for each, sent in zip(to, (data[0], data[0], data[1])):
            assert (bench.get(each) == expected(sent, 7, room)).all(), nbytes
        assert list(flags.view(np.uint64)) == [run, 0, run]
        assert list(bench.get(rank.runs, np.uint64)) == [0, run]
        assert rank.late.view(np.uint64)[0] == 0


def test_bytes_are_there_when_a_peer_is_complete(bench, need_gpus):
    """A peer waits before the bytes are on their way; its next kernel copies on what it was sent."""
    need_gpus(bench.gpus, 2)
    nbytes = 50_000
    data = random_bytes(1, nbytes)
    src, landed = bench.put(data), bench.put(np.zeros(nbytes, np.uint8), gpu=1)
    onward = bench.put(np.zeros(nbytes, np.uint8), gpu=1)
    sender, receiver = Exchange(bench, 0, 0), Exchange(bench, 1, 1)
    waits = receiver.start([], [], 1)
    copied = bench.start("copy", "copy", 2, onward, landed, nbytes, gpu=1)
    assert (waits.value, copied.value) == (1, 1)
    sender.start([(src.address, nbytes, 0, 1)], [(landed.address, receiver.inbox.address)], 4).wait(deadline=60)
    copied.wait(deadline=30)
    assert receiver.late.view(np.uint64)[0] == 0
    assert (bench.get(onward) == data).all()


def test_a_late_flag_is_named(bench):
    rank = Exchange(bench, 0, 100)
    rank.inbox.view(np.uint64)[:] = 1
    rank.start([], [], 1, limit=10).wait(deadline=60)
    assert rank.late.view(np.uint64)[0] == 0
    rank.inbox.view(np.uint64)[:] = 2
    rank.inbox.view(np.uint64)[77] = 1
    rank.start([], [], 1, limit=10).wait(deadline=60)
    assert rank.late.view(np.uint64)[0] == 78
