from types import SimpleNamespace

import pytest

from hsakit.check.case import check
from hsakit.check.finding import DIFFERS, OK, UNMEASURED, near, same
from hsakit.check.run import CHECKS, chosen, run
from hsakit.ffi.errors import InvalidArgument


def _bench(clock="device", gpus=8):
    return SimpleNamespace(node=SimpleNamespace(clock=clock), gpus=[None] * gpus)


@check("one", "a rate", times=True, gpus=2)
def one(bench):
    yield near("rate", 1.0, 1.0, "", model__beta=2.0)
    yield same("engines", 1, 2, gpus=3)


@check("two", "what fails")
def two(bench):
    yield same("first", 1, 1)
    raise InvalidArgument("no such engine")


def test_findings_and_constants_are_collected_in_order():
    begun = []
    outcome = run(_bench(), [one, two], begun.append)
    assert begun == [one, two]
    assert [(each.key, finding.verdict) for each, finding in outcome.findings] == [
        ("one", OK), ("one", DIFFERS), ("two", OK), ("two", DIFFERS),
    ]  # fmt: skip
    assert outcome.differ == 2 and outcome.constants == {"model.beta": 2.0, "gpus": 3}
    assert outcome.findings[-1][1].note == "no such engine"


def test_what_a_node_cannot_show_is_said():
    for bench, why in ((_bench("host"), "host"), (_bench(gpus=1), "2 GPUs")):
        (finding,) = one.run(bench)
        assert finding.verdict == UNMEASURED and why in finding.note


def test_checks_are_chosen_by_the_beginning_of_their_keys():
    assert chosen([]) == list(CHECKS) and len({each.key for each in CHECKS}) == len(CHECKS)
    some = chosen(["engines", "gate.offsets"])
    assert {each.key.partition(".")[0] for each in some} == {"engines", "gate"}
    assert sum(each.key.startswith("gate") for each in some) == 1
    with pytest.raises(InvalidArgument, match="engines.link"):
        chosen(["engine"])
