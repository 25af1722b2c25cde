"""By whom GEMMs are: by our kernels in AQL queues, or by a library of AMD's in HIP streams, between stamps."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

from hsakit.ffi.errors import InvalidArgument
from hsakit.platform import Platform, Queue
from hsakit.scoped import Scoped

OURS = "hsakit"
PROVIDERS = (OURS, "hipblaslt", "rocblas")


class Gemms(Scoped):
    """GEMMs of all GPUs of a platform, by a provider's name."""

    def __init__(self, platform: Platform, name: str = OURS, deadline: float = 60.0):
        if name not in PROVIDERS:
            raise InvalidArgument(f"GEMMs by {name!r}: there are {', '.join(PROVIDERS)}")
        self.name = name
        self._platform = platform
        self._closing = ExitStack()
        self._vendors: list[Any] = []
        try:
            if name != OURS:
                made = _vendor(platform, name)
                for gpu in platform.gpus:
                    self._vendors.append(made(gpu, deadline))
                    self._closing.callback(self._vendors[-1].close)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give back what a library holds. Closing twice is fine."""
        self._closing.close()

    def launch(self, rank: int, closing: ExitStack, *operands: Any) -> Any:
        """A prepared product, arguments as for ``Kernels.gemm``; what it holds is given back by ``closing``."""
        if not self._vendors:
            return self._platform.gpus[rank].kernels.gemm(*operands)
        launch = self._vendors[rank].gemm(*operands)
        closing.callback(launch.close)
        return launch

    def create_queue(self, rank: int, size: int, priority: str = "normal", cus: Iterable[int] | None = None) -> Queue:
        """A queue for its launches."""
        gpu = self._vendors[rank] if self._vendors else self._platform.gpus[rank]
        return gpu.create_queue(size, priority, cus)

    def workgroups_a_cu(self, launch: Any) -> int:
        """Workgroups of a launch that a CU holds; of a library's, one: their tiles fill its registers."""
        return 1 if self._vendors else self._platform.gpus[0].workgroups_a_cu(launch)

    def dispatches(self, work: Any) -> int:
        """Kernels that a prepared work of its queues launches."""
        return work.dispatches if self._vendors else 1

    @property
    def ours(self) -> bool:
        """They are our kernels, in AQL queues."""
        return not self._vendors

    @property
    def apart(self) -> float:
        """As ``Platform.apart``: a library's GEMM begins when one of the gaps between stamps has passed."""
        return max([self._platform.apart, *(vendor.cost for vendor in self._vendors)])

    def as_json(self) -> dict[str, Any]:
        """For rows: who, which version, and what stamps add to a GEMM's time, in nanoseconds."""
        if not self._vendors:
            return {"name": self.name}
        cost = max(vendor.cost for vendor in self._vendors)
        return {"name": self.name, "version": self._vendors[0].version, "stamps": cost}


def _vendor(platform: Platform, name: str) -> Any:
    if not hasattr(platform.gpus[0], "device"):
        raise InvalidArgument(f"{name} is a library for AMD's GPUs, and these are none")
    if name == "rocblas":
        from hsakit.blas.rocblas import RocBlas

        return RocBlas
    from hsakit.blas.hipblaslt import HipBlasLt

    return HipBlasLt
