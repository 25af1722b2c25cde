"""The shape of a launch against the limits of the kernel and of its GPU."""

import dataclasses

import numpy as np
import pytest

from hsakit.codeobject import KernelInfo
from hsakit.ffi.errors import InvalidArgument
from hsakit.geometry import Geometry, Limits, check

LIMITS = Limits("GPU 0", 1024, (1024, 1024, 512), ((1 << 32) - 1, 1 << 20, 1 << 16), 65536)


def kernel(largest=1024, required=None, static=0):
    empty = dict.fromkeys(field.name for field in dataclasses.fields(KernelInfo))
    return KernelInfo(
        **{
            **empty,
            "name": "k",
            "max_workgroup_size": largest,
            "required_workgroup_size": required,
            "group_segment_size": static,
        }
    )


def test_extents():
    assert check(kernel(), 3, 64, 0, LIMITS) == Geometry((3, 1, 1), (64, 1, 1), 0)
    assert check(kernel(), (3, 2), [8, 4, 2], 512, LIMITS) == Geometry((3, 2, 1), (8, 4, 2), 512)
    shape = check(kernel(), np.int64(3), (np.uint8(64),), 0, LIMITS)
    assert shape == Geometry((3, 1, 1), (64, 1, 1), 0) and type(shape.grid[0]) is int
    assert check(kernel(), (3, 2), (8, 4), 0, LIMITS).items == (24, 8, 1)


@pytest.mark.parametrize("wrong", [0, (0, 1), (1, 0), -1, (), (1, 1, 1, 1), 1.0, "64", None, (1.0,)])
def test_no_extents(wrong):
    with pytest.raises(InvalidArgument, match=r"grid .*: x, \(x, y\) or \(x, y, z\) workgroups, each at least 1"):
        check(kernel(), wrong, 64, 0, LIMITS)
    with pytest.raises(InvalidArgument, match=r"block .*: x, \(x, y\) or \(x, y, z\) work-items, each at least 1"):
        check(kernel(), 1, wrong, 0, LIMITS)


@pytest.mark.parametrize(
    "info, grid, block, lds, said",
    [
        (kernel(), 1, 2048, 0, "block (2048, 1, 1): GPU 0 takes at most 1024 work-items along x"),
        (kernel(), 1, (1, 1, 513), 0, "at most 512 work-items along z"),
        (kernel(), 1, (32, 32, 2), 0, "has 2048 work-items: k takes workgroups of at most 1024"),
        (kernel(largest=2048), 1, (32, 32, 2), 0, "has 2048 work-items: GPU 0 takes workgroups of at most 1024"),
        (kernel(largest=256), 1, 257, 0, "has 257 work-items: k takes workgroups of at most 256"),
        (kernel(required=(64, 1, 1)), 1, 32, 0, "block (32, 1, 1): k was compiled for (64, 1, 1) and no other"),
        (kernel(), 1 << 24, 256, 0, "has 4294967296 work-items along x: GPU 0 takes at most 4294967295"),
        (kernel(), (1, 1 << 20), (1, 2), 0, "has 2097152 work-items along y: GPU 0 takes at most 1048576"),
        (kernel(static=1024), 1, 64, 65536 - 1023, "65537 bytes of LDS (1024 that k declares and 64513 more)"),
        (kernel(), 1, 64, -1, "lds -1: bytes of dynamic LDS, 0 for none"),
        (kernel(), 1, 64, 1.5, "lds 1.5: "),
    ],
)
def test_limits(info, grid, block, lds, said):
    with pytest.raises(InvalidArgument) as caught:
        check(info, grid, block, lds, LIMITS)
    assert said in str(caught.value)


def test_up_to_the_limits():
    check(kernel(static=1024), (1 << 22) - 1, 1024, 65536 - 1024, LIMITS)
    check(kernel(required=(64, 1, 1)), (1, 1 << 20, 1 << 16), (64, 1, 1), 0, LIMITS)


def test_limits_of_a_gpu(runtime):
    gpu = runtime.gpus[0]
    assert gpu.limits.workgroup == 1024 and gpu.limits.workgroup_axes == (1024, 1024, 1024)
    assert gpu.limits.lds >= 65536 and min(gpu.limits.grid) >= (1 << 16) - 1
    assert gpu.limits.device == gpu.label
