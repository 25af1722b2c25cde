"""Each mechanism of the model off in turn: what it carries of the averages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..clock import Constants
from ..node import NodeSpec
from .claims import DRAWN
from .strategies import Case, Model, averages

FINER = 16
OFF: tuple[tuple[str, dict[str, float]], ...] = (
    ("pi = 0: links do not slow compute", {"pi": 0.0}),
    ("cu_power = 1: traffic by CUs draws no more than by engines", {"cu_power": 1.0}),
    ("phi = 0: streaming CUs leave the caches alone", {"phi": 0.0}),
    ("theta = 0: a full XCC does not thrash its L2", {"theta": 0.0}),
    ("q = 1: kernels take turns at free CUs", {"q": 1.0}),
    ("q = 1e6: the older kernel takes all free CUs", {"q": 1e6}),
    ("beta = 50: latency costs no bandwidth", {"beta": 50.0}),
    ("remote_latency = 1: a peer's memory is as near as the own", {"remote_latency": 1.0}),
    ("engine_headroom = 10: latency does not slow engines", {"engine_headroom": 10.0}),
    ("hbm_gb_s = 1e5: memory is no bottleneck", {"hbm_gb_s": 1e5}),
    ("host_copy_ns = host_sync_ns = 0: engines cost the host nothing", {"host_copy_ns": 0.0, "host_sync_ns": 0.0}),
)


def ablations(spec: NodeSpec, constants: Constants, cases: Sequence[Case]) -> Iterator[tuple[str, dict[str, float]]]:
    """What is off, and the averages without it; the first has all mechanisms."""

    def percents(changed: Constants, some: Sequence[Case]) -> dict[str, float]:
        model = Model(spec, changed)
        return averages(model.outcome(case, DRAWN) for case in some)

    yield "nothing", percents(constants, cases)
    for text, changes in OFF:
        # The rates of a CU follow from beta and HBM together: a machine with more HBM is not one with faster CUs.
        if "hbm_gb_s" in changes:
            changes = changes | {"beta": constants.beta * constants.hbm_gb_s / changes["hbm_gb_s"]}
        yield text, percents(constants.with_(**changes), cases)
    finer = [replace(case, product=replace(case.product, finer=FINER)) for case in cases]
    yield f"workgroups of products {FINER} times smaller: no waves", percents(constants, finer)
