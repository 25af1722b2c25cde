"""What the dma sweep measures: which transfers, on which engines, how many at once, in which order.

A transfer goes from one end to another, an end being a GPU's index or HOST. Its engine belongs to the source GPU, or to
the destination when the source is the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hsakit.ffi.errors import InvalidArgument
from hsakit.sweep.sizes import counted, format_size

HOST = "host"
End = int | str  # a GPU's index, or HOST
Pair = tuple[End, End]  # source, destination
MODES = ("one-way", "both-ways", "engines", "all-gpus")
KINDS = ("peer", "h2d", "d2h", "same")
SIZES = "1:256M:x4,7,4K-1,64K+1,1M+13"
QUICK_SIZES = "1,4K-1,64K+1"


@dataclass(frozen=True)
class Machine:
    """The engines a sweep can choose from. `engines`: all of each GPU; `peer_engines`: those it may use towards a peer;
    `linked`: the (source, destination) of GPUs that have a link. `recommended`: the driver's choice for such a pair,
    where it has one. `inward`: engines, as (GPU, engine), that take nothing out of their GPU."""

    engines: dict[int, tuple[int, ...]]
    peer_engines: dict[int, tuple[int, ...]]
    linked: frozenset[tuple[int, int]]
    recommended: dict[tuple[int, int], int]
    inward: frozenset[tuple[int, int]] = frozenset()

    @property
    def gpus(self) -> tuple[int, ...]:
        return tuple(self.engines)

    def engines_for(self, src: End, dst: End) -> tuple[int, ...]:
        owner = src if isinstance(src, int) else int(dst)
        engines = (self.peer_engines if kind_of(src, dst) == "peer" else self.engines)[owner]
        if src == HOST or src == dst:
            return engines
        return tuple(engine for engine in engines if (owner, engine) not in self.inward)


@dataclass(frozen=True)
class Transfer:
    src: End
    dst: End
    engine: int

    @property
    def owner(self) -> int:
        """The GPU whose engine it is."""
        return self.src if isinstance(self.src, int) else int(self.dst)

    @property
    def kind(self) -> str:
        return kind_of(self.src, self.dst)

    def __str__(self) -> str:
        return f"{self.src}-{self.dst}/{self.engine}"


@dataclass(frozen=True)
class Point:
    """Transfers of `nbytes` each that run at once."""

    mode: str
    transfers: tuple[Transfer, ...]
    nbytes: int

    @property
    def kind(self) -> str:
        return "+".join(dict.fromkeys(transfer.kind for transfer in self.transfers))

    @property
    def gated(self) -> bool:
        """Several copies wait for one signal and start together; a single one is launched by the host."""
        return len(self.transfers) > 1

    def __str__(self) -> str:
        return f"{self.mode} {' '.join(map(str, self.transfers))} {self.nbytes}B"


@dataclass(frozen=True)
class Selection:
    """What to sweep. gpus, pairs, engines: None for all. A pair is (source, destination) or one of KINDS.
    quick: every engine and every pair once or twice, instead of every engine for every pair."""

    sizes: tuple[int, ...]
    modes: tuple[str, ...] = MODES
    gpus: tuple[int, ...] | None = None
    pairs: tuple[Pair | str, ...] | None = None
    engines: tuple[int, ...] | None = None
    quick: bool = False


def kind_of(src: End, dst: End) -> str:
    if src == HOST:
        return "h2d"
    if dst == HOST:
        return "d2h"
    return "same" if src == dst else "peer"


def plan(machine: Machine, selection: Selection) -> list[Point]:
    """The points of a selection, in the order to run them. InvalidArgument for what this machine does not have."""
    for mode in selection.modes:
        if mode not in MODES:
            raise InvalidArgument(f"mode {mode!r}: valid are {', '.join(MODES)}")
    pairs = _pairs(machine, selection)
    usable = _usable_engines(machine, selection, pairs)
    makers = {"one-way": _one_way, "both-ways": _both_ways, "engines": _engines_at_once, "all-gpus": _all_gpus}
    points = [point for mode in selection.modes for point in makers[mode](machine, selection, pairs, usable)]
    if not points:
        raise InvalidArgument(
            f"nothing to measure: {', '.join(selection.modes)} over {len(pairs)} pairs ("
            f"{', '.join(dict.fromkeys(kind_of(*pair) for pair in pairs))}) has no points; "
            "both-ways needs both directions of a pair, engines and all-gpus need peers"
        )
    return points


def _pairs(machine: Machine, selection: Selection) -> list[Pair]:
    """The ordered pairs selected, peers first."""
    gpus = selection.gpus if selection.gpus is not None else machine.gpus
    for gpu in gpus:
        _known(machine, gpu)
    every: dict[str, list[Pair]] = {
        "peer": [(src, dst) for src in gpus for dst in gpus if (src, dst) in machine.linked],
        "h2d": [(HOST, gpu) for gpu in gpus],
        "d2h": [(gpu, HOST) for gpu in gpus],
        "same": [(gpu, gpu) for gpu in gpus],
    }
    chosen: list[Pair] = []
    for pair in selection.pairs if selection.pairs is not None else KINDS:
        if isinstance(pair, str):
            if pair not in KINDS:
                raise InvalidArgument(
                    f"pair {pair!r}: valid are SRC-DST (0-1, host-0, 0-host, 0-0) and {', '.join(KINDS)}"
                )
            chosen += every[pair]
            continue
        if pair == (HOST, HOST):
            raise InvalidArgument("pair host-host: an engine copies from or to a GPU")
        for end in pair:
            if end != HOST:
                _known(machine, end)
        if kind_of(*pair) == "peer" and pair not in machine.linked:
            raise InvalidArgument(f"pair {pair[0]}-{pair[1]}: there is no link between them")
        chosen.append(pair)
    return list(dict.fromkeys(chosen))


def _known(machine: Machine, gpu) -> None:
    if gpu not in machine.engines:
        raise InvalidArgument(f"GPU {gpu}: this node has {_ranges(machine.gpus)}")


def _usable_engines(machine: Machine, selection: Selection, pairs) -> dict[Pair, tuple[int, ...]]:
    """The engines to use for each pair. An engine nobody can use, and a pair left without one, are refused."""
    wanted = selection.engines
    usable = {
        pair: tuple(engine for engine in machine.engines_for(*pair) if wanted is None or engine in wanted)
        for pair in pairs
    }
    for engine in wanted or ():
        if not any(engine in engines for engines in usable.values()):
            valid = "; ".join(
                f"{kind}: {_ranges(engines)}"
                for kind, engines in {kind_of(*pair): machine.engines_for(*pair) for pair in pairs}.items()
            )
            raise InvalidArgument(f"engine {engine} can do none of the transfers selected; valid are {valid}")
    explicit = [pair for pair in selection.pairs or () if not isinstance(pair, str)]
    for pair in pairs:
        if not usable[pair] and pair in explicit:
            raise InvalidArgument(
                f"pair {pair[0]}-{pair[1]} can use none of the engines {_ranges(wanted or ())}; "
                f"valid are {_ranges(machine.engines_for(*pair))}"
            )
    return {pair: engines for pair, engines in usable.items() if engines}


def _ranges(numbers: Iterable[int]) -> str:
    """0-7, or 0,2-3."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts) or "none"


