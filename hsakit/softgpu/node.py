"""A node file: what machine the software node is.  Another machine is another file."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NODES = Path(__file__).with_name("nodes")


@dataclass(frozen=True)
class Gpu:
    """The part.  All GPUs of a node are alike."""

    name: str
    gfx_target_version: int  # major * 10000 + minor * 100 + stepping
    device_id: int
    xccs: int
    shader_engines: int  # of one XCC
    cus: int  # of one XCC, usable
    cus_per_array: int
    simds_per_cu: int
    waves_per_simd: int
    lds_kib: int
    vram_gib: int
    clock_mhz: int
    memory_clock_mhz: int
    memory_width: int  # bits
    counter_khz: int  # the clock of s_memrealtime and of every time stamp
    sdma_engines: int
    sdma_xgmi_engines: int
    sdma_queues_per_engine: int
    cp_queues: int
    caches: tuple[dict, ...]  # level, size_kib, line, type ("data" or "instruction"), count

    @property
    def total_cus(self) -> int:
        return self.xccs * self.cus

    @property
    def engines(self) -> int:
        return self.sdma_engines + self.sdma_xgmi_engines


@dataclass(frozen=True)
class NodeSpec:
    name: str
    gpus: int
    gpu: Gpu
    xgmi: dict
    pcie: dict
    recommended_engines: tuple[tuple[int, ...], ...] = field(default=())

    def recommended_mask(self, source: int, destination: int) -> int:
        """Engine mask that the driver recommends for copies from one GPU to another; 0 where it names none."""
        if not self.recommended_engines:
            return 0
        return 1 << self.recommended_engines[source][destination]


def load(name_or_path: str = "mi300x-8") -> NodeSpec:
    """Read a node file: a name in ``nodes/`` or a path.  ValueError says what is wrong with it."""
    path = Path(name_or_path)
    if path.suffix != ".toml":
        path = NODES / f"{name_or_path}.toml"
    if not path.exists():
        known = ", ".join(sorted(p.stem for p in NODES.glob("*.toml")))
        raise ValueError(f"no node file {name_or_path!r}; known: {known}; or give the path of a .toml file")
    with open(path, "rb") as file:
        data = tomllib.load(file)
    try:
        gpu = Gpu(**{**data["gpu"], "caches": tuple(data["gpu"]["caches"])})
        table = tuple(map(tuple, data.get("recommended_engines", {}).get("table", ())))
        spec = NodeSpec(data["name"], data["gpus"], gpu, data["xgmi"], data["pcie"], table)
    except (KeyError, TypeError) as exc:
        raise ValueError(f"{path}: {exc}") from exc
    if not 1 <= spec.gpus <= 16:
        raise ValueError(f"{path}: gpus = {spec.gpus}; 1 to 16 are possible")
    if table and (len(table) < spec.gpus or any(len(row) < spec.gpus for row in table)):
        raise ValueError(f"{path}: recommended_engines.table is smaller than gpus = {spec.gpus}")
    return spec
