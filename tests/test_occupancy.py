"""Workgroups that a CU holds: by waves, by registers, by LDS, whichever is least."""

from types import SimpleNamespace

import pytest

from hsakit.geometry import Geometry
from hsakit.occupancy import waves_a_workgroup, workgroups_a_cu

CDNA3 = SimpleNamespace(simds_per_cu=4, waves_per_cu=32, limits=SimpleNamespace(lds=65536))


def kernel(vgprs=8, lds=0):
    return SimpleNamespace(vgprs=vgprs, group_segment_size=lds, wavefront_size=64)


@pytest.mark.parametrize(
    "vgprs, lds, block, dynamic, held",
    [
        (8, 0, 64, 0, 32),  # as many waves as there are places
        (8, 0, 65, 0, 16),  # a wave that is not full is one
        (8, 0, 256, 0, 8),
        (8, 0, 1024, 0, 2),
        (0, 0, 256, 0, 8),
        (64, 0, 256, 0, 8),
        (65, 0, 256, 0, 7),  # 72 registers: 7 waves a SIMD
        (140, 0, 256, 0, 3),  # 144
        (512, 0, 256, 0, 1),
        (8, 18432, 256, 0, 3),
        (8, 1, 256, 0, 8),
        (8, 1, 64, 0, 32),
        (8, 0, 64, 65536, 1),
        (8, 32768, 64, 32768, 1),
        (8, 20000, 64, 0, 3),  # 20480: LDS is given out in 512 bytes
    ],
)
def test_workgroups(vgprs, lds, block, dynamic, held):
    assert workgroups_a_cu(kernel(vgprs, lds), Geometry((9, 1, 1), (block, 1, 1), dynamic), CDNA3) == held


def test_waves():
    assert waves_a_workgroup(kernel(), Geometry((1, 1, 1), (16, 4, 2), 0)) == 2
    assert waves_a_workgroup(kernel(), Geometry((1, 1, 1), (1, 1, 1), 0)) == 1


def test_an_agents_places(runtime):
    gpu = runtime.gpus[0]
    assert gpu.waves_per_cu == 32 and gpu.simds_per_cu == 4  # CDNA 2 and 3
    assert workgroups_a_cu(kernel(), Geometry((1, 1, 1), (256, 1, 1), 0), gpu) == 8
    assert runtime.cpus[0].waves_per_cu == 0
