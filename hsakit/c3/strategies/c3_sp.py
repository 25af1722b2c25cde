"""Schedule prioritisation: the kernel with fewer workgroups goes first, which is the collective but for tiny GEMMs."""

from hsakit.c3.heuristics import launch_order
from hsakit.c3.strategy import APART, Description, Strategy
from hsakit.c3.ticks import COLLECTIVE, GEMM


class SchedulePrioritised(Strategy):
    name, place = "c3_sp", 2

    def order(self, facts) -> tuple[str, ...]:
        return launch_order({GEMM: facts.launch.workgroups, COLLECTIVE: facts.collective_workgroups})

    def describe(self, facts):
        text = (
            f"the kernel with fewer workgroups first: GEMM {facts.launch.workgroups}, collective "
            f"{facts.collective_workgroups}; no CU masks"
        )
        return Description(text, "gated", self.order(facts), "kernels", APART)

    def enqueue(self, run, facts):
        go = dict(zip(self.order(facts), run.gate(0, APART)))
        for part in self.order(facts):
            if part == GEMM:
                run.gemm(go[GEMM])
            else:
                run.kernels(go[COLLECTIVE], workgroups=facts.collective_workgroups)
