"""The copies first, then the GEMM: what of a collective stays within a GPU may be a kernel, and gets its place so."""

from hsakit.c3.heuristics import LEAST
from hsakit.c3.strategy import APART_ENGINES, Description, Strategy
from hsakit.c3.ticks import COLLECTIVE, GEMM


class ConcclFirst(Strategy):
    name, place, usual = "conccl_first", 10, False

    def idle(self, facts) -> int:
        return 0

    def describe(self, facts):
        idle = self.idle(facts)
        text = f"the copies first, then the GEMM{f' on all but {idle} CUs' if idle else ''}, submitted beforehand"
        return Description(text, "gated", (COLLECTIVE, GEMM), "engines", APART_ENGINES, picked={"idle_cus": idle})

    def enqueue(self, run, facts):
        first, second = run.gate(0, APART_ENGINES)
        idle = self.idle(facts)
        run.engines(first)
        run.gemm(second, range(idle, facts.machine.cus) if idle else None)


class ConcclFirstPartitioned(ConcclFirst):
    name, place = "conccl_first_rp", 11

    def idle(self, facts) -> int:
        return LEAST
