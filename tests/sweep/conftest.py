"""What the tests of kernels on chosen CUs share."""

from __future__ import annotations

import pytest


@pytest.fixture
def gpu(node):
    return node.gpus[0]


@pytest.fixture
def kernels(gpu):
    from hsakit.kernels import Kernels

    with Kernels(gpu.agent) as made:
        yield made
