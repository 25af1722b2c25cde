"""What signals, waits and the runtime's error callback know of a queue, and what its packets in flight hold."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from hsakit.ffi._hsa import ffi
from hsakit.ffi.errors import ClosedError, check_hsa, queue_error
from hsakit.hsa.lifetime import QUEUE, Handle
from hsakit.hsa.packet import Batch, Packet
from hsakit.hsa.signal import SignalHandle

if TYPE_CHECKING:
    from hsakit.hsa.agent import Agent

_numbers = itertools.count()  # also the ``data`` of the error callback: a queue may fail before its create call returns
_states: weakref.WeakValueDictionary[int, State] = weakref.WeakValueDictionary()


@ffi.callback("hsakit_queue_callback")
def on_error(status, source, data):
    # On a thread of the runtime, which waits for this to return: note it and go. The next wait or submission raises.
    state = _states.get(int(ffi.cast("uintptr_t", data)))
    if state is not None:
        # The queue cannot go away meanwhile: its destruction waits for this callback.
        state.error = (status, state.read_index() if state.queue else None)


class QueueHandle(Handle):
    """The library's queue. Its packets in flight live until it is destroyed, for it may write to what they name."""

    __slots__ = ("packets", "state")

    def __init__(self, state: State, raw: int, destroy):
        super().__init__(state.agent.runtime.registry, raw, QUEUE, destroy)
        self.packets = state.flights, state.late
        self.state = weakref.ref(state)

    def kept(self) -> tuple[dict, dict]:
        return self.packets

    def kill(self) -> None:
        super().kill()
        state = self.state()
        if state is not None:
            state.give_up()


class State:
    """What signals, waits and the error callback need to know of a queue. Keeps the queue alive while it has work.

    A packet is held until it is done: one that completes a signal when that signal was seen to come down; a barrier
    packet that does not when the read index has passed it, for the index moves on only after the dependencies were met.
    The index may pass a kernel that still runs. A dispatch that completes no signal is therefore done when a later
    packet with the barrier bit, which waits for all before it, was seen to complete.
    """

    def __init__(self, agent: Agent, size: int):
        self.number = next(_numbers)
        self.label = f"queue {self.number} on {agent.label}"
        self.size = size
        self.handle: QueueHandle | None = None
        self.queue: Any = None  # hsa_queue_t *
        self.error: tuple[int, int | None] | None = None  # status, read index at that time
        self.flights: dict[int, Packet | Batch] = {}  # by the index of the last packet
        self.late: dict[int, Packet | Batch] = {}  # passed by the read index, not seen to be complete
        self.write = 0
        self.proved = 0  # the packets before this index are complete
        self.lock = threading.RLock()  # whoever reads the queue's memory holds it, or is the error callback
        self.timer: Callable[[int], tuple[int, int]] = partial(_times, agent.runtime.lib, agent.raw)
        self.agent = agent
        self._lib = agent.runtime.lib
        _states[self.number] = self

    @property
    def lost(self) -> bool:
        """Its packets will not be processed any more."""
        return self.handle is None

    def adopt(self, queue, destroy) -> None:
        """The queue exists: it is alive for as long as the handle is."""
        self.queue = queue
        self.handle = QueueHandle(self, int(ffi.cast("uintptr_t", queue)), destroy)

    def give_up(self) -> QueueHandle | None:
        """Let go of the handle, and leave it what the queue may still write to."""
        with self.lock:
            handle, self.handle = self.handle, None
            self.flights, self.late = {}, {}
        return handle

    def read_index(self) -> int:
        # uint64_t hsa_queue_load_read_index_scacquire(const hsa_queue_t *queue)
        return self._lib.hsa_queue_load_read_index_scacquire(self.queue)

    def processed(self) -> int:
        """The read index; once the queue is closed, none of its packets counts as pending."""
        with self.lock:
            return self.write if self.lost else self.read_index()

    def prune(self) -> int:
        """Let go of the packets that are done. Returns the read index."""
        read = self.processed()
        for index in itertools.takewhile(read.__gt__, list(self.flights)):
            item = self.flights.pop(index, None)  # another thread may let go of it meanwhile
            if item is not None and not self._done(index, item):
                self.late[index] = item
        for index, item in list(self.late.items()):
            if self._done(index, item):
                self.late.pop(index, None)
        return read

    def _done(self, last: int, item: Packet | Batch) -> bool:
        return last < self.proved or item.settled()

    def kernels(self) -> list[str]:
        """The kernels that may run now, in words."""
        self.prune()
        items = [*list(self.late.items()), *list(self.flights.items())[:1]]  # what was taken, and what is next
        return [
            f"{packet.kind} (packet {last - back} of {self.label})"
            for last, item in items
            for back in range(item.count - 1, -1, -1)
            if (packet := item.at(back)).agent
        ]

    # What a Flight of this queue is asked for:

    def release(self, index: int, operation: Packet) -> None:
        if operation.barrier:
            self.proved = max(self.proved, index)
        item = self.flights.get(index)  # a batch stays until its last packet is done
        if isinstance(item, Packet):
            self.flights.pop(index, None)

    def describe(self, index: int, operation: Packet) -> str:
        where = f"packet {index} ({operation.kind}) of {self.label}"
        if self.lost:
            return f"{where}, which is closed"
        return f"{where} [size {self.size}; of {self.write} packets submitted {self.processed()} are processed]"

    def failure(self, index: int, operation: Packet) -> Exception | None:
        if self.error:
            return self.exception()
        if self.lost:
            return ClosedError(f"packet {index} ({operation.kind}) will not complete: {self.label} was closed")
        return None

    def blocking(self, index: int, operation: Packet) -> Iterator[SignalHandle]:
        """Signals that keep a packet from completing: its own dependencies, and those of the packet that runs now."""
        yield from operation.unmet()
        head = self.packet_at(self.processed())
        if head is not None and head is not operation:
            yield from head.unmet()

    def packet_at(self, index: int) -> Packet | None:
        for last, item in list(self.flights.items()):
            if last - item.count < index <= last:
                return item.at(last - index)
        return None

    def exception(self) -> Exception:
        assert self.error
        status, index = self.error
        at = self.packet_at(index) if index is not None else None
        name = f"{self.label}, packet {index} ({at.kind})" if at else f"{self.label}, at packet {index}"
        return queue_error(name, status, "The queue takes no more packets: close it and create another")


def _times(lib, agent: int, signal: int) -> tuple[int, int]:
    time_of = ffi.new("hsa_amd_profiling_dispatch_time_t *")
    # hsa_status_t hsa_amd_profiling_get_dispatch_time(hsa_agent_t agent, hsa_signal_t signal,
    #                                                  hsa_amd_profiling_dispatch_time_t *time)
    check_hsa("hsa_amd_profiling_get_dispatch_time", lib.hsa_amd_profiling_get_dispatch_time(agent, signal, time_of))
    return time_of.start, time_of.end
