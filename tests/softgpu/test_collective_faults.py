"""Whatever goes wrong in a collective's copies is found, and the error names the ranks and the transfer."""

from __future__ import annotations

import re
import time

import pytest

from hsakit import softgpu
from hsakit.collectives import Buffers, Operation, engines
from hsakit.ffi.errors import DeadlineExceeded
from hsakit.verify import VerifyError

SIZE = 5003
RANK, PEER = 1, 2  # whose copy goes wrong, to whom


@pytest.fixture
def plant(node):
    yield softgpu.plant
    softgpu.plant("")


@pytest.fixture(params=engines.FORMS)
def exchange(request, node):
    """An all-to-all of four ranks, and its buffers."""
    operation = Operation("all-to-all", 4, SIZE)
    with Buffers(node, operation, skew=1) as buffers:
        with engines.prepare(node, operation, buffers.send, buffers.recv, form=request.param) as collective:
            buffers.run(collective)
            yield collective, buffers


def transfer(src=RANK, dst=PEER):
    ends = f"rank {src} send\\+{dst * SIZE} -> rank {dst} recv\\+{src * SIZE}"
    return f"copy \\d+, {SIZE} B {ends} on engine \\d+ of GPU {src}"


def shard(src=RANK, dst=PEER):
    return f"rank {dst}, the shard of rank {src}, written by {transfer(src, dst)}"


FAULTS = {
    "dropped": (f"drop:gpu={RANK},onto={PEER}", f"{SIZE} of {SIZE} bytes wrong.*poison: never written"),
    "late": (f"late:gpu={RANK},onto={PEER},ms=300", "poison: never written"),
    "flipped": (f"flip:gpu={RANK},onto={PEER},byte=1234", "1 of 5003 bytes wrong, the first at offset 1234.*one bit"),
    "tail": (f"tail:gpu={RANK},onto={PEER},by=3", "3 of 5003 bytes wrong, the first at offset 5000.*never written"),
    "swapped": (
        f"from:gpu={RANK},onto={PEER},by={SIZE};from:gpu={RANK},onto={PEER + 1},by={-SIZE}",
        f"which is rank {RANK}'s pattern at {(PEER + 1) * SIZE}",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_copy_is_named(exchange, plant, name):
    collective, buffers = exchange
    fault, found = FAULTS[name]
    plant(fault)
    with pytest.raises(VerifyError) as caught:
        buffers.run(collective)
    assert re.search(f"{shard()}: .*{found}", str(caught.value)), caught.value
    plant("")
    if name == "late":
        time.sleep(0.4)  # the bytes arrive now: not in the next run
    buffers.run(collective)


def test_two_shards_swapped_between_senders(exchange, plant):
    """Each lands where the other belongs."""
    collective, buffers = exchange
    plant(f"to:gpu=0,onto={PEER},by={SIZE};to:gpu=1,onto={PEER},by={-SIZE}")
    with pytest.raises(VerifyError, match=f"{shard(0)}: .*which is rank 1's pattern at {PEER * SIZE}"):
        buffers.run(collective)
    plant("")
    buffers.run(collective)


def test_a_copy_to_the_right_offset_of_the_wrong_peer(exchange, plant):
    collective, buffers = exchange
    away = buffers.recv[3].address - buffers.recv[PEER].address
    plant(f"to:gpu={RANK},onto={PEER},by={away}")
    with pytest.raises(VerifyError, match=f"{shard()}: {SIZE} of {SIZE} bytes wrong.*never written"):
        buffers.run(collective)


def test_bytes_of_the_run_before(exchange, plant):
    collective, buffers = exchange
    plant(f"stale:gpu={RANK},onto={PEER}")
    buffers.run(collective)  # the first that is brought is right
    with pytest.raises(VerifyError, match=f"{shard()}: .*under seed {buffers.seed}"):
        buffers.run(collective)


def test_a_lost_completion_misses_the_deadline(exchange, plant, runtime):
    collective, buffers = exchange
    plant(f"lost:gpu={RANK},onto={PEER}")
    buffers.prepare(collective)
    collective.submit()
    missing = transfer() if collective.form == "timed" else f"1 of 4 copies of the result of rank {PEER}"
    with pytest.raises(DeadlineExceeded, match=f"rank {PEER} is not done within 0.5 s: .*{missing}"):
        collective.wait(0.5)
    plant("")
    # Counted down by hand, or it would be in flight for ever.
    for step in collective._pieces.values():
        for piece in step:
            signal = piece.copy.signal
            if signal.value > 0:
                runtime.lib.hsa_signal_subtract_scacq_screl(signal.handle().raw, signal.value)
    collective.wait()
    buffers.check(collective)
    buffers.run(collective)


def test_a_part_of_a_sum_that_never_came(node, plant):
    operation = Operation("reduce-scatter", 4, 1000)
    with Buffers(node, operation) as buffers:
        with engines.prepare(node, operation, buffers.send, buffers.recv) as collective:
            buffers.run(collective)
            plant(f"drop:gpu={RANK},onto={PEER}")
            sender = f"rank {PEER}, the shard of rank {RANK}, on its way, written by copy"
            with pytest.raises(VerifyError, match=f"{sender}.*1000 of 1000 bytes wrong.*never written"):
                buffers.run(collective)
            plant("")
            buffers.run(collective)
