"""The driver's topology as files, laid out as /sys/devices/virtual/kfd/kfd/topology is.

The thunk reads it through its (redirected) fopen, the toolkit as plain files.  Property names are the kernel's
(kfd_topology.c); what nobody reads is left out.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from .node import NodeSpec

PREFIX = "hsakit-node-"
FIRST_RENDER_MINOR = 128
XGMI, PCIE = 11, 2
HEAP_SYSTEM, HEAP_VRAM_PUBLIC = 0, 1
CACHE_DATA, CACHE_INSTRUCTION, CACHE_HSACU = 1, 2, 8

# Capability bits (HSA_CAPABILITY in hsakmttypes.h): doorbells of 64 bits (type 2, bits 12-13), SRAM EDC (26), SVM (27),
# debugger support (29): without it the runtime takes no reasons for queue errors
CAPABILITY = (2 << 12) | (1 << 26) | (1 << 27) | (1 << 29)


def gpu_id(gpu: int) -> int:
    """The driver's name for a GPU: any stable nonzero number; a real one is a hash of its place on the bus."""
    return 0x4D00 + gpu


def bus(gpu: int) -> int:
    return 0x05 + 0x10 * gpu


def _text(properties: dict) -> str:
    return "".join(f"{key} {value}\n" for key, value in properties.items())


def _link(kind: int, source: int, target: int, rates: dict, engines: int = 0) -> dict:
    return {
        "type": kind,
        "version_major": 0,
        "version_minor": 0,
        "node_from": source,
        "node_to": target,
        "weight": rates["weight"],
        "min_latency": 0,
        "max_latency": 0,
        "min_bandwidth": rates["min_bandwidth"],
        "max_bandwidth": rates["max_bandwidth"],
        "recommended_transfer_size": 0,
        "recommended_sdma_engine_id_mask": engines,
        "flags": 1,
    }


def _gpu_properties(spec: NodeSpec, gpu: int, links: int) -> dict:
    part = spec.gpu
    return {
        "cpu_cores_count": 0,
        "simd_count": part.total_cus * part.simds_per_cu,
        "mem_banks_count": 1,
        "caches_count": len(part.caches),
        "io_links_count": links,
        "p2p_links_count": 0,
        "cpu_core_id_base": 0,
        "simd_id_base": 0x80000000 + gpu * 0x1000,
        "max_waves_per_simd": part.waves_per_simd,
        "lds_size_in_kb": part.lds_kib,
        "gds_size_in_kb": 0,
        "num_gws": 64,
        "wave_front_size": 64,
        "array_count": part.shader_engines * part.xccs,
        "simd_arrays_per_engine": 1,
        "cu_per_simd_array": part.cus_per_array,
        "simd_per_cu": part.simds_per_cu,
        "max_slots_scratch_cu": 32,
        "gfx_target_version": part.gfx_target_version,
        "vendor_id": 0x1002,
        "device_id": part.device_id,
        "location_id": bus(gpu) << 8,
        "domain": 0,
        "drm_render_minor": FIRST_RENDER_MINOR + gpu,
        "hive_id": 0x4D4933303058,
        "num_sdma_engines": part.sdma_engines,
        "num_sdma_xgmi_engines": part.sdma_xgmi_engines,
        "num_sdma_queues_per_engine": part.sdma_queues_per_engine,
        "num_cp_queues": part.cp_queues,
        "max_engine_clk_fcompute": part.clock_mhz,
        "local_mem_size": 0,
        "fw_version": 160,
        "capability": CAPABILITY,
        "debug_prop": 0,
        "sdma_fw_version": 24,
        "unique_id": 0xA11CE000 + gpu,
        "num_xcc": part.xccs,
        "max_engine_clk_ccompute": 2100,
    }


class Tree:
    """A topology on disk, in a folder of its own that goes away with the process."""

    def __init__(self, spec: NodeSpec):
        _remove_abandoned()
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._owner = os.getpid()
        # Held for as long as we live, however we die; it gets its name once it is, so that nobody finds it free before.
        self._lock = open(self.folder / "locking", "w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.rename(self._lock.name, self.folder / "lock")
        atexit.register(self.remove)
        self.root = self.folder / "topology"
        self._write(spec)

    def node(self, gpu: int) -> Path:
        return self.root / "nodes" / str(gpu + 1)

    def remove(self) -> None:
        if os.getpid() == self._owner:  # a forked child shares the folder with its parent
            _remove(self.folder)

    def _put(self, path: str, properties: dict | str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(properties if isinstance(properties, str) else _text(properties))

    def _write(self, spec: NodeSpec) -> None:
        self._put("generation_id", "1\n")
        self._put("system_properties", {"platform_oem": 0, "platform_id": 0, "platform_rev": 0})
        self._put("nodes/0/gpu_id", "0\n")
        self._put(
            "nodes/0/properties",
            {
                "cpu_cores_count": os.cpu_count() or 1,
                "simd_count": 0,
                "mem_banks_count": 1,
                "caches_count": 0,
                "io_links_count": spec.gpus,
                "p2p_links_count": 0,
                "cpu_core_id_base": 0,
            },
        )
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self._put(
            "nodes/0/mem_banks/0/properties",
            {"heap_type": HEAP_SYSTEM, "size_in_bytes": pages, "flags": 0, "width": 64, "mem_clk_max": 2400},
        )
        for gpu in range(spec.gpus):
            self._put(f"nodes/0/io_links/{gpu}/properties", _link(PCIE, 0, gpu + 1, spec.pcie))
            self._write_gpu(spec, gpu)

    def _write_gpu(self, spec: NodeSpec, gpu: int) -> None:
        part, here = spec.gpu, f"nodes/{gpu + 1}"
        links = [_link(PCIE, gpu + 1, 0, spec.pcie)]
        links += [
            _link(XGMI, gpu + 1, peer + 1, spec.xgmi, spec.recommended_mask(gpu, peer))
            for peer in range(spec.gpus)
            if peer != gpu
        ]
        self._put(f"{here}/gpu_id", f"{gpu_id(gpu)}\n")
        self._put(f"{here}/properties", _gpu_properties(spec, gpu, len(links)))
        for i, link in enumerate(links):
            self._put(f"{here}/io_links/{i}/properties", link)
        self._put(
            f"{here}/mem_banks/0/properties",
            {
                "heap_type": HEAP_VRAM_PUBLIC,
                "size_in_bytes": part.vram_gib << 30,
                "flags": 0,
                "width": part.memory_width,
                "mem_clk_max": part.memory_clock_mhz,
            },
        )
        for i, cache in enumerate(part.caches):
            kind = CACHE_INSTRUCTION if cache["type"] == "instruction" else CACHE_DATA
            self._put(
                f"{here}/caches/{i}/properties",
                {
                    "processor_id_low": 0x80000000 + gpu * 0x1000,
                    "level": cache["level"],
                    "size": cache["size_kib"],
                    "cache_line_size": cache["line"],
                    "cache_lines_per_tag": 1,
                    "association": 16,
                    "latency": 0,
                    "type": kind | CACHE_HSACU,
                },
            )


def _remove_abandoned() -> None:
    """Folders of processes that were killed before they could clean up: nobody holds their lock."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            with open(folder / "lock") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue  # alive, or another user's, or not yet locked
        _remove(folder)


def _remove(folder: Path) -> None:
    """The lock goes last: what a process leaves that is killed in the middle is found by the next one."""
    shutil.rmtree(folder / "topology", ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
