"""NCCL's collective beside the GEMM, on a platform that has it: what strategies of ours are compared with there."""

from hsakit.c3.outcome import ALONE_NCCL
from hsakit.c3.run import Moved, by_rank
from hsakit.c3.strategy import APART_ENGINES, Description, Strategy
from hsakit.c3.ticks import COLLECTIVE, GEMM
from hsakit.collectives import nccl


def _add(run, after, priority="normal"):
    buffers = run.buffers()
    waits = by_rank(after, len(run.stage.gpus))
    collective = nccl.of(run.stage.platform).prepare(
        buffers.operation, buffers.send, buffers.recv, after=waits, priority=priority
    )
    return run.add(Moved(run, run.own(collective), buffers, len(run.stage.gpus), 0, f"queue of the {COLLECTIVE}"))


class Nccl(Strategy):
    name, place, usual = ALONE_NCCL, -6, False

    def describe(self, facts):
        return Description("the collective alone, by NCCL", "gated", (COLLECTIVE,), "nccl", concurrent=False)

    def enqueue(self, run, facts):
        (go,) = run.gate(0)
        _add(run, go)


class NcclBase(Strategy):
    name, place, usual = "nccl_base", 20, False

    def describe(self, facts):
        return Description("GEMM first, then NCCL", "gated", (GEMM, COLLECTIVE), "nccl", APART_ENGINES)

    def enqueue(self, run, facts):
        first, second = run.gate(0, APART_ENGINES)
        run.gemm(first)
        _add(run, second)


class NcclFirst(Strategy):
    name, place, usual = "nccl_first", 21, False

    def describe(self, facts):
        text = "NCCL first, on a stream of high priority, then the GEMM"
        return Description(text, "gated", (COLLECTIVE, GEMM), "nccl", APART_ENGINES)

    def enqueue(self, run, facts):
        first, second = run.gate(0, APART_ENGINES)
        _add(run, first, "high")
        run.gemm(second, priority="low")
