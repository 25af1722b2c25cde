"""Works one at a time: what a collective takes if the host waits for each copy before it submits the next.

Nobody wants that; it is what submitting all of them back to back is measured against.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from hsakit.platform import Place, Signal, Work


class Stepwise:
    """In place of ``Platform.batch``, for works in which every copy has a signal of its own."""

    def __init__(self, works: Sequence[Work], counts: Iterable[tuple[Signal, int]]):
        self._works = tuple(works)
        self._counts = tuple(counts)
        self.costs: tuple[tuple[Place, int], ...] = tuple(cost for work in works for cost in work.costs)
        self.partial = False

    def submit(self, deadline: float = 30.0) -> None:
        """Returns when the last copy is complete, which all of them have to be within the deadline."""
        end = time.monotonic() + deadline
        for signal, count in self._counts:
            signal.store(count)
        self.partial = True
        for work in self._works:
            work.submit(deadline)
            own = getattr(work, "signal", None)  # copies have one
            if own is not None:
                own.wait(deadline=max(0.0, end - time.monotonic()))
        self.partial = False

    def close(self) -> None:
        """It reserved nothing."""
