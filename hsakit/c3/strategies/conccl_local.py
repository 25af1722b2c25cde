"""Copies between GPUs by engines; what stays within a GPU by a kernel on CUs that the GEMM leaves: for platforms whose
engines do not copy within a GPU, where it would wait behind the GEMM."""

from hsakit.c3.heuristics import LEAST
from hsakit.c3.strategy import APART_ENGINES, Description, Strategy
from hsakit.c3.ticks import COLLECTIVE, GEMM


class ConcclLocal(Strategy):
    name, place, usual = "conccl_local", 12, False

    def describe(self, facts):
        text = f"GEMM first on all but {LEAST} CUs, where a kernel copies what stays within a GPU; engines the rest"
        return Description(text, "gated", (GEMM, COLLECTIVE), "engines", APART_ENGINES, picked={"idle_cus": LEAST})

    def enqueue(self, run, facts):
        first, second = run.gate(0, APART_ENGINES)
        run.gemm(first, range(LEAST, facts.machine.cus))
        run.engines(second, within=range(LEAST))
