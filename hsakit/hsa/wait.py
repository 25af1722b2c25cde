"""Waiting for signals: with a deadline, awake to errors, and able to say what is missing when the deadline passes."""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsakit.ffi import HSA
from hsakit.ffi._hsa import ffi
from hsakit.ffi.errors import DeadlineExceeded, InvalidArgument

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
_SHOWN = 3  # operations named in a message


def check_deadline(deadline: float) -> None:
    if not isinstance(deadline, (int, float)) or not 0 <= deadline < math.inf:
        raise InvalidArgument(f"deadline is a number of seconds, not {deadline!r}: every wait has one")


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
    n, code = len(handles), _CONDITIONS[condition][0]
    signals = ffi.new("hsa_signal_t[]", [handle.raw for handle in handles])
    conditions = ffi.new("hsa_signal_condition_t[]", [code] * n)
    values = ffi.new("hsa_signal_value_t[]", [value] * n)
    end, span = time.monotonic() + deadline, _FIRST_SLICE
    while True:
        left = end - time.monotonic()
        ticks = int(max(0.0, min(span, left)) * runtime.timestamp_frequency)
        # uint32_t hsa_amd_signal_wait_any(uint32_t signal_count, hsa_signal_t *signals, hsa_signal_condition_t *conds,
        #     hsa_signal_value_t *values, uint64_t timeout_hint, hsa_wait_state_t wait_hint,
        #     hsa_signal_value_t *satisfying_value)
        index = runtime.lib.hsa_amd_signal_wait_any(
            n, signals, conditions, values, ticks, HSA.HSA_WAIT_STATE_BLOCKED, ffi.NULL
        )
        if index < n:
            return index
        runtime.check_open()
        _raise_failure(runtime, handles)
        if left <= span:
            explained = "\n".join(f"{handle}:\n{_explain(handle)}" for handle in handles[:_SHOWN])
            raise DeadlineExceeded(f"none of {n} signals became {condition} {value} within {deadline:g} s\n{explained}")
        span = _SLICE


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
