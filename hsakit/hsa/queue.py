"""AQL queues: a ring of packets in memory, an index for each end, and a doorbell."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from hsakit.cumask import CuMask
from hsakit.ffi import HSA
from hsakit.ffi._hsa import ffi
from hsakit.ffi.errors import ClosedError, DeadlineExceeded, InvalidArgument, check_deadline, check_hsa
from hsakit.hsa import fork, packet
from hsakit.hsa.lifetime import Closable
from hsakit.hsa.packet import SIZE, Batch, Packet
from hsakit.hsa.queue_state import QueueHandle, State, on_error
from hsakit.hsa.signal import Flight, Signal
from hsakit.hsa.work import Work

if TYPE_CHECKING:
    from hsakit.hsa.agent import Agent
    from hsakit.hsa.dispatch import Launch

PRIORITIES = {
    "low": HSA.HSA_AMD_QUEUE_PRIORITY_LOW,
    "normal": HSA.HSA_AMD_QUEUE_PRIORITY_NORMAL,
    "high": HSA.HSA_AMD_QUEUE_PRIORITY_HIGH,
}
_WORDS = SIZE // 4
_UINT32_MAX = 0xFFFFFFFF


def create(agent: Agent, size: int, priority: str, cu_mask: Iterable[int] | None) -> Queue:
    low, high = agent.queue_sizes
    if not isinstance(size, int) or size & (size - 1) or not low <= size <= high:
        raise InvalidArgument(f"queue size {size!r}: {agent.label} takes powers of two from {low} to {high} packets")
    if priority not in PRIORITIES:
        raise InvalidArgument(f"priority {priority!r} is none of {', '.join(PRIORITIES)}")
    words = _mask_words(agent, cu_mask) if cu_mask is not None else None
    runtime = agent.runtime
    runtime.registry.sweep()
    lib, out = runtime.lib, ffi.new("hsa_queue_t **")
    state = State(agent, size)
    # hsa_status_t hsa_queue_create(hsa_agent_t agent, uint32_t size, hsa_queue_type32_t type,
    #     void (*callback)(hsa_status_t status, hsa_queue_t *source, void *data), void *data,
    #     uint32_t private_segment_size, uint32_t group_segment_size, hsa_queue_t **queue)
    check_hsa(
        "hsa_queue_create",
        lib.hsa_queue_create(
            agent.raw,
            size,
            HSA.HSA_QUEUE_TYPE_MULTI,
            on_error,
            ffi.cast("void *", state.number),
            _UINT32_MAX,
            _UINT32_MAX,
            out,
        ),
        f"{agent.label} may have no hardware queue left: close queues that are not needed",
    )
    state.adopt(out[0], partial(_destroy, lib, out[0]))
    queue = Queue(agent, state)
    try:
        # hsa_status_t hsa_amd_profiling_set_profiler_enabled(hsa_queue_t *queue, int enable)
        check_hsa("hsa_amd_profiling_set_profiler_enabled", lib.hsa_amd_profiling_set_profiler_enabled(state.queue, 1))
        if priority != "normal":
            # hsa_status_t hsa_amd_queue_set_priority(hsa_queue_t *queue, hsa_amd_queue_priority_t priority)
            check_hsa("hsa_amd_queue_set_priority", lib.hsa_amd_queue_set_priority(state.queue, PRIORITIES[priority]))
        if words is not None:
            _set_mask(agent, state.queue, words)
    except BaseException:
        queue.close()
        raise
    queue.priority = priority
    return queue


def _destroy(lib, queue) -> None:
    # hsa_status_t hsa_queue_destroy(hsa_queue_t *queue)
    check_hsa("hsa_queue_destroy", lib.hsa_queue_destroy(queue))


def _mask_words(agent: Agent, cu_mask: Iterable[int]) -> list[int]:
    if isinstance(cu_mask, CuMask):
        cu_mask.checked_for(agent)
    words = [0] * -(-agent.cu_count // 32)
    for cu in cu_mask:
        if not isinstance(cu, int) or not 0 <= cu < agent.cu_count:
            raise InvalidArgument(
                f"cu_mask lists CU numbers from 0 to {agent.cu_count - 1} of {agent.label}, not {cu!r}"
            )
        words[cu // 32] |= 1 << cu % 32
    if not any(words):
        raise InvalidArgument("an empty cu_mask would leave the queue no CU: name some, or None for all")
    return words


def _set_mask(agent: Agent, queue, words: list[int]) -> None:
    lib, bits = agent.runtime.lib, 32 * len(words)
    # hsa_status_t hsa_amd_queue_cu_set_mask(const hsa_queue_t *queue, uint32_t num_cu_mask_count,
    #                                        const uint32_t *cu_mask)
    check_hsa("hsa_amd_queue_cu_set_mask", lib.hsa_amd_queue_cu_set_mask(queue, bits, ffi.new("uint32_t[]", words)))
    back = _read_mask(lib, queue, len(words))
    if back != words:
        raise InvalidArgument(
            f"{agent.label} enabled the CU mask {_hex(back)} where {_hex(words)} was asked for: "
            "HSA_CU_MASK limits every queue of this process; unset it, or ask for CUs within it"
        )


def _read_mask(lib, queue, n: int) -> list[int]:
    out = ffi.new("uint32_t[]", n)
    # hsa_status_t hsa_amd_queue_cu_get_mask(const hsa_queue_t *queue, uint32_t num_cu_mask_count, uint32_t *cu_mask)
    check_hsa("hsa_amd_queue_cu_get_mask", lib.hsa_amd_queue_cu_get_mask(queue, 32 * n, out))
    return list(out)


def _names(packet: Packet) -> str:
    return ", ".join(map(str, packet.unmet()))


def _hex(words: list[int]) -> str:
    return " ".join(f"{word:08x}" for word in reversed(words))


class Queue(Closable[QueueHandle]):
    """An AQL queue, from ``Agent.create_queue``. Several threads may submit."""

    def __init__(self, agent: Agent, state: State):
        self.agent = agent
        self.label = state.label
        self.size = state.size
        self.priority = "normal"
        self._state = state
        self._lock = state.lock
        self._mask = state.size - 1
        self._ring = ffi.cast("hsa_barrier_and_packet_t *", state.queue.base_address)
        self._words = ffi.cast("uint32_t *", state.queue.base_address)
        self._proof: Signal | None = None
        self._room = state.size  # the index at which the ring would be full, by the read index seen last
        self._queue = state.queue
        self._doorbell = state.queue.doorbell_signal
        # void hsa_signal_store_screlease(hsa_signal_t signal, hsa_signal_value_t value)
        self._ring_doorbell = agent.runtime.lib.hsa_signal_store_screlease
        # void hsa_queue_store_write_index_relaxed(const hsa_queue_t *queue, uint64_t value)
        self._store_index = agent.runtime.lib.hsa_queue_store_write_index_relaxed
        agent.runtime.track(state)

    def __repr__(self) -> str:
        if self.closed:
            return f"<Queue {self._state.number} closed>"
        return f"<Queue {self._state.number} on {self.agent.label}, size {self.size}, {self._state.write} packets>"

    @property
    def closed(self) -> bool:
        return self._state.lost

    def handle(self) -> QueueHandle:
        if fork.forked:
            fork.refuse()
        handle = self._state.handle
        if handle is None:
            raise ClosedError(f"{self._state.label} is closed")
        return handle

    def close(self) -> None:
        """Destroy the queue. Packets not processed yet are dropped, and waits for their signals raise ClosedError."""
        handle = self._state.give_up()
        if handle is not None:
            registry, serial = handle.registry, handle.serial
            del handle
            registry.release(serial)

    @property
    def error(self) -> Exception | None:
        """The QueueError that the queue is in, None if it is well."""
        return self._state.exception() if self._state.error else None

    @property
    def packets(self) -> int:
        """Packets submitted so far."""
        return self._state.write

    @property
    def read_index(self) -> int:
        """Packets that the GPU has taken from the ring. No proof that they are complete."""
        self.handle()
        return self._state.processed()

    @property
    def write_index(self) -> int:
        """Packets written to the ring, as the GPU sees it."""
        self.handle()
        with self._lock:
            self.handle()
            # uint64_t hsa_queue_load_write_index_relaxed(const hsa_queue_t *queue)
            return self.agent.runtime.lib.hsa_queue_load_write_index_relaxed(self._queue)

    @property
    def cu_mask(self) -> tuple[int, ...]:
        """The numbers of the CUs that the queue's waves may use, read back from the runtime."""
        self.handle()
        with self._lock:
            self.handle()
            words = _read_mask(self.agent.runtime.lib, self._queue, -(-self.agent.cu_count // 32))
        return tuple(i for i in range(self.agent.cu_count) if words[i // 32] >> i % 32 & 1)

    def prepare(
        self, launch: Launch | None = None, after: Iterable[Signal] = (), completion: Signal | None = None
    ) -> Work:
        """Packets to be submitted together as often as wanted: barriers that wait for all of ``after``, then the launch
        with its arguments as they are now, or nothing; the last of them completes ``completion``."""
        return Work(self, launch, after, completion)

    def check_room(self, costs: Sequence[int]) -> None:
        """InvalidArgument if so many packets do not fit the ring beside those that it holds now."""
        free = self.size - (self.packets - self.read_index)
        if sum(costs) > free:
            raise InvalidArgument(
                f"{sum(costs)} packets do not fit {self.label}: of {self.size} places {free} are free. Create it larger"
            )

    def submit(self, packet: Packet, deadline: float = 30.0) -> int:
        """Write one packet and ring the doorbell; returns the packet's index.

        Waits up to ``deadline`` seconds for room in the ring. A prepared packet costs no allocation.
        """
        if fork.forked:
            fork.refuse()
        if packet.agent is not None and packet.agent is not self.agent and packet.agent != self.agent:
            self._refuse_agents({packet.agent})
        state = self._state
        with self._lock:
            if state.handle is None or state.error:
                self._refuse()
            index = state.write
            if index >= self._room:
                index = self._make_room(1, deadline)
            completion = packet.completion
            if completion is not None:
                completion.claim(Flight(state, index, packet))
            state.flights[index] = packet
            slot = index & self._mask
            self._ring[slot] = packet.image  # 64 bytes, the header still INVALID
            # The header, last: on x86 stores become visible in program order, and cffi makes this one 32-bit store.
            self._words[slot * _WORDS] = packet.word
            state.write = index + 1
            self._store_index(self._queue, index + 1)
            self._ring_doorbell(self._doorbell, index)
        return index

    def submit_batch(self, packets: Batch | Sequence[Packet], deadline: float = 30.0) -> int:
        """Write packets that become visible together, with one doorbell; returns the index of the last.

        A prepared ``Batch`` saves laying the packets out again. More packets than the ring holds are refused.
        """
        if fork.forked:
            fork.refuse()
        batch = packets if isinstance(packets, Batch) else Batch(packets)
        state, n = self._state, batch.count
        if n > self.size:
            raise InvalidArgument(f"a batch of {n} packets does not fit the ring of {self.size}: submit it in parts")
        if batch.agents and batch.agents != {self.agent}:
            self._refuse_agents(batch.agents)
        with self._lock:
            if state.handle is None or state.error:
                self._refuse()
            first = state.write
            if first + n > self._room:
                first = self._make_room(n, deadline)
            last = first + n - 1
            self._claim(batch, first)
            state.flights[last] = batch
            slot = first & self._mask
            fits = min(n, self.size - slot)
            ffi.memmove(self._ring + slot, batch.body, fits * SIZE)
            if fits < n:
                ffi.memmove(self._ring, batch.body + fits, (n - fits) * SIZE)
            # Only now the first header: until then the packet processor stops at it, whatever lies behind.
            self._words[slot * _WORDS] = batch.word
            state.write = last + 1
            self._store_index(self._queue, last + 1)
            self._ring_doorbell(self._doorbell, last)
        return last

    def barrier_and(
        self, after: Iterable[Signal] = (), completion: Signal | None = None, deadline: float = 30.0
    ) -> int:
        """Submit a barrier that is complete when all signals are 0; returns the packet's index.

        More than 5 signals take a chain of packets, of which the last completes ``completion``.
        """
        chain = packet.barriers(after, completion)
        return self.submit_batch(chain, deadline) if len(chain) > 1 else self.submit(chain[0], deadline)

    def barrier_or(self, after: Iterable[Signal], completion: Signal | None = None, deadline: float = 30.0) -> int:
        """Submit a barrier that is complete when any of 1 to 5 signals is 0; returns the packet's index."""
        return self.submit(packet.barrier_or(after, completion), deadline)

    def drain(self, deadline: float = 30.0) -> None:
        """Wait until everything submitted before is complete, ``deadline`` in seconds."""
        end = time.monotonic() + deadline
        with self.agent.runtime.create_signal(1) as done:
            self.barrier_and(completion=done, deadline=deadline)
            done.wait(deadline=max(0.0, end - time.monotonic()))
        self._state.prune()
        self.agent.runtime.registry.sweep()

    def _claim(self, batch: Batch, first: int) -> None:
        claimed = []
        try:
            for i, each, completion in batch.completing:
                flight = Flight(self._state, first + i, each)
                completion.claim(flight)
                claimed.append((completion, flight))
        except InvalidArgument:  # none of the batch is submitted
            for completion, flight in claimed:
                completion.unclaim(flight)
            raise

    def _refuse_agents(self, agents: set[Agent]) -> None:
        strangers = ", ".join(sorted(agent.label for agent in agents if agent != self.agent))
        raise InvalidArgument(f"the kernel was loaded for {strangers}, this queue is on {self.agent.label}")

    def _refuse(self) -> None:
        self.handle()
        raise self._state.exception()

    def _prove(self) -> None:
        """Kernels that complete no signal are held until a later packet was seen to complete: have such a packet."""
        if self._proof is None:
            self._proof = self.agent.runtime.create_signal(1)
        if self._proof.operation is None:
            self._proof.store(1)
            self.submit(packet.barrier_and(completion=self._proof))

    def _make_room(self, n: int, deadline: float) -> int:
        """Wait until ``n`` packets fit; returns the next index.

        Gives up the lock while it sleeps, so that another thread can close the queue.
        """
        check_deadline(deadline)
        state, end, pause = self._state, time.monotonic() + deadline, 20e-6
        while True:
            self._room = state.prune() + self.size
            if state.write + n <= self._room:
                if sum(item.loose for item in state.late.values()) < self.size:
                    return state.write
                self._prove()
                if state.write + n <= self._room:
                    return state.write
            if time.monotonic() >= end:
                read = self._room - self.size
                head = state.packet_at(read)
                unmet = f", and packet {read} ({head.kind}) waits for {_names(head)}" if head and head.unmet() else ""
                raise DeadlineExceeded(
                    f"no room for {n} packets in {state.label} within {deadline:g} s: it holds packets {read} to "
                    f"{state.write - 1} of {self.size}{unmet}"
                )
            self._lock.release()
            try:
                time.sleep(pause)
                self.agent.runtime.raise_fault()
            finally:
                self._lock.acquire()
            if state.handle is None or state.error:
                self._refuse()
            pause = min(2 * pause, 1e-3)
