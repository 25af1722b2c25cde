"""Each part by itself: what serial time, ideal and slowdown are made of."""

from hsakit.c3.outcome import ALONE_ENGINES, ALONE_GEMM, ALONE_KERNELS, QUARTERS
from hsakit.c3.strategy import Description, Strategy
from hsakit.c3.ticks import COLLECTIVE, GEMM


class Gemm(Strategy):
    name, place = ALONE_GEMM, -5

    def describe(self, facts):
        return Description("the GEMM alone", "gated", (GEMM,), None, concurrent=False)

    def enqueue(self, run, facts):
        (go,) = run.gate(0)
        run.gemm(go)


class Kernels(Strategy):
    name, place = ALONE_KERNELS, -4
    parts = 1

    def describe(self, facts):
        text = f"the collective alone, by kernels of {facts.collective_workgroups} workgroups"
        return Description(text + self._size(), "gated", (COLLECTIVE,), "kernels", concurrent=False)

    def enqueue(self, run, facts):
        (go,) = run.gate(0)
        run.kernels(go, workgroups=facts.collective_workgroups, nbytes=self._nbytes(facts))

    def _size(self) -> str:
        return "" if self.parts == 1 else f", with 1/{self.parts} of its bytes"

    def _nbytes(self, facts) -> int:
        """A whole number of bytes for each GPU."""
        return max(1, facts.scenario.nbytes // self.parts // facts.gpus) * facts.gpus


class Engines(Kernels):
    name, place = ALONE_ENGINES, -3

    def describe(self, facts):
        text = "the collective alone, by engines, one for each peer"
        return Description(text + self._size(), "gated", (COLLECTIVE,), "engines", concurrent=False)

    def enqueue(self, run, facts):
        (go,) = run.gate(0)
        run.engines(go, nbytes=self._nbytes(facts))


class KernelsQuarter(Kernels):
    name, place = QUARTERS["kernels"], -2
    parts = 4


class EnginesQuarter(Engines):
    name, place = QUARTERS["engines"], -1
    parts = 4
