"""The constants of the model, as a node file's ``[model]`` gives them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

SETS = ("untuned", "calibrated")
# What is possible: beyond it the equations have no meaning.
LIMITS = {
    "efficiency": (0.01, 1.0),
    "hbm_gb_s": (1.0, 1e6),
    "link_efficiency": (0.01, 1.0),
    "remote_latency": (1.0, 100.0),
    "beta": (0.1, 100.0),
    "engine_headroom": (0.1, 10.0),
    "pi": (0.0, 10.0),
    "cu_power": (0.0, 10.0),
    "phi": (0.0, 100.0),
    "theta": (0.0, 10.0),
    "q": (0.0, 1e6),
}


@dataclass(frozen=True)
class Constants:
    """What the parts do (``*_ns``: nanoseconds); docs/clock.md has the equations that they stand in."""

    efficiency: float
    """of the peak rate of instructions, what a CU reaches"""
    hbm_gb_s: float
    """what HBM delivers, reads and writes together"""
    link_efficiency: float
    """of a link's rate in the node file, what copies get of it"""
    beta: float
    """all CUs together can have beta times HBM's bandwidth under way at unloaded latency"""
    remote_latency: float
    """unloaded latency of memory behind a link, in latencies of local HBM"""
    engine_headroom: float
    """rate of an engine at unloaded latency, in links"""
    pi: float
    """compute is slower by this share at full link traffic: power, fabric"""
    cu_power: float
    """what traffic by CUs weighs in pi's sum against the same by engines"""
    phi: float
    """a kernel's HBM traffic is more by this share while CUs stream at full link traffic through the L2"""
    theta: float
    """a kernel's HBM traffic is more by this share where it has all CUs of an XCC"""
    q: float
    """with two kernels pending, the older gets q of q + 1 CUs that both could have"""
    latency_ns: float
    """one load from HBM, nothing else going on"""
    look_ns: float
    """from a change in memory until a wave that polls it goes on"""
    launch_ns: float
    """an AQL dispatch: from its turn to its first workgroup"""
    barrier_ns: float
    """an AQL barrier packet whose dependencies are met"""
    complete_ns: float
    """from the last workgroup to the completion signal"""
    engine_wake_ns: float
    """from the doorbell of an idle engine until it reads its first packet"""
    engine_packet_ns: float
    """an engine's packet other than a copy"""
    engine_start_ns: float
    """an engine's copy packet: from its turn to its first byte"""
    host_packet_ns: float
    """the host enqueues an AQL packet and rings"""
    host_copy_ns: float
    """the host enqueues an engine copy: one call of the runtime"""
    host_sync_ns: float
    """the host sees a signal and goes on"""

    def with_(self, **changes: float) -> Constants:
        return replace(self, **changes)


def parse(model: dict) -> dict[str, Constants]:
    """All sets of a ``[model]`` table: what stands in it directly is common to them, and each set adds its own.
    ValueError says what is wrong."""
    common = {name: value for name, value in model.items() if name not in SETS}
    return {name: _constants(name, common | _table(model, name)) for name in SETS}


def _table(model: dict, name: str) -> dict:
    if not isinstance(model.get(name), dict):
        raise ValueError(f"[model.{name}] is missing")
    return model[name]


def _constants(name: str, values: dict) -> Constants:
    wanted = [field.name for field in fields(Constants)]
    if unknown := sorted(values.keys() - set(wanted)):
        raise ValueError(f"[model] has no {', '.join(unknown)}")
    if missing := [field for field in wanted if field not in values]:
        raise ValueError(f"[model.{name}] lacks {', '.join(missing)}")
    for field in wanted:
        low, high = LIMITS.get(field, (0.0, 1e9))
        value = values[field]
        if type(value) not in (int, float) or not low <= value <= high:
            raise ValueError(f"model.{name}.{field} = {value!r}; a number from {low:g} to {high:g} is possible")
    return Constants(**{field: float(values[field]) for field in wanted})
