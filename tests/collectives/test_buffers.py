"""What Buffers finds wrong, each byte changed by hand after a run that was right; on the host and on the device."""

import numpy as np
import pytest

from hsakit.collectives import Buffers, Operation, engines
from hsakit.ffi.errors import HsakitError, InvalidArgument
from hsakit.verify import VerifyError

N = 2


@pytest.fixture(params=[1 << 30, 1], ids=["host", "device"])
def gathered(request, node):
    """An all-gather that has run, compared by the host or by kernels."""
    ranks = min(N, len(node.gpus))
    operation = Operation("all-gather", ranks, 30_001)
    with Buffers(node, operation, skew=3, device_from=request.param) as buffers:
        with engines.prepare(node, operation, buffers.send, buffers.recv) as collective:
            buffers.run(collective)
            yield collective, buffers


def change(gpu, span, at, by=1):
    byte = np.array(gpu.get(span[at : at + 1]))
    gpu.put(span[at : at + 1], lambda view: np.copyto(view, byte ^ np.uint8(by)))


@pytest.mark.parametrize("at", [0, 12_345, 30_000])
def test_one_bit(gathered, at):
    collective, buffers = gathered
    rank = len(buffers.gpus) - 1
    change(buffers.gpus[rank], buffers.recv[rank], at, 4)
    where = f"rank {rank}, the shard of rank 0, written by copy .*: 1 of 30001 bytes wrong, the first at offset {at}:"
    with pytest.raises(VerifyError, match=f"{where}.*differs in one bit"):
        buffers.check(collective)


def test_without_a_collective_the_shard_is_named(gathered):
    _, buffers = gathered
    change(buffers.gpus[0], buffers.recv[0], 7)
    with pytest.raises(VerifyError, match="rank 0, the shard of rank 0: 1 of 30001"):
        buffers.check()


@pytest.mark.parametrize("which", ["send", "recv"])
@pytest.mark.parametrize("side", ["before", "behind"])
def test_canaries(gathered, which, side):
    collective, buffers = gathered
    whole = buffers._whole[0, which]
    change(buffers.gpus[0], whole, 3 + 255 if side == "before" else whole.nbytes - 256)
    with pytest.raises(VerifyError, match=f"written {side} {which} of rank 0, at its canary: 1 of 256"):
        buffers.check(collective)


def test_what_was_sent_stays(gathered):
    collective, buffers = gathered
    change(buffers.gpus[0], buffers.send[0], 77)
    with pytest.raises(HsakitError, match="byte 77 of what rank 0 sends was overwritten"):
        buffers.check(collective)


def test_every_run_has_other_bytes_and_poison(gathered):
    collective, buffers = gathered
    before = np.array(buffers.gpus[0].get(buffers.send[0]))
    buffers.prepare(collective)
    after = np.array(buffers.gpus[0].get(buffers.send[0]))
    assert (before != after).mean() > 0.9
    with pytest.raises(VerifyError, match="30001 of 30001 bytes wrong.*poison: never written"):
        buffers.check(collective)


def test_gpus_in_another_order(node):
    n = len(node.gpus)
    gpus = [node.gpus[(3 * rank + 1) % n] for rank in range(min(n, 4))] if n % 3 else node.gpus[::-1]
    operation = Operation("all-to-all", len(gpus), 777)
    with Buffers(node, operation, gpus=gpus) as buffers:
        assert [each.agent for each in buffers.recv] == [gpu.agent for gpu in gpus]
        with engines.prepare(node, operation, buffers.send, buffers.recv, gpus=gpus) as collective:
            buffers.run(collective)
    with pytest.raises(InvalidArgument, match="different GPUs"):
        Buffers(node, operation, gpus=[gpus[0]] * len(gpus) if n > 1 else [])
