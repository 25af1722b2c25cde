"""Strategies: which there are, and what they say of themselves."""

import pytest

from hsakit.c3.heuristics import Machine
from hsakit.c3.outcome import ALONE
from hsakit.c3.prediction import Launch
from hsakit.c3.scenario import parse
from hsakit.c3.strategy import Facts, known, select
from hsakit.ffi.errors import InvalidArgument

COMPUTE = parse("bf16:8192x8192x8192+all-gather:448M")
MEMORY = parse("bf16:128x106496x16384+all-to-all:448M")
MACHINE = Machine(304, 600e12, 4e12)


def facts(scenario=COMPUTE, workgroups=4096):
    times = dict.fromkeys(ALONE, 1e6)
    return Facts(scenario, 8, Launch(workgroups, 2), MACHINE, 14, times)


def test_all_of_them_are_found_in_the_papers_order():
    assert [name for name in known() if name not in ALONE] == [
        "serial",
        "c3_base",
        "c3_sp",
        "c3_rp",
        "c3_sp_rp",
        "conccl",
        "conccl_rp",
        "conccl_gated",
        "conccl_tuned",
        "hybrid",
        "conccl_first",
        "conccl_first_rp",
        "conccl_local",
        "conccl_longer",
        "nccl_base",
        "nccl_first",
    ]


@pytest.mark.parametrize("scenario", [COMPUTE, MEMORY])
def test_each_says_how_it_is_launched_and_in_what_order(scenario):
    for strategy in known().values():
        for variant in strategy.variants(MACHINE):
            described = strategy.describe(facts(scenario), **variant)
            assert described.text and described.launch in ("gated", "host")
            both = strategy.name not in ALONE
            assert len(described.order) == (2 if both else 1)
            assert described.concurrent == (both and strategy.name != "serial")


def test_sp_goes_by_workgroups():
    sp = known()["c3_sp"]
    assert sp.describe(facts()).order == ("collective", "gemm")
    assert sp.describe(facts(workgroups=4)).order == ("gemm", "collective")
    assert known()["c3_base"].describe(facts()).order == ("gemm", "collective")


def test_rp_tries_every_split():
    for name in ("c3_rp", "c3_sp_rp"):
        assert [v["cus"] for v in known()[name].variants(MACHINE)] == [8, 16, 32, 64, 128, 256]


def test_conccl_rp_takes_cus_from_memory_bound_gemms_only():
    rp = known()["conccl_rp"]
    assert rp.describe(facts(MEMORY)).picked == {"idle_cus": 8}
    assert rp.describe(facts(COMPUTE)).picked == {"idle_cus": 0}


def test_tuned_picks_by_prediction():
    picked = known()["conccl_tuned"].describe(facts(COMPUTE)).picked
    assert picked == {"engines_a_peer": 2, "idle_cus": 0}


def test_what_is_measured_without_being_named():
    assert "gemm_by_cus" not in [strategy.name for strategy in select(None)]
    assert [s.name for s in select(["conccl", "gemm_by_cus", "conccl"])] == ["gemm_by_cus", "conccl"]
    assert [s.name for s in select(["conccl_tuned"])] == ["gemm", "engines", "conccl_tuned"]  # what it needs to know
    with pytest.raises(InvalidArgument, match="c3_base"):
        select(["c3"])
