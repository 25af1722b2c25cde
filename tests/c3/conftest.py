"""Rows of a c3 sweep as tests want them."""

from __future__ import annotations

import pytest

from hsakit.c3.scenario import Scenario
from hsakit.results import make_row

SCENARIO = Scenario("s1-ag", "bf16", 512, 512, 512, "all-gather", 1 << 20, "made up", "mine")


def _row(
    strategy, samples, *, scenario=SCENARIO, variant=None, works=None, clock="device", error=None, by=None, order=()
):
    """A row whose samples are, by run, the spans of GEMM and collective on GPU 0 (None where a part is absent)."""
    parts = [name for name, span in zip(("gemm", "collective"), samples[0]) if span is not None]
    works = works or [(part, 0, f"queue of the {part}") for part in parts]
    return make_row(
        "c3",
        f"c3 {scenario.name} {strategy} {variant}",
        parameters={
            "scenario": scenario.as_json(),
            "strategy": strategy,
            "variant": variant or {},
            "order": list(order),
            "offset": "none",
            "summary": f"what {strategy} does",
            "collective_by": by,
            "works": [list(work) for work in works],
            "gpus": 1,
            "workgroups": {"gemm": 16, "collective": 64},
        },
        samples=[[list(span) for span in sample if span is not None] for sample in samples],
        verified="none" if error else "full",
        launch="gated",
        clock=clock,
        packets={"planned": {"aql_dispatch": 2}, "counted": {"aql_dispatch": 2}},
        versions={"hsa": "1"},
        error=error,
    )


@pytest.fixture
def row():
    return _row


@pytest.fixture
def rows():
    """One scenario with a GEMM of 6 us and a collective of 4 us: base 9, rp 8.5 and 7, engines 6.5."""
    return [
        _row("gemm", [[(0, 6000), None]] * 3),
        _row("kernels", [[None, (0, 4000)]] * 3),
        _row("engines", [[None, (0, 5000)]] * 3),
        _row("c3_base", [[(0, 6600), (100, 9000)]] * 3, by="kernels"),
        _row("c3_rp", [[(0, 8500), (100, 5000)]] * 3, by="kernels", variant={"cus": 64}),
        _row("c3_rp", [[(0, 7000), (100, 5000)]] * 3, by="kernels", variant={"cus": 32}),
        _row("conccl", [[(0, 6500), (100, 5100)]] * 3, by="engines"),
    ]


class Few:
    """Two GPUs of the node: a platform of its own, and quick."""

    def __init__(self, node):
        self._node = node
        self.gpus = node.gpus[:2]

    def __getattr__(self, name):
        return getattr(self._node, name)


@pytest.fixture
def few(node):
    return Few(node)
