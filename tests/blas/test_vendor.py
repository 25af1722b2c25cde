"""GEMMs through the C APIs of rocBLAS and hipBLASLt: on a stand-in library whose results are real."""

import pytest

from hsakit.blas import StreamQueue
from hsakit.blas.hipblaslt import HipBlasLt
from hsakit.blas.rocblas import RocBlas
from hsakit.ffi import loader
from hsakit.ffi.errors import BlasError, DeadlineExceeded, HsakitError, InvalidArgument, LibraryNotFound
from hsakit.gemm import GemmError


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_the_product_of_row_major_matrices_is_right(vendor, product, layout):
    bench = product(vendor, layout=layout)
    launch = vendor.gemm(*bench.arguments)
    bench.check()  # of the run that warmed it
    bench.spoil()
    with pytest.raises(GemmError):
        bench.check()
    with vendor.create_queue(cu_mask=range(8, 304)) as queue, vendor.gpu.node.create_signal(1) as done:
        queue.prepare(launch, completion=done).submit()
        done.wait()
        bench.check()
    launch.close()


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_other_types(vendor, product, dtype):
    bench = product(vendor, dtype, "tn")
    vendor.gemm(*bench.arguments).close()
    bench.check()


def test_what_the_library_refuses_is_an_error_with_its_name(vendor, product, blas):
    bench = product(vendor)
    blas.tell.standin_fail(6)
    with pytest.raises(BlasError, match="INTERNAL_ERROR|internal_error") as caught:
        vendor.gemm(*bench.arguments)
    assert caught.value.code == 6 and "bf16 nn m=150 n=70 k=24" in str(caught.value)
    launch = vendor.gemm(*bench.arguments)  # and goes on
    with vendor.create_queue() as queue, vendor.gpu.node.create_signal(1) as done:
        work = queue.prepare(launch, completion=done)
        blas.tell.standin_fail(6)
        with pytest.raises(BlasError):
            work.submit()
        work.submit()  # the signal was not claimed by the one that failed
        done.wait()
    launch.close()


def test_a_vendor_that_cannot_be_made_leaves_nothing(blas, node, monkeypatch):
    def failing(queue, deadline):
        raise DeadlineExceeded("too slow")

    monkeypatch.setattr(StreamQueue, "cost", failing)
    gpu = node.gpus[0]
    with pytest.raises(DeadlineExceeded):
        {"rocblas": RocBlas, "hipblaslt": HipBlasLt}[blas.name](gpu, deadline=30)
    assert blas.tell.standin_living() == 0


def test_bad_input_is_refused_before_the_call(vendor, product):
    bench = product(vendor)
    dtype, layout, a, b, c, m, n, k = bench.arguments
    for wrong in ((dtype, "xn", a, b, c, m, n, k), ("f64", layout, a, b, c, m, n, k)):
        with pytest.raises(InvalidArgument, match="nn, nt, tn, tt"):
            vendor.gemm(*wrong)
    with pytest.raises(InvalidArgument, match="smaller than"):
        vendor.gemm(dtype, layout, a, b, c, m, n + 1, k)
    with pytest.raises(InvalidArgument, match="at least 1"):
        vendor.gemm(dtype, layout, a, b, c, 0, n, k)


def test_a_heuristic_without_an_answer(vendor, product, blas):
    if blas.name == "rocblas":
        return  # has none
    bench = product(vendor)
    blas.tell.standin_know_none(1)
    with pytest.raises(HsakitError, match="no kernel for this product"):
        vendor.gemm(*bench.arguments)
    blas.tell.standin_know_none(0)
    vendor.gemm(*bench.arguments).close()


def test_versions_and_words(vendor, blas):
    assert vendor.version == {"rocblas": "4.4.0.x", "hipblaslt": "0.10.2"}[blas.name]
    assert f"{vendor!r}" == f"<{blas.name} {vendor.version} on GPU 1>"


def test_a_missing_library_says_what_to_install(blas, monkeypatch):
    monkeypatch.setattr(loader, f"{blas.name.upper()}_NAMES", (f"lib{blas.name}.so.99",))
    find = getattr(loader, blas.name)
    find.cache_clear()
    with pytest.raises(LibraryNotFound, match=f"ROCm's package {blas.name}.*ROCM_PATH"):
        find()
