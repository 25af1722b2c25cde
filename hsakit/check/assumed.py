"""What is assumed of a node: a node file, read as data."""

from __future__ import annotations

import sys
from functools import cached_property
from pathlib import Path
from typing import Any

from hsakit.ffi.errors import InvalidArgument

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Those that come with hsakit. They are read, no more: what plays such a node is none of our business.
SHIPPED = Path(__file__).resolve().parents[1] / "softgpu" / "nodes"
DEFAULT = "mi300x-8"
SET = "calibrated"  # of the constants that a node file has more than one set of


class Assumed:
    """A node file, by its path or by the name of one that comes with hsakit. InvalidArgument says what is wrong."""

    def __init__(self, name_or_path: str = DEFAULT):
        self.path = Path(name_or_path)
        if self.path.suffix != ".toml":
            self.path = SHIPPED / f"{name_or_path}.toml"
        try:
            self.text = self.path.read_text()
            self.data: dict[str, Any] = tomllib.loads(self.text)
            model = self.data["model"]
            sets = {key: value for key, value in model.items() if isinstance(value, dict)}
            self.constants: dict[str, float] = {
                key: float(value) for key, value in ({**model, **sets[SET]}).items() if key not in sets
            }
            self.gpus: int = self.data["gpus"]
            self.gpu: dict[str, Any] = self.data["gpu"]
            self.link: dict[str, int] = self.data["xgmi"]
            self.host_link: dict[str, int] = self.data["pcie"]
            self.cu_rates: dict[str, Any] = self.data["cu_rates"]
        except OSError as error:
            known = ", ".join(sorted(path.stem for path in SHIPPED.glob("*.toml"))) or "none"
            raise InvalidArgument(
                f"node file {self.path}: {error.strerror}; known by name: {known}; or give the path of a .toml file"
            ) from None
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidArgument(f"node file {self.path}: {error}") from None

    def __getattr__(self, name: str) -> float:
        """A constant of ``[model]``."""
        if name.startswith("_") or name not in self.__dict__.get("constants", ()):
            raise AttributeError(name)
        return self.constants[name]

    @cached_property
    def cus(self) -> int:
        return self.gpu["xccs"] * self.gpu["cus"]

    @cached_property
    def engine_cus(self) -> tuple[tuple[int, ...], ...]:
        """Usable CUs ``[xcc][shader engine]``."""
        rows = self.gpu.get("engine_cus")
        if not rows:
            each, more = divmod(self.gpu["cus"], self.gpu["shader_engines"])
            rows = [[each + (engine < more) for engine in range(self.gpu["shader_engines"])]]
        return tuple(map(tuple, rows)) * (self.gpu["xccs"] // len(rows))

    @cached_property
    def link_gb_s(self) -> float:
        """What copies get of one link, in a direction."""
        return self.link["max_bandwidth"] * self.link_efficiency / 1000

    @cached_property
    def engine_gb_s(self) -> float:
        """An engine's copy that no link holds back."""
        return self.link_gb_s * self.engine_headroom

    @cached_property
    def engine_wait_ns(self) -> float:
        """Of the time between an engine's stamps around a copy, what is not copying."""
        return self.engine_start_ns + self.engine_packet_ns

    def hbm_gb_s_of(self, cus: int) -> float:
        """Reads and writes of so many CUs that do nothing else."""
        return self.hbm_gb_s * min(1.0, self.beta * cus / self.cus)

    def peak_tflop_s(self, dtype: str) -> float:
        """Of all matrix cores."""
        return self.cu_rates["matrix"][dtype] * self.cus * self.gpu["clock_mhz"] / 1e6

    def recommended(self, src: int, dst: int) -> int | None:
        """The engine that the driver recommends for a peer."""
        table = self.data.get("recommended_engines", {}).get("table")
        return table[src][dst] if table else None
