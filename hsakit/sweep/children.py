"""Points measured by several processes at a time, where each has a node to itself: a software node lives in the process
that uses it, and what is gated on its clock takes the same time beside others.

The parent plans, writes the file and says what goes wrong, as if it had measured all itself; children are the same
command with the same points. Asked for the points that are measured together, by their keys as a line of JSON, a child
answers with a line of JSON: their rows, in order.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import cffi

from hsakit.ffi.errors import HsakitError

if TYPE_CHECKING:
    from hsakit.sweep.sweep import Sweep

_PR_SET_PDEATHSIG = 1
_LEAVE = 60.0  # seconds that a process has to give its node back and end


class ChildEnded(HsakitError):
    """A process that measured points ended instead of answering."""


class Children:
    """So many processes that run ``command``, which is to :func:`serve`."""

    def __init__(self, command: Sequence[str], count: int):
        self._started: list[subprocess.Popen] = []
        self._idle: queue.SimpleQueue[subprocess.Popen] = queue.SimpleQueue()
        try:
            for _ in range(count):
                # A session of its own: Ctrl-C is the parent's, which lets what is being measured come to its end.
                child = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
                )
                self._started.append(child)
                self._idle.put(child)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Children:
        return self

    def __exit__(self, kind, *_) -> None:
        self.close(at_once=kind is not None)

    def close(self, at_once: bool = True) -> None:
        """Let them end, or end them. Closing twice is fine."""
        for child in self._started:
            if at_once:
                child.kill()
            with contextlib.suppress(OSError):  # something that it did not take
                child.stdin.close()  # type: ignore[union-attr]
        for child in self._started:
            try:
                child.wait(_LEAVE)
            except subprocess.TimeoutExpired:  # the driver holds it, for one
                child.kill()
                child.wait(_LEAVE)
            child.stdout.close()  # type: ignore[union-attr]
        self._started = []

    def measure(self, groups: Sequence[Sequence[str]], stopped: Callable[[], bool]) -> Iterator[dict[str, Any]]:
        """The answers for groups of keys, in their order: ``rows``, and ``broken`` if that child can measure no more.

        None is begun after ``stopped``, or after a child broke; those that were are answered. Raises ChildEnded."""
        broken = False

        def ask(group: Sequence[str]) -> dict[str, Any] | None:
            nonlocal broken
            if broken or stopped():
                return None
            child = self._idle.get()
            try:
                answer = _ask(child, group)
            except ChildEnded:
                broken = True
                raise
            finally:
                self._idle.put(child)
            broken = broken or answer["broken"] is not None
            return answer

        pool = ThreadPoolExecutor(len(self._started))
        try:
            for answer in pool.map(ask, groups):
                if answer is None:
                    return
                yield answer
        except BaseException:
            self.close()  # so that no thread waits for one
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _ask(child: subprocess.Popen, group: Sequence[str]) -> dict[str, Any]:
    assert child.stdin is not None and child.stdout is not None
    line = ""
    try:
        child.stdin.write(json.dumps(list(group)) + "\n")
        child.stdin.flush()
        line = child.stdout.readline()
    except (OSError, ValueError):  # it is gone, or was closed
        pass
    if not line.endswith("\n"):
        raise ChildEnded(
            f"a process that was to measure {group[0]!r} and what belongs to it ended with status {child.wait()}: "
            "what it said stands above"
        )
    return json.loads(line)


def serve(sweep: Sweep, points: Sequence) -> None:
    """Measure what is asked for on standard input, until that ends. What else the process prints goes to its standard
    error."""
    _end_with_parent()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    by_key = {sweep.key(point): point for point in points}
    for line in sys.stdin:
        chosen = [by_key[key] for key in json.loads(line)]
        rows = [*sweep.wake(chosen), *map(sweep.run, chosen)]
        answers.write(json.dumps({"rows": rows, "broken": sweep.broken}, allow_nan=False) + "\n")
        answers.flush()


def _end_with_parent() -> None:
    """Also if that is killed: nobody waits then for what is being measured, which can take minutes."""
    ffi = cffi.FFI()
    ffi.cdef("int prctl(int option, ...);")
    # int prctl(int option, unsigned long arg2, ...), from linux/prctl.h
    ffi.dlopen(None).prctl(_PR_SET_PDEATHSIG, ffi.cast("unsigned long", signal.SIGTERM))
