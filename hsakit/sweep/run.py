"""All runs of one point: poison, launch, wait, compare, and what crossed the library meanwhile."""

from __future__ import annotations

import time

import numpy as np

from hsakit.ffi.errors import DeadlineExceeded, HsakitError
from hsakit.platform import Platform
from hsakit.sweep import packets
from hsakit.sweep.buffers import Buffers
from hsakit.sweep.layout import DESTINATION, GUARD, SOURCE, Place, lay_out
from hsakit.sweep.plan import HOST, Point, Transfer
from hsakit.sweep.sweep import rounds
from hsakit.verify import check, compare

_SETTLE = 5.0  # seconds that a run which cannot go on waits for the copies it submitted


class Run:
    """All runs of one point."""

    def __init__(self, node: Platform, buffers: Buffers, point: Point, deadline: float, gated: bool):
        self._node = node
        self._buffers = buffers
        self._point = point
        self._deadline = deadline
        self._submitted = 0
        self._ends = list(dict.fromkeys(end for t in point.transfers for end in (t.src, t.dst)))
        self._tally = node.tally()
        self._gate = node.create_signal(0) if gated else None
        self._copies: list = []
        self.layout = lay_out(point)
        self.samples: list[list[list[int]]] = []
        self.unfinished: list[Transfer] = []
        self.where = str(point)

    def all(self, warmup: int, repeats: int) -> None:
        self._buffers.prepare(self.layout)
        self._copies = [self._prepare(t, place) for t, place in zip(self._point.transfers, self.layout.places)]
        for words, measured in rounds(warmup, repeats):
            self.where = f"{self._point}, {words}"
            sample = self._once()
            if measured:
                self.samples.append(sample)

    def packets(self, packet_bytes: int, driver_engines: dict) -> tuple[dict, dict | None]:
        """Copy packets that this point's submissions make, and those that crossed the library. No copy may have become
        a kernel."""
        runs, rest = divmod(self._submitted, len(self._point.transfers))
        copies = [
            (transfer.owner, transfer.engine, self._point.nbytes, runs + (index < rest))
            for index, transfer in enumerate(self._point.transfers)
        ]
        planned = packets.planned(copies, 0, packet_bytes, driver_engines)
        return planned, packets.counted(self._tally, planned)

    def _prepare(self, transfer: Transfer, place: Place):
        source = self._buffers.piece(SOURCE, transfer.src, place.source, self._point.nbytes)
        target = self._buffers.piece(DESTINATION, transfer.dst, place.destination, self._point.nbytes)
        engines = {engine.index: engine for engine in self._node.gpus[transfer.owner].engines}
        return engines[transfer.engine].prepare(target, source, after=(self._gate,) if self._gate else ())

    def _once(self) -> list[list[int]]:
        for transfer, place in zip(self._point.transfers, self.layout.places):
            self._buffers.poison(transfer.dst, self._slot(transfer, place), *self._expected(transfer, place))
        with self._tally:
            signals = self._launch_and_wait()
        times = [signal.times for signal in signals]
        for transfer, place in zip(self._point.transfers, self.layout.places):
            self._verify(transfer, place)
        first = min(start for start, _ in times)
        return [[start - first, end - first] for start, end in times]

    def _launch_and_wait(self) -> list:
        """Submit every copy, release them, and wait; whatever happens, the gate opens and the copies are waited for."""
        if self._gate:
            self._gate.store(1)
        signals: list = []
        try:
            for copy in self._copies:
                signals.append(copy.submit(self._deadline))
                self._submitted += 1
        except BaseException:
            self._drain(signals, _SETTLE)
            raise
        if self._gate and self._node.apart:  # what is submitted looks at the gate only so often: all of it has begun to
            time.sleep(self._node.apart * 1e-9)
        self._drain(signals, self._deadline)
        return signals

    def _drain(self, signals: list, deadline: float) -> None:
        if self._gate:
            self._gate.store(0)
        end = time.monotonic() + deadline
        try:
            for signal in signals:
                signal.wait(deadline=max(0.0, end - time.monotonic()))
        except DeadlineExceeded:
            self.unfinished = [t for t, signal in zip(self._point.transfers, signals) if signal.value >= 1]
            raise

    def _slot(self, transfer: Transfer, place: Place):
        nbytes = GUARD + self._point.nbytes + GUARD
        return self._buffers.piece(DESTINATION, transfer.dst, place.destination - GUARD, nbytes)

    def _expected(self, transfer: Transfer, place: Place):
        """The pattern of a slot, guards included, and its offset."""
        return self._buffers.pattern(transfer.src), place.source - GUARD

    def _verify(self, transfer: Transfer, place: Place) -> None:
        pattern, offset = self._expected(transfer, place)
        slot = self._buffers.fetch(transfer.dst, self._slot(transfer, place))
        name = f"rank {pattern.rank} ({_end(transfer.src)}) to {_end(transfer.dst)} on engine {transfer.engine}"
        inside = slot[GUARD : GUARD + self._point.nbytes]
        check(inside, pattern, offset + GUARD, name, [self._buffers.pattern(end) for end in self._ends])
        for side, start in (("before", 0), ("behind", GUARD + self._point.nbytes)):
            untouched = np.invert(slot[start : start + GUARD])  # poison is the complement
            mismatch = compare(untouched, pattern, offset + start)
            if mismatch:
                raise HsakitError(f"{name}: {mismatch.count} bytes {side} the destination were overwritten")


def _end(end) -> str:
    return "the host" if end == HOST else f"GPU {end}"
