"""What runs at the same time on every GPU: a GEMM and a collective. The shipped ones stand in scenarios.toml."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from hsakit.ffi.errors import InvalidArgument
from hsakit.gemm import FORMATS
from hsakit.sweep.load_spec import parse_gemm
from hsakit.sweep.loads import Gemm
from hsakit.sweep.sizes import format_size, parse_size

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SHIPPED = Path(__file__).with_name("scenarios.toml")
COLLECTIVES = {"all-gather": "ag", "all-to-all": "a2a"}  # and what their names are shortened to
_ENTRY = {"set": str, "name": str, "gemm": dict, "collectives": list, "bytes": str, "derivation": str}


@dataclass(frozen=True)
class Scenario:
    """C = A B for A of m x k and B of k x n elements, and a collective with ``nbytes`` of output on each GPU.

    ``derivation`` says where the sizes come from; ``group`` is the set in the file.
    """

    name: str
    dtype: str
    m: int
    n: int
    k: int
    collective: str
    nbytes: int
    derivation: str = ""
    group: str = ""
    layout: str = "nn"

    def __post_init__(self):
        if self.dtype not in FORMATS:
            raise InvalidArgument(f"scenario {self.name}: type {self.dtype!r}; valid: {', '.join(FORMATS)}")
        if min(self.m, self.n, self.k) < 1:
            raise InvalidArgument(f"scenario {self.name}: m={self.m}, n={self.n}, k={self.k}: each is at least 1")
        if self.collective not in COLLECTIVES:
            raise InvalidArgument(
                f"scenario {self.name}: collective {self.collective!r}; valid: {', '.join(COLLECTIVES)}"
            )
        if self.nbytes < 1:
            raise InvalidArgument(
                f"scenario {self.name}: a collective of {self.nbytes} bytes takes no time: there is nothing to overlap"
            )

    def __str__(self) -> str:
        shape = f"{self.dtype}:{self.m}x{self.n}x{self.k}" + (f":{self.layout}" if self.layout != "nn" else "")
        return f"{shape}+{self.collective}:{format_size(self.nbytes)}"

    def as_json(self) -> dict:
        """What a row says of it."""
        return asdict(self) | {"gemm": str(self).partition("+")[0], "gemm_bytes": self.gemm_bytes, "flops": self.flops}

    @property
    def flops(self) -> int:
        """Operations of the GEMM, a multiplication and an addition each counted."""
        return 2 * self.m * self.n * self.k

    @property
    def gemm_bytes(self) -> int:
        """Bytes of A, B and C: the least that the GEMM moves."""
        return FORMATS[self.dtype].element.itemsize * (self.m * self.k + self.k * self.n + self.m * self.n)

    @property
    def intensity(self) -> float:
        """Operations of the GEMM over its bytes."""
        return self.flops / self.gemm_bytes


def load(path: Path | str = SHIPPED) -> list[Scenario]:
    """The scenarios of a file, in its order. InvalidArgument says what is wrong with it."""
    try:
        data = tomllib.loads(Path(path).read_text())
    except OSError as error:
        raise InvalidArgument(f"scenarios {path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(f"scenarios {path}: {error}") from None
    entries = data.get("scenario")
    if not isinstance(entries, list) or not entries:
        raise InvalidArgument(f"scenarios {path}: it has no [[scenario]]")
    found = [each for entry in entries for each in _expand(entry, path)]
    names = [each.name for each in found]
    if double := next((name for name in names if names.count(name) > 1), None):
        raise InvalidArgument(f"scenarios {path}: {double} is there twice")
    return found


def _expand(entry: dict, path) -> list[Scenario]:
    where = f"scenarios {path}, {entry.get('name', 'an entry without a name')}"
    for name, kind in _ENTRY.items():
        if not isinstance(entry.get(name), kind):
            raise InvalidArgument(f"{where}: {name} is a {kind.__name__}, not {entry.get(name)!r}")
    gemm, kinds = entry["gemm"], entry["collectives"]
    if unknown := (entry.keys() - _ENTRY) | (gemm.keys() - {"m", "n", "k", "dtype", "layout"}):
        raise InvalidArgument(f"{where}: unknown {', '.join(sorted(unknown))}")
    if lacking := {"m", "n", "k", "dtype"} - gemm.keys():
        raise InvalidArgument(f"{where}: its gemm lacks {', '.join(sorted(lacking))}")
    for kind in kinds:
        if kind not in COLLECTIVES:
            raise InvalidArgument(f"{where}: collective {kind!r}; valid: {', '.join(COLLECTIVES)}")
    return [
        Scenario(
            name=f"{entry['name']}-{COLLECTIVES[kind]}",
            collective=kind,
            nbytes=parse_size(entry["bytes"]),
            derivation=entry["derivation"],
            group=entry["set"],
            **gemm,
        )
        for kind in kinds
    ]


def of_gemm(gemm: Gemm) -> Scenario:
    """A scenario for those who want its GEMM only; the collective is as small as can be."""
    return Scenario(str(gemm), gemm.dtype, gemm.m, gemm.n, gemm.k, "all-gather", 1 << 10, "", "given", gemm.layout)


def parse(text: str) -> Scenario:
    """A scenario as a person writes it: ``bf16:8192x8192x8192+all-gather:448M``."""
    gemm, plus, collective = text.partition("+")
    kind, colon, size = collective.partition(":")
    if not plus or not colon:
        raise InvalidArgument(f"scenario {text!r}: expected GEMM+COLLECTIVE:SIZE, as bf16:64x64x64+all-gather:1M")
    load = parse_gemm(gemm)
    return Scenario(text, load.dtype, load.m, load.n, load.k, kind, parse_size(size), "", "given", load.layout)


def select(words: Iterable[str], scenarios: Iterable[Scenario] | None = None) -> list[Scenario]:
    """The scenarios that words name, each once: a set (``llama``), an entry (``cb1``), a scenario (``cb1-ag``), a file
    that ends in .toml (all of it), one written out, or 30 drawn by a seed (``drawn:7``)."""
    known = load() if scenarios is None else list(scenarios)
    found: dict[str, Scenario] = {}
    for word in words:
        if "+" in word:
            chosen = [parse(word)]
        elif word.endswith(".toml"):
            chosen = load(word)
        elif word.startswith("drawn:") and word[6:].isdecimal():
            from hsakit.c3.drawn import drawn  # here: it makes what this module defines

            chosen = drawn(int(word[6:]))
        else:
            chosen = [s for s in known if word in (s.group, s.name, s.name.rpartition("-")[0])]
        if not chosen:
            sets = ", ".join(dict.fromkeys(s.group for s in known))
            raise InvalidArgument(
                f"scenario {word!r}: a set ({sets}), a name, GEMM+COLLECTIVE:SIZE, a .toml or drawn:SEED"
            )
        for each in chosen:
            if found.setdefault(each.name, each) != each:
                raise InvalidArgument(f"scenario {each.name} is there twice, and differs")
    return list(found.values())
