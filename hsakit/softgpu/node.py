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
    engine_cus: tuple[tuple[int, ...], ...] = ()  # usable CUs of each shader engine: a row an XCC, or one for all XCCs

    @property
    def active_cus(self) -> tuple[tuple[int, ...], ...]:
        """Usable CUs of each shader engine of each XCC: ``[xcc][engine]``.  Spread evenly where the file is silent."""
        if self.engine_cus:
            return self.engine_cus * (self.xccs // len(self.engine_cus))
        each, more = divmod(self.cus, self.shader_engines)
        return (tuple(each + (engine < more) for engine in range(self.shader_engines)),) * self.xccs

    @property
    def target(self) -> str:
        """The name of its instruction set, as in gfx942."""
        major, rest = divmod(self.gfx_target_version, 10000)
        return f"gfx{major}{rest // 100:x}{rest % 100:x}"

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
        part = data["gpu"]
        cus = tuple(map(tuple, part.get("engine_cus", ())))
        gpu = Gpu(**{**part, "caches": tuple(part["caches"]), "engine_cus": cus})
        table = tuple(map(tuple, data.get("recommended_engines", {}).get("table", ())))
        spec = NodeSpec(data["name"], data["gpus"], gpu, data["xgmi"], data["pcie"], table)
    except (KeyError, TypeError) as exc:
        raise ValueError(f"{path}: {exc}") from exc
    if not 1 <= spec.gpus <= 16:
        raise ValueError(f"{path}: gpus = {spec.gpus}; 1 to 16 are possible")
    if cus and (
        len(cus) not in (1, gpu.xccs)
        or any(len(row) != gpu.shader_engines or sum(row) != gpu.cus or max(row) > gpu.cus_per_array for row in cus)
    ):
        raise ValueError(
            f"{path}: gpu.engine_cus is one row, or one for each of {gpu.xccs} XCCs, of {gpu.shader_engines} numbers "
            f"up to {gpu.cus_per_array} that add up to {gpu.cus}"
        )
    if table and (len(table) < spec.gpus or any(len(row) < spec.gpus for row in table)):
        raise ValueError(f"{path}: recommended_engines.table is smaller than gpus = {spec.gpus}")
    return spec
