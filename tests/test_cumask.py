"""Sets of CUs: what makes them, what combines them, what a queue may have of them."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hsakit.culayout import CuLayout
from hsakit.cumask import CuMask, HsaBits
from hsakit.ffi.errors import InvalidArgument

MI300X = CuLayout(((10, 10, 9, 9),) * 8)
RDNA = CuLayout.even(40, engines=2, arrays=2, pairs=True)
ALL = CuMask.all(MI300X)

quick = settings(max_examples=60, deadline=None)


@st.composite
def layouts(draw):
    """Any part, but each XCC with a CU that a mask can name (others have none that a queue may use)."""
    pairs = draw(st.booleans())
    xccs = 1 if pairs else draw(st.sampled_from([1, 2, 4, 8]))
    engines, arrays = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    counts = st.integers(0, 4).map(lambda n: 2 * n) if pairs else st.integers(0, 7)
    engine = st.tuples(*[counts] * arrays)
    xcc = st.tuples(*[engine] * engines).filter(lambda xcc: any(map(any, xcc)))
    return CuLayout(draw(st.tuples(*[xcc] * xccs)), pairs)


@st.composite
def masks(draw, layout=None):
    """Any set of CUs of a part, empty ones and such as leave an XCC without a CU included."""
    layout = layout or draw(layouts())
    value = draw(st.integers(0, (1 << layout.count) - 1))
    if layout.pairs:
        value = sum(3 << bit for bit in range(0, layout.count, 2) if value >> bit & 1)
    return CuMask(layout, value & layout.named)


two_masks = layouts().flatmap(lambda layout: st.tuples(masks(layout), masks(layout)))


def test_golden_bits():
    assert CuMask.from_bits(MI300X, [8], allow_empty_xcc=True).coordinates() == ((0, 1, 0),)
    assert CuMask.from_bits(MI300X, [32], allow_empty_xcc=True).coordinates() == ((0, 0, 1),)
    assert ALL.first(8).coordinates() == tuple((xcc, 0, 0) for xcc in range(8))
    assert ALL.first(32).se_counts == ((1, 1, 1, 1),) * 8
    assert ALL.per_xcc(10).se_counts == ((3, 3, 2, 2),) * 8


def test_words_and_bits():
    mask = ALL.first(40)
    assert mask.words == (0xFFFFFFFF, 0xFF, *[0] * 8)
    assert mask.bits == HsaBits(320, mask.words)
    assert ALL.words == (*[0xFFFFFFFF] * 9, 0xFFFF)
    assert CuMask.from_words(MI300X, [0, 0xFF]) == CuMask.from_bits(MI300X, range(32, 40)) == mask - ALL.first(32)


def test_words_of_pairs():
    mask = CuMask.from_bits(RDNA, [0, 1, 6, 7, 38, 39])
    assert mask.bits == HsaBits(64, (0xC3, 0xC0))
    assert mask.words == (1 << 0 | 1 << 3 | 1 << 19,)  # HIP counts pairs
    assert mask.matches(mask.words, "hip")
    assert mask.matches(mask.bits.words, "hsa")
    assert not mask.matches(mask.words, "hsa")


@quick
@given(masks())
def test_round_trips(mask):
    layout = mask.layout
    allowed = CuMask(layout, mask.value, allow_empty_xcc=True)
    assume(mask)
    length, words = allowed.bits
    assert length == 32 * len(words) >= layout.count > length - 32
    for again in (
        CuMask.from_words(layout, words, allow_empty_xcc=True),
        CuMask.from_bits(layout, mask, allow_empty_xcc=True),
        CuMask.from_coordinates(layout, mask.coordinates(), allow_empty_xcc=True),
    ):
        assert again == mask
        assert hash(again) == hash(mask)
    assert len(mask) == len(list(mask)) == len(set(mask.coordinates())) == sum(mask.xcc_counts)
    assert mask.matches(words)
    assert mask.matches(allowed.words, "hip")
    assert mask.matches([*words, 0xFFFFFFFF])  # bits past the part are nothing
    for bit in (0, max(layout.bits.values())):
        changed = list(words)
        changed[bit // 32] ^= 1 << bit % 32
        assert not mask.matches(changed)


@quick
@given(two_masks)
def test_algebra(pair):
    a, b = pair
    assert set(a | b) == set(a) | set(b)
    assert set(a & b) == set(a) & set(b)
    assert set(a - b) == set(a) - set(b)
    assert set(~a) == set(CuMask.all(a.layout)) - set(a)
    assert ~~a == a
    assert ~(a | b) == ~a & ~b
    assert (a == b) == (set(a) == set(b))


@quick
@given(masks(), st.data())
def test_split(mask, data):
    assume(mask)
    step = 2 if mask.layout.pairs else 1
    n = step * data.draw(st.integers(1, len(mask) // step))
    first, rest = mask.split(n, allow_empty_xcc=True)
    assert len(first) == n
    assert not first & rest
    assert first | rest == mask
    assert not rest or max(first) < min(rest)
    assert first == mask.first(n, allow_empty_xcc=True)


@quick
@given(layouts(), st.data())
def test_per_xcc(layout, data):
    mask = CuMask.all(layout)
    fewest = min(mask.xcc_counts)
    step = 2 if layout.pairs else 1
    n = step * data.draw(st.integers(1, fewest // step))
    some = mask.per_xcc(n)
    assert set(some.xcc_counts) == {n}
    assert not some - mask
    assert some.words  # a queue may have it
    with pytest.raises(InvalidArgument, match=f"the XCC with the fewest has {fewest}"):
        mask.per_xcc(fewest + 1)


@pytest.mark.parametrize("xccs", [1, 2, 4, 8])
def test_first_is_even(xccs):
    whole = CuMask.all(CuLayout(((4, 4, 3, 3),) * xccs))
    for n in range(1, len(whole) + 1):
        mask = whole.first(n, allow_empty_xcc=True)
        assert max(mask.xcc_counts) - min(mask.xcc_counts) <= 1
        if n <= 12 * xccs:  # before the first shader engine runs out
            assert all(max(counts) - min(counts) <= 1 for counts in mask.se_counts)


@quick
@given(masks())
def test_empty_xccs_are_refused(mask):
    assert mask.empty_xccs == tuple(i for i, n in enumerate(mask.xcc_counts) if n == 0)
    if not mask:
        with pytest.raises(InvalidArgument, match="empty CU mask"):
            CuMask(mask.layout, 0, allow_empty_xcc=True).checked()
    elif mask.empty_xccs:
        for refused in (
            lambda: mask.words,
            lambda: mask.bits,
            mask.checked,
            lambda: CuMask.from_bits(mask.layout, mask),
            lambda: CuMask.from_coordinates(mask.layout, mask.coordinates()),
            lambda: mask.first(len(mask)),
        ):
            with pytest.raises(InvalidArgument, match=r"can hang.*allow_empty_xcc=True"):
                refused()
    else:
        assert mask.checked() is mask
        assert mask.bits.words


def test_refusal_names_the_xccs():
    with pytest.raises(InvalidArgument, match=r"by XCC 1 1 1 0 0 0 0 0> leaves no CU of XCC 3, 4, 5, 6, 7:"):
        ALL.first(3)


def test_permission_is_passed_on():
    xcd0 = CuMask.from_bits(MI300X, range(0, 304, 8), allow_empty_xcc=True)
    assert xcd0.xcc_counts == (38, 0, 0, 0, 0, 0, 0, 0)
    for mask in (xcd0, ~xcd0, xcd0 & ALL, ALL - xcd0, xcd0.first(4), *xcd0.split(8)):
        assert mask.words
    assert xcd0 == CuMask(MI300X, xcd0.value)  # no part of what the mask is
    with pytest.raises(InvalidArgument):
        CuMask(MI300X, xcd0.value).words  # noqa: B018


def test_rest_may_be_empty_but_not_used():
    whole, rest = ALL.split(304)
    assert (whole, len(rest)) == (ALL, 0)
    with pytest.raises(InvalidArgument, match="empty CU mask"):
        rest.words  # noqa: B018


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: CuMask.from_bits(MI300X, [0, 304]), "bit 304 is no CU of this part, which has 304: bits are 0 to 303"),
        (lambda: CuMask.from_bits(MI300X, [-1]), "bit -1 is no CU"),
        (lambda: CuMask.from_words(MI300X, [0xFFFFFFFF] * 10), "bit 304 is no CU"),
        (lambda: CuMask.from_words(MI300X, [1 << 32]), "unsigned 32-bit"),
        (lambda: CuMask.from_words(MI300X, [-1]), "unsigned 32-bit"),
        (
            lambda: CuMask.from_coordinates(MI300X, [(0, 2, 9)]),
            r"no mask of this part can name \(xcc, se, cu\) \(0, 2, 9\)",
        ),
        (lambda: CuMask.from_bits(CuLayout(((1,), (3,))), [0, 1, 2]), "XCC 0 has fewer CUs"),
        (lambda: CuMask.from_bits(RDNA, [0, 1, 5]), "only one of bits 4 and 5 is set: .* pairs"),
        (lambda: CuMask.all(RDNA).first(3), "only one of bits 2 and 3 is set: .* pairs"),
        (lambda: ALL.first(0), "can give 1 to 304"),
        (lambda: ALL.first(305), "can give 1 to 304"),
        (lambda: ALL & CuMask.all(RDNA), "different parts"),
        (lambda: ALL.matches([], "opencl"), "none of hsa, hip"),
    ],
)
def test_refused(make, why):
    with pytest.raises(InvalidArgument, match=why):
        make()


def test_only_masks_combine():
    for combine in (ALL.__and__, ALL.__or__, ALL.__sub__):
        assert combine({1}) is NotImplemented
    with pytest.raises(TypeError):
        ALL | 1


def test_disjoint_queues():
    """Cut up again and again, what is handed out is disjoint and adds up."""
    parts, rest = [], ALL
    for n in (8, 32, 64, 200):
        part, rest = rest.split(n)
        parts.append(part)
    assert not rest
    bits = list(chain.from_iterable(parts))
    assert sorted(bits) == list(range(304))


def test_immutable():
    with pytest.raises(AttributeError):
        ALL.value = 1
    assert len({ALL, CuMask.all(MI300X), ALL.first(8)}) == 2


def test_repr():
    assert repr(ALL.first(32)) == "<CuMask 32 of 304 CUs, 4 an XCC>"
    assert repr(ALL.first(12)) == "<CuMask 12 of 304 CUs, by XCC 2 2 2 2 1 1 1 1>"


def test_queue_takes_one(runtime):
    agent = runtime.gpus[0]
    mask = CuMask.all(CuLayout.of(agent)).per_xcc(2)
    with agent.create_queue(cu_mask=mask) as queue:
        assert queue.cu_mask == tuple(mask)


def test_queue_takes_none_that_could_hang_or_is_anothers(runtime):
    agent = runtime.gpus[0]
    layout = CuLayout.of(agent)
    every = CuMask.all(layout)
    with pytest.raises(InvalidArgument, match="empty CU mask"):
        agent.create_queue(cu_mask=every - every)
    with pytest.raises(InvalidArgument, match=f"part of 16 CUs; GPU 0 has {layout.count}"):
        agent.create_queue(cu_mask=CuMask.all(CuLayout.even(16)))
    if layout.xccs > 1:
        first = CuMask.from_bits(layout, (bit for bit in every if layout.at(bit).xcc), allow_empty_xcc=True)
        lacking = CuMask(layout, first.value)  # as a combination of masks has it
        with pytest.raises(InvalidArgument, match="no CU of XCC 0"):
            agent.create_queue(cu_mask=lacking)
