"""What matrix products lose with the CUs that are taken from them, and beside engines' copies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from hsakit.check.bench import Bench
from hsakit.check.case import check
from hsakit.check.finding import Finding, beside, near, unmeasured
from hsakit.check.sizes import Shape
from hsakit.gemm import choose_tile

_ITEMSIZE = 2  # of bf16
_PUBLISHED = {32: 17.0, 64: 27.0}  # CUs lost: per cent slower; arXiv 2412.14335
_FASTER = -10.0  # per cent, without one CU of each XCC; the same
_SKIPPED = "needs large sizes"


@check("products.compute", "a compute-bound product in bf16 on fewer CUs", times=True)
def compute(bench: Bench) -> Iterator[Finding]:
    if bench.sizes.products is None:
        yield unmeasured("CUs lost", "17, 27 % slower", _SKIPPED)
        return
    cus, shape = bench.gpus[0].cu_count, bench.sizes.products[0]
    whole = _product_ns(bench, shape, cus)
    m, n, k = shape
    tile = choose_tile("bf16", m, n, cus)
    tiles = -(-m // tile[0]) * -(-n // tile[1])
    busy = tiles / cus / -(-tiles // cus)  # of the time that the busiest CU takes, on average over CUs
    share = 2 * m * n * k / whole / 1e3 / bench.assumed.peak_tflop_s("bf16") / busy
    yield near("share of the peak", bench.assumed.efficiency, share, "", note="while all CUs are busy",
               model__efficiency=min(share, 1.0))  # fmt: skip
    for lost, published in _PUBLISHED.items():
        if lost < cus:
            slower = _product_ns(bench, shape, cus - lost) / whole - 1
            yield beside(f"{lost} CUs lost", published, 100 * slower, "% slower")


@check("products.memory", "a memory-bound product in bf16 with one CU of each XCC less", times=True)
def memory(bench: Bench) -> Iterator[Finding]:
    if bench.sizes.products is None:
        yield unmeasured("CUs lost", "-10 % slower", _SKIPPED)
        return
    gpu, shape = bench.gpus[0], bench.sizes.products[1]
    fewer = gpu.cu_count - gpu.agent.xcc_count
    slower = _product_ns(bench, shape, fewer) / _product_ns(bench, shape, gpu.cu_count) - 1
    yield beside(f"{gpu.agent.xcc_count} CUs lost", _FASTER, 100 * slower, "% slower")


@check("products.engines", "the compute-bound one beside engines' copies over all links, both ways", times=True, gpus=2)
def engines(bench: Bench) -> Iterator[Finding]:
    if bench.sizes.products is None:
        yield unmeasured("slower", None, _SKIPPED)
        return
    gpu, nbytes = bench.gpus[0], bench.sizes.beside
    launch = _product(bench, bench.sizes.products[0])
    alone = bench.kernel_ns(launch)
    source = bench.memory(gpu, "source", nbytes)
    copies = []
    for peer, engine in bench.ways_out(gpu):
        back = next(each for other, each in bench.ways_out(peer) if other == gpu)
        here, there = bench.memory(gpu, f"from {peer.index}", nbytes), bench.memory(peer, "source", nbytes)
        copies += [(engine, bench.memory(peer, "target", nbytes), source), (back, here, there)]
    with ExitStack() as stack:
        queue = stack.enter_context(gpu.create_queue(64))
        gate, done = (stack.enter_context(bench.node.create_signal(1)) for _ in range(2))
        queue.prepare(launch, after=[gate], completion=done).submit()
        signals = [engine.copy(to, from_, after=[gate]) for engine, to, from_ in copies]
        gate.store(0)
        for signal in (done, *signals):
            signal.wait(deadline=bench.deadline)
        start, end = done.times
        over = end - min(signal.times[1] for signal in signals)
    if over > 0:
        yield unmeasured("slower", None, f"the first copy ended {over} ns before the product")
        return
    slower = (end - start) / alone - 1
    yield near("slower", 100 * bench.assumed.pi, 100 * slower, "%", within=0.25, model__pi=max(slower, 0.0))


def _product_ns(bench: Bench, shape: Shape, cus: int) -> int:
    return bench.kernel_ns(_product(bench, shape), mask=bench.mask(cus))


def _product(bench: Bench, shape: Shape) -> Any:
    """A launch. Its tile is the one for all CUs, whatever a mask leaves of them."""
    gpu, (m, n, k) = bench.gpus[0], shape
    sizes = {"a": m * k, "b": n * k, "c": m * n}
    a, b, c = (bench.memory(gpu, name, _ITEMSIZE * elements) for name, elements in sizes.items())
    return gpu.kernels.gemm("bf16", "nt", a, b, c, m, n, k, tile=choose_tile("bf16", m, n, gpu.cu_count))
