"""GEMMs by each of AMD's libraries, or by the stand-in for it."""

import numpy as np
import pytest

from hsakit.blas.hipblaslt import HipBlasLt
from hsakit.blas.rocblas import RocBlas
from hsakit.c3.operands import Operands
from hsakit.c3.scenario import parse
from hsakit.gemm import FORMATS

SHAPE = 150, 70, 24  # no two alike, and no multiple of a tile


class Product:
    """A product on a GPU, and whether C is right."""

    def __init__(self, vendor, dtype="bf16", layout="nn", shape=SHAPE):
        gpu, (m, n, k) = vendor.gpu, shape
        self.operands = Operands(parse(f"{dtype}:{m}x{n}x{k}:{layout}+all-gather:1K"))
        size = FORMATS[dtype].element.itemsize
        self.a, self.b, self.c = (gpu.allocate(size * count) for count in (m * k, k * n, m * n))
        gpu.put(self.a, self.operands.fill_a)
        gpu.put(self.b, self.operands.fill_b)
        gpu.put(self.c, self.operands.poison)
        self.gpu = gpu
        self.arguments = dtype, layout, self.a, self.b, self.c, m, n, k

    def spoil(self):
        self.gpu.put(self.c, self.operands.poison)

    def check(self):
        self.operands.check(np.asarray(self.gpu.get(self.c)))


@pytest.fixture
def vendor(blas, node):
    """The library on GPU 1: what goes by HIP's current device shows."""
    with node.gpus[1].device.current():
        pass
    made = {"rocblas": RocBlas, "hipblaslt": HipBlasLt}[blas.name](node.gpus[1], deadline=30)
    yield made
    made.close()
    assert blas.tell.standin_living() == 0  # handles, descriptions, layouts


@pytest.fixture
def product():
    """``product(vendor, dtype, layout, shape)``: operands on the vendor's GPU, and a poisoned C."""
    return Product
