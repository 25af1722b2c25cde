"""conccl, with 8 CUs taken from a memory-bound GEMM, whose caches then thrash less."""

from hsakit.c3.heuristics import LEAST
from hsakit.c3.prediction import memory_bound
from hsakit.c3.strategy import Description, Strategy
from hsakit.c3.ticks import COLLECTIVE, GEMM


class ConcclPartitioned(Strategy):
    name, place = "conccl_rp", 6

    def idle(self, facts) -> int:
        return LEAST if memory_bound(facts.scenario, facts.machine) else 0

    def describe(self, facts):
        idle = self.idle(facts)
        text = f"as conccl, {f'{idle} CUs taken from the' if idle else 'all CUs for the compute-bound'} GEMM"
        return Description(text, "host", (GEMM, COLLECTIVE), "engines", picked={"idle_cus": idle})

    def enqueue(self, run, facts):
        idle = self.idle(facts)
        run.gemm(cus=range(idle, facts.machine.cus) if idle else None)
        run.engines()
