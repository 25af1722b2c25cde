"""Synthetic C3 runs on the model."""

from __future__ import annotations

import pytest

from hsakit.softgpu.clock import Machine, Timeline
from hsakit.softgpu.node import NODES, load
from hsakit.softgpu.study import work
from hsakit.softgpu.study.figures import fastest, slowdowns
from hsakit.softgpu.study.strategies import Case, Model, averages, splits

MIB = 1 << 20
SPEC = load("mi300x-8")
PRODUCT = work.Product(8192, 8192, 8192)


@pytest.fixture
def model():
    return Model(SPEC, SPEC.model["calibrated"])


def test_a_product_alone_takes_its_waves_of_workgroups(model):
    cost = PRODUCT.cost(SPEC, model.constants)
    # 1024 tiles on 304 CUs: four waves; theta and the 4-norm add little to a compute-bound one
    assert model.run(PRODUCT, None) == pytest.approx(6e6 + 4 * cost.compute_ps, rel=5e-3)
    assert cost.compute_ps == pytest.approx(2 * 256 * 256 * 8192 / (0.6 * 1307e12 / 304) * 1e12, rel=1e-3)


def test_a_product_in_its_fastest_tile_fills_its_waves_and_loses_more_with_cus(model):
    best = fastest(model, PRODUCT)
    assert (best.tile, best.workgroups) == ((256, 128), 2048)
    assert model.run(best, None) / model.run(PRODUCT, None) == pytest.approx(7 / 8, rel=2e-2)  # half waves, for 4
    (plain,), (fitted,) = (slowdowns(model, [p], 32) for p in (PRODUCT, best))
    assert (plain, fitted) == (pytest.approx(1, abs=1e-2), pytest.approx(8 / 7, rel=1e-2))


def test_a_large_collective_alone_is_bound_by_seven_links(model):
    seconds = 7 / 8 * 1024 * MIB / (7 * 48e9)
    for kind, start in (("all-gather", 26e-6), ("all-to-all", 36e-6)):
        assert model.run(None, kind, 1024 * MIB) == pytest.approx((seconds + start) * 1e12, rel=2e-2)


def test_a_collective_by_engines_pays_the_host_for_each_and_none_when_gated(model):
    gated = model.run(None, "all-gather", 8 * MIB, engines=True, gated=True)
    driven = model.run(None, "all-gather", 8 * MIB, engines=True)
    assert gated == pytest.approx((2.4e-6 + MIB / 48e9) * 1e12, rel=1e-3)
    assert driven - gated == pytest.approx(8 * 12e6, rel=1e-3)  # seven calls and the wait


def test_percent_of_ideal_is_100_when_both_together_take_as_long_as_the_longer():
    from hsakit.softgpu.study.strategies import Outcome

    found = Outcome(
        Case("x", PRODUCT, "all-gather", 1), tg=300, tc=100, times={"c3_sp": 300, "c3_rp": 400, "c3_base": 350}
    )
    assert [found.percent(name) for name in found.times] == pytest.approx([100, 0, 100 * (400 / 350 - 1) / (4 / 3 - 1)])
    assert averages([found]) == pytest.approx({"c3_sp": 100, "c3_rp": 0, "c3_base": 42.857}, abs=1e-3)


def test_strategies_order_as_published_on_one_scenario(model):
    found = model.outcome(Case("cb4", work.Product(8192, 57344, 8192), "all-to-all", 3328 * MIB))
    percent = {name: found.percent(name) for name in found.times}
    assert percent["c3_base"] < percent["c3_sp"] < percent["conccl"]
    assert found.times["c3_rp"] == pytest.approx(found.times["c3_sp_rp"], rel=1e-2)  # masks make the order irrelevant
    assert found.split["c3_rp"] in splits(304, 8) == [8, 16, 32, 64, 128, 256]


def test_one_gpu_stands_for_eight_that_do_the_same(model):
    """The same run with every GPU simulated."""
    kind, nbytes = "all-to-all", 448 * MIB
    segments = work.collective(SPEC, kind, nbytes)[1]

    def full():
        timeline = Timeline()
        machine = Machine(timeline, SPEC, model.constants)
        end = work.Ends(machine)
        everything = model.cus(304)
        for gpu in range(8):
            cost = PRODUCT.cost(SPEC, model.constants)
            peers = {peer: segments[1].wire[0][1] for peer in range(8) if peer != gpu}
            own = [segments[0], work.Cost.of_traffic(peers, hbm_bytes=segments[1].hbm_bytes)]
            jobs = [work.Kernel(PRODUCT.workgroups, [cost], everything, end), work.Kernel(56, own, everything, end)]
            for at, job in zip((6_000_000, 7_000_000), jobs):
                timeline.at(at, lambda gpu=gpu, job=job: machine.dispatch(gpu, job))
        timeline.run()
        return end.last

    assert full() == model.run(PRODUCT, kind, nbytes)


@pytest.mark.parametrize(
    ("old", "new"),
    [("gpus = 8", "gpus = 4"), ("max_bandwidth = 50000", "max_bandwidth = 100000"), ("xccs = 8", "xccs = 4")],
)
def test_what_if_is_one_file(old, new, model, tmp_path):
    text = (NODES / "mi300x-8.toml").read_text()
    path = tmp_path / "other.toml"
    # a table of recommended engines is of eight GPUs, and optional
    path.write_text(text.replace(old, new, 1).partition("\n[recommended_engines]")[0])
    spec = load(str(path))
    other = Model(spec, spec.model["calibrated"])
    case = Case("x", work.Product(8192, 8192, 8192), "all-gather", 448 * MIB)
    found = other.outcome(case)
    assert all(t > 0 for t in found.times.values())
    if old.startswith("max"):  # the first is xGMI's
        assert found.tc < 0.6 * model.outcome(case, ()).tc
    if old.startswith("gpus"):  # a quarter stays at home instead of an eighth, over three links instead of seven
        assert found.tc == pytest.approx(3 / 4 * 448 * MIB / (3 * 48e9) * 1e12, rel=0.05)
    if old.startswith("xccs"):
        assert found.tg == pytest.approx(2 * model.outcome(case, ()).tg, rel=0.2)
