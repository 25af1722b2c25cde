"""What a matrix product may come to, and what is refused."""

import numpy as np
import pytest

from hsakit.ffi.errors import InvalidArgument
from hsakit.gemm import FORMATS, TILES, GemmError, Product, choose_tile, decode, encode


@pytest.fixture(params=FORMATS)
def product(request):
    return Product(request.param, 70, 33, 50, seed=3)


def computed(product) -> np.ndarray:
    """The product as a GPU computes it: summed in f32, rounded to the type."""
    a, b = (decode(product.dtype, each).astype(np.float32) for each in (product.a, product.b))
    return encode(product.dtype, a @ b)


def test_a_right_product_passes(product):
    product.check(computed(product))
    product.check(computed(product).reshape(-1))
    assert product.a.shape == (70, 50) and product.b.shape == (50, 33)
    assert computed(product).dtype == FORMATS[product.dtype].element


def test_one_wrong_element_is_named(product):
    c = computed(product)
    right = decode(product.dtype, c)[5, 7]
    c[5, 7] = encode(product.dtype, np.array([right * 1.05]))[0]
    with pytest.raises(GemmError, match=r"1 of 2310 elements of C wrong, the first at \(5, 7\)"):
        product.check(c)


def test_an_element_never_written_is_seen(product):
    c = computed(product)
    c.view(np.uint8).reshape(-1)[-c.itemsize :] = 0xFF  # no number in any of the types
    with pytest.raises(GemmError, match=r"at \(69, 32\): nan where"):
        product.check(c)


def test_operands_in_another_order_are_seen(product):
    c = computed(product)
    with pytest.raises(GemmError, match="elements of C wrong"):
        product.check(c[::-1].copy())


def test_many_small_errors_break_the_norm():
    """Each within its own bound, which grows with k and |A||B|; together they are too many."""
    product = Product("f32", 64, 64, 2000, seed=1)
    c = product.result + 0.9 * product._allowed
    with pytest.raises(GemmError, match=r"\|\|C-R\|\|/\|\|R\|\| is .*: more than 1e-06"):
        product.check(c)


@pytest.mark.parametrize("m, n, k", [(1 << 20, 1 << 20, 1), (1, 1, 1 << 60), (1 << 60, 1 << 60, 1 << 60)])
def test_a_product_that_the_host_has_no_memory_for_is_refused(m, n, k):
    with pytest.raises(InvalidArgument, match=f"{m} x {n} x {k}: .* GiB of the host's memory"):
        Product("bf16", m, n, k, seed=1)


def test_bf16_is_rounded_to_the_nearest_even():
    x = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-9, 3.0e38], np.float32)
    assert encode("bf16", x).tolist() == [0x3F80, 0x3F80, 0x3F82, 0xBF80, 0x7F62]
    assert decode("bf16", np.array([0x3F80, 0xC000], np.uint16)).tolist() == [1.0, -2.0]


@pytest.mark.parametrize(
    "m, n, cus, tile",
    [
        (8192, 8192, 304, (256, 128)),  # 7 tiles for the busiest CU, or 14 of half the size
        (1024, 1024, 304, (128, 128)),  # one, on 64 CUs or on 32
        (4096, 4096, 304, (256, 128)),
        (128, 1 << 20, 304, (128, 128)),  # half of the larger would be beyond the edge
        (129, 1 << 20, 304, (256, 128)),
        (2560, 2048, 304, (256, 128)),  # equal: two tiles, or one of twice the size
        (2560, 2048, 150, (128, 128)),  # three, or two of twice the size
        (1, 1, 1, (128, 128)),
    ],
)
def test_the_busiest_cu_decides_the_tile(m, n, cus, tile):
    assert choose_tile("bf16", m, n, cus) == choose_tile("f16", m, n, cus) == tile
    assert choose_tile("f32", m, n, cus) == (64, 64)


def test_what_a_tile_leaves_over_is_counted_whole():
    for m, n, cus in np.random.default_rng(2).integers(1, (9999, 9999, 400), (200, 3)).tolist():
        work = {}
        for rows, columns in TILES["bf16"]:
            tiles = sum(1 for _ in range(0, m, rows)) * sum(1 for _ in range(0, n, columns))
            work[rows, columns] = sum(1 for _ in range(0, tiles, cus)) * rows * columns
        chosen = choose_tile("bf16", m, n, cus)
        assert work[chosen] == min(work.values()) and (chosen == (256, 128) or work[chosen] < work[256, 128])
