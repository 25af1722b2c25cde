"""A node file: what machine the software node is.  Another machine is another file."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, fields
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from .clock.constants import Constants, parse
from .clock.cost import CuRates, parse_cu_rates

NODES = Path(__file__).with_name("nodes")
# What is possible: no more than the fields of the interfaces hold, and what the libraries divide by is not 0.
LIMITS = {
    "gfx_target_version": (90000, 129999),
    "device_id": (1, 0xFFFF),
    "xccs": (1, 16),
    "shader_engines": (1, 64),
    "cus": (1, 1024),
    "cus_per_array": (1, 1024),
    "simds_per_cu": (1, 8),
    "waves_per_simd": (1, 64),
    "lds_kib": (1, 1024),
    "vram_gib": (1, 1024),
    "clock_mhz": (1, 100_000),
    "memory_clock_mhz": (1, 100_000),
    "memory_width": (1, 1 << 20),
    "counter_khz": (1, 10_000_000),
    "sdma_engines": (1, 15),  # together no more than the runtime names by the bits of a signed word
    "sdma_xgmi_engines": (0, 16),
    "sdma_queues_per_engine": (1, 64),
    "cp_queues": (1, 1024),
}


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
    gb_addr_config: int = 0  # the register that says how images are interleaved; 0: the part has no images
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
    model: dict[str, Constants]
    """constants of the clock: the sets ``untuned`` and ``calibrated``"""
    cu_rates: CuRates
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
    try:
        with open(path, "rb") as file:
            data = tomllib.load(file)
        spec = _spec(data)
        _check(spec)
    except KeyError as exc:
        raise ValueError(f"{path}: {exc.args[0]} is missing") from exc
    except (OSError, TypeError, ValueError) as exc:
        raise ValueError(f"{path}: {exc}") from exc
    return spec


def _only(where: str, table: dict, *known: str) -> None:
    """A misspelt key must not leave the machine as it was without a word."""
    if unknown := sorted(table.keys() - set(known)):
        raise ValueError(f"{where} has no {', '.join(unknown)}; it has {', '.join(known)}")


def _spec(data: dict) -> NodeSpec:
    for table in ("gpu", "xgmi", "pcie", "model", "cu_rates"):
        if not isinstance(data[table], dict):
            raise ValueError(f"{table} = {data[table]!r}; it is a table, [{table}]")
    _only("a node file", data, "name", "gpus", "gpu", "xgmi", "pcie", "model", "cu_rates", "recommended_engines")
    for link in ("xgmi", "pcie"):
        _only(f"[{link}]", data[link], "weight", "min_bandwidth", "max_bandwidth")
    _only("[recommended_engines]", data.get("recommended_engines", {}), "table")
    part = dict(data["gpu"])
    wanted = {field.name for field in fields(Gpu)}
    if unknown := sorted(part.keys() - wanted):
        raise ValueError(f"[gpu] has no {', '.join(unknown)}")
    if missing := sorted(wanted - part.keys() - {"engine_cus", "gb_addr_config"}):
        raise ValueError(f"[gpu] lacks {', '.join(missing)}")
    part["caches"] = tuple(part["caches"])
    part["engine_cus"] = tuple(map(tuple, part.get("engine_cus", ())))
    table = data.get("recommended_engines", {}).get("table", ())
    return NodeSpec(
        data["name"],
        data["gpus"],
        Gpu(**part),
        data["xgmi"],
        data["pcie"],
        parse(data["model"]),
        parse_cu_rates(data["cu_rates"]),
        tuple(map(tuple, table)),
    )


def _check(spec: NodeSpec) -> None:
    part = spec.gpu
    values = [("gpus", spec.gpus, 1, 16)]
    values += [(f"gpu.{name}", getattr(part, name), low, high) for name, (low, high) in LIMITS.items()]
    values += [("gpu.gb_addr_config", part.gb_addr_config, 0, 0xFFFFFFFF)]
    for link, rates in (("xgmi", spec.xgmi), ("pcie", spec.pcie)):
        values += [(f"{link}.{key}", rates[key], 1, 1 << 31) for key in ("weight", "min_bandwidth", "max_bandwidth")]
    for cache in part.caches:
        values += [("gpu.caches: level", cache["level"], 1, 4)]
        values += [(f"gpu.caches: {key}", cache[key], 1, 1 << 31) for key in ("size_kib", "line", "count")]
        if cache["type"] not in ("data", "instruction"):
            raise ValueError(f"gpu.caches: type = {cache['type']!r}; data and instruction are possible")
    for name, value, low, high in values:
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"{name} = {value!r}; a whole number from {low} to {high} is possible")
    if not part.caches:
        raise ValueError("gpu.caches is empty; the runtime needs at least one")
    _check_engine_cus(part)
    _check_table(spec)


def _check_engine_cus(part: Gpu) -> None:
    rows = part.active_cus
    right = all(len(row) == part.shader_engines and sum(row) == part.cus for row in rows)
    if len(part.engine_cus) not in (0, 1, part.xccs) or not right or max(map(max, rows)) > part.cus_per_array:
        raise ValueError(
            f"gpu.engine_cus = {part.engine_cus}; possible is one row, or a row for each of {part.xccs} XCCs, of "
            f"{part.shader_engines} numbers up to {part.cus_per_array} (cus_per_array) that add up to {part.cus} (cus)"
        )


def _check_table(spec: NodeSpec) -> None:
    table, engines = spec.recommended_engines, spec.gpu.engines
    if not table:
        return
    if len(table) != spec.gpus or any(len(row) != spec.gpus for row in table):
        rows = " and ".join(sorted({f"{len(row)} columns" for row in table}))
        raise ValueError(f"recommended_engines.table has {len(table)} rows of {rows}; gpus = {spec.gpus} wants as many")
    for source in range(spec.gpus):
        for destination in range(spec.gpus):
            engine = table[source][destination]
            if source != destination and not (type(engine) is int and 0 <= engine < engines):
                raise ValueError(f"recommended_engines.table[{source}][{destination}] = {engine!r}; 0 to {engines - 1}")
