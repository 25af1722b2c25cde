"""GEMM, all-gather, GEMM on every GPU, chained by signals: the host submits, and waits for the end only."""

import numpy as np
import pytest

from hsakit.collectives import Operation, engines

M, K, N = 8, 16, 16  # of the first product on a rank: f32, small, since a software node computes them all
ITEM = 4


class Chain:
    """Rank r computes A_r B, gathers all of them into G, and computes G E_r."""

    def __init__(self, node, form):
        self.node, self.gpus = node, node.gpus
        ranks = len(self.gpus)
        self.operation = Operation("all-gather", ranks, M * N * ITEM)
        nbytes = {"a": M * K, "b": K * N, "send": M * N, "recv": ranks * M * N, "e": N * N, "out": ranks * M * N}
        self.memory = {name: [gpu.allocate(n * ITEM) for gpu in self.gpus] for name, n in nbytes.items()}
        self.queues = [gpu.create_queue(64) for gpu in self.gpus]
        self.first, self.last = ([node.create_signal(0) for _ in self.gpus] for _ in range(2))
        m = self.memory
        after = [[signal] for signal in self.first]
        self.gather = engines.prepare(node, self.operation, m["send"], m["recv"], after=after, form=form)
        self.before, self.behind = [], []
        for r, (gpu, queue) in enumerate(zip(self.gpus, self.queues)):
            gemm = gpu.kernels.gemm("f32", "nn", m["a"][r], m["b"][r], m["send"][r], M, N, K)
            self.before.append(queue.prepare(gemm, completion=self.first[r]))
            gemm = gpu.kernels.gemm("f32", "nn", m["recv"][r], m["e"][r], m["out"][r], ranks * M, N, N)
            self.behind.append(queue.prepare(gemm, after=[self.gather.done[r]], completion=self.last[r]))

    def close(self):
        self.gather.close()
        for each in (*self.queues, *self.first, *self.last, *sum(self.memory.values(), [])):
            each.close()

    def put(self, name, arrays):
        for gpu, buffer, array in zip(self.gpus, self.memory[name], arrays):
            raw = np.ascontiguousarray(array, np.float32).reshape(-1).view(np.uint8)
            gpu.put(buffer, lambda view, raw=raw: np.copyto(view, raw))

    def run(self, seed):
        """One run with new small whole numbers, whose products are exact."""
        rng, ranks = np.random.default_rng(seed), len(self.gpus)
        a, b = rng.integers(-4, 5, (ranks, M, K)), rng.integers(-4, 5, (ranks, K, N))
        e = rng.integers(-4, 5, (ranks, N, N))
        self.put("a", a)
        self.put("b", b)
        self.put("e", e)
        for name in ("send", "recv", "out"):
            self.put(name, [np.full(self.memory[name][0].nbytes // ITEM, np.nan)] * ranks)
        for signal in (*self.first, *self.last):
            signal.store(1)
        for work in self.before:
            work.submit()
        self.gather.submit()
        for work in self.behind:
            work.submit()
        for signal in self.last:
            signal.wait(deadline=60)
        gathered = np.concatenate([a[r] @ b[r] for r in range(ranks)])
        for r, gpu in enumerate(self.gpus):
            out = gpu.get(self.memory["out"][r]).view(np.float32).reshape(ranks * M, N)
            assert (out == gathered @ e[r]).all(), f"run {seed}, rank {r}"


@pytest.fixture(params=engines.FORMS)
def chain(request, node):
    made = Chain(node, request.param)
    yield made
    made.close()


def test_gemm_gather_gemm(chain):
    for seed in range(2):
        chain.run(seed)


@pytest.mark.slow
@pytest.mark.deadline(1800)
def test_gemm_gather_gemm_a_hundred_times(chain):
    for seed in range(100):
        chain.run(seed)
