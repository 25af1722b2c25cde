"""When the host's calls happen on the model clock, of which the host knows nothing.

What the host does is seen as doorbells that were rung.  A submission happens when the one before it did plus what such
a call costs, and not before the present.  Up to the last submission seen (the horizon), and as much longer as the
shortest call takes, the clock may move at once: nothing that the host does later can happen before that.  To move
further, the node waits until the host is quiet: until its threads sleep, or have computed for a while and rung nothing.
So the clock moves in the end, whatever they wait for, and what a host submits in a row is concurrent.  Real time does
not decide: on a busy machine a thread that is about to ring may stand still for milliseconds, ready to run.  Nor does
what a call of the driver takes here.

What the host writes to memory (a signal that holds a gate) happens at the horizon or later, too: signals and flags are
looked at only when all submissions seen have happened.  So what is held by a gate is timed by the gate's release alone.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager

from .clock import Timeline
from .clock.constants import Constants

ASLEEP = 100e-6  # real seconds that no thread of the host wants to run
COMPUTES = 200_000  # ns of processor time: a host that computes so long and rings nothing waits, or does other things
LOOKS = 2  # and so many looks in which nothing was seen: the host's threads had a chance to run


def used() -> int:
    """Nanoseconds that the threads of this process ran, but for the one that asks."""
    return time.process_time_ns() - time.thread_time_ns()


def want_to_run() -> bool:
    """Whether another thread of this process runs, or would if a processor were free."""
    own = str(threading.get_native_id())
    for thread in os.listdir("/proc/self/task"):
        if thread == own:
            continue
        try:
            with open(f"/proc/self/task/{thread}/stat", "rb") as stat:
                state = stat.read().rpartition(b") ")[2][:1]
        except OSError:  # it ended
            continue
        if state in b"RD":
            return True
    return False


class Host:
    def __init__(self, timeline: Timeline, constants: Constants, tick: int):
        self._timeline, self._tick = timeline, tick
        self._costs = {"packet": int(constants.host_packet_ns * 1000), "copy": int(constants.host_copy_ns * 1000)}
        self._shortest = min(self._costs.values())
        self.horizon = timeline.now  # when the last submission happens
        self._quiet = True
        self._looks = 0
        self._calling: set[int] = set()  # threads in a call of the driver
        self._since = self._last = 0  # what it had used when it rang last, and at the last look
        self._still = 0.0  # real time since when it has used nothing

    def submission(self, kind: str) -> int:
        """The host rang: when that happens.  Whole ticks, so that what follows has the same ticks in every run."""
        self._quiet, self._looks = False, 0
        self.horizon = self.aligned(max(self._timeline.now, self.horizon + self._costs[kind]))
        return self.horizon

    def aligned(self, when: int) -> int:
        return -(-when // self._tick) * self._tick

    @contextmanager
    def calls(self):
        """Around a call of the driver that answers at once."""
        thread = threading.get_ident()
        self._calling.add(thread)
        try:
            yield
        finally:
            self._looks = 0
            self._calling.discard(thread)

    def looked(self, wanted: bool = False) -> None:
        """It did not ring in a while.  ``wanted``: a thread of it waits for the node itself."""
        if self._quiet:
            return
        if wanted or self._calling:
            self._looks = 0
            return
        now, ran = time.monotonic(), used()
        if not self._looks:
            self._since = ran
        if not self._looks or ran != self._last:
            self._last, self._still = ran, now
        self._looks += 1
        if self._looks > LOOKS:
            self._quiet = ran - self._since >= COMPUTES or (now - self._still >= ASLEEP and not want_to_run())

    @property
    def quiet(self) -> bool:
        """Whether it seems to wait: until it rings again."""
        return self._quiet

    @property
    def ahead(self) -> int:
        """Picoseconds until all submissions seen have happened; 0 if they have."""
        return max(self.horizon - self._timeline.now, 0)

    @property
    def limit(self) -> int:
        """Up to when the clock may move while the host may still ring."""
        return self.horizon + self._shortest
