"""Resource partitioning: CU masks with nothing in common, of all powers of two for the collective. The best is an
oracle's choice."""

from hsakit.c3.heuristics import splits
from hsakit.c3.strategy import APART, Description, Strategy
from hsakit.c3.ticks import COLLECTIVE, GEMM


class ResourcePartitioned(Strategy):
    name, place = "c3_rp", 3

    def variants(self, machine):
        return [{"cus": cus} for cus in splits(machine.cus)]

    def order(self, facts) -> tuple[str, ...]:
        return GEMM, COLLECTIVE

    def describe(self, facts, cus):
        rest = facts.machine.cus - cus
        text = f"the collective on {cus} CUs, the GEMM on the other {rest}; {' then '.join(self.order(facts))}"
        return Description(text, "gated", self.order(facts), "kernels", APART)

    def enqueue(self, run, facts, cus):
        go = dict(zip(self.order(facts), run.gate(0, APART)))
        for part in self.order(facts):
            if part == GEMM:
                run.gemm(go[GEMM], range(cus, facts.machine.cus))
            else:
                run.kernels(go[COLLECTIVE], range(cus), workgroups=facts.collective_workgroups)
