from pathlib import Path

import pytest

from hsakit.check.ledger import read
from hsakit.check.run import CHECKS, by_hand

LEDGER = Path(__file__).resolve().parents[2] / "docs" / "ledger.md"


def test_lines_are_read():
    (line,) = read("# x\n| # | assumed | why | check |\n|---|---|---|---|\n| Q1 | a | b, c | d \\| e |\ntext\n")
    assert (line.number, line.assumed, line.why, line.check) == ("Q1", "a", "b, c", "d \\| e")


@pytest.fixture
def lines():
    return read(LEDGER.read_text())


def test_every_line_is_checked_or_by_hand(lines):
    numbers = [line.number for line in lines]
    assert len(set(numbers)) == len(numbers) > 40
    assert all(line.assumed and line.why and line.check for line in lines)
    checked = {number for check in CHECKS for number in check.ledger}
    assert checked and checked <= set(numbers)
    assert checked.isdisjoint(line.number for line in by_hand(lines))
    assert len(by_hand(lines)) + len(checked) == len(numbers)
