"""An AQL queue: the packet processor's side of the protocol, by hand and through the real runtime."""

from __future__ import annotations

import struct
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsakit.softgpu.aql import UnsupportedPacket
from hsakit.softgpu.memory import MemoryFault
from hsakit.softgpu.uapi import EC_QUEUE_PACKET_UNSUPPORTED, EC_QUEUE_PACKET_VENDOR_UNSUPPORTED
from tests.softgpu.bench import words
from tests.softgpu.rawhsa import ACTIVE, BARRIER_AND, BARRIER_OR, child, packet

INVALID = 1


class ByHand:
    """A queue whose packets are written and stepped by hand, and words of memory for its signals."""

    def __init__(self, bench, packets: int = 8):
        self._bench = bench
        self.queue, self.ring, self.read = bench.aql(packets)
        self.base, data = bench.memory(4096)
        self.words = memoryview(data).cast("B").cast("Q")

    def signal(self, slot: int, value: int, mailbox: int = 0, event: int = 0) -> int:
        """An amd_signal_t in slot ``slot``; its handle."""
        for i, word in enumerate((1, value, mailbox, event, 0, 0, 0, 0)):
            self.words[slot * 8 + i] = word
        return self.base + slot * 64

    def value(self, slot: int) -> int:
        return self.words[slot * 8 + 1]

    def put(self, index: int, bytes_: bytes) -> None:
        at = index % 8 * 64
        self.ring[at : at + 64] = bytes_

    def step(self) -> bool:
        return self._bench.step(self.queue)


@pytest.fixture
def hand(bench):
    return ByHand(bench)


def test_a_packet_is_taken_once_it_was_announced_and_written(hand):
    done = hand.signal(0, 1)
    hand.put(0, packet(BARRIER_AND, completion=done))
    assert not hand.queue.pending and hand.value(0) == 1
    hand.queue.ring_doorbell(0)
    assert hand.queue.pending and hand.step()
    assert (hand.value(0), hand.read[0], hand.ring[0]) == (0, 1, INVALID)
    assert not hand.queue.pending


def test_a_header_that_is_still_invalid_stalls_what_is_behind_it(hand):
    """The second producer was faster: its doorbell announces both packets."""
    first, second = hand.signal(0, 1), hand.signal(1, 1)
    hand.put(1, packet(BARRIER_AND, completion=second))
    hand.queue.ring_doorbell(1)
    assert not hand.step() and hand.read[0] == 0
    hand.put(0, packet(BARRIER_AND, completion=first))
    assert hand.queue.pending and hand.step()  # found without another doorbell
    hand.queue.ring_doorbell(0)
    assert (hand.value(0), hand.value(1), hand.read[0]) == (0, 0, 2)


def test_barrier_and_waits_for_all_to_be_zero(hand):
    signals = [hand.signal(i, i != 2) for i in range(5)]
    hand.put(0, packet(BARRIER_AND, signals, hand.signal(5, 1)))
    hand.queue.ring_doorbell(0)
    for slot in (0, 1, 3):
        assert not hand.step()
        hand.signal(slot, 0)
    hand.signal(4, 2**64 - 1)  # below zero is not zero
    assert not hand.step() and hand.value(5) == 1
    hand.signal(4, 0)
    assert hand.step() and hand.value(5) == 0


def test_barrier_or_waits_for_one_and_empty_slots_do_not_count(hand):
    signals = [0, hand.signal(1, 1), 0, hand.signal(3, 1), 0]
    hand.put(0, packet(BARRIER_OR, signals, hand.signal(5, 1)))
    hand.queue.ring_doorbell(0)
    assert not hand.step()
    hand.signal(3, 0)
    assert hand.step() and hand.value(5) == 0


@pytest.mark.parametrize("header", [BARRIER_AND, BARRIER_OR])
def test_a_barrier_on_nothing_passes(hand, header):
    hand.put(0, packet(header))
    hand.queue.ring_doorbell(0)
    assert hand.step() and hand.read[0] == 1


def test_completion_writes_times_counts_down_and_wakes(bench, hand):
    event = bench.driver.events.create(0, True)
    mailbox = hand.base + 2048
    hand.put(0, packet(BARRIER_AND, completion=hand.signal(0, 7, mailbox, event.id)))
    hand.queue.ring_doorbell(0)
    hand.step()
    assert hand.value(0) == 6
    assert 0 < hand.words[4] <= hand.words[5]
    assert hand.words[256] == event.id and event.signaled


