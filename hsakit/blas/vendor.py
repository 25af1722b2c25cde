"""What rocBLAS and hipBLASLt have in common: a handle and workspace a GPU, launches that are warm, queues for them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from hsakit import counters
from hsakit.blas.product import Product
from hsakit.blas.queue import StreamQueue
from hsakit.ffi.errors import InvalidArgument
from hsakit.geometry import Geometry
from hsakit.kernels import Kernels

if TYPE_CHECKING:
    from hsakit.cumask import CuMask
    from hsakit.hip import Stream
    from hsakit.hsa.memory import Span
    from hsakit.node import Gpu

WORKSPACE = 128 << 20  # bytes: as much as the libraries take for this generation by themselves
_TILE = 256  # a macro tile's side, where its kernels for large products have one


class Call:
    """A call of the library as a submission to a stream: it holds what the kernels touch."""

    __slots__ = ("words", "keeps")

    def __init__(self, words: str, keeps: tuple):
        self.words = words
        self.keeps = keeps

    def __str__(self) -> str:
        return self.words


class Vendor:
    """GEMMs of one GPU by a library of AMD's. Launches of one object share its workspace: they must not run at the same
    time. ``cost``: nanoseconds that stamps add to a GEMM's time, see ``StreamQueue.cost``."""

    name: str
    launches: type[VendorLaunch]

    def __init__(self, gpu: Gpu, deadline: float = 60.0):
        if gpu.device is None:
            raise InvalidArgument(f"HIP does not see {gpu}, or there is no HIP library: {self.name} is HIP's")
        self.gpu = gpu
        self.device = gpu.device
        self.deadline = deadline
        self._closed = False
        self._closing = ExitStack()
        try:
            self.workspace = self._closing.enter_context(gpu.allocate(WORKSPACE))
            self.kernels = self._closing.enter_context(Kernels(self.device))
            with self.device.current():
                self.handle = self.create()
            self._closing.callback(self._destroy)
            self.provide()
            self.queue = self._closing.enter_context(self.create_queue())
            self.cost = self.queue.cost(deadline)
        except BaseException:
            self._closing.close()
            raise

    def __repr__(self) -> str:
        return f"<{self.name} {self.version} on {self.gpu.label}>"

    def create(self) -> int:
        """A handle for the current device."""
        raise NotImplementedError

    def provide(self) -> None:
        """Give the handle the workspace, where it is the handle that has one."""

    def destroy(self) -> None:
        """Destroy the handle."""
        raise NotImplementedError

    def _destroy(self) -> None:
        with self.device.current():
            self.destroy()

    @property
    def version(self) -> str:
        raise NotImplementedError

    def create_queue(
        self, size: int = 64, priority: str = "normal", cu_mask: CuMask | Iterable[int] | None = None
    ) -> StreamQueue:
        """A stream for its launches; of any ``size``."""
        return StreamQueue(self.gpu, self.kernels, priority, cu_mask)

    def gemm(self, dtype: str, layout: str, a: Span, b: Span, c: Span, m: int, n: int, k: int) -> VendorLaunch:
        """C = A B as ``Kernels.gemm``, without gaps between lines. It is run once: the first call chooses and loads a
        kernel, which waits for kernels that run, for ever if one of these waits for the host."""
        launch = self.launches(self, Product(dtype, layout, a, b, c, m, n, k))
        try:
            launch.warm(self.queue)
        except BaseException:
            launch.close()
            raise
        return launch

    def close(self) -> None:
        """Give the handle back when its work is done. Closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        self.queue.drain(self.deadline)
        self._closing.close()


class VendorLaunch:
    """A prepared product, for ``StreamQueue.prepare``. The library chooses the kernels.

    ``packets`` are those that one run of it makes with its bracket, without what it waits for, where the node counts.
    """

    call: str  # the function's name

    def __init__(self, owner: Vendor, product: Product):
        self.owner = owner
        self.product = product
        # It does not say how many workgroups it launches. Only heuristics that go by their number look at this.
        self.geometry = Geometry((-(-product.n // _TILE), -(-product.m // _TILE), 1), (256, 1, 1), 0)
        self.words = f"{self.call} of {product}"
        self.packets: dict[str, int] | None = None
        self._flight: Call | None = None

    def __repr__(self) -> str:
        return f"<{self.owner.name} GEMM {self.product} on {self.owner.gpu.label}>"

    def run(self, stream: int) -> None:
        """Call the library."""
        raise NotImplementedError

    def close(self) -> None:
        """Give back what the library made for it. Closing twice is fine."""

    def enqueue(self, stream: Stream) -> None:
        """Put its kernels into a stream, which holds what they touch."""
        state = stream.state()
        if self._flight is None:
            p = self.product
            held = (p.a, p.b, p.c, self.owner.workspace)
            self._flight = Call(self.words, tuple(memory.buffer.handle() for memory in held))
        with self.owner.device.current():
            self.run(state.raw)
        state.submit(self.call, 0, self._flight)

    def warm(self, queue: StreamQueue) -> None:
        """Run it until it has loaded what it needs, and once more to see its packets, where the node counts them."""
        node, deadline = self.owner.gpu.node, self.owner.deadline
        with node.create_signal(1) as done:
            work = queue.prepare(self, completion=done)
            for runs in (1, 2) if counters.snapshot() is not None else (1,):
                done.store(1)
                tally = node.tally()
                with tally:
                    work.submit(deadline)
                    done.wait(deadline=deadline)
                if runs == 2:
                    self.packets = tally.totals()


def scales(ffi: Any) -> Any:
    """1 and 0, as floats: what the product and what C held before are multiplied by."""
    return ffi.new("float[2]", [1.0, 0.0])
