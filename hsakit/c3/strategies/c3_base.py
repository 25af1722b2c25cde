"""Both at once, the GEMM first: what two streams give."""

from hsakit.c3.strategy import APART, Description, Strategy
from hsakit.c3.ticks import COLLECTIVE, GEMM


class Base(Strategy):
    name, place = "c3_base", 1

    def describe(self, facts):
        text = f"GEMM first, then the collective by kernels of {facts.collective_workgroups} workgroups; no CU masks"
        return Description(text, "gated", (GEMM, COLLECTIVE), "kernels", APART)

    def enqueue(self, run, facts):
        first, second = run.gate(0, APART)
        run.gemm(first)
        run.kernels(second, workgroups=facts.collective_workgroups)
