"""What tests of the executor need around single steps: memory of a node without the node, and programs as text."""

from __future__ import annotations

import itertools
import mmap
import re
import time

import numpy as np

from hsakit.softgpu.exec import families  # noqa: F401  (defines the instructions)
from hsakit.softgpu.exec.batch import DONE, Batch
from hsakit.softgpu.exec.decode import Instruction, Undecodable, parse
from hsakit.softgpu.exec.memory import LaneMemory
from hsakit.softgpu.exec.program import Program
from hsakit.softgpu.exec.state import Waves
from hsakit.softgpu.memory import AddressSpace
from hsakit.softgpu.uapi import ffi


class Memory:
    """An address space whose allocations are pages of this process; between any two of them nothing is allocated."""

    def __init__(self):
        self.space = AddressSpace()
        self._kept = []

    def allocate(self, nbytes: int, gpus=(0,), **where) -> tuple[int, np.ndarray]:
        """(address, its bytes): whole pages, with a page to each side that belongs to nobody."""
        pages = mmap.mmap(-1, nbytes + 2 * mmap.PAGESIZE)
        cdata = ffi.from_buffer(pages)
        address = int(ffi.cast("uintptr_t", cdata)) + mmap.PAGESIZE
        self.space.add(address, nbytes, address, "host memory", **where).gpus.update(gpus)
        self._kept.append((pages, cdata))
        return address, np.frombuffer(pages, np.uint8)[mmap.PAGESIZE : mmap.PAGESIZE + nbytes]

    def lanes(self, gpu: int = 0) -> LaneMemory:
        return LaneMemory(self.space, gpu)


class Text(Program):
    """A program written as the disassembler prints it, one instruction of four bytes a line, with ``labels:`` and with
    branches to them."""

    BASE = 0x10000

    def __init__(self, text: str):
        self._entries, self._bytes, self._runs, self._iterations, self._decoder = {}, {}, [], {}, self
        self.skipped = {}
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        self._lines, self.labels = {}, {}
        address = self.BASE
        for line in lines:
            if line.endswith(":"):
                self.labels[line[:-1]] = address
            else:
                self._lines[address] = line
                address += 4

    def decode(self, address: int) -> Instruction:
        if address not in self._lines:
            raise Undecodable(f"no instruction at {address:#x}")
        line = self._lines[address]
        if line.startswith(("s_branch", "s_cbranch", "s_call")):
            label = line.split()[-1]
            if label in self.labels:
                line = line.replace(label, str((self.labels[label] - address - 4) // 4 & 0xFFFF))
        return parse(line, address, 4)

    def _fetch(self, address: int, size: int) -> bytes:
        return bytes(size)


def batch(program: Text, waves: Waves, waves_each: int) -> Batch:
    """The waves as workgroups of ``waves_each``, at the program's beginning."""
    waves.workgroup[:] = np.arange(waves.n) // waves_each
    waves.pc[:] = program.BASE
    places = np.zeros((-(-waves.n // waves_each), 3), int)
    places[:, 0] = np.arange(len(places))
    return Batch(program, waves, places)


def finish(*batches: Batch, seconds: float = 20) -> None:
    """Run batches in turn, as a dispatch does, until all are done."""
    left, end = list(batches), time.monotonic() + seconds
    for one in itertools.cycle(batches):
        if one in left and one.run() == DONE:
            left.remove(one)
        if not left:
            return
        assert time.monotonic() < end, f"{len(left)} of {len(batches)} batches never ended"


def register(text: str) -> tuple[str, int, int]:
    """(file, first, count) of the first vector register in an instruction."""
    found = re.search(r"\b([va])(?:(\d+)|\[(\d+):(\d+)\])", text)
    first = int(found[2] or found[3])
    return found[1], first, int(found[4]) - first + 1 if found[4] else 1
