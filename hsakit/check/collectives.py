"""How many workgroups a collective needs to fill the links."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from hsakit.check.bench import Bench
from hsakit.check.case import check
from hsakit.check.finding import Finding, beside
from hsakit.collectives import kernels
from hsakit.collectives.operation import Operation

_WORKGROUPS = (16, 32, 48, 56, 64, 80)
_SATURATED = 0.95  # of the highest bandwidth


@check("collectives.gather", "all-gather by CUs: workgroups that fill the links", times=True, gpus=3)
def gather(bench: Bench) -> Iterator[Finding]:
    yield from _saturation(bench, "all-gather", "32")


@check("collectives.exchange", "all-to-all by CUs: workgroups that fill the links", times=True, gpus=3)
def exchange(bench: Bench) -> Iterator[Finding]:
    yield from _saturation(bench, "all-to-all", "56 to 64")


def _saturation(bench: Bench, name: str, published: str) -> Iterator[Finding]:
    ranks = len(bench.gpus)
    operation = Operation(name, ranks, bench.sizes.block)
    sizes = (operation.sent, operation.received)
    send, recv = (
        [bench.memory(gpu, what, size(rank)) for rank, gpu in enumerate(bench.gpus)]
        for what, size in zip(("source", "target"), sizes)
    )
    rates: dict[int, float] = {}
    for workgroups in _WORKGROUPS:
        with ExitStack() as stack:
            gate = stack.enter_context(bench.node.create_signal(1))
            collective = stack.enter_context(
                kernels.prepare(bench.node, operation, send, recv, workgroups=workgroups, after=[[gate]] * ranks)
            )
            collective.submit(bench.deadline)
            gate.store(0)
            collective.wait(bench.deadline)
            parts = collective.parts
        took = max(part.end for part in parts) - min(part.start for part in parts)
        rates[workgroups] = (ranks - 1) * operation.nbytes / took
    most = max(rates.values())
    enough = min(workgroups for workgroups, rate in rates.items() if rate >= _SATURATED * most)
    yield beside(f"workgroups for {_SATURATED:.0%} of the most", published, enough, "",
                 note=", ".join(f"{w}: {rate:.0f}" for w, rate in rates.items()) + " GB/s")  # fmt: skip
    yield beside("the most out of a GPU", (ranks - 1) * bench.assumed.link_gb_s, most, "GB/s")
