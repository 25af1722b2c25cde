"""Copies by engines and the GEMM, the longer part first: it is the one whose late start would count."""

from hsakit.c3.outcome import ALONE_ENGINES, ALONE_GEMM
from hsakit.c3.strategy import APART_ENGINES, Description, Strategy
from hsakit.c3.ticks import COLLECTIVE, GEMM


class ConcclLonger(Strategy):
    name, place, usual = "conccl_longer", 13, False
    needs = ALONE_GEMM, ALONE_ENGINES

    def order(self, facts) -> tuple[str, str]:
        copies_first = facts.alone(ALONE_ENGINES) > facts.alone(ALONE_GEMM)
        return (COLLECTIVE, GEMM) if copies_first else (GEMM, COLLECTIVE)

    def describe(self, facts):
        order = self.order(facts)
        text = f"GEMM and copies, submitted beforehand; the {order[0]} first, since it is the longer one alone"
        return Description(text, "gated", order, "engines", APART_ENGINES, picked={"first": order[0]})

    def enqueue(self, run, facts):
        signals = dict(zip(self.order(facts), run.gate(0, APART_ENGINES)))
        if self.order(facts)[0] == GEMM:
            run.gemm(signals[GEMM])
            run.engines(signals[COLLECTIVE])
        else:
            run.engines(signals[COLLECTIVE])
            run.gemm(signals[GEMM])
