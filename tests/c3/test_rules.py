"""Rules for a split against an oracle: on a machine of which all is known."""

import pytest

from hsakit.c3 import machine, rules
from hsakit.c3.heuristics import splits
from hsakit.c3.prediction import Launch
from hsakit.c3.scenario import parse

CUS = 304
GEMM, OTHER = (parse(f"bf16:8192x8192x{k}+all-gather:448M") for k in (8192, 4096))


class Perfect:
    """Computes 1000 operations a nanosecond a CU; a collective's byte takes 10 ps with 32 CUs or more. A GEMM beside a
    collective is ``slower`` while that runs."""

    def __init__(self, slower=0.0):
        self.slower = slower

    def launch(self, scenario):
        return Launch(CUS * 1000, 1)

    def gemm(self, scenario, cus):
        return scenario.flops / (1000 * cus)

    def collective(self, scenario, cus=None):
        return scenario.nbytes * 1e-2 * max(1.0, 32 / (cus or CUS))

    def split(self, scenario, cus):
        gemm, collective = self.gemm(scenario, CUS - cus), self.collective(scenario, cus)
        slowed = gemm * (1 + self.slower)
        return (slowed if slowed <= collective else gemm + collective * self.slower / (1 + self.slower)), collective

    def copy(self, nbytes):
        return 2 * nbytes / 4000


def test_what_is_learned():
    learned = rules.learn(Perfect(), CUS, [GEMM, OTHER])
    assert learned.machine.flops == pytest.approx(CUS * 1e12)
    assert learned.machine.bandwidth == pytest.approx(4e12)
    assert learned.table.kernels["all-gather"] == {8: 4.0, 16: 2.0, 32: 1.0, 64: 1.0, 128: 1.0, 256: 1.0, 304: 1.0}
    assert learned.presence == pytest.approx(0.0)
    assert machine.GEMM.flops == GEMM.flops


def test_a_collectives_presence_is_found():
    assert rules.learn(Perfect(slower=0.3), CUS, [GEMM]).presence == pytest.approx(0.3)


def test_picks_are_held_against_the_best_split():
    timed = Perfect()
    learned = rules.learn(timed, CUS, [GEMM])
    judged = rules.judge(timed, learned, [GEMM, OTHER])
    assert set(judged) == {rules.MEASURED, rules.ROOFLINE, rules.OURS}
    for found in judged.values():
        assert [each.scenario for each in found] == [GEMM.name, OTHER.name]
    best = min(splits(CUS), key=lambda cus: max(timed.split(GEMM, cus)))
    assert {found[0].best for found in judged.values()} == {best}
    assert judged[rules.MEASURED][0].hit and judged[rules.OURS][0].hit  # nothing is here that they do not know


def test_a_bad_pick_costs_what_it_costs(monkeypatch):
    timed = Perfect()
    learned = rules.learn(timed, CUS, [GEMM])
    monkeypatch.setattr(rules.heuristics, "pick_split", lambda *_: rules.heuristics.Pick(256, {}))
    found = rules.judge(timed, learned, [GEMM])
    best = min(max(timed.split(GEMM, cus)) for cus in splits(CUS))
    assert found[rules.MEASURED][0].loss == pytest.approx(max(timed.split(GEMM, 256)) / best - 1)
    assert not found[rules.MEASURED][0].hit
