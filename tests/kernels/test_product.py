import numpy as np
import pytest

from hsakit.gemm import FORMATS, Product

NOTHING = np.array([0, (1 << 64) - 1], np.uint64)
M, N = 13, 300  # of which a period of 6 x 5 is the product


@pytest.mark.parametrize("dtype", FORMATS)
def test_every_element_is_compared_with_the_one_it_repeats(bench, dtype):
    product = Product(dtype, 6, 5, 8, 1)
    right = {"f32": product.result.astype(np.float32), "f16": product.result.astype(np.float16)}.get(dtype)
    if right is None:
        bits = product.result.astype(np.float32).view(np.uint32)
        right = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    c = np.tile(right, (3, 60))[:M, :N].copy()
    expected, bound = (
        bench.put(np.ascontiguousarray(values, np.float32)) for values in (product.result, product.allowed)
    )
    for wrong in ([], [(7, 299)], [(12, 3), (2, 0), (0, 1)]):
        damaged = c.copy()
        for at in wrong:
            damaged[at] = ~right[0, 0] if dtype == "bf16" else np.nan
        found = bench.put(NOTHING)
        bench.run("product", f"product_{dtype}", 2, bench.put(damaged), M, N, expected, bound, 6, 5, found)
        first = min((i * N + j for i, j in wrong), default=NOTHING[1])
        assert bench.get(found, np.uint64).tolist() == [len(wrong), first]
