"""Rings: blocks go round from rank to rank, through slots and counters in the reader's fine-grained memory."""

import numpy as np
import pytest

SIZES = [1, 4096, 20_001]
STEP = np.dtype([("src", "<u8"), ("out", "<u8"), ("nbytes", "<u8"), ("receive", "<u4"), ("send", "<u4")])
NEVER = 1 << 40  # looks


class Ring:
    """A ring over all GPUs: of a node with one GPU, of one rank that sends to itself."""

    def __init__(self, bench, workgroups: int, slots: int, slice_: int):
        self.bench, self.workgroups, self.slots, self.slice = bench, workgroups, slots, slice_
        self.ranks = min(len(bench.gpus), 3)
        nbytes = workgroups * (64 + slots * slice_)
        self.memory = [bench.shared(np.zeros(nbytes, np.uint8)) for _ in range(self.ranks)]
        self.late = [bench.shared(np.zeros(1, np.uint64)) for _ in range(self.ranks)]

    def run(self, kernel: str, programs, limit: int = NEVER) -> list[int]:
        """``programs[rank]``: (src, out, nbytes, receive, send) for each step."""
        longest = max(step[2] for program in programs for step in program)
        done = []
        for rank, program in enumerate(programs):
            ring = np.zeros(1, np.dtype([("memory", "<u8", 3), ("slots", "<u4"), ("slice", "<u4")]))
            around = [self.memory[at % self.ranks].address for at in (rank, rank + 1, rank - 1)]
            ring[0] = (around, self.slots, self.slice)
            steps = self.bench.shared(np.array(program, STEP))
            arguments = (ring, steps, len(program), longest, limit, self.late[rank])
            done.append(self.bench.start("ring", kernel, self.workgroups, *arguments, gpu=rank))
        for signal in done:
            signal.wait(deadline=60)
        return [int(late.view(np.uint64)[0]) for late in self.late]


def address(span, offset: int) -> int:
    return span.address + offset if span.nbytes else 0


@pytest.mark.parametrize("workgroups, slots, slice_", [(1, 2, 4096), (3, 3, 1024)])
def test_all_gather_again_and_again(bench, workgroups, slots, slice_):
    ring = Ring(bench, workgroups, slots, slice_)
    n = ring.ranks
    for nbytes in SIZES:
        shards = [np.random.default_rng(r + nbytes).integers(0, 256, nbytes, dtype=np.uint8) for r in range(n)]
        src = [bench.put(shard, gpu=r) for r, shard in enumerate(shards)]
        out = [bench.put(np.zeros(n * nbytes + 3, np.uint8), gpu=r) for r in range(n)]
        programs = []
        for r in range(n):
            steps = [(src[r].address, out[r].address + r * nbytes, nbytes, 0, 1)]
            steps += [(0, out[r].address + (r - s) % n * nbytes, nbytes, 1, s < n - 1) for s in range(1, n)]
            if n == 1:
                steps += [(0, out[r].address, nbytes, 1, 0)]  # what it sent itself
            programs.append(steps)
        assert ring.run("ring_copy", programs) == [0] * n
        for r in range(n):
            assert (bench.get(out[r]) == np.concatenate([*shards, np.zeros(3, np.uint8)])).all(), nbytes


@pytest.mark.parametrize("kind, dtype", [("f32", np.float32), ("f16", np.float16), ("i32", np.int32)])
def test_all_reduce_in_place(bench, kind, dtype):
    ring = Ring(bench, 2, 2, 4096)
    n, size = ring.ranks, np.dtype(dtype).itemsize
    for count in (1, 3001):  # elements of a shard
        given = [np.random.default_rng(r).integers(-9, 9, n * count).astype(dtype) for r in range(n)]
        held = [bench.put(each, gpu=r) for r, each in enumerate(given)]

        def shard(r, j):
            return held[r].address + j % n * count * size  # noqa: B023

        programs = []
        for r in range(n):
            if n == 1:
                programs.append([(shard(0, 0), 0, count * size, 0, 1), (0, shard(0, 0), count * size, 1, 0)])
                continue
            steps = [(shard(r, r - s), 0, count * size, s > 0, 1) for s in range(n - 1)]
            steps += [(shard(r, r + 1), shard(r, r + 1), count * size, 1, 1)]  # the sum is complete
            steps += [(0, shard(r, r - s), count * size, 1, s < n - 2) for s in range(n - 1)]
            programs.append(steps)
        assert ring.run(f"ring_{kind}", programs) == [0] * n
        for r in range(n):
            assert (bench.get(held[r], dtype) == np.sum(given, axis=0)).all()


def test_a_bf16_ring_adds(bench):
    ring = Ring(bench, 1, 2, 2048)
    n = ring.ranks
    src = [bench.put(np.full(9, 0x3F80 + r, np.uint16), gpu=r) for r in range(n)]
    out = [bench.put(np.zeros(9, np.uint16), gpu=r) for r in range(n)]
    # what the previous rank had, added to what this one has
    programs = [[(src[r].address, 0, 18, 0, 1), (src[r].address, out[r].address, 18, 1, 0)] for r in range(n)]
    assert ring.run("ring_bf16", programs) == [0] * n
    for r in range(n):
        a, b = (0x3F80 + (r - 1) % n, 0x3F80 + r)
        assert (bench.get(out[r], np.uint16) == 0x4000 + ((a & 15) + (b & 15) + 1) // 2 - ((a + b) % 4 == 1)).all()
