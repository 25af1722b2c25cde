"""rocBLAS's GEMM."""

from __future__ import annotations

from typing import Any

from hsakit.blas.product import Product
from hsakit.blas.vendor import Vendor, VendorLaunch, scales
from hsakit.ffi import loader
from hsakit.ffi._rocblas import ffi
from hsakit.ffi.errors import check_rocblas

_CONST = ffi.dlopen(None)
_TYPES = {
    "f32": _CONST.rocblas_datatype_f32_r,
    "f16": _CONST.rocblas_datatype_f16_r,
    "bf16": _CONST.rocblas_datatype_bf16_r,
}
_OPERATIONS = {False: _CONST.rocblas_operation_none, True: _CONST.rocblas_operation_transpose}


def _lib() -> Any:
    return loader.rocblas().lib


class RocBlasLaunch(VendorLaunch):
    call = "rocblas_gemm_ex"

    def __init__(self, owner: RocBlas, product: Product):
        super().__init__(owner, product)
        kind = _TYPES[product.dtype]
        first, second, result = product.first, product.second, product.result
        self._scales = scales(ffi)
        one = int(ffi.cast("uintptr_t", self._scales))
        place = result.memory.address, kind, result.rows
        self._arguments = (
            *(_OPERATIONS[first.transposed], _OPERATIONS[second.transposed], result.rows, result.columns, product.k),
            *(one, first.memory.address, kind, first.rows, second.memory.address, kind, second.rows),
            *(one + 4, *place, *place),
            *(_TYPES["f32"], _CONST.rocblas_gemm_algo_standard, 0, 0),
        )

    def run(self, stream: int) -> None:
        handle = self.owner.handle
        # rocblas_status rocblas_set_stream(rocblas_handle handle, hipStream_t stream)
        check_rocblas("rocblas_set_stream", _lib().rocblas_set_stream(handle, stream))
        # rocblas_status rocblas_gemm_ex(rocblas_handle handle, rocblas_operation transA, rocblas_operation transB,
        #     rocblas_int m, rocblas_int n, rocblas_int k, const void *alpha, const void *a, rocblas_datatype a_type,
        #     rocblas_int lda, const void *b, rocblas_datatype b_type, rocblas_int ldb, const void *beta, const void *c,
        #     rocblas_datatype c_type, rocblas_int ldc, void *d, rocblas_datatype d_type, rocblas_int ldd,
        #     rocblas_datatype compute_type, rocblas_gemm_algo algo, int32_t solution_index, uint32_t flags)
        check_rocblas("rocblas_gemm_ex", _lib().rocblas_gemm_ex(handle, *self._arguments), f"It was {self.product}")


class RocBlas(Vendor):
    """rocBLAS on one GPU."""

    name = "rocblas"
    launches = RocBlasLaunch

    def provide(self) -> None:
        # rocblas_status rocblas_set_workspace(rocblas_handle handle, void *addr, size_t size): else it allocates in
        # calls that need more than it has, which waits for the GPU
        status = _lib().rocblas_set_workspace(self.handle, self.workspace.address, self.workspace.nbytes)
        check_rocblas("rocblas_set_workspace", status)

    def create(self) -> int:
        out = ffi.new("rocblas_handle *")
        # rocblas_status rocblas_create_handle(rocblas_handle *handle)
        check_rocblas("rocblas_create_handle", _lib().rocblas_create_handle(out))
        return out[0]

    def destroy(self) -> None:
        # rocblas_status rocblas_destroy_handle(rocblas_handle handle)
        check_rocblas("rocblas_destroy_handle", _lib().rocblas_destroy_handle(self.handle))

    @property
    def version(self) -> str:
        size = ffi.new("size_t *")
        # rocblas_status rocblas_get_version_string_size(size_t *len)
        check_rocblas("rocblas_get_version_string_size", _lib().rocblas_get_version_string_size(size))
        text = ffi.new("char[]", size[0])
        # rocblas_status rocblas_get_version_string(char *buf, size_t len)
        check_rocblas("rocblas_get_version_string", _lib().rocblas_get_version_string(text, size[0]))
        return ffi.string(text).decode(errors="replace")
