"""Sums of shards: element-wise, in the order of the sources, any count, in place, from a peer's memory."""

import numpy as np
import pytest

COUNTS = [1, 7, 8, 4095, 4096, 30_003]
GUARD = 5  # elements before and behind that no kernel may touch


def bf16(x: np.ndarray) -> np.ndarray:
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def widened(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


# of random numbers, to what is summed in, and back
TYPES = {
    "f32": (lambda x: x.astype(np.float32), lambda x: x, lambda x: x),
    "f16": (lambda x: x.astype(np.float16), lambda x: x.astype(np.float32), lambda x: x.astype(np.float16)),
    "bf16": (bf16, widened, bf16),
    "i32": (lambda x: (x * 2**31).astype(np.int64).astype(np.int32), lambda x: x, lambda x: x),
}


def summed(kind: str, arrays: list) -> np.ndarray:
    _, wide, back = TYPES[kind]
    total = wide(arrays[0])
    for each in arrays[1:]:
        total = total + wide(each)
    return back(total)


@pytest.mark.parametrize("sources", [1, 2, 3, 8])
@pytest.mark.parametrize("kind", TYPES)
def test_sum(bench, addresses, kind, sources):
    make = TYPES[kind][0]
    rng = np.random.default_rng(sources)
    for count in COUNTS if sources == 3 else COUNTS[-2:]:
        arrays = [make(rng.standard_normal(count)) for _ in range(sources)]
        exact = summed(kind, arrays)
        src = [bench.put(each, gpu=p % len(bench.gpus)) for p, each in enumerate(arrays)]
        filler = np.full(GUARD, arrays[0][0])
        dst = bench.put(np.concatenate([filler, np.zeros_like(exact), filler]))
        at = GUARD * exact.itemsize
        inner = dst[at : at + exact.nbytes]
        bench.run("reduce", f"reduce_{kind}", 3, inner, addresses(src), sources, count)
        got = bench.get(dst, exact.dtype)
        assert (got[GUARD:-GUARD].view(np.uint8) == exact.view(np.uint8)).all(), count
        assert (got[:GUARD] == filler).all() and (got[-GUARD:] == filler).all()
        last = (sources - 1) % len(bench.gpus)
        bench.run("reduce", f"reduce_{kind}", 2, src[-1], addresses(src), sources, count, gpu=last)  # in place
        assert (bench.get(src[-1], np.uint8) == exact.view(np.uint8)).all()


def test_bf16_rounds_to_even_and_keeps_nans(bench, addresses):
    a = np.array([0x3F80, 0x3F80, 0x7F80, 0x7F80, 0x0001, 0x8000], np.uint16)
    b = np.array([0x3B80, 0x3C40, 0xFF80, 0x3F80, 0x0001, 0x8000], np.uint16)  # 2**-8: half an ulp of 1
    dst = bench.put(np.zeros_like(a))
    bench.run("reduce", "reduce_bf16", 1, dst, addresses([bench.put(a), bench.put(b)]), 2, len(a))
    got = bench.get(dst, np.uint16)
    assert [hex(x) for x in got[[0, 1, 3, 4, 5]]] == ["0x3f80", "0x3f82", "0x7f80", "0x2", "0x8000"]
    assert np.isnan(widened(got[2:3]))[0]
