"""Who may see what others wrote: coarse-grained memory is coherent only where agents release and acquire it.

``HSAKIT_SOFTGPU_CHECK=coherence``.  The node itself is more coherent than hardware, so that a missing release goes
unnoticed on it.  The checker remembers of every byte of device memory which agent wrote it, and in which of its
*epochs*: what an agent stores until it next releases.  A release (the end of a kernel whose packet asks for it, a
system-scope release by a wave, the completion of an engine's copy) publishes the agent's epoch; an acquire (the start
of a kernel, a system-scope acquire by a wave) lets an agent see all epochs published by then.  A read of a byte of an
epoch that the reader does not see is a fault, :class:`Incoherent`: it stops the reader's queue and says who wrote.

Loads and stores that go past the caches (those of atomics at system scope) need none of that in fine-grained memory,
which is for flags; in coarse-grained memory nothing is exempt.

So it models caches, not single flags: it finds a release or acquire that is missing (in a kernel, or in a packet's
header), and a flag in coarse-grained memory, whose store comes after the release and whose reader spins without one.
It is quiet where another release or acquire of the same agent happens to come in between, as hardware would be.

Agents are the GPUs' compute units, one agent for each GPU, and all engines together, which see what is published and
publish what they write at once.  What the host writes and reads through its own mappings is not seen.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from .memory import MemoryFault

if TYPE_CHECKING:
    from .memory import AddressSpace, Allocation

VARIABLE = "HSAKIT_SOFTGPU_CHECK"
SYSTEM = 2  # hsa_fence_scope_t
ACQUIRE_SHIFT, RELEASE_SHIFT = 9, 11  # in the header of an AQL packet
EPOCHS = 1 << 16  # that are told apart; 0 is nobody's


class Incoherent(MemoryFault):
    """A read of what another agent wrote, without a release by the one and an acquire by the other in between."""

    lane: int | None = None

    def __init__(self, gpu: int, address: int, why: str):
        super().__init__(gpu, address, 1, why, present=True)


def from_environment(space: AddressSpace, gpus: int) -> Checker | None:
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", "coherence"):
        raise ValueError(f"{VARIABLE}={wanted!r}: there is only the check coherence")
    return Checker(space, gpus) if wanted else None


class Checker:
    def __init__(self, space: AddressSpace, gpus: int):
        self._space, self.engines = space, gpus
        self._reset()

    def _reset(self) -> None:
        """Forget all epochs, and with them what is unpublished: every 65,535 of them."""
        agents = self.engines + 1
        for allocation in self._space:
            allocation.epochs = None
        self._next = 1
        self._writer = np.zeros(EPOCHS, np.int16)
        self._published = np.zeros(EPOCHS, bool)
        self._seen = np.zeros((agents, EPOCHS), bool)  # by agent
        self._published[0] = self._seen[:, 0] = True
        self._current = [0] * agents  # the epoch that an agent writes in, 0: the next write begins one

    # -- order -----------------------------------------------------------------------------------------------------

    def kernel_begins(self, gpu: int, header: int) -> None:
        if header >> ACQUIRE_SHIFT & 3 == SYSTEM:
            self.acquire(gpu)

    def kernel_ends(self, gpu: int, header: int) -> None:
        if header >> RELEASE_SHIFT & 3 == SYSTEM:
            self.release(gpu)

    def acquire(self, agent: int) -> None:
        """From now on the agent sees what is published."""
        used = slice(self._next)
        self._seen[agent, used] |= self._published[used]
        self._current[self.engines] = 0  # of what engines write next it sees nothing yet

    def release(self, agent: int) -> None:
        """What the agent wrote is published."""
        self._published[self._current[agent]] = True
        self._current[agent] = 0

    def _epoch(self, agent: int) -> int:
        if not self._current[agent]:
            if self._next == EPOCHS:
                self._reset()
            epoch = self._current[agent] = self._next
            self._next += 1
            self._writer[epoch] = agent
            self._seen[agent, epoch] = True
        return self._current[agent]

    # -- accesses --------------------------------------------------------------------------------------------------

    def lanes(self, gpu: int, addresses: np.ndarray, nbytes: int, write: bool, past_caches: bool) -> None:
        """A kernel reads or writes ``nbytes`` at each of these addresses (uint64).  A fault has ``lane``, the position
        of the first that it concerns."""
        for start, end, lane in _runs(addresses, nbytes):
            try:
                self.span(gpu, gpu, start, end - start, write, past_caches)
            except Incoherent as fault:
                fault.lane = lane + (fault.address - start) // nbytes
                raise

    def copy(self, gpu: int, destination: int, source: int, nbytes: int) -> None:
        """An engine of a GPU has copied."""
        self.span(gpu, self.engines, source, nbytes, write=False)
        self.span(gpu, self.engines, destination, nbytes, write=True)
        self._published[self._current[self.engines]] = True

    def span(self, gpu: int, agent: int, address: int, nbytes: int, write: bool, past_caches: bool = False) -> None:
        allocation = self._space.find(address)
        if allocation is None or allocation.vram_of is None:
            return
        epoch, flag = 0, past_caches and not allocation.coarse
        if write and not flag:
            epoch = self._epoch(agent)  # before the array is looked at: it may take that away
        elif flag and not write or allocation.epochs is None:
            return
        if allocation.epochs is None:
            allocation.epochs = np.zeros(allocation.end - allocation.start, np.uint16)
        first = address - allocation.start
        if write:
            allocation.epochs[first : first + nbytes] = epoch
            return
        found = allocation.epochs[first : first + nbytes]
        seen = self._published if agent == self.engines else self._seen[agent]
        if not found.any():
            return
        unseen = ~seen[found]
        if unseen.any():
            at = int(unseen.argmax())
            raise Incoherent(gpu, address + at, self._story(gpu, agent, allocation, address + at, int(found[at])))

    def _story(self, gpu: int, agent: int, allocation: Allocation, address: int, epoch: int) -> str:
        reader = f"an engine of GPU {gpu}" if agent == self.engines else f"a kernel of GPU {gpu}"
        by = int(self._writer[epoch])
        writer = "an engine" if by == self.engines else f"a kernel of GPU {by}"
        if self._published[epoch]:
            missing = f"GPU {gpu} has acquired nothing since that was released"
        else:
            missing = f"GPU {by} has not released it since"
        grain = "coarse" if allocation.coarse else "fine"
        return (
            f"not coherent: {reader} reads what {writer} wrote to {grain}-grained {allocation}, and {missing}. Flags "
            "that agents hand on lie in fine-grained memory; data needs a release at system scope before the flag is "
            "raised, and an acquire after it was seen"
        )


def _runs(addresses: np.ndarray, nbytes: int) -> Iterator[tuple[int, int, int]]:
    """(first, behind the last, position of the first) of the runs of lanes that follow each other in memory."""
    if not len(addresses):
        return
    breaks = np.flatnonzero(np.diff(addresses) != np.uint64(nbytes)) + 1
    starts = [0, *breaks.tolist()]
    ends = [*breaks.tolist(), len(addresses)]
    for first, last in zip(starts, ends):
        start = int(addresses[first])
        yield start, start + (last - first) * nbytes, first
