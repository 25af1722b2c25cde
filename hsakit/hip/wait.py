"""Waiting for HIP with a deadline. HIP's own waits have none and block for ever, so it is asked again and again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from hsakit.ffi.errors import DeadlineExceeded, check_deadline

if TYPE_CHECKING:
    from hsakit.hip.platform import Platform

_FIRST_PAUSE, _PAUSE = 20e-6, 1e-3  # seconds

_ADVICE = "Wait longer, or release what it waits for; a kernel that never ends goes with the process only"


def until(
    platform: Platform, done: Callable[[], bool], deadline: float, what: object, explain: Callable[[], str]
) -> None:
    """Return once ``done()``. DeadlineExceeded names ``what`` and explains; GpuMemoryFault where that is the reason."""
    check_deadline(deadline)
    if done():
        return
    end, pause = time.monotonic() + deadline, _FIRST_PAUSE
    while not done():
        platform.runtime.raise_fault()
        left = end - time.monotonic()
        if left <= 0:
            raise DeadlineExceeded(f"{what} did not complete within {deadline:g} s: {explain()}. {_ADVICE}")
        time.sleep(min(pause, left))
        pause = min(2 * pause, _PAUSE)