def _share(items: Sequence[int], index: int, parts: int) -> Sequence[int]:
    """Part `index` of `parts` of the items: none shared while there are enough, one each when there are not."""
    size = max(1, len(items) // parts)
    start = index * size % len(items)
    return items[start : start + size]


def _one_way(machine, selection, pairs, usable):
    for pair in pairs:
        engines = usable.get(pair, ())
        if selection.quick and engines:
            if kind_of(*pair) == "peer":  # all engines of a GPU over its peers
                peers = [p for p in pairs if p in usable and p[0] == pair[0] and kind_of(*p) == "peer"]
                engines = _share(engines, peers.index(pair), len(peers))
            else:
                engines = engines[:2]
        for engine in engines:
            for nbytes in selection.sizes:
                yield Point("one-way", (Transfer(*pair, engine),), nbytes)


def _both_ways(machine, selection, pairs, usable):
    """Both directions of a link at once: peers on the same engine number, host and GPU on two engines of the GPU."""
    for src, dst in pairs:
        back = (dst, src)
        if src == dst or back not in usable or (src, dst) not in usable or pairs.index(back) < pairs.index((src, dst)):
            continue
        there, here = usable[src, dst], usable[back]
        if kind_of(src, dst) == "peer":
            choices = [(engine, engine) for engine in there if engine in here]
        else:
            choices = [(there[0], next((engine for engine in here if engine != there[0]), here[0]))]
        if selection.quick:
            at = pairs.index((src, dst)) % max(1, len(choices))
            choices = choices[at : at + 1]
        for engine, other in choices:
            for nbytes in _largest_if_quick(selection):
                yield Point("both-ways", (Transfer(src, dst, engine), Transfer(dst, src, other)), nbytes)


def _engines_at_once(machine, selection, pairs, usable):
    """k engines of one GPU, towards its peers in turn."""
    for src in machine.gpus:
        peers = [dst for a, dst in pairs if a == src and kind_of(a, dst) == "peer" and (a, dst) in usable]
        if not peers:
            continue
        engines = usable[src, peers[0]]
        counts = {2 << i for i in range(8)} | {len(peers), len(engines)}
        counts = sorted(k for k in counts if 2 <= k <= len(engines))
        for k in counts[-1:] if selection.quick else counts:
            transfers = tuple(Transfer(src, peers[i % len(peers)], engine) for i, engine in enumerate(engines[:k]))
            for nbytes in _largest_if_quick(selection):
                yield Point("engines", transfers, nbytes)


def _all_gpus(machine, selection, pairs, usable):
    """Every GPU sends to every peer selected, on the engine the driver recommends or an engine of its own."""
    transfers = []
    for src in machine.gpus:
        peers = [pair for pair in pairs if pair[0] == src and kind_of(*pair) == "peer" and pair in usable]
        for index, pair in enumerate(peers):
            engine = machine.recommended.get(pair)
            if engine not in usable[pair]:
                engine = _share(usable[pair], index, len(peers))[0]
            transfers.append(Transfer(*pair, engine))
    if len(transfers) > 1:
        for nbytes in _largest_if_quick(selection):
            yield Point("all-gpus", tuple(transfers), nbytes)


def _largest_if_quick(selection: Selection) -> tuple[int, ...]:
    return (max(selection.sizes),) if selection.quick else selection.sizes


def describe(points: Sequence[Point]) -> str:
    """One line about a plan."""
    sizes = [point.nbytes for point in points]
    pairs = {(t.src, t.dst) for point in points for t in point.transfers}
    engines = {(t.owner, t.engine) for point in points for t in point.transfers}
    return (
        f"{counted(len(points), 'point')}: {counted(len(pairs), 'ordered pair')}, {counted(len(engines), 'engine')} of "
        f"{counted(len({gpu for gpu, _ in engines}), 'GPU')}, {format_size(min(sizes))} to {format_size(max(sizes))}"
    )
