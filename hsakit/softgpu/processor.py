"""The thread that plays all packet processors and engines of the node.

Queues announce work by writing a doorbell, a word of memory: nobody tells us, so the thread looks.  It looks often
while there is work and ever less often when there is none (an idle node costs about three per cent of a core).  All
queues advance in turn, a bounded amount each, so that none starves and two that wait for each other both move.

One lock, :attr:`Processor.lock`, stands for the hardware's exclusion between a queue that runs and a driver call that
takes its memory or the queue itself away.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from .aql import AqlQueue, UnsupportedPacket
from .memory import MemoryFault
from .sdma import SdmaQueue, UnknownPacket
from .uapi import C

if TYPE_CHECKING:
    from .driver import Driver

log = logging.getLogger("hsakit.softgpu")

Queue = AqlQueue | SdmaQueue

BUDGET = 64  # packets, or what takes as long, that a queue advances before it is another's turn
# (idle for less than, then sleep), seconds.  Never without a pause: a thread that only yields uses up its share of a
# busy machine's processors and is then passed over for milliseconds; one that sleeps is let in as soon as it wakes.
NAPS = ((0.002, 20e-6), (0.02, 50e-6), (0.2, 200e-6), (1.0, 1e-3), (float("inf"), 3e-3))
PR_SET_TIMERSLACK = 29
SWITCH_INTERVAL = 2e-4


class Processor:
    def __init__(self, driver: Driver, doorbells: np.ndarray):
        self._driver = driver
        self._doorbells = doorbells  # every doorbell of every GPU
        # What was seen of them.  Bytes, since comparing those does not let go of the interpreter: a thread that spins
        # in Python gives it back only after a whole switch interval.
        self._doorbell_bytes = doorbells.data.cast("B")
        self._seen_bytes = bytearray(self._doorbell_bytes)
        self._seen = np.frombuffer(self._seen_bytes, dtype=np.uint64)
        self._queues: dict[int, Queue] = {}  # doorbell index -> queue
        self._busy: dict[int, Queue] = {}  # those with something to do
        self.lock = threading.Lock()
        self._wanted = 0  # threads that wait for the lock: the processor yields to them
        self._halt = False
        self._thread = threading.Thread(target=self._run, name="hsakit-softgpu", daemon=True)
        # Python threads that wait for our thread's turn of the interpreter get it after this long (the default, 5 ms,
        # is what a signal would then take to be seen).
        self._switch_interval = sys.getswitchinterval()
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
        self._busy.pop(index, None)
        del self._queues[index]
        self._seen[index] = self._doorbells[index]  # the last ring may not have been seen

    def wake(self, index: int) -> None:
        """A queue may have become able to go on.  With :meth:`stopped` held."""
        if self._queues[index].pending:
            self._busy[index] = self._queues[index]

    def halt(self) -> None:
        self._halt = True
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=5)
        sys.setswitchinterval(self._switch_interval)

    # -- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        C.prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)  # of this thread: else every nap is 50 us longer
        last_work = time.monotonic()
        while not self._halt:
            moved = False
            if self._seen_bytes != self._doorbell_bytes:  # in this order it is one memcmp
                with self.lock:
                    self._look()
            for index in list(self._busy):
                if self._wanted:
                    time.sleep(20e-6)
                with self.lock:
                    queue = self._busy.get(index)  # it may have been destroyed since
                    if queue is not None:
                        moved |= self._advance(queue)
                        if not queue.pending:
                            del self._busy[index]
            if moved:
                last_work = time.monotonic()
                continue
            idle = time.monotonic() - last_work
            time.sleep(next(nap for limit, nap in NAPS if idle < limit))

    def _look(self) -> None:
        """Which doorbells were rung?"""
        for index in np.flatnonzero(self._doorbells != self._seen).tolist():
            value = int(self._doorbells[index])
            self._seen[index] = value
            queue = self._queues.get(index)
            if queue is None:
                log.error("doorbell %d was rung, but no queue is there", index)
                continue
            queue.ring_doorbell(value)
            if queue.pending:
                self._busy[index] = queue

    def _advance(self, queue) -> bool:
        """One turn of one queue.  What goes wrong in it stops that queue, loudly, and tells the runtime."""
        events = self._driver.events
        try:
            return queue.step(BUDGET)
        except MemoryFault as fault:
            log.error("memory fault: %s: %s", queue.describe(), fault)
            # Not reported to the queue: the runtime has the event, and would never end that queue's destruction
            # (AqlQueue::ExceptionHandler of 6.1 leaves without a trace on this one reason).
            queue.halted = True
            events.raise_memory_exception(self._driver.gpu_id(fault.gpu), fault.address, present=fault.present)
        except UnsupportedPacket as packet:
            log.error("%s", packet)
            queue.halted = True
            queue.report(packet.code)
        except UnknownPacket as packet:
            log.error("%s", packet)
            queue.halted = True
            events.raise_hw_exception(self._driver.gpu_id(queue.gpu))
        except Exception:
            # A mistake in the node must not leave the application waiting: report it as hung hardware.
            log.exception("%s: internal error of the software node", queue.describe())
            queue.halted = True
            events.raise_hw_exception(self._driver.gpu_id(queue.gpu))
        return False
