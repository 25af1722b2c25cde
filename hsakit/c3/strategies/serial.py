"""One part after the other."""

from hsakit.c3.strategy import Description, Strategy
from hsakit.c3.ticks import COLLECTIVE, GEMM


class Serial(Strategy):
    name, place = "serial", 0

    def describe(self, facts):
        text = "the GEMM, then the collective by kernels, which waits for each GPU's signal of the GEMM"
        return Description(text, "gated", (GEMM, COLLECTIVE), "kernels", concurrent=False)

    def enqueue(self, run, facts):
        (go,) = run.gate(0)
        gemm = run.gemm(go)
        run.kernels(gemm.done, workgroups=facts.collective_workgroups)
