"""The packets that a point's submissions make, those that crossed the libraries, and how they differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hsakit.counters import Tally

Copies = tuple[int, int, int, int]  # the GPU's index, the engine's number, bytes, how many of them


def planned(
    copies: Iterable[Copies], dispatches: int, packet_bytes: int, driver_engines: Mapping[tuple[int, int], int]
) -> dict:
    """Copy packets of at most ``packet_bytes`` each, in all and by ``GPU/engine of the driver``, and dispatches."""
    engines: dict[str, int] = {}
    for gpu, number, nbytes, times in copies:
        name = f"{gpu}/{driver_engines.get((gpu, number), number)}"
        engines[name] = engines.get(name, 0) + times * -(-nbytes // packet_bytes)
    return {"sdma_copy": sum(engines.values()), "aql_dispatch": dispatches, "engines": engines}


def counted(tally: Tally, plan: Mapping) -> dict | None:
    """The same from a tally, with the other kinds of packets that there were; None where nobody counts.
    The tally is of all GPUs, in their order."""
    totals = tally.totals()
    if totals is None or tally.counted is None:
        return None
    found: dict = {name: n for name, n in totals.items() if n or name in plan}
    found["engines"] = {
        f"{gpu}/{engine}": n
        for gpu, node in enumerate(tally.nodes)
        for engine, n in tally.counted.engine_copies(node).items()
    }
    return found


def difference(where: str, plan: Mapping, found: Mapping, engines_known: bool) -> str | None:
    """In words, what differs. Where it is not known which engine a number is, as many engines with as many packets
    each are the same."""
    for name in plan:
        expected, came = plan[name], found[name]
        if name == "engines" and not engines_known:
            expected, came = _by_gpu(expected), _by_gpu(came)
        if expected != came:
            return f"{where}: packets differ from the plan: {name} counted {found[name]}, planned {plan[name]}"
    return None


def _by_gpu(engines: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted((name.partition("/")[0], n) for name, n in engines.items())
