"""When the host's calls happen on the model clock, of which the host knows nothing.

What the host does is seen as doorbells that were rung.  A submission happens when the one before it did plus what such
a call costs, and not before the present.  Up to the last submission seen (the horizon), and as much longer as the
shortest call takes, the clock may move at once: nothing that the host does later can happen before that.  To move
further, the node waits until the host has been quiet for a short real time; so the clock moves in the end, whatever the
host's threads wait for, and what a quick host submits in a row is concurrent.

What the host writes to memory (a signal that holds a gate) happens at the horizon or later, too: signals and flags are
looked at only when all submissions seen have happened.  So what is held by a gate is timed by the gate's release alone.
"""

from __future__ import annotations

import time

from .clock import Timeline
from .clock.constants import Constants

QUIET = 100e-6  # seconds
LOOKS = 2  # and so many looks in which nothing was seen: the host's threads had a chance to run


class Host:
    def __init__(self, timeline: Timeline, constants: Constants, tick: int):
        self._timeline, self._tick = timeline, tick
        self._costs = {"packet": int(constants.host_packet_ns * 1000), "copy": int(constants.host_copy_ns * 1000)}
        self._shortest = min(self._costs.values())
        self.horizon = timeline.now  # when the last submission happens
        self._heard = 0.0  # real time
        self._looks = LOOKS

    def submission(self, kind: str) -> int:
        """The host rang: when that happens.  Whole ticks, so that what follows has the same ticks in every run."""
        self._heard, self._looks = time.monotonic(), 0
        self.horizon = self.aligned(max(self._timeline.now, self.horizon + self._costs[kind]))
        return self.horizon

    def aligned(self, when: int) -> int:
        return -(-when // self._tick) * self._tick

    def looked(self) -> None:
        """It did not ring in a while."""
        self._looks += 1

    @property
    def quiet(self) -> bool:
        return self._looks >= LOOKS and time.monotonic() - self._heard >= QUIET

    @property
    def ahead(self) -> int:
        """Picoseconds until all submissions seen have happened; 0 if they have."""
        return max(self.horizon - self._timeline.now, 0)

    @property
    def limit(self) -> int:
        """Up to when the clock may move while the host may still ring."""
        return self.horizon + self._shortest
