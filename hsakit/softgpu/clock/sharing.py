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


Link = tuple[int, int]


class _Kinds:
    """Which GPUs, flows and links are in the same situation?  A number for each kind of each.

    ``home``: of every GPU, the one that stands for it.  ``links``: (flow, bytes of a unit) of all that cross it.
    """

    def __init__(self, flows: Sequence[Flow], gpus: int, alike: bool, states: Sequence[int]):
        self.home = [0] * gpus if alike else list(range(gpus))
        # Alike, the link from one GPU to another is as that from GPU 0 to the one as far away from it.
        self.crossed = [
            [((0, (b - a) % gpus) if alike and HOST not in (a, b) else (a, b), n) for a, b, n in flow.wire]
            for flow in flows
        ]
        self.links: dict[Link, list[tuple[int, float]]] = {}
        for i, links in enumerate(self.crossed):
            for link, n in links:
                self.links.setdefault(link, []).append((i, n))
        self._refine(flows, [0] if alike else list(states))

    def _refine(self, flows: Sequence[Flow], states: list[int]) -> None:
        gpus = len(states)
        names = _Names()
        plain = [
            names((f.count, f.compute_ps, f.delay_ps, f.hbm_bytes, f.l2_bytes, f.crowd, f.full, f.sharers))
            for f in flows
        ]
        ends = {link: tuple(HOST if g == HOST else self.home[g] for g in link) for link in self.links}
        touching: list[list[tuple[int, int, float]]] = [[] for _ in range(gpus)]  # what, flow, bytes
        for i, flow in enumerate(flows):
            touching[self.home[flow.gpu]].append((0, i, 0.0))
            for g, n in flow.memory:
                touching[self.home[g]].append((1, i, n))
            for link, n in self.crossed[i]:
                for g in ends[link]:
                    if g != HOST:
                        touching[g].append((2, i, n))
        self.touching = touching
        names = _Names()
        self.of_gpu = [names(state) for state in states]
        of = [*self.of_gpu, -1]  # the host is at the end: HOST is -1
        self.of_link = {link: (of[a] + 1) * (gpus + 1) + of[b] for link, (a, b) in ends.items()}
        kinds = 0
        while True:
            of = [*self.of_gpu, -1]
            names = _Names()
            self.of_flow = [
                names((
                    plain[i],
                    of[self.home[f.gpu]],
                    tuple(sorted([(self.of_link[link], n) for link, n in self.crossed[i]])),
                    tuple(sorted([(of[self.home[g]], n) for g, n in f.memory])),
                ))
                for i, f in enumerate(flows)
            ]  # fmt: skip
            found = len(names)
            names = _Names()
            self.of_link = {
                link: names((*[of[g] for g in ends[link]], tuple(sorted([(self.of_flow[i], n) for i, n in crossing]))))
                for link, crossing in self.links.items()
            }
            found += len(names)
            names = _Names()
            self.of_gpu = [
                names((of[g], tuple(sorted([(what, self.of_flow[i], n) for what, i, n in touching[g]]))))
                for g in range(gpus)
            ]
            found += len(names)
            if found == kinds:
                return
            kinds = found


class Sharing:
    """The equations, for one node and one set of constants."""

    def __init__(self, rates: Rates, constants: Constants):
        self.rates, self.constants = rates, constants
        self.request = constants.beta * rates.hbm / rates.cus
        """what a CU can have under way to HBM, bytes a picosecond at unloaded latency"""
        self.wire_request = self.request / constants.remote_latency
        self.engine = constants.engine_headroom * rates.link
        self.egress = rates.link * max(1, rates.links)

    def speeds(self, gpus: int, flows: Sequence[Flow], alike: bool, states: Sequence[int]) -> list[float]:
        """Units (a workgroup's segment, a copy's byte) a picosecond, of each flow.  ``alike``: they are those of GPU 0,
        and all others have the same, with GPUs renumbered in a circle.  ``states``: GPUs of which it differs are not in
        the same situation."""
        kinds = _Kinds(flows, gpus, alike, states)
        speeds = _System(self, flows, kinds).solve()
        return [speeds[kind] for kind in kinds.of_flow]


