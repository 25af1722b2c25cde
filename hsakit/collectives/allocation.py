"""Which engine carries what: a peer's recommended engine where the driver names one, else engines shared out evenly."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from weakref import WeakKeyDictionary

from hsakit.ffi.errors import InvalidArgument
from hsakit.platform import CopyEngine, Gpu, Platform

Way = tuple[int, int]  # ranks: from, to


class Allocation:
    """The engines in use by the collectives that are prepared on one platform. Threads may take at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used: Counter[tuple[int, int]] = Counter()  # (GPU, engine): ways

    def take(self, gpus: Sequence[Gpu], ways: Iterable[Way], split: int) -> dict[Way, tuple[CopyEngine, ...]]:
        """``split`` engines of the sender for every way, each another one.

        Towards a peer the first is the one that the driver recommends, unless another peer has it already. All others
        are those with the fewest ways in this call, then in all that are prepared: no two ways share an engine while
        another is idle. What stays within a GPU comes last.
        """
        chosen: dict[Way, list[CopyEngine]] = {way: [] for way in ways}
        mine: Counter[tuple[int, int]] = Counter()
        with self._lock:
            # All first engines before the second ones, so that splitting takes no peer its recommended engine.
            for piece in range(split):
                for way in sorted(chosen, key=lambda way: way[0] == way[1]):
                    src, dst = (gpus[rank] for rank in way)
                    engine = self._choose(src, dst, chosen[way], mine, recommended=piece == 0)
                    chosen[way].append(engine)
                    mine[src.index, engine.index] += 1
            self._used += mine
        return {way: tuple(engines) for way, engines in chosen.items()}

    def give_back(self, gpus: Sequence[Gpu], taken: dict[Way, tuple[CopyEngine, ...]]) -> None:
        """The engines of a ``take`` are used no more."""
        with self._lock:
            self._used -= Counter((gpus[src].index, e.index) for (src, _), engines in taken.items() for e in engines)

    def _choose(self, src: Gpu, dst: Gpu, not_these: list, mine: Counter, recommended: bool) -> CopyEngine:
        every = [engine for engine in src.engines_to(dst) if engine not in not_these]
        if not every:
            raise InvalidArgument(
                f"{src.label} has {len(not_these)} engines for copies to {dst.label}: split over no more than those"
            )
        least = min(mine[src.index, engine.index] for engine in every)
        free = [engine for engine in every if mine[src.index, engine.index] == least]
        if recommended:
            for engine in src.recommended_to(dst):
                if engine in free:
                    return engine
        return min(free, key=lambda engine: (self._used[src.index, engine.index], engine.index))


_allocations: WeakKeyDictionary[Platform, Allocation] = WeakKeyDictionary()
_lock = threading.Lock()


def of(platform: Platform) -> Allocation:
    """The platform's allocation, one for all who prepare collectives on it."""
    with _lock:
        return _allocations.setdefault(platform, Allocation())
