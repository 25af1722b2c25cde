"""What a matrix product may come to, and what is refused."""

import numpy as np
import pytest

from hsakit.gemm import FORMATS, GemmError, Product, decode, encode


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


def test_bf16_is_rounded_to_the_nearest_even():
    x = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-9, 3.0e38], np.float32)
    assert encode("bf16", x).tolist() == [0x3F80, 0x3F80, 0x3F82, 0xBF80, 0x7F62]
    assert decode("bf16", np.array([0x3F80, 0xC000], np.uint16)).tolist() == [1.0, -2.0]
