"""Each part by itself with some of the CUs: how it slows (the paper's figure 5), and what tables of slowdowns hold.

Measured when asked for: no other strategy needs them.
"""

from hsakit.c3.heuristics import splits
from hsakit.c3.outcome import CURVE_GEMM, CURVE_KERNELS
from hsakit.c3.strategy import Description, Strategy
from hsakit.c3.ticks import COLLECTIVE, GEMM


class GemmByCus(Strategy):
    name, place, usual = CURVE_GEMM, -7, False

    def variants(self, machine):
        return [{"cus": machine.cus - taken} for taken in splits(machine.cus)]

    def describe(self, facts, cus):
        return Description(f"the GEMM alone on {cus} CUs", "gated", (GEMM,), None, concurrent=False)

    def enqueue(self, run, facts, cus):
        (go,) = run.gate(0)
        run.gemm(go, range(facts.machine.cus - cus, facts.machine.cus))


class KernelsByCus(Strategy):
    name, place, usual = CURVE_KERNELS, -6, False

    def variants(self, machine):
        return [{"cus": cus} for cus in splits(machine.cus)]

    def describe(self, facts, cus):
        text = f"the collective alone by kernels of {facts.collective_workgroups} workgroups on {cus} CUs"
        return Description(text, "gated", (COLLECTIVE,), "kernels", concurrent=False)

    def enqueue(self, run, facts, cus):
        (go,) = run.gate(0)
        run.kernels(go, range(cus), workgroups=facts.collective_workgroups)
