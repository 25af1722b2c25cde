"""The libraries' system calls: answered for the driver's files, passed on for all others."""

from __future__ import annotations

import errno
import os

import pytest

from hsakit import softgpu
from hsakit.softgpu.uapi import ffi


@pytest.fixture
def seam(raw):
    return softgpu._installed[1]


def c(text: str):
    return ffi.new("char[]", text.encode())


def test_install_is_idempotent(raw):
    first = softgpu.install()
    assert softgpu.install("mi300x-8") is first
    assert first.topology_root == raw.driver.tree.root and first.clock


def test_other_files_are_the_systems(seam, tmp_path):
    path = tmp_path / "file"
    path.write_text("x")
    fd = seam._open(c(str(path)), os.O_RDONLY, 0)
    assert os.read(fd, 1) == b"x"
    os.close(fd)
    assert seam._open(c(str(tmp_path / "none")), os.O_RDONLY, 0) == -1
    assert ffi.errno == errno.ENOENT
    assert seam._fopen(c(str(path)), c("r")) != ffi.NULL
    assert seam._opendir(c(str(tmp_path))) != ffi.NULL


def test_the_drivers_files_are_the_nodes(seam):
    for path in ("/dev/kfd", "/dev/dri/renderD128", "/dev/dri/renderD135"):
        fd = seam._open(c(path), os.O_RDWR, 0)
        assert "memfd:hsakit-" in os.readlink(f"/proc/self/fd/{fd}")
        os.close(fd)
    assert seam._open(c("/dev/dri/renderD136"), os.O_RDWR, 0) == -1
    assert ffi.errno == errno.ENOENT
    assert seam._opendir(c("/sys/devices/virtual/kfd/kfd/topology/nodes/8/caches")) != ffi.NULL
    assert seam._opendir(c("/sys/devices/virtual/kfd/kfd/topology/nodes/9")) == ffi.NULL


def test_an_ioctl_of_another_driver_is_the_systems(seam):
    pair = os.pipe()
    waiting = ffi.new("int *", -1)
    os.write(pair[1], b"four")
    assert seam._ioctl(pair[0], 0x541B, waiting) == 0  # FIONREAD
    assert waiting[0] == 4
    for fd in pair:
        os.close(fd)
