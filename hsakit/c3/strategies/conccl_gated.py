"""The collective by engines, submitted beforehand and held in the engines' own queues until a gate opens."""

from hsakit.c3.strategy import APART_ENGINES, Description, Strategy
from hsakit.c3.ticks import COLLECTIVE, GEMM


class ConcclGated(Strategy):
    name, place = "conccl_gated", 7

    def describe(self, facts):
        text = "GEMM first, then the copies, all submitted before the release; one engine for each peer"
        return Description(text, "gated", (GEMM, COLLECTIVE), "engines", APART_ENGINES)

    def enqueue(self, run, facts):
        first, second = run.gate(0, APART_ENGINES)
        run.gemm(first)
        run.engines(second)
