"""Stores that are held back: when they are seen, and that each is counted once."""

from __future__ import annotations

import numpy as np
import pytest

from hsakit.softgpu.exec.log import StoreLog
from hsakit.softgpu.exec.memory import HOST, LaneMemory
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
