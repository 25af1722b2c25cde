"""GEMMs by each of AMD's libraries, or by the stand-in for it."""

import pytest

from hsakit.blas.hipblaslt import HipBlasLt
from hsakit.blas.rocblas import RocBlas


@pytest.fixture
def vendor(blas, node):
    """The library on GPU 1: what goes by HIP's current device shows."""
    with node.gpus[1].device.current():
        pass
    made = {"rocblas": RocBlas, "hipblaslt": HipBlasLt}[blas.name](node.gpus[1], deadline=30)
    yield made
    made.close()
    assert blas.tell.standin_living() == 0  # handles, descriptions, layouts
