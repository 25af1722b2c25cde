"""CU masks as c3_rp has them, launched in the order of c3_sp."""

from hsakit.c3.heuristics import launch_order
from hsakit.c3.strategies.c3_rp import ResourcePartitioned
from hsakit.c3.ticks import COLLECTIVE, GEMM


class PrioritisedAndPartitioned(ResourcePartitioned):
    name, place = "c3_sp_rp", 4

    def order(self, facts):
        return launch_order({GEMM: facts.launch.workgroups, COLLECTIVE: facts.collective_workgroups})
