"""What has a ``close`` is closed at the end of its ``with``."""

import pytest

from hsakit.scoped import Scoped


class Door(Scoped):
    closed = 0

    def close(self):
        self.closed += 1


def test_it_is_closed_at_the_end_whatever_happened():
    with Door() as door:
        assert door.closed == 0
    assert door.closed == 1
    with pytest.raises(KeyError), door:
        raise KeyError
    assert door.closed == 2
