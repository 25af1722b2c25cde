"""How fast everything that is under way goes on, given all that it has to share.

One unknown a GPU: x, the latency of its HBM over that of an idle one, in [1, 64]: the lowest at which no more is asked
of HBM than it delivers.  The rest follows from it; docs/clock.md has the equations.

GPUs, flows and links that are in the same situation (by colour refinement) are solved once: eight GPUs that do the same
cost as much as one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import sqrt

from .constants import Constants
from .cost import HOST
from .flow import Flow

X_MOST = 64.0
TOLERANCE = 1e-7
SWEEPS = 12  # over the GPUs, until their latencies agree with each other's


@dataclass(frozen=True)
class Rates:
    """Of a node, in bytes per picosecond."""

    hbm: float
    link: float
    host_link: float
    links: int
    """of a GPU, to peers"""
    cus: int


def norm(compute: float, memory: float) -> float:
    """Compute and memory time overlap, but not perfectly: their 4-norm."""
    if memory == 0.0:
        return compute
    if compute == 0.0:
        return memory
    a, b = compute * compute, memory * memory
    return sqrt(sqrt(a * a + b * b))


class _Names:
    """Numbers for things that are the same."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def __call__(self, thing: Hashable) -> int:
        return self._numbers.setdefault(thing, len(self._numbers))

    def __len__(self) -> int:
        return len(self._numbers)


class _Quotient:
    """One of each kind: of GPU, of flow, of link."""

    def __init__(self, gpus: int, flows: Sequence[Flow]):
        self.flows = flows
        on_engine: dict[tuple[int, int], int] = {}
        for flow in flows:
            if flow.engine is not None:
                key = (flow.gpu, flow.engine)
                on_engine[key] = on_engine.get(key, 0) + 1
        self.sharers = [1 if f.engine is None else on_engine[f.gpu, f.engine] for f in flows]
        names = _Names()
        plain = [
            names(
                (f.count, f.compute_ps, f.delay_ps, f.hbm_bytes, f.l2_bytes, f.crowd, f.full, f.engine is None, sharers)
            )
            for f, sharers in zip(flows, self.sharers)
        ]
        colour = [0] * gpus
        crossing: dict[tuple[int, int], list[tuple[int, float]]] = {}
        for i, flow in enumerate(flows):
            for a, b, n in flow.wire:
                crossing.setdefault((a, b), []).append((i, n * flow.count))
        link_colour = dict.fromkeys(crossing, 0)
        kinds = 0
        while True:
            names = _Names()
            of = colour + [-1]  # the host is at the end: HOST is -1
            self.kind = [
                names((
                    plain[i],
                    of[f.gpu],
                    tuple(sorted((link_colour[a, b], of[a], of[b], n) for a, b, n in f.wire)),
                    tuple(sorted((of[g], n) for g, n in f.memory)),
                ))
                for i, f in enumerate(flows)
            ]  # fmt: skip
            flow_kinds = len(names)
            names = _Names()
            link_colour = {
                (a, b): names((of[a], of[b], a == HOST or b == HOST, tuple(sorted((self.kind[i], n) for i, n in some))))
                for (a, b), some in crossing.items()
            }
            link_kinds = len(names)
            touching: list[list[tuple]] = [[] for _ in range(gpus)]
            for i, flow in enumerate(flows):
                touching[flow.gpu].append((0, self.kind[i], 0.0))
                for g, n in flow.memory:
                    touching[g].append((1, self.kind[i], n))
                for a, b, n in flow.wire:
                    for g in (a, b):
                        if g != HOST:
                            touching[g].append((2, self.kind[i], n))
            names = _Names()
            colour = [names((colour[g], tuple(sorted(touching[g])))) for g in range(gpus)]
            if kinds == (kinds := flow_kinds + link_kinds + len(names)):
                break
        self.colour = colour
        self.link_colour = link_colour
        self.crossing = crossing


