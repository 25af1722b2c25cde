"""Beginnings that are known leave waves as if they had been executed; what is not the same each time is executed."""

import numpy as np
import pytest

from hsakit.softgpu.exec import beginning
from hsakit.softgpu.exec.batch import DONE, STOP
from hsakit.softgpu.exec.log import StoreLog
from hsakit.softgpu.exec.memory import LaneMemory, Read
from hsakit.softgpu.exec.state import Waves
from hsakit.softgpu.exec.tally import Count
from tests.softgpu.exec.machine import Memory, Text, batch

N, REGISTERS, LARGE = 4, 4, 1 << 20

# s[0:1]: the dispatch packet, s[2:3]: this workgroup's memory
PROGRAM = """
    s_load_dword s8, s[0:1], 0xc
    {how}
    v_mov_b32_e32 v1, s8
    v_lshlrev_b32_e32 v2, 2, v0
    global_store_dword v2, v1, s[2:3]
    v_mov_b32_e32 v3, 0
    ds_write_b32 v2, v1
    global_atomic_add v4, v3, v1, s[2:3] offset:1024 sc0
    s_load_dword s9, s[0:1], 0x10
    ds_read_b32 v5, v2
    s_endpgm
"""


class Machine:
    def __init__(self, how: str = "s_nop 0"):
        self.program, self.memory = Text(PROGRAM.format(how=how)), Memory()
        self.known = beginning.Beginnings(self.memory.space)
        self.packets = [self.memory.allocate(4096, vram_of=None) for _ in range(2)]
        self.address, self.data = self.memory.allocate(4096, vram_of=0)
        for number, (_, packet) in enumerate(self.packets):
            packet.view(np.uint32)[3:5] = 17, 100 + number

    def begin(self, packet: int, recall: bool, numbers=(0, 1, 2, 3)) -> tuple:
        """(whether it was known, what it cost, its batch) of a dispatch with that packet."""
        w = Waves(N, 8, 0)
        w.memory = LaneMemory(self.memory.space, 0, StoreLog())
        w.lds, w.lds_size = np.zeros((N, 256), np.uint8), 256
        at = self.packets[packet][0]
        w.sgpr[0], w.sgpr[1] = at & 0xFFFFFFFF, at >> 32
        w.sgpr[2], w.sgpr[3] = self.address & 0xFFFFFFFF, self.address >> 32
        w.sgpr[126:128] = 0xFFFFFFFF
        w.vgpr[0] = np.arange(64)
        one = batch(self.program, w, 1)
        key = beginning.key(b"kernel", list(numbers), w, REGISTERS, 0)
        if recall:
            count = self.known.recall(key, 0, one, at)
            if count is not None:
                return True, count, one
        w.memory.reads = []
        one.run()
        again = beginning.same_each_time(self.program, w.executed)
        count = Count()
        count.add(self.program, one)
        if again:
            self.known.keep(key, one, at, count, LARGE)
        w.memory.reads = None
        return False, count, one


def said(count: Count) -> tuple:
    return count.workgroups, count.issued, count.instructions, count.loads, count.stores


def test_waves_go_on_from_a_known_beginning():
    """In their dispatch's own packet, with what they had in LDS; what they stored before is not stored again."""
    machine = Machine()
    _, first, _ = machine.begin(0, recall=False)
    known, count, one = machine.begin(1, recall=True)
    assert known and one.outcome == STOP and said(count) == said(first)
    assert not machine.data.any()
    assert one.run() == DONE
    one.waves.memory.release()
    assert (one.waves.sgpr[9] == 101).all() and (one.waves.vgpr[5] == 17).all()
    assert machine.data.view(np.uint32)[256] == 17 * 64 * N and not machine.data[:1024].any()


def test_other_words_in_the_packet_or_other_workgroups_are_executed():
    machine = Machine()
    machine.begin(0, recall=False)
    assert not machine.begin(1, recall=True, numbers=(4, 5, 6, 7))[0]
    machine.packets[1][1].view(np.uint32)[3] = 18
    known, _, one = machine.begin(1, recall=True)
    assert not known and (one.waves.sgpr[8] == 18).all()


@pytest.mark.parametrize("how", ["s_getreg_b32 s10, hwreg(HW_REG_XCC_ID)", "s_sleep 1"])
def test_what_looks_where_it_runs_is_executed(how):
    machine = Machine(how)
    machine.begin(0, recall=False)
    assert not machine.begin(0, recall=True)[0]


def test_small_ones_are_executed():
    machine = Machine()
    _, count, one = machine.begin(0, recall=False)
    assert machine.begin(0, recall=True)[0]
    machine.known = beginning.Beginnings(machine.memory.space)
    machine.known.keep(b"key", one, 0, count, N)
    assert machine.known.recall(b"key", 0, one, 0) is None


def test_a_word_that_was_two_things_is_not_relied_on():
    machine = Machine()
    _, count, one = machine.begin(0, recall=False)
    at = np.array([machine.address], np.uint64)
    one.waves.memory.reads = [Read(at, np.array([[word]], np.uint32)) for word in (1, 2)]
    machine.known.keep(b"key", one, 0, count, LARGE)
    assert machine.known.recall(b"key", 0, one, 0) is None
    one.waves.memory.reads.pop()
    machine.data.view(np.uint32)[0] = 1
    machine.known.keep(b"key", one, 0, count, LARGE)
    assert machine.known.recall(b"key", 0, one, 0) is count


def test_no_more_is_kept_than_there_is_room_for(monkeypatch):
    machine = Machine()
    machine.begin(0, recall=False)
    monkeypatch.setattr(beginning, "NBYTES", 1)
    machine.begin(0, recall=False, numbers=(4, 5, 6, 7))
    assert not machine.begin(0, recall=True)[0]
