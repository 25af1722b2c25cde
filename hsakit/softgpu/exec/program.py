"""From instructions to steps: the registry of what each instruction does, and a kernel's code as it is executed.

A family module (``salu``, ``valu``, ``lds``, ...) defines instructions with :func:`op`: a function that, given the
decoded instruction, returns its step, ``step(group)``, with every operand already resolved.  A step returns None to go
on with the next instruction, or one of the outcomes below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ..memory import AddressSpace, MemoryFault
from ..uapi import ffi
from .decode import Decoder, Instruction, Undecodable

if TYPE_CHECKING:
    from .fastforward import Iteration

# In a program counter: vector registers are indexed there (see :mod:`indexing`).
INDEXED = 1 << 62

# outcomes of a step, beside an address to which all waves jump: their program counters were set by the step; they wait
JUMP, WAIT = "jump", "wait"

Step = Callable
REGISTRY: dict[str, Callable[[Instruction], Step]] = {}


class IllegalInstruction(Exception):
    """An instruction that the node cannot execute as the hardware would; ``lane``: the first active one it is about."""

    wave: int | None = None

    def __init__(self, why: str, lane: int | None = None):
        super().__init__(why)
        self.lane = lane


def op(*names: str):
    """Register a maker of steps for some mnemonics (without encoding suffix)."""

    def register(make: Callable[[Instruction], Step]):
        for name in names:
            if name in REGISTRY:
                raise ValueError(f"{name} is defined twice")
            REGISTRY[name] = make
        return make

    return register


def only(instruction: Instruction, *known: str) -> None:
    """Refuse modifiers that a definition does not implement: a result must never be wrong in silence."""
    unknown = set(instruction.modifiers) - set(known)
    if unknown:
        raise IllegalInstruction(f"{instruction.text}: modifier {', '.join(sorted(unknown))} is not implemented")


COHERENT = {"glc", "sc1"}  # of an access beyond the workgroup's own cache: glc until gfx90a, sc1 since gfx942
CLOCKS = ("s_memrealtime", "s_memtime")
_ACCESSES = ("global_load", "flat_load", "global_store", "flat_store")


def stops(instruction: Instruction) -> bool:
    """Where waves meet other agents, or look at the clock: atomics, flags, releases."""
    name = instruction.name
    if name.startswith(("global_atomic", "flat_atomic", "buffer_wbl2")) or name in CLOCKS:
        return True
    return name.startswith(_ACCESSES) and not COHERENT.isdisjoint(instruction.modifiers)


class Entry(NamedTuple):
    step: Step
    next: int
    instruction: Instruction
    stops: bool
    """waves stop before it, until all that they did has taken its time"""


class Program:
    """The code of one address space region as one GPU executes it, decoded on first use."""

    def __init__(self, target: str, space: AddressSpace, gpu: int):
        self._space, self._gpu = space, gpu
        self._entries: dict[int, Entry] = {}
        self._bytes: dict[int, bytes] = {}
        self._runs: list[tuple[int, bytes, list[int]]] = []  # made of them when they are looked at
        self._iterations: dict[tuple[int, ...], Iteration] = {}
        self.skipped: dict[tuple[int, int], Iteration] = {}  # of loops, by their ends: some of those were left out
        self._decoder = Decoder(target, self._read)
        self._generation = space.generation

    def _fetch(self, address: int, size: int) -> bytes:
        allocation = self._space.find(address)
        if allocation is not None and address < allocation.end:
            size = min(size, allocation.end - address)
        return bytes(ffi.buffer(self._space.pointer(self._gpu, address, size, write=False), size))

    def _read(self, address: int, size: int) -> bytes:
        """For the decoder, which asks for more bytes than an instruction has: those that are there."""
        try:
            return self._fetch(address, size)
        except MemoryFault:
            return b""

    def revalidate(self) -> None:
        """Before a dispatch: forget code that has been replaced since it was decoded."""
        if self._generation == self._space.generation:
            return
        self._generation = self._space.generation
        if not self._runs:
            self._runs = list(self._straight())
        for start, code, addresses in self._runs:
            if self._is(start, code):
                continue
            self._runs = []
            self._iterations.clear()
            self.skipped.clear()
            for address in addresses:
                if not self._is(address, self._bytes[address]):
                    del self._bytes[address], self._entries[address]

    def _is(self, address: int, code: bytes) -> bool:
        try:
            return self._fetch(address & ~INDEXED, len(code)) == code
        except MemoryFault:
            return False

    def _straight(self) -> Iterator[tuple[int, bytes, list[int]]]:
        """What was decoded, in runs without a gap: (address, bytes, addresses of its instructions)."""
        run: list[int] = []
        end = None
        for address in sorted(self._bytes):
            if run and address != end:
                yield run[0], b"".join(map(self._bytes.__getitem__, run)), run
                run = []
            run.append(address)
            end = address + len(self._bytes[address])
        if run:
            yield run[0], b"".join(map(self._bytes.__getitem__, run)), run

    def entry(self, address: int) -> Entry:
        entry = self._entries.get(address)
        if entry is None:
            instruction = self.instruction(address)
            name, indexed = instruction.name, address & INDEXED
            make = REGISTRY.get(f"indexed {name}" if indexed else name)
            if make is None:
                where = " between s_set_gpr_idx_on and _off" if indexed else ""
                raise IllegalInstruction(f"{instruction.text}: not implemented by the software node{where}")
            if name == "s_set_gpr_idx_on":
                indexed = INDEXED
            elif name == "s_set_gpr_idx_off":
                indexed = 0
            step, next_ = make(instruction), instruction.next | indexed
            entry = self._entries[address] = Entry(step, next_, instruction, stops(instruction))
            self._runs = []
            self._bytes[address] = self._fetch(address & ~INDEXED, instruction.size)
        return entry

    def iteration(self, path: list[int]) -> Iteration:
        """What the instructions at these program counters make of a loop (see :mod:`fastforward`)."""
        from .fastforward import Iteration  # which needs operands, and these the registry

        key = tuple(path)
        if key not in self._iterations:
            self._iterations[key] = Iteration(self, path)
        return self._iterations[key]

    def instruction(self, address: int) -> Instruction:
        """Decoded, whether or not it can be executed."""
        address &= ~INDEXED
        try:
            return self._decoder.decode(address)
        except Undecodable as exc:
            raise IllegalInstruction(f"{exc}: bytes {self._fetch(address, 8).hex(' ', 4)}") from None
