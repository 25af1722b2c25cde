"""hipBLASLt's GEMM, by the kernel that its heuristic recommends."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

from hsakit.blas.product import Operand, Product
from hsakit.blas.vendor import Vendor, VendorLaunch, scales
from hsakit.ffi import loader
from hsakit.ffi._hipblaslt import ffi
from hsakit.ffi.errors import HsakitError, check_hipblaslt

_CONST = ffi.dlopen(None)
_TYPES = {"f32": _CONST.HIP_R_32F, "f16": _CONST.HIP_R_16F, "bf16": _CONST.HIP_R_16BF}
_OPERATIONS = {False: _CONST.HIPBLAS_OP_N, True: _CONST.HIPBLAS_OP_T}


def _lib() -> Any:
    return loader.hipblaslt().lib


def _address(pointer: Any) -> int:
    return int(ffi.cast("uintptr_t", pointer))


class HipBlasLtLaunch(VendorLaunch):
    call = "hipblasLtMatmul"

    def __init__(self, owner: HipBlasLt, product: Product):
        super().__init__(owner, product)
        self._closing = ExitStack()
        self._scales = scales(ffi)
        try:
            self._describe(product)
            with owner.device.current():
                self._algorithm = self._choose()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._closing.close()

    def _describe(self, product: Product) -> None:
        # hipblasStatus_t hipblasLtMatmulDescCreate(hipblasLtMatmulDesc_t *matmulDesc, hipblasComputeType_t computeType,
        #     hipDataType scaleType); hipblasStatus_t hipblasLtMatmulDescDestroy(const hipblasLtMatmulDesc_t matmulDesc)
        self._description = self._own("MatmulDesc", _CONST.HIPBLAS_COMPUTE_32F, _TYPES["f32"])
        kind = _TYPES[product.dtype]
        # hipblasStatus_t hipblasLtMatrixLayoutCreate(hipblasLtMatrixLayout_t *matLayout, hipDataType type,
        #     uint64_t rows, uint64_t cols, int64_t ld); hipblasStatus_t hipblasLtMatrixLayoutDestroy(const ...)
        self._first, self._second, self._result = (
            self._own("MatrixLayout", kind, operand.rows, operand.columns, operand.rows)
            for operand in (product.first, product.second, product.result)
        )
        self._transpose(_CONST.HIPBLASLT_MATMUL_DESC_TRANSA, product.first)
        self._transpose(_CONST.HIPBLASLT_MATMUL_DESC_TRANSB, product.second)

    def _own(self, what: str, *arguments: Any) -> int:
        """Something of the library's, destroyed by ``close``."""
        lib, create, destroy = _lib(), f"hipblasLt{what}Create", f"hipblasLt{what}Destroy"
        out = ffi.new(f"hipblasLt{what}_t *")
        check_hipblaslt(create, getattr(lib, create)(out, *arguments))
        self._closing.callback(partial(_destroy, destroy, out[0]))
        return out[0]

    def _transpose(self, which: int, operand: Operand) -> None:
        word = ffi.new("int32_t *", _OPERATIONS[operand.transposed])
        # hipblasStatus_t hipblasLtMatmulDescSetAttribute(hipblasLtMatmulDesc_t matmulDesc,
        #     hipblasLtMatmulDescAttributes_t attr, const void *buf, size_t sizeInBytes)
        status = _lib().hipblasLtMatmulDescSetAttribute(self._description, which, _address(word), 4)
        check_hipblaslt("hipblasLtMatmulDescSetAttribute", status)

    def _choose(self) -> Any:
        """What the library recommends within the workspace."""
        lib = _lib()
        # hipblasStatus_t hipblasLtMatmulPreferenceCreate(hipblasLtMatmulPreference_t *pref); ...Destroy(const ...)
        preference = self._own("MatmulPreference")
        size = ffi.new("uint64_t *", self.owner.workspace.nbytes)
        # hipblasStatus_t hipblasLtMatmulPreferenceSetAttribute(hipblasLtMatmulPreference_t pref,
        #     hipblasLtMatmulPreferenceAttributes_t attr, const void *buf, size_t sizeInBytes)
        status = lib.hipblasLtMatmulPreferenceSetAttribute(
            preference, _CONST.HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, _address(size), 8
        )
        check_hipblaslt("hipblasLtMatmulPreferenceSetAttribute", status)
        found, count = ffi.new("hipblasLtMatmulHeuristicResult_t[1]"), ffi.new("int *")
        # hipblasStatus_t hipblasLtMatmulAlgoGetHeuristic(hipblasLtHandle_t handle, hipblasLtMatmulDesc_t matmulDesc,
        #     Adesc, Bdesc, Cdesc, Ddesc, hipblasLtMatmulPreference_t pref, int requestedAlgoCount,
        #     hipblasLtMatmulHeuristicResult_t heuristicResultsArray[], int *returnAlgoCount)
        status = lib.hipblasLtMatmulAlgoGetHeuristic(
            self.owner.handle,
            self._description,
            *(self._first, self._second, self._result, self._result),
            *(preference, 1, found, count),
        )
        check_hipblaslt("hipblasLtMatmulAlgoGetHeuristic", status, f"It was {self.product}")
        if not count[0]:
            raise HsakitError(f"{self!r}: the library has no kernel for this product")
        check_hipblaslt("hipblasLtMatmulAlgoGetHeuristic", found[0].state, f"It was {self.product}")
        return found

    def run(self, stream: int) -> None:
        p, scale, found = self.product, _address(self._scales), self._algorithm[0]
        # hipblasStatus_t hipblasLtMatmul(hipblasLtHandle_t handle, hipblasLtMatmulDesc_t matmulDesc, const void *alpha,
        #     const void *A, Adesc, const void *B, Bdesc, const void *beta, const void *C, Cdesc, void *D, Ddesc,
        #     const hipblasLtMatmulAlgo_t *algo, void *workspace, size_t workspaceSizeInBytes, hipStream_t stream)
        status = _lib().hipblasLtMatmul(
            self.owner.handle,
            self._description,
            *(scale, p.b.address, self._first, p.a.address, self._second),
            *(scale + 4, p.c.address, self._result, p.c.address, self._result),
            ffi.addressof(found, "algo"),
            *(self.owner.workspace.address, found.workspaceSize),
            stream,
        )
        check_hipblaslt("hipblasLtMatmul", status, f"It was {p}")


def _destroy(call: str, raw: int) -> None:
    check_hipblaslt(call, getattr(_lib(), call)(raw))


class HipBlasLt(Vendor):
    """hipBLASLt on one GPU."""

    name = "hipblaslt"
    launches = HipBlasLtLaunch

    def create(self) -> int:
        out = ffi.new("hipblasLtHandle_t *")
        # hipblasStatus_t hipblasLtCreate(hipblasLtHandle_t *handle)
        check_hipblaslt("hipblasLtCreate", _lib().hipblasLtCreate(out))
        return out[0]

    def destroy(self) -> None:
        # hipblasStatus_t hipblasLtDestroy(const hipblasLtHandle_t handle)
        check_hipblaslt("hipblasLtDestroy", _lib().hipblasLtDestroy(self.handle))

    @property
    def version(self) -> str:
        out = ffi.new("int *")
        # hipblasStatus_t hipblasLtGetVersion(hipblasLtHandle_t handle, int *version): 100000 major + 100 minor + patch
        check_hipblaslt("hipblasLtGetVersion", _lib().hipblasLtGetVersion(self.handle, out))
        return f"{out[0] // 100000}.{out[0] // 100 % 1000}.{out[0] % 100}"