class Sharing:
    """The equations, for one node and one set of constants."""

    def __init__(self, rates: Rates, constants: Constants):
        self._rates, self._constants = rates, constants
        self._request = constants.beta * rates.hbm / rates.cus  # what a CU can have under way, bytes/ps at x = 1
        self._wire_request = self._request / constants.remote_latency
        self._engine = constants.engine_headroom * rates.link
        self._egress = rates.link * max(1, rates.links)

    def speeds(self, gpus: int, flows: Sequence[Flow]) -> list[float]:
        """Units (a workgroup's segment, a copy's byte) a picosecond, of each flow."""
        quotient = _Quotient(gpus, flows)
        system = _System(self, gpus, quotient)
        return system.solve()


class _System:
    def __init__(self, sharing: Sharing, gpus: int, quotient: _Quotient):
        self._constants, self._rates, self._sharing = sharing._constants, sharing._rates, sharing
        flows, kind, colour = quotient.flows, quotient.kind, quotient.colour
        self._kind = kind
        first: dict[int, int] = {}
        for i, k in enumerate(kind):
            first.setdefault(k, i)
        self._flows = [flows[first[k]] for k in range(len(first))]
        self._sharers = [quotient.sharers[first[k]] for k in range(len(first))]
        self._gpu_kinds = len(set(colour))
        of = colour + [-1]
        self._home = [of[f.gpu] for f in self._flows]
        # whose latencies a flow's remote accesses, or a copy's two ends, meet
        self._ends = [tuple(sorted({of[g] for g, _ in f.memory})) for f in self._flows]
        self._engine_rate = [
            self._rates.host_link if any(HOST in (a, b) for a, b, _ in f.wire) else sharing._engine for f in self._flows
        ]
        # links that differ: (capacity, [(flow kind, bytes a unit of all that cross here)])
        self._links: list[tuple[float, list[tuple[int, float]]]] = []
        seen = set()
        for (a, b), some in quotient.crossing.items():
            name = quotient.link_colour[a, b]
            if name not in seen:
                seen.add(name)
                capacity = self._rates.host_link if HOST in (a, b) else self._rates.link
                load: dict[int, float] = {}
                for i, n in some:
                    load[kind[i]] = load.get(kind[i], 0.0) + n
                self._links.append((capacity, sorted(load.items())))
        representative: dict[int, int] = {}
        for g in range(gpus):
            representative.setdefault(colour[g], g)
        # of each kind of GPU: HBM traffic, link traffic of all and of its CUs, as {flow kind: bytes a unit}
        self._memory: list[list[tuple[int, float]]] = []
        self._traffic: list[list[tuple[int, float]]] = []
        self._streams: list[list[tuple[int, float]]] = []
        self._own: list[list[tuple[int, int]]] = []
        for c in range(self._gpu_kinds):
            g = representative[c]
            memory: dict[int, float] = {}
            traffic: dict[int, float] = {}
            streams: dict[int, float] = {}
            own: dict[int, int] = {}
            for i, f in enumerate(flows):
                k = kind[i]
                if f.gpu == g:
                    if f.flows:
                        memory[k] = memory.get(k, 0.0) + f.count * f.hbm_bytes
                    else:
                        own[k] = own.get(k, 0) + f.count
                    if f.engine is None and f.wire:
                        streams[k] = streams.get(k, 0.0) + f.count * sum(n for _, _, n in f.wire)
                for end, n in f.memory:
                    if end == g:
                        memory[k] = memory.get(k, 0.0) + f.count * n
                for a, b, n in f.wire:
                    if g in (a, b):
                        traffic[k] = traffic.get(k, 0.0) + f.count * n / 2
            self._memory.append(sorted(memory.items()))
            self._traffic.append(sorted(traffic.items()))
            self._streams.append(sorted(streams.items()))
            self._own.append(sorted(own.items()))

    def solve(self) -> list[float]:
        x = [1.0] * self._gpu_kinds
        for _ in range(SWEEPS if self._gpu_kinds > 1 else 1):
            before = list(x)
            for c in range(self._gpu_kinds):
                self._relax(c, x)
            if all(abs(a - b) <= 1e-4 * a for a, b in zip(x, before)):
                break
        speeds = self._evaluate(x)[0]
        return [speeds[k] for k in self._kind]

    def _relax(self, c: int, x: list[float]) -> None:
        """Set x of one kind of GPU so that its HBM is not overloaded, those of the others given."""

        def excess(at: float) -> float:
            x[c] = at
            return self._evaluate(x)[1][c] / self._rates.hbm - 1.0

        low, high = 1.0, X_MOST
        at_low = excess(low)
        if at_low <= 0.0:
            return
        at_high = excess(high)
        if at_high >= 0.0:
            return
        # Regula falsi (Illinois), in 1/x, in which demand is nearly linear; ends on the side without overload.
        low, high = 1.0 / low, 1.0 / high
        side = 0
        for _ in range(60):
            middle = (high * at_low - low * at_high) / (at_low - at_high)
            at = excess(1.0 / middle)
            if abs(at) <= TOLERANCE:
                return
            if at > 0.0:
                low, at_low = middle, at
                at_high = at_high / 2 if side > 0 else at_high
                side = 1
            else:
                high, at_high = middle, at
                at_low = at_low / 2 if side < 0 else at_low
                side = -1
        x[c] = 1.0 / high

    def _evaluate(self, x: list[float]) -> tuple[list[float], list[float]]:
        """Speeds by kind of flow, and HBM traffic by kind of GPU, at these latencies."""
        sharing, constants = self._sharing, self._constants
        speeds = [0.0] * len(self._flows)
        for k, flow in enumerate(self._flows):
            if flow.engine is not None:
                far = max((x[c] for c in self._ends[k]), default=1.0)
                speeds[k] = self._engine_rate[k] / far / self._sharers[k]
            elif flow.wire:
                near = x[self._home[k]]
                far = max((x[c] for c in self._ends[k]), default=1.0)
                far = max(near, far)
                wire = sum(n for _, _, n in flow.wire)
                memory = near * flow.hbm_bytes / sharing._request + far * wire / sharing._wire_request
                time = norm(flow.compute_ps * flow.crowd, memory * flow.crowd) + flow.delay_ps
                speeds[k] = 1.0 / max(time, 1.0)
        self._fill(speeds)
        demand = []
        for c in range(self._gpu_kinds):
            total = 0.0
            for k, n in self._memory[c]:
                total += speeds[k] * n
            if self._own[c]:
                u = uc = 0.0
                for k, n in self._traffic[c]:
                    u += speeds[k] * n
                for k, n in self._streams[c]:
                    uc += speeds[k] * n
                slower = 1.0 + constants.pi * (u / sharing._egress)
                more = 1.0 + constants.phi * (uc / sharing._egress)
                for k, count in self._own[c]:
                    flow = self._flows[k]
                    hbm = min(flow.hbm_bytes * (1.0 + constants.theta * flow.full) * more, flow.l2_bytes)
                    compute, memory = flow.compute_ps * slower, x[c] * hbm / sharing._request
                    time = norm(compute * flow.crowd, memory * flow.crowd) + flow.delay_ps
                    speeds[k] = speed = 1.0 / max(time, 1.0)
                    total += speed * count * hbm
            demand.append(total)
        return speeds, demand

    def _fill(self, speeds: list[float]) -> None:
        """Slow down what crosses overloaded links: all by one factor until a link is full, whose flows stay at that,
        then the others on."""
        links = self._links
        if not links:
            return
        frozen: dict[int, float] = {}
        while True:
            least, which = 1.0, None
            for capacity, load in links:
                used = active = 0.0
                for k, n in load:
                    if k in frozen:
                        used += frozen[k] * n
                    else:
                        active += speeds[k] * n
                if active > 0.0 and capacity - used < least * active * (1.0 - 1e-12):
                    least, which = (capacity - used) / active, load
            if which is None:
                break
            for k, _ in which:
                if k not in frozen:
                    frozen[k] = speeds[k] * least
        for k, speed in frozen.items():
            speeds[k] = speed
