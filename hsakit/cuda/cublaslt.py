"""cuBLASLt's GEMM as a provider of launches, for measurements: used like ``Kernels.gemm``."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from hsakit.cuda import driver
from hsakit.ffi import loader
from hsakit.ffi._cublaslt import ffi
from hsakit.ffi.errors import HsakitError, InvalidArgument, check_cublaslt
from hsakit.geometry import Geometry

if TYPE_CHECKING:
    from hsakit.cuda.gpu import CudaGpu
    from hsakit.cuda.memory import Span
    from hsakit.cuda.place import Queue

WORKSPACE = 64 << 20  # bytes; what NVIDIA recommends for this generation is 32 MiB
_CONST = ffi.dlopen(None)
_TYPES = {"f32": _CONST.CUDA_R_32F, "f16": _CONST.CUDA_R_16F, "bf16": _CONST.CUDA_R_16BF}


def _lib() -> Any:
    return loader.cublaslt().lib


def version() -> str:
    """Such as 13.1.0."""
    # size_t cublasLtGetVersion(void)
    number = _lib().cublasLtGetVersion()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


class CublasLt:
    """GEMMs of one GPU. Launches of one object share its workspace: they must not run at the same time."""

    def __init__(self, gpu: CudaGpu):
        self.gpu = gpu
        self._workspace = gpu.allocate(WORKSPACE)

    @cached_property
    def handle(self) -> int:
        driver.enter(self.gpu.context)
        out = ffi.new("cublasLtHandle_t *")
        # cublasStatus_t cublasLtCreate(cublasLtHandle_t* lightHandle)
        check_cublaslt("cublasLtCreate", _lib().cublasLtCreate(out))
        driver.forget()
        return out[0]

    def gemm(
        self, dtype: str, layout: str, a: Span, b: Span, c: Span, m: int, n: int, k: int, **options: Any
    ) -> CublasLtLaunch:
        """C = A B as ``Kernels.gemm``, without gaps between lines."""
        if dtype not in _TYPES or options:
            raise InvalidArgument(f"gemm {dtype!r} {options or ''}: {', '.join(_TYPES)}, and no options")
        return CublasLtLaunch(self, dtype, layout, (a, b, c), (m, n, k), self._workspace)


class CublasLtLaunch:
    """A prepared product. The library chooses the kernel for the multiprocessors of the queue."""

    def __init__(self, owner: CublasLt, dtype: str, layout: str, memory: tuple, shape: tuple, workspace: Span):
        self.gpu = owner.gpu
        m, n, k = shape
        # The library does not say; its kernels for large products have tiles of 128 x 256.
        self.geometry = Geometry((-(-n // 256), -(-m // 128), 1), (384, 1, 1), 0)
        self._owner = owner
        self._memory = memory
        self._workspace = workspace
        kind = _TYPES[dtype]
        # The library knows column-major matrices: C's transpose is B's transpose times A's.
        self._layouts = [
            _layout(kind, *((n, k) if layout[1] == "n" else (k, n))),
            _layout(kind, *((k, m) if layout[0] == "n" else (m, k))),
            _layout(kind, n, m),
        ]
        self._transposed = int(layout[1] == "t"), int(layout[0] == "t")
        self._scales = ffi.new("float[2]", [1.0, 0.0])
        self._algorithms: dict[int, Any] = {}
        self._warm: set[int] = set()  # contexts in which it ran

    def __repr__(self) -> str:
        return f"<cuBLASLt GEMM on {self.gpu.label}>"

    def _describe(self, sms: int) -> int:
        """What is multiplied, for so many multiprocessors: that is read again at every launch."""
        out = ffi.new("cublasLtMatmulDesc_t *")
        # cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* matmulDesc, cublasComputeType_t computeType,
        #     cudaDataType_t scaleType)
        status = _lib().cublasLtMatmulDescCreate(out, _CONST.CUBLAS_COMPUTE_32F, _CONST.CUDA_R_32F)
        check_cublaslt("cublasLtMatmulDescCreate", status)
        first, second = self._transposed
        for which, value in (
            (_CONST.CUBLASLT_MATMUL_DESC_TRANSA, first),
            (_CONST.CUBLASLT_MATMUL_DESC_TRANSB, second),
            (_CONST.CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, sms if sms != self.gpu.cu_count else 0),
        ):
            word = ffi.new("int *", value)
            # cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t matmulDesc,
            #     cublasLtMatmulDescAttributes_t attr, const void* buf, size_t sizeInBytes)
            status = _lib().cublasLtMatmulDescSetAttribute(out[0], which, _address(word), 4)
            check_cublaslt("cublasLtMatmulDescSetAttribute", status)
        return out[0]

    def _algorithm(self, sms: int) -> Any:
        """What the library recommends for so many multiprocessors."""
        if sms not in self._algorithms:
            lib = _lib()
            description = self._describe(sms)
            preference = ffi.new("cublasLtMatmulPreference_t *")
            # cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* pref)
            check_cublaslt("cublasLtMatmulPreferenceCreate", lib.cublasLtMatmulPreferenceCreate(preference))
            size = ffi.new("uint64_t *", self._workspace.nbytes)
            # cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
            #     cublasLtMatmulPreferenceAttributes_t attr, const void* buf, size_t sizeInBytes)
            status = lib.cublasLtMatmulPreferenceSetAttribute(
                preference[0], _CONST.CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, _address(size), 8
            )
            check_cublaslt("cublasLtMatmulPreferenceSetAttribute", status)
            found, count = ffi.new("cublasLtMatmulHeuristicResult_t[1]"), ffi.new("int *")
            # cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t, Adesc,
            #     Bdesc, Cdesc, Ddesc, preference, int requestedAlgoCount, results[], int* returnAlgoCount)
            driver.enter(self.gpu.context)
            first, second, result = self._layouts
            status = lib.cublasLtMatmulAlgoGetHeuristic(
                self._owner.handle, description, first, second, result, result, preference[0], 1, found, count
            )
            driver.forget()
            check_cublaslt("cublasLtMatmulAlgoGetHeuristic", status)
            if not count[0]:
                raise HsakitError(f"{self!r}: the library has no kernel for this product on {sms} multiprocessors")
            self._algorithms[sms] = (description, found)
        return self._algorithms[sms]

    def workgroups_a_cu(self) -> int:
        """One: its tiles fill a multiprocessor's shared memory."""
        return 1

    def snapshot(self, queue: Queue) -> Any:
        """What a queue launches: run there once, since a kernel's first launch loads it, which waits for kernels that
        run: for ever, if one of these waits for the host."""
        found = self._algorithm(queue.sms)
        if queue.context not in self._warm:
            self._warm.add(queue.context)
            queue.put((), lambda stream: self.enqueue(stream, found), None, False, self, 30.0)
            queue.drain()
        return _Chosen(self, found)

    def enqueue(self, stream: int, chosen: Any) -> None:
        description, found = chosen
        a, b, c = (each.address for each in self._memory)
        first, second, result = self._layouts
        scale = _address(self._scales)
        # cublasStatus_t cublasLtMatmul(cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t computeDesc,
        #     const void* alpha, const void* A, Adesc, const void* B, Bdesc, const void* beta, const void* C, Cdesc,
        #     void* D, Ddesc, const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspaceSizeInBytes, stream)
        status = _lib().cublasLtMatmul(
            self._owner.handle,
            description,
            scale,
            b,
            first,
            a,
            second,
            scale + 4,
            c,
            result,
            c,
            result,
            ffi.addressof(found[0], "algo"),
            self._workspace.address,
            found[0].workspaceSize,
            stream,
        )
        check_cublaslt("cublasLtMatmul", status)


class _Chosen:
    """A product with its kernel."""

    def __init__(self, launch: CublasLtLaunch, found: Any):
        self._launch = launch
        self._found = found

    def run(self, stream: int) -> None:
        self._launch.enqueue(stream, self._found)


def _layout(kind: int, rows: int, columns: int) -> int:
    out = ffi.new("cublasLtMatrixLayout_t *")
    # cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* matLayout, cudaDataType type, uint64_t rows,
    #     uint64_t cols, int64_t ld)
    check_cublaslt("cublasLtMatrixLayoutCreate", _lib().cublasLtMatrixLayoutCreate(out, kind, rows, columns, rows))
    return out[0]


def _address(pointer: Any) -> int:
    return int(ffi.cast("uintptr_t", pointer))