class _System:
    """One flow, one link, one GPU of each kind."""

    def __init__(self, sharing: Sharing, flows: Sequence[Flow], kinds: _Kinds):
        self._sharing, self._hbm = sharing, sharing.rates.hbm
        of_flow, of = kinds.of_flow, [*kinds.of_gpu, -1]
        first: dict[int, int] = {}
        for i, kind in enumerate(of_flow):
            first.setdefault(kind, i)
        self._kinds = len(first)
        # What crosses links: (kind, GPU's kind, kinds of the other ends; at x = 1 its times of compute, own HBM, wire,
        # delay); an engine's copy: (kind, kinds of both ends, bytes a picosecond at x = 1).
        self._streams: list[tuple[int, int, tuple[int, ...], float, float, float, float]] = []
        self._copies: list[tuple[int, tuple[int, ...], float]] = []
        for kind, i in first.items():
            f = flows[i]
            ends = tuple(sorted({of[kinds.home[g]] for g, _ in f.memory}))
            if f.sharers:
                host = any(HOST in link for link, _ in kinds.crossed[i])
                self._copies.append((kind, ends, (sharing.rates.host_link if host else sharing.engine) / f.sharers))
            elif f.wire:
                wire = _bytes(f) / sharing.wire_request
                own = f.hbm_bytes / sharing.request
                times = (f.compute_ps * f.crowd, own * f.crowd, wire * f.crowd, f.delay_ps)
                self._streams.append((kind, of[kinds.home[f.gpu]], ends, *times))
        # Links: (capacity, [(kind, bytes of a unit of all that cross it)])
        self._links: list[tuple[float, list[tuple[int, float]]]] = []
        for link in {kind: link for link, kind in kinds.of_link.items()}.values():
            load = _Sum()
            for i, n in kinds.links[link]:
                load.add(of_flow[i], n * flows[i].count)
            self._links.append((sharing.rates.host_link if HOST in link else sharing.rates.link, load.items()))
        # Most often what crosses a link crosses no other kind of link: nothing but that link slows it.
        crossed = [kind for _, load in self._links for kind, _ in load]
        twice = {kind for kind in crossed if crossed.count(kind) > 1}
        self._alone = [link for link in self._links if not any(kind in twice for kind, _ in link[1])]
        self._links = [link for link in self._links if any(kind in twice for kind, _ in link[1])]
        # GPUs: HBM traffic of what crosses links, link traffic of all and of CUs: [(kind, bytes of a unit)]; and what
        # does not cross links: [(kind, count, compute, HBM bytes, most HBM bytes, time a byte, delay)]
        self._gpus = []
        for g in {kind: g for g, kind in enumerate(kinds.of_gpu)}.values():
            memory, traffic, by_cus, local = _Sum(), _Sum(), _Sum(), _Sum()
            for what, i, n in kinds.touching[g]:
                f, kind = flows[i], of_flow[i]
                if what == 1:
                    memory.add(kind, f.count * n)
                elif what == 2:
                    traffic.add(kind, f.count * n / 2)
                elif f.sharers or f.wire:
                    memory.add(kind, f.count * f.hbm_bytes)
                    if not f.sharers:
                        by_cus.add(kind, f.count * _bytes(f))
                else:
                    local.add(kind, f.count)
            alone = []
            for kind, count in local.items():
                f = flows[first[kind]]
                hbm = f.hbm_bytes * (1.0 + sharing.constants.theta * f.full)
                alone.append(
                    (kind, count, f.compute_ps * f.crowd, hbm, f.l2_bytes, f.crowd / sharing.request, f.delay_ps)
                )
            self._gpus.append((memory.items(), traffic.items(), by_cus.items(), alone))

    def solve(self) -> list[float]:
        """Speeds, by kind of flow."""
        x = [1.0] * len(self._gpus)
        for _ in range(SWEEPS if len(x) > 1 else 1):
            before = list(x)
            for c in range(len(x)):
                self._relax(c, x)
            if all(abs(a - b) <= 1e-4 * a for a, b in zip(x, before)):
                break
        return self._evaluate(x)[0]

    def _relax(self, c: int, x: list[float]) -> None:
        """Set x of one kind of GPU so that its HBM is not overloaded, those of the others given."""

        def excess(at: float) -> float:
            x[c] = at
            return self._evaluate(x)[1][c] / self._hbm - 1.0

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
        constants, egress = self._sharing.constants, self._sharing.egress
        speeds = [0.0] * self._kinds
        for kind, ends, rate in self._copies:
            speeds[kind] = rate / max([1.0, *[x[c] for c in ends]])  # from the host to itself there are none
        for kind, home, ends, compute, own, wire, delay in self._streams:
            near = x[home]
            far = max([near, *[x[c] for c in ends]])
            speeds[kind] = 1.0 / max(norm(compute, near * own + far * wire) + delay, 1.0)
        self._fill(speeds)
        demand = []
        for c, (memory, traffic, by_cus, alone) in enumerate(self._gpus):
            total = 0.0
            for kind, n in memory:
                total += speeds[kind] * n
            if alone:
                u = uc = 0.0
                for kind, n in traffic:
                    u += speeds[kind] * n
                for kind, n in by_cus:
                    uc += speeds[kind] * n
                slower, more = (
                    1.0 + constants.pi * ((u + (constants.cu_power - 1.0) * uc) / egress),
                    1.0 + constants.phi * (uc / egress),
                )
                for kind, count, compute, hbm, most, time, delay in alone:
                    hbm = min(hbm * more, most)
                    speeds[kind] = speed = 1.0 / max(norm(compute * slower, x[c] * hbm * time) + delay, 1.0)
                    total += speed * count * hbm
            demand.append(total)
        return speeds, demand

    def _fill(self, speeds: list[float]) -> None:
        """Slow down what crosses overloaded links: all by one factor until a link is full, whose flows stay at that,
        then the others on."""
        for capacity, load in self._alone:
            total = 0.0
            for k, n in load:
                total += speeds[k] * n
            if total > capacity:
                for k, _ in load:
                    speeds[k] *= capacity / total
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


def _bytes(flow: Flow) -> float:
    """That cross links.  Added one by one: what ``sum`` makes of floats depends on the version of Python."""
    total = 0.0
    for _, _, n in flow.wire:
        total += n
    return total


class _Sum:
    """What is added up under numbers, in their order."""

    def __init__(self) -> None:
        self._sums: dict[int, float] = {}

    def add(self, number: int, amount: float) -> None:
        self._sums[number] = self._sums.get(number, 0.0) + amount

    def items(self) -> list[tuple[int, float]]:
        return sorted(self._sums.items())
