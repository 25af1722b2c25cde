"""The libraries themselves, on hardware where they are installed: are their products right, and their times times?"""

import pytest

from hsakit.blas.hipblaslt import HipBlasLt
from hsakit.blas.rocblas import RocBlas

LIBRARIES = [
    pytest.param(RocBlas, marks=pytest.mark.rocblas_library),
    pytest.param(HipBlasLt, marks=pytest.mark.hipblaslt_library),
]


@pytest.mark.parametrize("library", LIBRARIES)
def test_products_are_right_in_every_layout(library, product, node):
    vendor = library(node.gpus[0])
    with vendor.create_queue() as queue, node.create_signal(1) as done:
        for dtype in ("bf16", "f16", "f32"):
            for layout in ("nn", "nt", "tn", "tt"):
                made = product(vendor, dtype, layout, (512, 384, 256))
                launch = vendor.gemm(*made.arguments)
                made.spoil()
                done.store(1)
                queue.prepare(launch, completion=done).submit()
                done.wait(deadline=60)
                made.check()
                start, end = done.times
                assert vendor.cost / 2 < end - start < 1e9
                launch.close()
    vendor.close()
