"""The equations on random states: nothing is overloaded, and solving alike GPUs once changes nothing."""

from __future__ import annotations

import random

import pytest

from hsakit.softgpu.clock import HOST, Cost
from hsakit.softgpu.clock.flow import of_copies, of_workgroups
from hsakit.softgpu.clock.sharing import Rates, Sharing
from hsakit.softgpu.node import load

RATES = Rates(hbm=4.2, link=0.048, host_link=0.06, links=7, cus=304)
SHARING = Sharing(RATES, load("mi300x-8").model["calibrated"])
GPUS = 8


def some_flows(rng, gpus):
    """Of these GPUs, anything."""
    flows = []
    for gpu in gpus:
        peers = [peer for peer in range(GPUS) if peer != gpu]
        for _ in range(rng.randrange(3)):
            wire = {peer: rng.choice([0, 1e4, 5e4]) for peer in [*peers, HOST]} if rng.random() < 0.5 else {}
            cost = Cost.of_traffic(
                wire, rng.choice([{}, {rng.choice(peers): 3e4}]), compute_ps=rng.choice([0.0, 1e6, 9e6]),
                hbm_bytes=rng.choice([1e3, 1e5, 2e6]), l2_bytes=4e6, delay_ps=rng.choice([0.0, 1e5]),
            )  # fmt: skip
            flows.append(
                of_workgroups(gpu, rng.randrange(1, 305), cost, rng.choice([1.0, 2.0]), rng.choice([0.0, 1.0]))
            )
        for _ in range(rng.randrange(5)):
            ends = rng.choice(
                [(gpu, rng.choice(peers)), (rng.choice(peers), gpu), (gpu, HOST), (HOST, gpu), (gpu, gpu)]
            )
            flows.append(of_copies(gpu, rng.choice([1, 3]), *ends, rng.choice([1, 2]), rng.choice([1.0, 0.25])))
    return flows


def loads(flows, speeds):
    links, memory = {}, [0.0] * GPUS
    for flow, speed in zip(flows, speeds):
        memory[flow.gpu] += flow.count * speed * flow.hbm_bytes  # at least: interference adds to it
        for gpu, n in flow.memory:
            memory[gpu] += flow.count * speed * n
        for a, b, n in flow.wire:
            links[a, b] = links.get((a, b), 0.0) + flow.count * speed * n
    return links, memory


@pytest.mark.parametrize("seed", range(20))
def test_no_link_and_no_memory_carries_more_than_it_can(seed):
    flows = some_flows(random.Random(seed), range(GPUS))
    speeds = SHARING.speeds(GPUS, flows, False, [0] * GPUS)
    assert all(speed > 0 for speed in speeds)
    links, memory = loads(flows, speeds)
    for link, load_ in links.items():
        assert load_ <= (RATES.host_link if HOST in link else RATES.link) * (1 + 1e-6), link
    assert max(memory) <= RATES.hbm * (1 + 1e-3)


@pytest.mark.parametrize("seed", range(10))
def test_gpus_in_the_same_situation_may_be_solved_once_or_each(seed):
    rng = random.Random(seed)
    flows = some_flows(rng, range(2))
    # four pairs of GPUs that do the same, each within itself: refinement finds two kinds of GPUs, or there are eight
    pairs = []
    for base in range(0, GPUS, 2):
        for flow in flows:
            if all(HOST in (a, b) or max(a, b) < 2 for a, b, _ in flow.wire):
                pairs.append(turned(flow, base))
    if not pairs:
        return
    once = SHARING.speeds(GPUS, pairs, False, [0] * GPUS)
    each = SHARING.speeds(GPUS, pairs, False, range(GPUS))
    assert once == pytest.approx(each, rel=1e-3)
    kinds = len(pairs) // 4
    assert all(once[i] == once[i + kinds] for i in range(len(pairs) - kinds))


def turned(flow, by):
    def turn(gpu):
        return gpu if gpu == HOST else (gpu + by) % GPUS

    return type(flow)(
        turn(flow.gpu), flow.count, flow.compute_ps, flow.delay_ps, flow.hbm_bytes, flow.l2_bytes,
        tuple((turn(a), turn(b), n) for a, b, n in flow.wire), tuple((turn(g), n) for g, n in flow.memory),
        flow.crowd, flow.full, flow.sharers,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(10))
def test_what_all_gpus_do_alike_is_solved_from_the_first(seed):
    flows = some_flows(random.Random(seed), [0])
    everything = [turned(flow, by) for by in range(GPUS) for flow in flows]
    alike = SHARING.speeds(GPUS, flows, True, [0])
    assert alike * GPUS == pytest.approx(SHARING.speeds(GPUS, everything, False, [0] * GPUS), rel=1e-3)
    assert alike * GPUS == pytest.approx(SHARING.speeds(GPUS, everything, False, range(GPUS)), rel=1e-3)
