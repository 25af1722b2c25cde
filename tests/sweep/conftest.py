"""What the tests of kernels on chosen CUs share."""

from __future__ import annotations

import pytest

from hsakit.ffi.errors import GpuException


@pytest.fixture
def hang():
    """A function that raises what every wait raises once the driver has reported that a GPU hangs."""

    def hangs(*_, **__):
        raise GpuException("GPU 0", 0x1026, "GPU exception", "GPU hang")

    return hangs


@pytest.fixture
def gpu(node):
    return node.gpus[0]


@pytest.fixture
def kernels(gpu):
    from hsakit.kernels import Kernels

    with Kernels(gpu.agent) as made:
        yield made