def test_the_ring_wraps(hand):
    hand.signal(0, 100)
    for index in range(100):
        hand.put(index, packet(BARRIER_AND, completion=hand.base))
        hand.queue.ring_doorbell(index)
        assert hand.step()
    assert (hand.value(0), hand.read[0]) == (0, 100)


def refusal(hand, bytes_: bytes) -> UnsupportedPacket:
    hand.put(0, bytes_)
    hand.queue.ring_doorbell(0)
    with pytest.raises(UnsupportedPacket) as caught:
        hand.step()
    assert hand.read[0] == 0
    return caught.value


def test_an_unknown_packet_is_refused_with_its_bytes(hand):
    agent_dispatch = struct.pack("<HH", 0x1504, 0xABCD) + bytes(range(60))
    error = refusal(hand, agent_dispatch)
    assert error.code == EC_QUEUE_PACKET_UNSUPPORTED
    assert "type 4" in str(error) and agent_dispatch.hex(" ", 4) in str(error)


def pm4(bench, *commands: int) -> bytes:
    """A vendor packet that jumps to these commands."""
    buffer, data = bench.memory(4096)
    data[: 4 * len(commands)] = struct.pack(f"<{len(commands)}I", *commands)
    jump = struct.pack("<4I", 0xC0023F00, *words(buffer), len(commands) | 1 << 23)
    return struct.pack("<HH", 0, 1) + jump + bytes(44)


def test_cache_maintenance_in_pm4_is_done(bench, hand):
    acquire = [0xC0055800, 1, 2, 3, 4, 5, 6]
    hand.put(0, pm4(bench, *acquire, 0xC0011000, 0, 0, *acquire))
    hand.queue.ring_doorbell(0)
    assert hand.step() and hand.read[0] == 1


def test_other_pm4_is_refused_with_its_words(bench, hand):
    error = refusal(hand, pm4(bench, 0xC0055800, 1, 2, 3, 4, 5, 6, 0xC0033700, 0xFEED, 0, 0, 0))
    assert error.code == EC_QUEUE_PACKET_VENDOR_UNSUPPORTED
    assert "c0033700 0000feed" in str(error)


@pytest.mark.parametrize(
    ("condition", "value", "mask", "waits", "passes"),
    [
        (0, 5, -1, [4, 6, -5], 5),
        (0, 4, 0xF, [5], 0x14),
        (1, 5, -1, [5], 6),
        (2, -3, -1, [-3, 0], -4),
        (3, 7, -1, [6, -8], 7),
    ],
)
def test_a_barrier_on_a_value(hand, condition, value, mask, waits, passes):
    done = hand.signal(0, 1)
    signal = hand.signal(1, 0)
    body = struct.pack("<HBBIQqqIIQQQ", 0x1500, 2, 0, 0, signal, value, mask, condition, 0, 0, 0, done)
    hand.put(0, body)
    hand.queue.ring_doorbell(0)
    for now in waits:
        hand.words[9] = now & (1 << 64) - 1
        assert not hand.step() and hand.value(0) == 1
    hand.words[9] = passes & (1 << 64) - 1
    assert hand.step() and hand.value(0) == 0


def test_a_barrier_on_no_signal_passes_and_one_on_no_condition_is_refused(hand):
    done = hand.signal(0, 1)
    hand.put(0, struct.pack("<HBBIQqqIIQQQ", 0x1500, 2, 0, 0, 0, 1, -1, 0, 0, 0, 0, done))
    hand.put(1, struct.pack("<HBBIQqqIIQQQ", 0x1500, 2, 0, 0, hand.signal(1, 0), 1, -1, 4, 0, 0, 0, 0))
    hand.queue.ring_doorbell(0)
    assert hand.step() and hand.value(0) == 0
    hand.queue.ring_doorbell(1)
    with pytest.raises(UnsupportedPacket, match="barrier with condition 4"):
        hand.step()


def test_another_vendor_packet_is_refused(hand):
    assert refusal(hand, struct.pack("<HH", 0, 7) + bytes(60)).code == EC_QUEUE_PACKET_VENDOR_UNSUPPORTED


def test_a_dependency_that_is_no_memory_is_a_fault(hand):
    hand.put(0, packet(BARRIER_AND, [0x123456780]))
    hand.queue.ring_doorbell(0)
    with pytest.raises(MemoryFault) as caught:
        hand.step()
    assert caught.value.address == 0x123456788  # the signal's value


