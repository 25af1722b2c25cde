import pytest

from hsakit.check import collectives


@pytest.mark.parametrize("check", [collectives.gather, collectives.exchange], ids=lambda check: check.key)
def test_the_most_and_what_is_enough_for_it(bench, monkeypatch, check):
    monkeypatch.setattr(collectives, "_WORKGROUPS", (1, 4))
    enough, most = check.run(bench)
    assert enough.measured in (1, 4) and most.measured > 0
