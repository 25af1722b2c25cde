"""Faults planted on purpose are planted where they were asked for, and a byte compare finds them."""

from __future__ import annotations

import pytest

from hsakit.softgpu.faults import VARIABLE, Fault, from_environment, parse
from tests.softgpu.rawhsa import child


def test_keys_that_are_left_out_match_everything():
    assert parse("flip") == (Fault("flip"),) and parse("") == ()
    fault, other = parse("flip:gpu=2,engine=5,byte=77;drop:onto=3")
    assert fault == Fault("flip", gpu=2, engine=5, byte=77)
    assert fault.hits(2, 5, 0, None) and fault.hits(2, 5, 99, 1)
    assert not fault.hits(3, 5, 0, 1) and not fault.hits(2, 4, 0, 1)
    assert other.hits(0, 0, 0, 3) and not other.hits(0, 0, 0, 2) and not other.hits(0, 0, 0, None)
    assert not parse("flip:copy=1")[0].hits(0, 0, 0, None)


@pytest.mark.parametrize("text", ["flop", "flip:gpu", "flip:gpu=x", "flip:lane=1", ":gpu=1", "flip gpu=1", "flip;"])
def test_a_bad_specification_says_how_to_write_one(text):
    with pytest.raises(ValueError, match="kind:key=number"):
        parse(text)


def test_no_variable_no_fault(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert from_environment() == ()


def test_one_bit_of_one_copy_is_wrong():
    """The second copy by the first engine of GPU 1 that is used; all others, there and on other GPUs, are right."""
    done = child(
        """
import numpy as np
with Raw() as raw:
    (source, sent), (back, got) = raw.host(10000), raw.host(10000)
    sent[:] = np.random.default_rng(3).integers(0, 256, 10000, dtype=np.uint8)
    for gpu in raw.gpus[:3]:
        there = raw.allocate(gpu, 10000)
        for i in range(3):
            raw.wait(raw.copy(there, gpu, source, raw.cpu, 10000, engine=1))
            raw.wait(raw.copy(back, raw.cpu, there, gpu, 10000, engine=0))
            wrong = np.flatnonzero(got != sent)
            print(raw.gpus.index(gpu), i, wrong.tolist(), (got[wrong] ^ sent[wrong]).tolist())
""",
        HSAKIT_SOFTGPU_FAULT="flip:gpu=1,engine=0,copy=1,byte=12345",
    )
    expected = [f"{gpu} {i} [] []" for gpu in range(3) for i in range(3)]
    expected[4] = "1 1 [2345] [1]"
    assert done.stdout.splitlines() == expected, done.stderr
