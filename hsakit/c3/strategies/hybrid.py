"""Most of the collective by engines, the rest by a kernel on one CU of each XCD: for links that engines do not fill.

The shares are collectives of their own, in buffers of their own.
"""

from hsakit.c3.heuristics import LEAST
from hsakit.c3.strategy import APART_ENGINES, Description, Strategy
from hsakit.c3.ticks import COLLECTIVE, GEMM


class Hybrid(Strategy):
    name, place = "hybrid", 9

    def variants(self, machine):
        return [{"kernels_of": 8}, {"kernels_of": 4}]

    def describe(self, facts, kernels_of):
        text = (
            f"1/{kernels_of} of the bytes by kernels of {LEAST} workgroups on {LEAST} CUs, the rest by engines; the "
            f"GEMM on the other {facts.machine.cus - LEAST}"
        )
        return Description(text, "gated", (GEMM, COLLECTIVE), "both", APART_ENGINES)

    def enqueue(self, run, facts, kernels_of):
        first, second = run.gate(0, APART_ENGINES)
        whole = facts.scenario.nbytes
        share = max(1, whole // kernels_of // facts.gpus) * facts.gpus
        run.gemm(first, range(LEAST, facts.machine.cus))
        run.kernels(second, range(LEAST), workgroups=LEAST, nbytes=share)
        if whole > share:
            run.engines(second, nbytes=whole - share)
