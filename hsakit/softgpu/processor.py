"""The thread that plays the node: it sees doorbells, moves the clock, and lets happen what is due.

Queues announce work by writing a doorbell, a word of memory: nobody tells us, so the thread looks, often while there is
work and ever less often when there is none (an idle node costs about three per cent of a core).  Everything else is an
event of the clock (:mod:`.clock`): packets, workgroups, copies; one after the other, in the clock's order, which is the
same in every run.  How far the clock may move while the host could still submit something is :mod:`.host`'s rule.

What waits for memory (barriers, an engine's polls, kernels that look at flags) is looked at again whenever memory may
have changed: after what the node wrote, and from time to time for what the host writes.

One lock, :attr:`Processor.lock`, stands for the hardware's exclusion between a queue that runs and a driver call that
takes its memory or the queue itself away.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from .aql import AqlQueue, UnsupportedPacket
from .memory import MemoryFault
from .sdma import SdmaQueue, UnknownPacket
from .stopped import Stopped
from .uapi import C

if TYPE_CHECKING:
    from .driver import Driver

log = logging.getLogger("hsakit.softgpu")

Queue = AqlQueue | SdmaQueue

# (idle for less than, then sleep), seconds.  Never without a pause: a thread that only yields uses up its share of a
# busy machine's processors and is then passed over for milliseconds; one that sleeps is let in as soon as it wakes.
NAPS = ((0.002, 20e-6), (0.02, 50e-6), (0.2, 200e-6), (1.0, 1e-3), (float("inf"), 3e-3))
SLICE = 0.002  # seconds that events may happen until doorbells are looked at
PR_SET_TIMERSLACK = 29
SWITCH_INTERVAL = 2e-4


class Processor:
    def __init__(self, driver: Driver, doorbells: np.ndarray, start: bool = True):
        self._driver = driver
        self._timeline, self._host = driver.timeline, driver.host
        self._doorbells = doorbells  # every doorbell of every GPU
        # What was seen of them.  Bytes, since comparing those does not let go of the interpreter: a thread that spins
        # in Python gives it back only after a whole switch interval.
        self._doorbell_bytes = doorbells.data.cast("B")
        self._seen_bytes = bytearray(self._doorbell_bytes)
        self._seen = np.frombuffer(self._seen_bytes, dtype=np.uint64)
        self._queues: dict[int, Queue] = {}  # doorbell index -> queue
        self._waiting: dict[Queue, None] = {}  # those whose next packet waits for memory
        self._last_look: int | None = None  # when kernels looked at flags while nothing happened, in real ns
        self._dirty = False  # the node wrote to memory that somebody may wait for
        self.lock = threading.Lock()
        self._wanted = 0  # threads that wait for the lock: the processor yields to them
        self._halt = False
        self._thread = threading.Thread(target=self._run, name="hsakit-softgpu", daemon=True)
        # Python threads that wait for our thread's turn of the interpreter get it after this long (the default, 5 ms,
        # is what a signal would then take to be seen).
        self._switch_interval = sys.getswitchinterval()
        if start:
            sys.setswitchinterval(min(self._switch_interval, SWITCH_INTERVAL))
            self._thread.start()

    @contextmanager
    def stopped(self):
        """Hold all queues still, for a driver call that changes what they use."""
        self._wanted += 1
        try:
            with self.lock:
                yield
        finally:
            self._wanted -= 1

    def attach(self, index: int, queue: Queue, idle_value: int) -> None:
        """Start to serve a queue at doorbell ``index``.  With :meth:`stopped` held."""
        self._doorbells[index] = self._seen[index] = np.uint64(idle_value)
        self._queues[index] = queue

    def detach(self, index: int) -> None:
        """Stop serving it, whatever it was doing.  With :meth:`stopped` held."""
        queue = self._queues.pop(index)
        self._waiting.pop(queue, None)
        queue.close()
        self._seen[index] = self._doorbells[index]  # the last ring may not have been seen

    def wake(self, index: int) -> None:
        """A queue may have become able to go on.  With :meth:`stopped` held."""
        queue = self._queues[index]
        self.at(queue, 0, queue.advance)

    def halt(self) -> None:
        self._halt = True
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout=5)
        sys.setswitchinterval(self._switch_interval)

    # -- for the queues --------------------------------------------------------------------------------------------

    def at(self, queue: Queue, delay: int, action: Callable[[], object]) -> None:
        """Let ``action`` of a queue happen ``delay`` picoseconds from now, if the queue is still there."""
        self._timeline.at(self._timeline.now + delay, lambda: self.act(queue, action))

    def wait(self, queue: Queue) -> None:
        """Its next packet waits for memory: ask it ``ready`` when that may have changed, then let it ``proceed``."""
        self._waiting[queue] = None
        self._dirty = True

    def wrote(self) -> None:
        """Memory changed that somebody may wait for."""
        self._dirty = True

    def meanwhile(self) -> None:
        """In the middle of something long: let in who waits for the lock."""
        while self._wanted and not self._halt:
            self.lock.release()
            time.sleep(20e-6)
            self.lock.acquire()

    def act(self, queue: Queue, action: Callable[[], object]) -> object:
        """Do something that a queue does.  What goes wrong in it stops that queue, loudly, and tells the runtime."""
        if queue.closed or queue.halted:
            return None
        try:
            return action()
        except Stopped:
            return None
        except (MemoryFault, UnsupportedPacket, UnknownPacket) as refused:
            queue.halt()
            self.refuse(queue, refused)
        except Exception:
            # A mistake in the node must not leave the application waiting: report it as hung hardware.
            log.exception("%s: internal error of the software node", queue.describe())
            queue.halt()
            self._driver.events.raise_hw_exception(self._driver.gpu_id(queue.gpu))
        return None

    def refuse(self, queue: Queue, refused: MemoryFault | UnsupportedPacket | UnknownPacket) -> None:
        events = self._driver.events
        if isinstance(refused, MemoryFault):
            log.error("memory fault: %s: %s", queue.describe(), refused)
            # Not reported to the queue: the runtime has the event, and would never end that queue's destruction
            # (AqlQueue::ExceptionHandler of 6.1 leaves without a trace on this one reason).
            gpu = self._driver.gpu_id(refused.gpu)
            events.raise_memory_exception(gpu, refused.address, present=refused.present)
        elif isinstance(refused, UnsupportedPacket):
            log.error("%s", refused)
            assert isinstance(queue, AqlQueue)
            queue.report(refused.code)
        else:
            log.error("%s", refused)
            events.raise_hw_exception(self._driver.gpu_id(queue.gpu))

    # -- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        C.prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)  # of this thread: else every nap is 50 us longer
        last_work = time.monotonic()
        while not self._halt:
            with self.lock:
                try:
                    moved = self.turn()
                except Exception:
                    log.exception("internal error of the software node")
                    self._driver.events.raise_hw_exception(self._driver.gpu_id(0))
                    moved = False
            if self._wanted:
                time.sleep(20e-6)
            elif moved:
                last_work = time.monotonic()
            else:
                idle = time.monotonic() - last_work
                time.sleep(next(nap for limit, nap in NAPS if idle < limit))

    def turn(self) -> bool:
        """See what the host did, and let happen what may happen.  False if there was nothing."""
        rung = self.see_doorbells()
        if not rung:
            self._host.looked(bool(self._wanted))
        self._dirty = True  # the host may have written
        moved = self._move() or rung
        if not moved and self._host.quiet and self._timeline.next is None and self._driver.executor.parked:
            self._let_them_look()
        else:
            self._last_look = None
        return moved

    def _let_them_look(self) -> None:
        """Kernels look at flags, and nothing else happens.  They may look only so often, or for so long: while they
        wait for the host, and for nothing else, the clock goes as the host's does."""
        now = time.monotonic_ns()
        passed = 0 if self._last_look is None else (now - self._last_look) * 1000
        self._last_look = now
        self._timeline.skip_to(self._host.aligned(self._timeline.now + passed))
        self._driver.machine.changed()
        self._move()

    def see_doorbells(self) -> bool:
        """Whether any was rung; their submissions are then on the clock."""
        if self._seen_bytes == self._doorbell_bytes:  # in this order it is one memcmp
            return False
        self._look()
        return True

    def _look(self) -> None:
        """Which doorbells were rung?  In which order, of those rung between two looks, memory does not tell: packets
        are taken to come before copies, and queues in the order of their doorbells."""
        rung: list[tuple[Queue, int]] = []
        for index in np.flatnonzero(self._doorbells != self._seen).tolist():
            value = int(self._doorbells[index])
            self._seen[index] = value
            queue = self._queues.get(index)
            if queue is None:
                log.error("doorbell %d was rung, but no queue is there", index)
                continue
            rung.append((queue, value))
        for queue, value in sorted(rung, key=lambda ring: isinstance(ring[0], SdmaQueue)):
            when = self._host.submission(queue.call)
            self._timeline.at(when, partial(self.act, queue, partial(queue.ring, value)))

    def _move(self) -> bool:
        """Let events happen as far as the clock may move now, for a while."""
        timeline, host, moved = self._timeline, self._host, False
        end = time.perf_counter() + SLICE
        while not self._halt:
            following = timeline.next
            if self._dirty and following != timeline.now and not host.ahead:
                self._dirty = False
                if self._notice():
                    moved = True
                    continue
            if following is None or (following > host.limit and not host.quiet):
                return moved
            timeline.advance()
            moved = True
            if self._wanted or time.perf_counter() > end:
                return True
        return moved

    def _notice(self) -> bool:
        """Look at all memory that somebody waits for.  Those that may go on do so at one time, in a fixed order."""
        ready = [queue for queue in self._waiting if self.act(queue, queue.ready)]
        for queue in [queue for queue in self._waiting if queue.halted or queue.closed]:
            del self._waiting[queue]
        parked = self._driver.executor.parked
        woken = any(not batch.waves.unchanged() for batch in parked)
        if not ready and not woken:
            return False
        if self.see_doorbells():  # rung before the host wrote what was just read: first comes what was submitted
            self._dirty = True
            return True
        for queue in ready:
            del self._waiting[queue]
        now = self._host.aligned(self._timeline.now)
        for queue in sorted(ready, key=lambda queue: queue.id):
            self._timeline.at(now, partial(self.act, queue, partial(queue.proceed, queue.waits)))
        if woken:
            self._timeline.at(now, self._driver.machine.changed)
        return True
