"""Memory of GPUs and pinned memory of the host, all of it at one address for every GPU and for the host.

Memory is freed when nothing refers to it any more, work in flight included, and then not before all GPUs are idle: the
driver waits for them when it frees, for ever if a gate is closed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from hsakit.cuda import driver
from hsakit.ffi._cuda import ffi
from hsakit.ffi.errors import ClosedError, InvalidArgument, check_cuda
from hsakit.scoped import Scoped

if TYPE_CHECKING:
    from hsakit.cuda.gpu import CudaGpu
    from hsakit.cuda.node import CudaNode

_PORTABLE, _MAPPED = 1, 2  # CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_DEVICEMAP


class Host:
    """Whose memory pinned memory is."""

    kind = "cpu"
    label = "host"


HOST = Host()


class BufferHandle:
    """An allocation: ``raw``, its address; ``agent``, whose it is."""

    def __init__(self, node: CudaNode, agent: CudaGpu | Host, raw: int):
        self.node = node
        self.agent = agent
        self.raw = raw

    def __del__(self):
        self.node.discard(self.agent, self.raw)


class Span:
    """A range of a buffer."""

    def __init__(self, buffer: Buffer, offset: int, nbytes: int):
        self.buffer = buffer
        self.offset = offset
        self.nbytes = nbytes

    def __repr__(self) -> str:
        return f"<{self.nbytes} bytes at {self.offset} of {self.buffer!r}>"

    @property
    def address(self) -> int:
        return self.buffer.handle().raw + self.offset

    @property
    def agent(self) -> Any:
        """Whose memory it is."""
        return self.buffer.owner

    @property
    def host_accessible(self) -> bool:
        return self.buffer.owner is HOST

    def view(self) -> np.ndarray:
        """The bytes as the host sees them. InvalidArgument for memory of a GPU."""
        if not self.host_accessible:
            raise InvalidArgument(f"{self!r} is memory of a GPU: the host reads and writes it by gpu.get and gpu.put")
        return np.frombuffer(ffi.buffer(ffi.cast("char *", self.address), self.nbytes), np.uint8)

    def __getitem__(self, part: slice) -> Span:
        if not isinstance(part, slice):
            raise InvalidArgument(f"{self!r}[{part!r}]: a part is [start:stop], in bytes")
        start, stop, step = part.indices(self.nbytes)
        wrong = [n for n in (part.start, part.stop) if n is not None and not 0 <= n <= self.nbytes]
        if step != 1 or start > stop or wrong:
            raise InvalidArgument(f"{self!r}[{part.start}:{part.stop}]: a part is some of the bytes 0 to {self.nbytes}")
        return Span(self.buffer, self.offset + start, stop - start)


class Buffer(Scoped, Span):
    """An allocation. ``grants``: the GPUs that may access it."""

    def __init__(self, owner: CudaGpu | Host, handle: BufferHandle, nbytes: int, grants: Iterable[Any]):
        super().__init__(self, 0, nbytes)
        self.owner = owner
        self.grants = frozenset(grants)
        self._handle: BufferHandle | None = handle

    def __repr__(self) -> str:
        return f"<Buffer of {self.nbytes} bytes, {self.owner.label}{'' if self._handle else ', closed'}>"

    def handle(self) -> BufferHandle:
        if self._handle is None:
            raise ClosedError(f"{self!r}")
        return self._handle

    def close(self) -> None:
        """Give it up. It is freed once no work in flight uses it. Closing twice is fine."""
        self._handle = None


def check_size(nbytes: int) -> int:
    if not isinstance(nbytes, int) or nbytes < 1:
        raise InvalidArgument(f"{nbytes!r} bytes: an allocation has 1 or more")
    return nbytes


def allocate(node: CudaNode, gpu: CudaGpu, nbytes: int, grants: Iterable[Any]) -> Buffer:
    """Memory of a GPU."""
    check_size(nbytes)
    driver.enter(gpu.context)
    out = ffi.new("CUdeviceptr *")
    # CUresult cuMemAlloc(CUdeviceptr *dptr, size_t bytesize)
    status = driver.lib().cuMemAlloc_v2(out, nbytes)
    check_cuda("cuMemAlloc", status, f"{nbytes} bytes of {gpu.label}: close buffers that are not needed")
    return Buffer(gpu, BufferHandle(node, gpu, out[0]), nbytes, grants)


def allocate_host(node: CudaNode, nbytes: int, grants: Iterable[Any]) -> Buffer:
    """Pinned memory of the host."""
    check_size(nbytes)
    driver.enter(node.gpus[0].context)
    out = ffi.new("hsakit_address *")
    # CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
    check_cuda("cuMemHostAlloc", driver.lib().cuMemHostAlloc(out, nbytes, _PORTABLE | _MAPPED))
    return Buffer(HOST, BufferHandle(node, HOST, out[0]), nbytes, grants)


def free(agent: CudaGpu | Host, raw: int) -> None:
    if agent is HOST:
        # CUresult cuMemFreeHost(void *p)
        check_cuda("cuMemFreeHost", driver.lib().cuMemFreeHost(raw))
        return
    driver.enter(agent.context)  # type: ignore[union-attr]
    # CUresult cuMemFree(CUdeviceptr dptr)
    check_cuda("cuMemFree", driver.lib().cuMemFree_v2(raw))
