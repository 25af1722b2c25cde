"""Kernel launches as AQL dispatch packets."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hsakit.arguments import Arguments, Values
from hsakit.ffi import HSA
from hsakit.ffi._hsa import ffi
from hsakit.hsa.lifetime import Handle
from hsakit.hsa.packet import INVALID, SIZE, Packet, barriers

if TYPE_CHECKING:
    from hsakit.geometry import Geometry
    from hsakit.hsa.agent import Agent
    from hsakit.hsa.executable import Kernel
    from hsakit.hsa.queue import Queue
    from hsakit.hsa.signal import Signal, SignalHandle

_DIMENSIONS = 3 << HSA.HSA_KERNEL_DISPATCH_PACKET_SETUP_DIMENSIONS  # as HIP has it; an axis may have one workgroup
_SETUP = 16  # the bit of a packet's first word at which its setup begins
_PAGE = 4096


class Kernarg:
    """One block of kernel arguments in memory that the GPU reads. Nobody rewrites it for as long as this lives."""

    __slots__ = ("address", "view", "free")

    def __init__(self, address: int, view: memoryview, free: deque):
        self.address = address
        self.view = view  # keeps the memory
        self.free = free

    def __del__(self):
        self.free.append((self.address, self.view))


class Kernargs:
    """The argument blocks of one kernel's launches, used again when no packet names them any more."""

    def __init__(self, agent: Agent, nbytes: int, align: int):
        self._agent = agent
        self._nbytes = nbytes
        self._stride = -(-nbytes // max(align, SIZE)) * max(align, SIZE)  # no two blocks in one cache line
        self._free: deque[tuple[int, memoryview]] = deque()
        self.blocks = 0

    def take(self, content: bytes | bytearray) -> Kernarg | None:
        """A block with this content; None for a kernel without arguments."""
        if not self._nbytes:
            return None
        address, view = self._next()
        view[:] = content
        return Kernarg(address, view, self._free)

    def forget(self) -> None:
        """Let go of the memory: that of blocks in use with the last of them."""
        self._free = deque()

    def _next(self) -> tuple[int, memoryview]:
        try:
            return self._free.popleft()
        except IndexError:
            pass
        self._agent.runtime.settle()  # launches may be complete that nobody waited for
        while True:
            try:
                return self._free.popleft()
            except IndexError:
                self._grow()

    def _grow(self) -> None:
        """As many again."""
        new = max(self.blocks, _PAGE // self._stride, 1)
        buffer = self._agent.nearest_cpu.pool("kernarg").allocate(new * self._stride, access=self._agent)
        bytes_ = memoryview(buffer.view().data)
        for at in range(0, new * self._stride, self._stride):
            self._free.append((buffer.address + at, bytes_[at : at + self._nbytes]))
        self.blocks += new


class Dispatch(Packet):
    """A kernel dispatch packet. It keeps what the kernel may touch: its code, its argument block, its buffers."""

    __slots__ = ("agent", "loose", "held")

    def __init__(self, launch: Launch, body, completion: SignalHandle | None, held: tuple):
        super().__init__(body, launch.word, launch.kernel.words, (), completion)
        self.agent = launch.kernel.agent
        self.loose = completion is None
        self.held = held


class Launch(Arguments):
    """A prepared launch, from ``Kernel.prepare``. Each thread that sets arguments needs one of its own."""

    def __init__(self, kernel: Kernel, geometry: Geometry, values: Values, word: int):
        super().__init__(kernel.layout, values, kernel.agent)
        self.kernel = kernel
        self.geometry = geometry
        self.word = word | _DIMENSIONS << _SETUP
        self.pack_hidden(geometry)
        self._template = ffi.new("hsa_barrier_and_packet_t *")
        fields = self._dispatch = ffi.cast("hsa_kernel_dispatch_packet_t *", self._template)
        fields.header = INVALID
        fields.setup = _DIMENSIONS
        fields.workgroup_size_x, fields.workgroup_size_y, fields.workgroup_size_z = geometry.block
        fields.grid_size_x, fields.grid_size_y, fields.grid_size_z = geometry.items
        fields.private_segment_size = kernel.private_segment_size
        fields.group_segment_size = kernel.group_segment_size + geometry.lds
        fields.kernel_object = kernel.object
        self._packet: Dispatch | None = None
        self._keeps: tuple = ()
        self._packed = -1  # the change of the arguments that the template has

    def __repr__(self) -> str:
        return f"<Launch of {self.kernel.name}, {self.geometry}>"

    def packet(self, completion: Signal | None = None) -> Dispatch:
        """The launch with its arguments as they are now, for ``Queue.submit``, or many of them for a ``Batch``.

        Later ``set``s do not change it. ``completion`` is decremented when the kernel is complete.
        """
        code = self.kernel.executable.handle()
        if self._packed != self.changes:
            self._pack(code)
        done = completion.handle() if completion is not None else None
        body = ffi.new("hsa_barrier_and_packet_t *")
        body[0] = self._template[0]
        body.completion_signal = done.raw if done else 0
        return Dispatch(self, body, done, self._keeps)

    def launch(
        self, queue: Queue, completion: Signal | None = None, after: Iterable[Signal] = (), deadline: float = 30.0
    ) -> int:
        """Submit it to a queue of the kernel's GPU; returns the packet's index.

        It runs when all signals ``after`` are 0, and decrements ``completion``, which then has its times (``times``).
        Without changes since the last launch nothing is allocated. ``deadline`` bounds the wait for room in the ring.
        """
        packet = self._packet
        done = completion.handle() if completion is not None else None
        if packet is None or packet.completion is not done or self._packed != self.changes:
            packet = self._packet = self.packet(completion)
        if after:
            return queue.submit_batch([*barriers(after), packet], deadline)
        return queue.submit(packet, deadline)

    def forget(self) -> None:
        """Let go of the code and the argument block; packets that were made keep theirs."""
        self._packet, self._keeps, self._packed = None, (), -1

    def _pack(self, code: Handle) -> None:
        """Put the arguments into a block that no packet names."""
        self.forget()  # the block before may be free with this
        changes = self.changes
        kernarg = self.kernel.kernargs.take(self.block)
        self._keeps = (code, kernarg, *self.buffers())
        self._dispatch.kernarg_address = kernarg.address if kernarg else 0
        self._packed = changes
