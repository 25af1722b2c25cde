"""An sDMA engine's queue: each packet by hand, then what the real runtime writes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsakit.softgpu.events import Event
from hsakit.softgpu.faults import Faults, parse
from hsakit.softgpu.memory import MemoryFault
from hsakit.softgpu.move import SLICE
from hsakit.softgpu.sdma import UnknownPacket
from tests.softgpu.bench import words
from tests.softgpu.rawhsa import child

FENCE, TRAP, ATOMIC, TIMESTAMP = 5, 6, 0x5E00000A, 0x20D
POLL, HDP_FLUSH = [0xB0000008], [8, 0, 0x80000000, 0, 0, 0]


class Engine:
    """A queue whose packets are written and stepped by hand."""

    def __init__(self, bench, **how):
        self._bench = bench
        self.queue, self.ring, self.read = bench.sdma(**how)
        self.at = 0

    def put(self, *dwords: int) -> None:
        for word in dwords:
            self.ring[self.at % len(self.ring)] = word
            self.at += 1
        self.queue.ring_doorbell(self.at * 4)

    def step(self) -> bool:
        return self._bench.step(self.queue)

    def run(self, *dwords: int) -> None:
        self.put(*dwords)
        assert self.step() and not self.queue.pending
        assert self.read[0] == self.at * 4


@pytest.fixture
def engine(bench):
    return Engine(bench)


@pytest.fixture
def memory(bench):
    """Two pages of random bytes: (address, bytes as uint8, bytes as uint64)."""
    address, data = bench.memory(8192)
    view = np.frombuffer(data, dtype=np.uint8)
    view[:] = np.random.default_rng(2).integers(0, 256, 8192, dtype=np.uint8)
    return address, view, view.view(np.uint64)


def linear(to: int, from_: int, nbytes: int) -> list[int]:
    return [1, nbytes - 1, 0, *words(from_), *words(to)]


@pytest.mark.parametrize("nbytes", [1, 3, 64, 4095])
def test_copy(engine, memory, nbytes):
    base, view, _ = memory
    before = view.copy()
    engine.run(*linear(base + 4097, base + 5, nbytes))
    assert (view[4097 : 4097 + nbytes] == before[5 : 5 + nbytes]).all()
    view[4097 : 4097 + nbytes] = before[4097 : 4097 + nbytes]
    assert (view == before).all()


def test_a_long_copy_moves_in_slices(bench, engine):
    nbytes = 3 * SLICE + 17
    source, data = bench.memory(nbytes + 4096)
    target, out = bench.memory(nbytes + 4096)
    data[:nbytes] = np.random.default_rng(4).integers(0, 256, nbytes, dtype=np.uint8).tobytes()
    engine.run(*linear(target, source, nbytes))
    assert out[:nbytes] == data[:nbytes] and out[nbytes:] == bytes(4096)


def test_fence_writes_four_bytes(engine, memory):
    base, view, _ = memory
    before = view.copy()
    engine.run(FENCE, *words(base + 8), 0xCAFE1234)
    assert view[8:12].tobytes() == 0xCAFE1234.to_bytes(4, "little")
    assert (view[12:] == before[12:]).all() and (view[:8] == before[:8]).all()


def test_atomic_adds_64_bits(engine, memory):
    base, _, numbers = memory
    numbers[3] = 0x1_0000_0000
    engine.run(ATOMIC, *words(base + 24), 0xFFFFFFFF, 0xFFFFFFFF, 0, 0, 0)
    assert numbers[3] == 0xFFFFFFFF


def test_timestamps_do_not_go_back(engine, memory):
    base, _, numbers = memory
    engine.run(TIMESTAMP, *words(base), TIMESTAMP, *words(base + 32))
    assert 0 < numbers[0] <= numbers[4]


def test_trap_sets_its_event(bench, engine):
    event: Event = bench.driver.events.create(0, False)
    engine.run(TRAP, event.id)
    assert event.signaled


def test_flush_and_padding_do_nothing(engine, memory):
    _, view, _ = memory
    before = view.copy()
    engine.run(*HDP_FLUSH, 0, 0, 4 << 16, 0xDEAD, 0xDEAD, 0xDEAD, 0xDEAD)
    assert (view == before).all()


def test_poll_holds_the_queue_until_the_masked_word_is_equal(engine, memory):
    base, view, numbers = memory
    numbers[0] = 0x77FF
    engine.put(*POLL, *words(base), 0x1100, 0xFF00, 0x0FFF0004, *linear(base + 4096, base, 8))
    assert engine.step() is False and engine.queue.pending
    assert engine.read[0] == 0
    numbers[0] = 0x55_11_99
    assert engine.step() is True
    assert not engine.queue.pending and numbers[512] == 0x55_11_99


def test_the_word_polled_is_looked_up_again_after_something_was_freed(bench, engine):
    base, _ = bench.memory(4096)
    engine.put(*POLL, *words(base), 1, 1, 0x0FFF0004)
    assert engine.step() is False
    bench.space.remove(bench.space.find(base))
    with pytest.raises(MemoryFault) as caught:
        engine.step()
    assert caught.value.address == base


@pytest.mark.parametrize("dwords", [[0x0B, 1, 2, 3], [0x0201, 0], [0x30D, 0, 0], [0x0400000A, 0], [0x12345678]])
def test_an_unknown_packet_is_an_error_with_its_bytes(engine, memory, dwords):
    base, view, _ = memory
    engine.run(FENCE, *words(base), 1)
    engine.put(*dwords, *linear(base, base + 4096, 64))
    with pytest.raises(UnknownPacket) as caught:
        engine.step()
    text = str(caught.value)
    assert "GPU 0, engine 2" in text and "byte 16" in text
    assert " ".join(f"{word:08x}" for word in dwords) in text
    assert view[:4].tobytes() == b"\1\0\0\0"


def test_a_poll_for_something_else_than_equality_is_unknown(engine, memory):
    engine.put(0xA0000008, *words(memory[0]), 0, 0, 0)
    with pytest.raises(UnknownPacket, match="function 2"):
        engine.step()


def test_both_ranges_are_checked_before_the_first_byte_moves(bench, engine, memory):
    base, view, _ = memory
    view[:4096] = 0
    end = base + 8192
    engine.put(*linear(base, base + 4096, 4097))
    with pytest.raises(MemoryFault) as caught:
        engine.step()
    assert caught.value.address == end and not view[:4096].any()


def test_packets_wrap_around_the_ring_in_the_middle(bench, memory):
    engine = Engine(bench, size=4096)
    base, _, numbers = memory
    numbers[0] = 0
    for _ in range(400):  # 8 dwords do not divide what is left after a pad of 3
        engine.run(0, 0, 0, ATOMIC, *words(base), 1, 0, 0, 0, 0)
    assert engine.at * 4 > 4 * 4096
    assert numbers[0] == 400


@pytest.mark.parametrize("foreign", [False, True])
def test_a_planted_fault_flips_one_bit_wherever_the_bytes_go(bench, engine, foreign, monkeypatch):
    monkeypatch.setattr(bench.driver, "faults", Faults(bench.driver, parse("flip:engine=2,copy=1,byte=100")))
    source, _ = bench.memory(4096)
    target, out = bench.memory(4096, foreign=foreign)
    for expected in (bytes(64), bytes(36) + b"\1" + bytes(27), bytes(64)):
        engine.run(*linear(target, source, 64))
        assert out[:64] == expected
    assert bench.driver.counters[0]["sdma_copy_engine_2"] >= 3


HEADERS = [0, 1, 0x401, 5, 6, 8, 0xB0000008, 0x5E00000A, 0x20D]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(HEADERS), st.lists(st.integers(0, 2**32 - 1), max_size=13)), max_size=8),
    st.data(),
)
def test_garbage_stops_the_queue_and_nothing_else(bench, packets, data):
    """Known packets with any contents, some of whose addresses are real: nothing but the errors that stop a queue."""
    base, _ = bench.memory(8192)
    engine = Engine(bench, size=4096)
    for header, rest in packets:
        for i in range(0, len(rest) - 1, data.draw(st.sampled_from([1, 2, 5]))):
            rest[i : i + 2] = words(base + data.draw(st.integers(-64, 8200)))
        engine.put(header ^ data.draw(st.sampled_from([0, 0, 0, 1 << 16, 1 << 29])), *rest)
    try:
        engine.step()
    except (UnknownPacket, MemoryFault):
        pass
    bench.space.remove(bench.space.find(base))


# -- what the runtime writes -------------------------------------------------------------------------------------------

SHAPES = [  # (columns, rows, levels), from, to: elements of 1 to 16 bytes, offsets of all alignments
    ((64, 16, 1), (0, 0, 0), (0, 0, 0)),
    ((16, 8, 3), (16, 2, 1), (32, 1, 0)),
    ((5, 7, 2), (3, 1, 0), (2, 0, 1)),
    ((1, 1, 1), (7, 3, 2), (6, 2, 1)),
    ((66, 9, 4), (2, 0, 0), (4, 3, 1)),
    ((127, 31, 4), (1, 0, 0), (1, 1, 0)),
]


@pytest.mark.parametrize(("count", "from_at", "to_at"), SHAPES)
def test_rectangles(raw, count, from_at, to_at):
    (x, y, z), pitch, rows, levels = count, 256, 36, 8
    size = pitch * rows * levels
    source, data = raw.host(size)
    target, out = raw.host(size)
    data[:] = np.random.default_rng(5).integers(0, 256, size, dtype=np.uint8)
    out[:] = 0xEE
    device = raw.allocate(raw.gpus[1], size)
    assert raw.wait(raw.copy(device, raw.gpus[1], target, raw.cpu, size)) == 0
    spaces = [(address, pitch, pitch * rows) for address in (device, source)]
    assert raw.wait(raw.rect(spaces[0], to_at, spaces[1], from_at, count, raw.gpus[1], 1)) == 0
    assert raw.wait(raw.copy(target, raw.cpu, device, raw.gpus[1], size, engine=1)) == 0

    expected = np.full((levels, rows, pitch), 0xEE, dtype=np.uint8)
    cube = data.reshape(levels, rows, pitch)
    (fx, fy, fz), (tx, ty, tz) = from_at, to_at
    expected[tz : tz + z, ty : ty + y, tx : tx + x] = cube[fz : fz + z, fy : fy + y, fx : fx + x]
    assert (out.reshape(levels, rows, pitch) == expected).all()


def test_rectangles_of_more_rows_and_columns_than_a_packet_holds(raw):
    for pitch, rows, width in ((16, 20000, 5), (20016, 3, 20003)):
        source, data = raw.host(pitch * rows)
        target, out = raw.host(pitch * rows)
        data[:] = np.random.default_rng(6).integers(0, 256, pitch * rows, dtype=np.uint8)
        out[:] = 0xEE
        to, from_ = ((address, pitch, pitch * rows) for address in (target, source))
        assert raw.wait(raw.rect(to, (8, 0, 0), from_, (3, 0, 0), (width, rows, 1), raw.gpus[0], 2)) == 0
        got, sent = out.reshape(rows, pitch), data.reshape(rows, pitch)
        assert (got[:, 8 : 8 + width] == sent[:, 3 : 3 + width]).all()
        got[:, 8 : 8 + width] = 0xEE
        assert (got == 0xEE).all()


def test_copies_wait_for_what_they_depend_on(raw):
    (a, one), (b, two) = raw.host(64), raw.host(64)
    device = raw.allocate(raw.gpus[2], 64)
    one[:], two[:] = 1, 2
    gate = raw.signal(1 << 32)
    first = raw.copy(device, raw.gpus[2], a, raw.cpu, 64, engine=0, after=[gate])
    second = raw.copy(b, raw.cpu, device, raw.gpus[2], 64, engine=1, after=[first])
    assert raw.wait(first, seconds=0.05) == 1  # not zero, though its low half is
    raw.store(gate, 2)
    assert raw.wait(first, seconds=0.05) == 1 and raw.load(second) == 1
    assert (two == 2).all()
    raw.store(gate, 0)
    assert raw.wait(second) == 0
    assert (two == 1).all()


def test_times_of_copies_are_in_order_and_in_the_systems_clock(raw):
    now = raw.ffi.new("uint64_t *")
    raw.lib.hsa_amd_profiling_async_copy_enable(True)
    address, _ = raw.host(1 << 20)
    device = raw.allocate(raw.gpus[0], 1 << 20)
    raw.lib.hsa_system_get_info(2, now)
    begin, last = now[0], now[0]
    for _ in range(5):
        signal = raw.copy(device, raw.gpus[0], address, raw.cpu, 1 << 20)
        assert raw.wait(signal) == 0
        time = raw.ffi.new("hsa_amd_profiling_async_copy_time_t *")
        raw.check("time", raw.lib.hsa_amd_profiling_get_async_copy_time(signal, time))
        assert last - 100_000 <= time.start < time.end
        last = time.end
    raw.lib.hsa_system_get_info(2, now)
    assert begin < last <= now[0] + 100_000


def test_a_megabyte_of_packets_through_a_megabyte_ring(raw):
    address, data = raw.host(8192)
    data[:] = np.random.default_rng(7).integers(0, 256, 8192, dtype=np.uint8)
    target, out = raw.host(8192)
    done = raw.signal(10_000)
    for i in range(10_000):  # 136 bytes of packets each
        raw.copy(target + i % 8192, raw.cpu, address + i % 8192, raw.gpus[3], 1, signal=done)
    assert raw.wait(done) == 0
    assert (out == data).all()


@pytest.mark.deadline(120)
def test_more_than_a_gigabyte_is_more_than_one_packet(raw):
    size = (1 << 30) + 3 * 4096 + 1
    before = sum(counters["sdma_copy"] for counters in raw.driver.counters)
    a, b = raw.allocate(raw.gpus[4], size), raw.allocate(raw.gpus[5], size)
    address, data = raw.host(4096)
    ends = [0, 0x3FFFFFFF - 2048, size - 4096]
    for i, offset in enumerate(ends):
        data[:] = 0x40 + i
        assert raw.wait(raw.copy(a + offset, raw.gpus[4], address, raw.cpu, 4096)) == 0
    assert raw.wait(raw.copy(b, raw.gpus[5], a, raw.gpus[4], size, engine=2), 60) == 0
    for i, offset in enumerate(ends):
        assert raw.wait(raw.copy(address, raw.cpu, b + offset, raw.gpus[5], 4096, engine=1)) == 0
        assert (data == 0x40 + i).all()
    raw.free(a)
    raw.free(b)
    packets = sum(counters["sdma_copy"] for counters in raw.driver.counters) - before
    assert packets == 2 * len(ends) + 2


def test_an_unknown_packet_in_a_running_engine_is_reported_as_hung_hardware():
    done = child(
        """
import threading, time
raw = Raw()
told, seen = [], threading.Event()
@raw.ffi.callback("hsa_amd_system_event_callback_t")
def handler(event, _data):
    told.append((event.event_type, event.hw_exception.agent, event.hw_exception.reset_cause))
    seen.set()
    return 0
raw.lib.hsa_amd_register_system_event_handler(handler, raw.ffi.NULL)
address, _ = raw.host(4096)
device = raw.allocate(raw.gpus[6], 4096)
gate = raw.signal()
done = raw.copy(device, raw.gpus[6], address, raw.cpu, 64, after=[gate])
index, queue = next(iter(raw.driver._queues.values()))
with raw.driver.processor.stopped():
    at = next(i for i in range(64) if queue._ring[i] == 1)
    queue._ring[at] = 0x0BADBEEF  # the copy
raw.store(gate, 0)
print(seen.wait(20), told == [(1, raw.gpus[6], 1)], raw.load(done))
"""
    )
    assert done.stdout == "True True 1\n", done.stderr
    assert "unknown packet, op 239 sub_op 190" in done.stderr and "0badbeef" in done.stderr
