"""Rings as plans: what one rank sends the next one receives a step later, and every byte of a result comes once."""

from collections import Counter

import pytest

from hsakit.collectives.ring import ring, through_scratch


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
def test_what_is_sent_is_received_in_the_next_step(make_operation, name, ranks, in_place):
    for nbytes in (0, 4, 1000):
        operation = make_operation(name, ranks, nbytes, in_place)
        hops = ring(operation)
        sent = {(h.rank, h.step): h.nbytes for mine in hops for h in mine if h.send}
        received = {(h.rank, h.step): h.nbytes for mine in hops for h in mine if h.receive}
        assert received == {((rank + 1) % ranks, step + 1): n for (rank, step), n in sent.items()}
        for rank, mine in enumerate(hops):
            steps = [hop.step for hop in mine]
            assert steps == sorted(set(steps)), "one block a step"
            assert all(hop.rank == rank == (hop.src or hop.out or (rank,))[0] for hop in mine)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
def test_every_byte_of_a_result_is_written_once(make_operation, name, ranks, in_place):
    operation = make_operation(name, ranks, 1000, in_place)
    scratch = through_scratch(operation)
    for rank, mine in enumerate(ring(operation)):
        written, wanted = Counter(), Counter()
        for hop in mine:
            if hop.out:
                assert hop.out.buffer == ("scratch" if scratch else "recv")
                written.update(range(hop.out.offset, hop.out.offset + hop.nbytes))
        for block in operation.blocks:
            if block.dst == rank:
                target = operation.target(rank, block.dst_offset)
                if scratch or block.src != (rank,) or operation.source(rank, block.src_offset) != target:
                    wanted.update(range(target.offset, target.offset + block.nbytes))
        assert written == wanted


def test_a_ring_takes_the_fewest_bytes(make_operation):
    """Over every link of N ranks: (N - 1) / N of the vector to gather or to reduce, twice that for all-reduce."""
    for name, factor in (("all-gather", 7), ("reduce-scatter", 7), ("broadcast", 1), ("all-reduce", 14 / 8)):
        for mine in ring(make_operation(name, 8, 8000)):
            sent = sum(hop.nbytes for hop in mine if hop.send)
            assert sent <= factor * 8000 + 8