def test_memory_that_is_freed_under_a_queue_is_a_fault(bench, hand):
    hand.put(0, packet(BARRIER_AND, [hand.signal(0, 1)]))
    hand.queue.ring_doorbell(0)
    assert not hand.step()
    bench.space.remove(bench.space.find(hand.base))
    with pytest.raises(MemoryFault):
        hand.step()
    hand = ByHand(bench)
    ring = bench.space.find(hand.queue._ring_at)
    bench.space.remove(ring)
    hand.queue.ring_doorbell(0)
    with pytest.raises(MemoryFault) as caught:
        hand.step()
    assert caught.value.address == ring.start


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([0, 1, 3, 4, 5, 6, 255]), st.binary(min_size=62, max_size=62), st.data())
def test_garbage_stops_the_queue_and_nothing_else(bench, kind, contents, data):
    """Any packet but a dispatch, with some real addresses in it."""
    hand = ByHand(bench)
    bytes_ = bytearray(struct.pack("<H", 0x1500 | kind) + contents)
    for at in data.draw(st.lists(st.sampled_from([8, 16, 24, 32, 40, 56]), max_size=6)):
        bytes_[at : at + 8] = struct.pack("<Q", hand.base + data.draw(st.integers(-16, 4100)))
    if kind == 0:
        bytes_[2:8] = struct.pack("<HI", 1, 0xC0023F00)
        bytes_[8:20] = struct.pack(
            "<QI", hand.base + data.draw(st.integers(-16, 4100)) & ~3, data.draw(st.integers(0, 2**20))
        )
        commands = data.draw(st.lists(st.sampled_from([0xC0055800, 0xC0001000, 0, 0xFFFFFFFF_FFFFFFFF]), max_size=9))
        hand.words[: len(commands)] = memoryview(struct.pack(f"<{len(commands)}Q", *commands)).cast("B").cast("Q")
    hand.put(0, bytes(bytes_))
    hand.queue.ring_doorbell(data.draw(st.sampled_from([0, 5, 2**63])))
    try:
        for _ in range(3):
            hand.step()
    except (UnsupportedPacket, MemoryFault):
        pass


# -- through the real runtime -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 64])
def test_many_packets_through_a_small_ring(raw, batch):
    queue = raw.queue(size=64)
    count = 6400
    done = raw.signal(count)
    one = packet(BARRIER_AND, completion=done)
    for _ in range(count // batch):
        queue.submit(*[one] * batch)
    assert raw.wait(done, how=ACTIVE) == 0
    assert queue.read == count


def test_producers_that_ring_out_of_order(raw):
    """Four threads; the real runtime's doorbell takes what each rings."""
    queue = raw.queue(size=64)
    done = raw.signal(4 * 500)

    def produce():
        for _ in range(500):
            queue.submit(packet(BARRIER_AND, completion=done))

    threads = [threading.Thread(target=produce) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert raw.wait(done) == 0


def test_barriers_between_queues_of_all_gpus(raw):
    """A chain through eight GPUs, each link held by the one before."""
    start = raw.signal()
    last = start
    for gpu in raw.gpus:
        last = raw.queue(gpu).barrier([last])
    assert raw.wait(last, seconds=0.05) == 1
    raw.store(start, 0)
    assert raw.wait(last) == 0


def test_errors_reach_the_queues_callback():
    """Packets that the processor refuses stop their queue and say so; the other queues go on."""
    done = child(
        """
import struct, time
with Raw() as raw:
    good = raw.queue(raw.gpus[0])
    for bad in (struct.pack("<HH", 0x1504, 0) + bytes(60), struct.pack("<HH", 0, 9) + bytes(60)):
        queue = raw.queue(raw.gpus[0])
        queue.submit(bad)
        late = queue.barrier()
        deadline = time.monotonic() + 20
        while not queue.errors and time.monotonic() < deadline:
            time.sleep(0.01)
        print([hex(code) for code in queue.errors], raw.load(late), raw.wait(good.barrier()))
        queue.destroy()
"""
    )
    assert done.stdout.splitlines() == ["['0x1009'] 1 0"] * 2, done.stderr  # HSA_STATUS_ERROR_INVALID_PACKET_FORMAT
    assert "does not execute this packet of type 4" in done.stderr
