"""conccl_gated with as many engines a peer as pay, and CUs taken from the GEMM where a prediction says it gains."""

from hsakit.c3.outcome import ALONE_ENGINES, ALONE_GEMM
from hsakit.c3.prediction import ENGINE_TRAFFIC, THRASHING, engines_a_peer, removed_cus
from hsakit.c3.strategy import APART_ENGINES, Description, Strategy
from hsakit.c3.ticks import COLLECTIVE, GEMM


class ConcclTuned(Strategy):
    name, place = "conccl_tuned", 8
    needs = ALONE_GEMM, ALONE_ENGINES

    def describe(self, facts):
        picked = self.pick(facts)
        text = (
            f"as conccl_gated, with {picked['engines_a_peer']} engines for each peer and {picked['idle_cus']} CUs "
            "taken from the GEMM, both picked by prediction"
        )
        return Description(text, "gated", (GEMM, COLLECTIVE), "engines", APART_ENGINES, picked=picked)

    def pick(self, facts) -> dict[str, int]:
        scenario = facts.scenario
        removed = removed_cus(
            scenario,
            facts.launch,
            facts.machine,
            ENGINE_TRAFFIC[scenario.collective],
            facts.alone(ALONE_GEMM),
            facts.alone(ALONE_ENGINES),
            THRASHING,
        )
        split = engines_a_peer(scenario.collective, scenario.nbytes, facts.gpus, facts.engines)
        return {"engines_a_peer": split, "idle_cus": removed.cus}

    def enqueue(self, run, facts):
        picked = self.pick(facts)
        first, second = run.gate(0, APART_ENGINES)
        idle = picked["idle_cus"]
        run.gemm(first, range(idle, facts.machine.cus) if idle else None)
        run.engines(second, split=picked["engines_a_peer"])
