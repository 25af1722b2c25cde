"""What the real thunk and runtime read from the node's topology is what the node file says."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hsakit.softgpu import sysfs
from hsakit.softgpu.node import load

SPEC = load()
PART = SPEC.gpu


@pytest.fixture
def info(raw):
    def get(agent: int, attribute: int, type_: str = "uint32_t"):
        out = raw.ffi.new("char[64]") if type_ == "text" else raw.ffi.new(f"{type_} *")
        raw.check("hsa_agent_get_info", raw.lib.hsa_agent_get_info(agent, attribute, out))
        return raw.ffi.string(out).decode() if type_ == "text" else out[0]

    return get


NUMBERS = {
    "chip id": (0xA000, PART.device_id),
    "compute units": (0xA002, 304),
    "clock": (0xA003, PART.clock_mhz),
    "memory width": (0xA007, PART.memory_width),
    "memory clock": (0xA008, PART.memory_clock_mhz),
    "waves a compute unit": (0xA00A, PART.simds_per_cu * PART.waves_per_simd),
    "simds": (0xA00B, PART.simds_per_cu),
    "shader engines": (0xA00C, PART.shader_engines * PART.xccs),
    "copy engines": (0xA10A, PART.sdma_engines),
    "xgmi copy engines": (0xA10B, PART.sdma_xgmi_engines),
    "xccs": (0xA111, PART.xccs),
}


@pytest.mark.parametrize("what", NUMBERS)
def test_numbers_of_the_part(what, raw, info):
    attribute, expected = NUMBERS[what]
    assert [info(gpu, attribute) for gpu in raw.gpus] == [expected] * SPEC.gpus


def test_names(raw, info):
    assert [info(gpu, 0, "text") for gpu in raw.gpus] == ["gfx942"] * 8
    assert {info(gpu, 0xA009, "text") for gpu in raw.gpus} == {PART.name}
    uuids = [info(gpu, 0xA011, "text") for gpu in raw.gpus]
    assert len(set(uuids)) == 8 and all(uuid.startswith("GPU-") and len(uuid) == 20 for uuid in uuids)


def test_places(raw, info):
    assert [info(gpu, 0xA006) for gpu in raw.gpus] == [sysfs.bus(i) << 8 for i in range(8)]
    assert [info(gpu, 0xA004) for gpu in raw.gpus] == list(range(1, 9))


def test_the_clock_that_libdrm_tells_reaches_the_runtime(raw, info):
    assert info(raw.gpus[0], 0xA016, "uint64_t") == PART.counter_khz * 1000


def test_memory_sizes(raw, info):
    assert [raw.pool_info(raw.pool(gpu, 4), 2, "size_t *") for gpu in raw.gpus] == [PART.vram_gib << 30] * 8
    caches = raw.ffi.new("uint32_t[4]")
    raw.lib.hsa_agent_get_info(raw.gpus[0], 18, caches)
    assert list(caches) == [32 << 10, 4 << 20, 256 << 20, 0]


def test_links_between_gpus_and_to_the_host(raw):
    def link(agent: int, pool_of: int):
        pool = raw.pool(pool_of, 2 if pool_of == raw.cpu else 4)
        hops, out = raw.ffi.new("uint32_t *"), raw.ffi.new("hsa_amd_memory_pool_link_info_t *")
        raw.check("hops", raw.lib.hsa_amd_agent_memory_pool_get_info(agent, pool, 1, hops))
        raw.check("link", raw.lib.hsa_amd_agent_memory_pool_get_info(agent, pool, 2, out))
        return hops[0], out.link_type, out.min_bandwidth, out.max_bandwidth, out.atomic_support_64bit

    rates = SPEC.xgmi["min_bandwidth"], SPEC.xgmi["max_bandwidth"]
    for a in raw.gpus:
        for b in raw.gpus:
            if a != b:
                assert link(a, b) == (1, 4, *rates, True)
    assert link(raw.gpus[2], raw.cpu) == (1, 2, SPEC.pcie["min_bandwidth"], SPEC.pcie["max_bandwidth"], True)


def properties(path: Path) -> dict[str, int]:
    return {name: int(value) for name, value in (line.split() for line in path.read_text().splitlines())}


def test_recommended_engines_are_in_the_links_files(raw):
    root = raw.driver.tree.root
    for gpu in range(8):
        folder = root / f"nodes/{gpu + 1}"
        count = properties(folder / "properties")["io_links_count"]
        links = [properties(folder / f"io_links/{i}/properties") for i in range(count)]
        peers = {link["node_to"] - 1: link["recommended_sdma_engine_id_mask"] for link in links if link["type"] == 11}
        assert peers == {p: 1 << SPEC.recommended_engines[gpu][p] for p in range(8) if p != gpu}


HOLD = """
import sys
from hsakit.softgpu.node import load
from hsakit.softgpu.sysfs import Tree
print(Tree(load()).folder, flush=True)
sys.stdin.readline()
"""


def test_folders_of_killed_processes_are_removed_and_those_of_live_ones_are_not(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)

    def start():
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = subprocess.Popen([sys.executable, "-c", HOLD], text=True, cwd=Path(__file__).parents[2], **pipes)
        return process, Path(process.stdout.readline().strip())

    killed, abandoned = start()
    killed.kill()
    killed.wait(10)
    assert (abandoned / "topology/nodes/8/properties").exists()
    alive, kept = start()
    assert not abandoned.exists() and kept.exists()
    sysfs._remove_abandoned()
    assert kept.exists()
    alive.communicate("\n", timeout=20)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_found_again_if_its_removal_was_cut_short(tmp_path, monkeypatch):
    """The lock is what it is found by, so that goes last."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / "hsakit-node-x"
    (folder / "topology/nodes").mkdir(parents=True)
    (folder / "lock").touch()
    remove = shutil.rmtree

    class Killed(BaseException):
        pass

    def killed_after_the_first(*arguments, **options):
        remove(*arguments, **options)
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(sysfs.shutil, "rmtree", killed_after_the_first)
        sysfs._remove_abandoned()
    assert [path.name for path in folder.iterdir()] == ["lock"]
    sysfs._remove_abandoned()
    assert not folder.exists()
