"""The collective by engines, driven by the host as in the paper: no CU moves a byte."""

from hsakit.c3.strategy import Description, Strategy
from hsakit.c3.ticks import COLLECTIVE, GEMM


class Conccl(Strategy):
    name, place = "conccl", 5

    def describe(self, facts):
        text = "the host launches the GEMMs, then submits every copy, each on an engine of its own"
        return Description(text, "host", (GEMM, COLLECTIVE), "engines")

    def enqueue(self, run, facts):
        run.gemm()
        run.engines()
