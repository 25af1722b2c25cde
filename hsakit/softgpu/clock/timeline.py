"""Model time, and what is to happen when."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Event:
    """Something that is to happen once."""

    __slots__ = ("when", "_action")

    def __init__(self, when: int, action: Callable[[], object]):
        self.when = when
        self._action: Callable[[], object] | None = action

    def cancel(self) -> None:
        """It will not happen; nothing if it has."""
        self._action = None


class Timeline:
    """Events in the order of their times, those of one instant in the order in which they were asked for."""

    def __init__(self) -> None:
        self.now = 0
        """picoseconds, a whole number; moves only in :meth:`advance` and :meth:`skip_to`"""
        self._heap: list[tuple[int, int, Event]] = []
        self._asked = 0

    def at(self, when: int, action: Callable[[], object]) -> Event:
        """Have ``action`` called at ``when``, a whole number of picoseconds that has not passed (else ValueError)."""
        if when < self.now:
            raise ValueError(f"{when} ps is past: it is {self.now} ps")
        event = Event(when, action)
        self._asked += 1
        heapq.heappush(self._heap, (when, self._asked, event))
        return event

    @property
    def next(self) -> int | None:
        """When the earliest event is; None if none is."""
        heap = self._heap
        while heap and heap[0][2]._action is None:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    @property
    def idle(self) -> bool:
        """Whether nothing is to happen; changes nothing, so that any thread may ask, though the answer may be old."""
        return all(event._action is None for _, _, event in tuple(self._heap))

    def advance(self) -> bool:
        """Move to the earliest event and let it happen.  False, and time stands still, if there is none."""
        heap = self._heap
        while heap:
            when, _, event = heapq.heappop(heap)
            action = event._action
            if action is not None:
                event._action = None
                self.now = when
                action()
                return True
        return False

    def skip_to(self, when: int) -> None:
        """Let time pass until ``when`` with nothing happening.  ValueError if an event is due before."""
        following = self.next
        if when < self.now or (following is not None and following < when):
            raise ValueError(f"cannot go from {self.now} ps to {when} ps: the next event is at {following} ps")
        self.now = when

    def run(self) -> None:
        """Advance until no event is left."""
        while self.advance():
            pass
