"""The buffers of a collective, and the proof that it was right.

Before a run every byte that is to arrive is made wrong, senders get new bytes, and all buffers lie between canaries.
After it every byte is compared, those in scratch memory and those that nobody should have touched as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from hsakit.collectives import content
from hsakit.collectives.collective import Collective, ranks_of
from hsakit.collectives.operation import Block, Operation, Where
from hsakit.collectives.plan import direct
from hsakit.ffi.errors import HsakitError
from hsakit.kernels import MISMATCH, NOWHERE
from hsakit.pattern import MAX_RANK, Pattern
from hsakit.platform import Gpu, Platform
from hsakit.scoped import Scoped
from hsakit.verify import VerifyError, compare

GUARD = 256  # bytes of canaries before and behind every buffer
DEVICE_FROM = 64 << 20  # bytes of a block from which on the GPU compares: it is faster than bringing them to the host


class SumError(HsakitError):
    """A sum is not what it should be."""


class Buffers(Scoped):
    """``send`` and ``recv`` by rank, None where an operation has no bytes. ``run(collective)`` runs and verifies.

    Memory begins ``skew`` bytes behind a page. Every run has another seed, from ``seed`` on, so bytes of the run before
    are wrong in this one. Blocks of ``device_from`` bytes and more are compared by kernels.
    """

    def __init__(
        self,
        platform: Platform,
        operation: Operation,
        *,
        gpus: Sequence[Gpu] | None = None,
        seed: int = 1,
        skew: int = 0,
        device_from: int = DEVICE_FROM,
    ):
        self.operation = operation
        self.gpus = ranks_of(platform, operation, gpus)
        self.seed = seed
        self.device_from = device_from
        self._platform = platform
        self._whole: dict[tuple[int, str], Any] = {}
        self._skew = skew
        for rank, gpu in enumerate(self.gpus):
            for name in ("send", "recv"):
                nbytes = operation.buffer_bytes(rank, name)
                if nbytes:
                    self._whole[rank, name] = gpu.allocate(skew + GUARD + nbytes + GUARD)
        self.send = tuple(self._inner(rank, "send") for rank in range(operation.ranks))
        self.recv = tuple(self._inner(rank, "recv") for rank in range(operation.ranks))

    def close(self) -> None:
        """Free the memory. Closing twice is fine."""
        for buffer in self._whole.values():
            buffer.close()

    @property
    def patterns(self) -> list[Pattern]:
        """The patterns of the ranks, for this run."""
        return [Pattern(self.seed, rank) for rank in range(self.operation.ranks)]

    def run(self, collective: Collective, deadline: float = 30.0) -> None:
        """Prepare, submit, wait, check, each within the deadline."""
        self.prepare(collective, deadline)
        collective.submit(deadline)
        collective.wait(deadline)
        self.check(collective, deadline)

    def prepare(self, collective: Collective | None = None, deadline: float = 30.0) -> None:
        """Give senders the bytes of a new seed, make all that is to come wrong, and set the canaries."""
        self.seed += 1
        for (rank, name), buffer in self._whole.items():
            if not self.operation.reduces and buffer.nbytes >= self.device_from:
                self._fill_on_device(rank, name, buffer, deadline)
            else:
                self.gpus[rank].put(buffer, partial(self._fill, rank, name), deadline)
        for transfer in _through_scratch(collective):
            place = _part(collective, transfer.dst, transfer.nbytes)
            self.gpus[transfer.dst.rank].put(place, partial(np.copyto, src=~self._sent(transfer.block)), deadline)

    def check(self, collective: Collective | None = None, deadline: float = 30.0) -> None:
        """Compare every byte. VerifyError, SumError: whose shard is wrong, whose bytes stand there, who should have
        written them; HsakitError: which buffer was written to where nobody should."""
        for transfer in _through_scratch(collective):
            got = self.gpus[transfer.dst.rank].get(_part(collective, transfer.dst, transfer.nbytes), deadline)
            self._compare(got, transfer.block, transfer.dst, collective, "on its way")
        for rank, gpu in enumerate(self.gpus):
            blocks = [block for block in self.operation.blocks if block.dst == rank]
            host = [block for block in blocks if not self._on_device(block)]
            if host:
                view = self._bytes(rank, "recv", deadline)
                for block in host:
                    dst = self.operation.target(rank, block.dst_offset)
                    self._compare(view[dst.offset : dst.offset + block.nbytes], block, dst, collective)
            for block in blocks:
                if not self._on_device(block):
                    continue
                dst = self.operation.target(rank, block.dst_offset)
                memory = self.recv[rank][dst.offset : dst.offset + block.nbytes]
                if self._differs(gpu, memory, self.patterns[block.src[0]], block.src_offset, deadline):
                    got = gpu.get(self.recv[rank][dst.offset : dst.offset + block.nbytes], deadline)
                    self._compare(got, block, dst, collective)
        self._check_untouched(deadline)

    # Filling

    def _fill(self, rank: int, name: str, view: np.ndarray) -> None:
        view = view[self._skew :]
        canary = Pattern(self.seed, MAX_RANK - 1)
        inner = view[GUARD:-GUARD]
        canary.fill(view[:GUARD])
        canary.fill(view[-GUARD:], GUARD)
        operation = self.operation
        if name == "recv":
            for block in operation.blocks:
                if block.dst == rank:
                    at = operation.target(rank, block.dst_offset).offset
                    np.invert(content.result(operation, block, self.patterns), out=inner[at : at + block.nbytes])
        if operation.source(rank, 0).buffer == name and operation.sent(rank):
            at, nbytes = operation.source(rank, 0).offset, operation.sent(rank)
            inner[at : at + nbytes] = content.sent(operation, Pattern(self.seed, rank), 0, nbytes)

    def _fill_on_device(self, rank: int, name: str, buffer: Any, deadline: float) -> None:
        """The same by kernels: the host would take seconds for what the GPU does in milliseconds."""
        gpu, operation = self.gpus[rank], self.operation
        canary = Pattern(self.seed, MAX_RANK - 1)
        end = buffer.nbytes - GUARD
        for start, offset in ((self._skew, 0), (end, GUARD)):
            gpu.put(buffer[start : start + GUARD], partial(canary.fill, offset=offset), deadline)
        inner = self._inner(rank, name)
        launches = []
        if name == "recv":
            for block in operation.blocks:
                if block.dst == rank:
                    at = operation.target(rank, block.dst_offset).offset
                    pattern, part = self.patterns[block.src[0]], inner[at : at + block.nbytes]
                    launches.append(gpu.kernels.fill(part, pattern, block.src_offset, inverted=True))
        if operation.source(rank, 0).buffer == name and operation.sent(rank):
            at = operation.source(rank, 0).offset
            launches.append(gpu.kernels.fill(inner[at : at + operation.sent(rank)], Pattern(self.seed, rank)))
        with gpu.create_queue(64) as queue:
            for launch in launches:
                queue.prepare(launch).submit()
            queue.drain(deadline)

    def _sent(self, block: Block) -> np.ndarray:
        return content.sent(self.operation, self.patterns[block.src[0]], block.src_offset, block.nbytes)

    # Comparing

    def _compare(self, got: np.ndarray, block: Block, dst: Where, collective: Collective | None, how: str = "") -> None:
        def where(first: int) -> str:
            whose = f"the shard of rank {block.src[0]}" if len(block.src) == 1 else "the sum"
            words = f"{self.operation}: rank {block.dst}, {whose}{f', {how}' if how else ''}"
            if collective is None:
                return words
            return f"{words}, written by {collective.writer(dst._replace(offset=dst.offset + first))}"

        if len(block.src) == 1 and content.plain(self.operation):
            before = [Pattern(self.seed - 1, rank) for rank in range(self.operation.ranks)]
            pattern = self.patterns[block.src[0]]
            mismatch = compare(np.asarray(got), pattern, block.src_offset, [*self.patterns, *before])
            if mismatch:
                raise VerifyError(mismatch, where(mismatch.first))
            return
        expected = self._sent(block) if len(block.src) == 1 else content.result(self.operation, block, self.patterns)
        wrong = np.flatnonzero(got != expected)
        if wrong.size:
            first = int(wrong[0])
            raise SumError(
                f"{where(first)}: {wrong.size} of {block.nbytes} bytes wrong, the first at offset {first}: expected "
                f"{expected[first : first + 8].tobytes().hex(' ')}, got {got[first : first + 8].tobytes().hex(' ')}"
            )

    def _on_device(self, block: Block) -> bool:
        return block.nbytes >= self.device_from and len(block.src) == 1 and content.plain(self.operation)

    def _differs(self, gpu: Gpu, memory: Any, pattern: Pattern, offset: int, deadline: float) -> bool:
        """Whether the GPU finds a byte in its memory that is not the pattern's from ``offset`` on."""
        with gpu.allocate(MISMATCH.itemsize) as found, gpu.create_queue(64) as queue:
            none = np.array([(0, NOWHERE)], MISMATCH).view(np.uint8)
            gpu.put(found, partial(np.copyto, src=none), deadline)
            queue.prepare(gpu.kernels.compare(memory, pattern, found, offset)).submit()
            queue.drain(deadline)
            return bool(gpu.get(found, deadline).view(MISMATCH)["count"][0])

    def _check_untouched(self, deadline: float) -> None:
        """Canaries everywhere, and what ranks sent, where it is not where they received."""
        canary, operation = Pattern(self.seed, MAX_RANK - 1), self.operation
        for (rank, name), buffer in self._whole.items():
            gpu, skew, end = self.gpus[rank], self._skew, buffer.nbytes - GUARD
            for side, start, offset in (("before", skew, 0), ("behind", end, GUARD)):
                mismatch = compare(np.asarray(gpu.get(buffer[start : start + GUARD], deadline)), canary, offset)
                if mismatch:
                    raise VerifyError(mismatch, f"{operation}: written {side} {name} of rank {rank}, at its canary")
            if name == "send" and not operation.reduces and buffer.nbytes >= self.device_from:
                sent = self.send[rank][: operation.sent(rank)]
                if self._differs(gpu, sent, self.patterns[rank], 0, deadline):
                    self._check_sent(rank, deadline)
            elif name == "send":
                self._check_sent(rank, deadline)

    def _check_sent(self, rank: int, deadline: float) -> None:
        operation = self.operation
        view = self._bytes(rank, "send", deadline)
        wrong = np.flatnonzero(view != content.sent(operation, self.patterns[rank], 0, operation.sent(rank)))
        if wrong.size:
            raise HsakitError(f"{operation}: byte {wrong[0]} of what rank {rank} sends was overwritten")

    def _inner(self, rank: int, name: str) -> Any:
        buffer = self._whole.get((rank, name))
        return None if buffer is None else buffer[self._skew + GUARD : buffer.nbytes - GUARD]

    def _bytes(self, rank: int, name: str, deadline: float) -> np.ndarray:
        buffer = self.send[rank] if name == "send" else self.recv[rank]
        return np.asarray(self.gpus[rank].get(buffer, deadline))


def _through_scratch(collective: Collective | None):
    """The transfers of an implementation that has the direct plan and memory to look into."""
    if collective is None:
        return []
    plan = direct(collective.operation)
    return [t for t in plan.transfers if t.dst.buffer == "scratch" and collective.scratch(t.dst.rank) is not None]


def _part(collective: Collective | None, where: Where, nbytes: int) -> Any:
    assert collective is not None
    return collective.scratch(where.rank)[where.offset : where.offset + nbytes]
