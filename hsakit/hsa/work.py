"""Prepared packets of one queue: what they wait for, and the launch behind it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hsakit.hsa.packet import Batch, Packet, barriers

if TYPE_CHECKING:
    from hsakit.hsa.dispatch import Launch
    from hsakit.hsa.queue import Queue
    from hsakit.hsa.signal import Signal


class Work:
    """From ``Queue.prepare``: ``submit()`` it as often as wanted. It keeps signals, code, arguments and buffers."""

    __slots__ = ("queue", "batch", "costs")

    def __init__(self, queue: Queue, launch: Launch | None, after: Iterable[Signal], completion: Signal | None):
        signals = list(after)
        packets: list[Packet] = []
        if signals or launch is None:
            packets += barriers(signals, None if launch else completion)
        if launch is not None:
            packets.append(launch.packet(completion))
        self.queue = queue
        self.batch = Batch(packets)
        self.costs = ((queue, len(packets)),)  # packets of the ring

    def __repr__(self) -> str:
        return f"<Work of {' '.join(packet.kind for packet in self.batch.packets)} for {self.queue.label}>"

    def submit(self, deadline: float = 30.0) -> int:
        """Publish the packets together; returns the index of the last. ``deadline`` bounds the wait for room."""
        return self.queue.submit_batch(self.batch, deadline)
