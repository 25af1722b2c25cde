"""Stores that are held back: when they are seen, and that each is counted once."""

from __future__ import annotations

import numpy as np
import pytest

from hsakit.softgpu.exec.log import StoreLog
from hsakit.softgpu.exec.memory import HOST, LaneMemory
from hsakit.softgpu.exec.state import LANES
from hsakit.softgpu.memory import PAGE
from tests.softgpu.exec.machine import Memory


@pytest.mark.parametrize("allocations", [1, 2])
def test_a_store_is_seen_at_its_release_and_counted_once(allocations):
    memory = Memory()
    made = [memory.allocate(PAGE) for _ in range(allocations)]
    lanes = LaneMemory(memory.space, 0, StoreLog())
    addresses = np.array([address + 4 * i for address, _ in made for i in range(8)], np.uint64)
    lanes.store(addresses, np.full((len(addresses), 1), 7, np.uint32), 4)
    assert not any(view.any() for _, view in made) and lanes.stores == {HOST: 4 * len(addresses)}
    assert lanes.release()
    assert all((view[:32].view(np.uint32) == 7).all() and not view[32:].any() for _, view in made)
    assert lanes.stores == {HOST: 4 * len(addresses)}


def test_arguments_are_no_traffic_of_every_wave():
    memory = Memory()
    address, view = memory.allocate(PAGE)
    own, _ = memory.allocate(PAGE, vram_of=0)
    view[:] = np.arange(PAGE) & 0xFF
    lanes = memory.lanes()
    at = np.array([address, address + 64], np.uint64)
    assert (lanes.arguments(at, 8).view(np.uint8) == np.array([range(8), range(64, 72)])).all()
    lanes.arguments(np.array([own], np.uint64), 4)
    assert lanes.loads == {0: 4}
    lanes.load(at, 8)
    lanes.arguments(at, 8)
    assert lanes.loads == {0: 4, HOST: 16}


def test_whole_waves_may_be_in_several_allocations():
    memory = Memory()
    reach = LANES * 16
    (a, one), (b, two) = (memory.allocate(4 * PAGE, vram_of=gpu) for gpu in (0, 1))
    one[:], two[:] = np.arange(len(one)) % 199, np.arange(len(two)) % 193
    lanes = LaneMemory(memory.space, 0, StoreLog())
    starts = np.array([b, a, b + reach, a + 4 * PAGE - reach], np.uint64)
    got = lanes.load_waves(starts, 16).view(np.uint8).reshape(4, reach)
    for row, (view, at) in zip(got, ((two, 0), (one, 0), (two, reach), (one, 4 * PAGE - reach))):
        assert (row == view[at : at + reach]).all()
    assert lanes.loads == {0: 2 * reach, 1: 2 * reach}
    to = starts[:2] + np.uint64(PAGE)
    assert lanes.store_waves(to, np.full((2 * LANES, 4), 0xEEEEEEEE, np.uint32), 16)
    assert lanes.stores == {0: reach, 1: reach} and not (one[PAGE : PAGE + reach] == 0xEE).all()
    assert not (lanes.load_waves(starts[:2], 16).view(np.uint8) == 0xEE).any() and lanes.holds_back  # elsewhere
    assert (lanes.load_waves(to, 16).view(np.uint8) == 0xEE).all()  # its own stores, it sees
    assert (one[PAGE : PAGE + reach] == 0xEE).all() and (two[PAGE : PAGE + reach] == 0xEE).all()


@pytest.mark.parametrize("wrong", ["past an end", "not mapped", "read-only"])
def test_waves_of_which_one_has_no_place_are_looked_at_lane_by_lane(wrong):
    memory = Memory()
    a, _ = memory.allocate(PAGE)
    b, _ = memory.allocate(PAGE, gpus=(1,) if wrong == "not mapped" else (0,), read_only=wrong == "read-only")
    starts = np.array([a, b + (PAGE - 512 if wrong == "past an end" else 0)], np.uint64)
    lanes = memory.lanes()
    assert not lanes.store_waves(starts, np.zeros((2 * LANES, 4), np.uint32), 16)
    assert not lanes.stores
