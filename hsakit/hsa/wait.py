"""Waiting for signals: with a deadline, awake to errors, and able to say what is missing when the deadline passes."""

from __future__ import annotations

import operator
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsakit.ffi import HSA
from hsakit.ffi.errors import DeadlineExceeded, InvalidArgument, check_deadline

if TYPE_CHECKING:
    from hsakit.hsa.runtime import Runtime
    from hsakit.hsa.signal import SignalHandle

_CONDITIONS = {
    "==": (HSA.HSA_SIGNAL_CONDITION_EQ, operator.eq),
    "!=": (HSA.HSA_SIGNAL_CONDITION_NE, operator.ne),
    "<": (HSA.HSA_SIGNAL_CONDITION_LT, operator.lt),
    ">=": (HSA.HSA_SIGNAL_CONDITION_GTE, operator.ge),
}

# The library is asked to wait for so long at a time: between slices come Ctrl-C and the errors of queues and memory.
# Not shorter, because it polls the first 0.2 ms and the last 1 ms of a slice and sleeps only between.
_FIRST_SLICE = 0.005
_SLICE = 0.05
# Between two looks at several signals.
_FIRST_PAUSE = 20e-6
_PAUSE = 1e-3
_SHOWN = 3  # operations named in a message


def wait(runtime: Runtime, handle: SignalHandle, condition: str, value: int, deadline: float) -> int:
    met = _condition(condition)
    check_deadline(deadline)
    seen = handle.view[0]  # mapped memory: most waits of a script end here, without a call
    if not met(seen, value):
        with runtime.waiting():
            seen = _sleep(runtime, handle, condition, value, deadline)
    handle.settle()
    runtime.registry.sweep()
    return seen


def _sleep(runtime: Runtime, handle: SignalHandle, condition: str, value: int, deadline: float) -> int:
    code, met = _CONDITIONS[condition]
    wait_in_library = runtime.lib.hsa_signal_wait_scacquire
    end, span = time.monotonic() + deadline, _FIRST_SLICE
    while True:
        left = end - time.monotonic()
        ticks = int(max(0.0, min(span, left)) * runtime.timestamp_frequency)
        # hsa_signal_value_t hsa_signal_wait_scacquire(hsa_signal_t signal, hsa_signal_condition_t condition,
        #     hsa_signal_value_t compare_value, uint64_t timeout_hint, hsa_wait_state_t wait_state_hint)
        seen = wait_in_library(handle.raw, code, value, ticks, HSA.HSA_WAIT_STATE_BLOCKED)
        if met(seen, value):
            return seen
        runtime.check_open()
        _raise_failure(runtime, [handle])
        if left <= span:
            raise DeadlineExceeded(
                f"{handle} did not become {condition} {value} within {deadline:g} s\n{_explain(handle)}"
                + _advice([handle])
            )
        span = _SLICE


def wait_any(runtime: Runtime, handles: Sequence[SignalHandle], condition: str, value: int, deadline: float) -> int:
    _condition(condition)
    check_deadline(deadline)
    if not handles:
        raise InvalidArgument("wait_any needs at least one signal")
    with runtime.waiting():
        index = _sleep_any(runtime, handles, condition, value, deadline)
    handles[index].settle()
    runtime.registry.sweep()
    return index


def _sleep_any(runtime: Runtime, handles: Sequence[SignalHandle], condition: str, value: int, deadline: float) -> int:
    # Looked at from here: from ROCm 6.4 to 7.2 the library's hsa_amd_signal_wait_any writes past the end of a block of
    # its heap whenever another signal than the first is the one (ROCm/rocm-systems pull request 8564).
    met, now = _condition(condition), time.monotonic()
    end, check, pause = now + deadline, now + _FIRST_SLICE, _FIRST_PAUSE
    while True:
        for index, handle in enumerate(handles):
            if met(handle.view[0], value):
                return index
        now = time.monotonic()
        if now >= min(check, end):
            runtime.check_open()
            _raise_failure(runtime, handles)
            if now >= end:
                explained = "\n".join(f"{handle}:\n{_explain(handle)}" for handle in handles[:_SHOWN])
                raise DeadlineExceeded(
                    f"none of {len(handles)} signals became {condition} {value} within {deadline:g} s\n{explained}"
                    + _advice(handles)
                )
            check = now + _SLICE
        time.sleep(min(pause, end - now))
        pause = min(2 * pause, _PAUSE)


def _condition(condition: str):
    try:
        return _CONDITIONS[condition][1]
    except KeyError:
        raise InvalidArgument(f"condition {condition!r} is none of {', '.join(_CONDITIONS)}") from None


def describe(handle: SignalHandle) -> str:
    """The operations in flight that will decrement the signal, in words."""
    flights = list(handle.pending)
    words = [flight.where.describe(flight.number, flight.operation) for flight in flights[:_SHOWN]]
    if len(flights) > _SHOWN:
        words.append(f"{len(flights) - _SHOWN} more")
    return "; ".join(words)


def _explain(handle: SignalHandle) -> str:
    """What would complete the signal, and what that waits for, one step a line."""
    lines: list[str] = []
    seen = {handle.serial}
    steps = [(handle, "")]
    for step, prefix in steps:  # grows while it is walked
        will = describe(step)
        lines.append(f"  {prefix}{f'to be completed by {will}' if will else 'nothing submitted will complete it'}")
        for flight in list(step.pending):
            for other in flight.where.blocking(flight.number, flight.operation):
                if other.serial not in seen and len(seen) <= _SHOWN:
                    seen.add(other.serial)
                    steps.append((other, f"which waits for {other}: "))
    return "\n".join(lines)


def _advice(handles: Sequence[SignalHandle]) -> str:
    if not any(handle.pending for handle in handles):
        return ""  # nothing was submitted: there is nothing to wait longer for
    return "\nWait longer, or store into the signals waited for; a kernel that never ends goes when its queue is closed"


def _raise_failure(runtime: Runtime, handles: Sequence[SignalHandle]) -> None:
    """Raise the error that keeps one of the signals from being completed, if there is one."""
    runtime.raise_fault()
    seen = {handle.serial for handle in handles}
    steps = list(handles)
    for step in steps:  # grows while it is walked
        for flight in list(step.pending):
            error = flight.where.failure(flight.number, flight.operation)
            if error:
                raise error
            for other in flight.where.blocking(flight.number, flight.operation):
                if other.serial not in seen:
                    seen.add(other.serial)
                    steps.append(other)
