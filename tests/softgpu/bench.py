"""A node without the libraries above it and without its thread: its clock is moved by hand."""

from __future__ import annotations

import mmap
import time

from hsakit.softgpu.aql import AqlQueue
from hsakit.softgpu.driver import Driver
from hsakit.softgpu.node import load
from hsakit.softgpu.sdma import SdmaQueue
from hsakit.softgpu.uapi import ffi


class Bench:
    def __init__(self):
        self.driver = Driver(load())
        self.driver.processor.halt()
        self.driver.processor._halt = False  # from here on it is moved by hand
        self.space = self.driver.space
        self._kept = []
        self._refused = []
        self.driver.processor.refuse = lambda _queue, refused: self._refused.append(refused)

    def step(self, queue) -> bool:
        """Let happen all that can, the queue's doorbell having been rung.  False if the queue did not move; raises what
        the queue refuses."""
        driver, before = self.driver, queue._read
        driver.processor.at(queue, 0, queue.advance)
        while driver.processor.turn() or driver.timeline.next is not None:
            time.sleep(20e-6)
        if self._refused:
            raise self._refused.pop()
        return queue._read != before

    def memory(self, nbytes: int, gpus=range(8), **where) -> tuple[int, object]:
        """Memory of this process as an allocation of the node: (address, its bytes)."""
        pages = mmap.mmap(-1, nbytes)
        cdata = ffi.from_buffer(pages)
        address = int(ffi.cast("uintptr_t", cdata))
        self.space.add(address, nbytes, address, "host memory", **where).gpus.update(gpus)
        self._kept.append((pages, cdata))
        return address, ffi.buffer(cdata)

    def ioctl(self, number: int, arguments) -> int:
        """0, or the errno."""
        size = ffi.sizeof(ffi.typeof(arguments).item)
        done = self.driver.ioctl(size << 16 | ord("K") << 8 | number, ffi.cast("void *", arguments))
        return ffi.errno if done else 0

    def _arguments(self, ring: int, size: int, read: int):
        made = ffi.new("struct kfd_ioctl_create_queue_args *")
        made.ring_base_address, made.ring_size, made.read_pointer_address = ring, size, read
        return made

    def sdma(self, engine: int = 2, size: int = 1 << 20) -> tuple[SdmaQueue, memoryview, object]:
        """(an engine's queue, its ring as dwords, its read pointer)"""
        ring, ring_bytes = self.memory(size)
        read, read_bytes = self.memory(4096)
        queue = SdmaQueue(self.driver, 1, 0, (engine, 0), self._arguments(ring, size, read))
        return queue, memoryview(ring_bytes).cast("B").cast("I"), memoryview(read_bytes).cast("B").cast("Q")

    def aql(self, packets: int = 64) -> tuple[AqlQueue, memoryview, object]:
        """(a queue, its ring as bytes, its read index)"""
        ring, ring_bytes = self.memory(max(packets * 64, 4096))
        ring_view = memoryview(ring_bytes).cast("B")
        for slot in range(packets):
            ring_view[slot * 64] = 1  # INVALID, as the runtime leaves an empty ring
        read, read_bytes = self.memory(4096)
        queue = AqlQueue(self.driver, 1, 0, self._arguments(ring, packets * 64, read))
        return queue, ring_view, memoryview(read_bytes).cast("B").cast("Q")


def words(address: int) -> list[int]:
    return [address & 0xFFFFFFFF, address >> 32]
