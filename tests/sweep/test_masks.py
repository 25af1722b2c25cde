"""Which masks a sweep goes through, and how they are written."""

import pytest

from hsakit.culayout import CuLayout
from hsakit.ffi.errors import InvalidArgument
from hsakit.sweep.masks import ALL, Masks, default, parse_mask

MI300X = CuLayout.even(304, 8, 4)
MI210 = CuLayout.even(104, 1, 8)


def test_all_cus_come_first_and_masks_have_names():
    masks = Masks(counts=(64, 8, 304), per_xcc=(3,), explicit=((8, 1, 2, 3, 4, 5, 6, 7),)).of(MI300X)
    assert list(masks) == [ALL, "64", "8", "3/xcc", "0x1fe"]
    assert [len(mask) for mask in masks.values()] == [304, 64, 8, 24, 8]
    assert masks["3/xcc"].xcc_counts == (3,) * 8
    assert tuple(masks["8"]) == tuple(range(8)) and tuple(masks["0x1fe"]) == tuple(range(1, 9))


def test_by_default_every_eighth_number_of_cus():
    assert default(MI300X).counts == tuple(range(8, 304, 8))
    assert default(MI210).counts == tuple(range(8, 104, 8))
    assert len(default(MI300X).of(MI300X)) == 38


@pytest.mark.parametrize(
    "masks, said",
    [
        (Masks(counts=(4,)), "4 CUs: a mask of this part has 8 to 304, one of each of its 8 XCCs at least"),
        (Masks(counts=(305,)), "305 CUs: a mask of this part has 8 to 304"),
        (Masks(per_xcc=(39,)), "39 CUs of each XCC: a mask of this part has 1 to 38"),
        (Masks(explicit=((304,),)), "304"),
        (Masks(explicit=((0, 1),)), "mask 0x3 leaves XCC 2, 3, 4, 5, 6, 7 no CU, .*: bit i is a CU of XCC i % 8"),
    ],
)
def test_what_the_part_cannot_have_is_refused(masks, said):
    with pytest.raises(InvalidArgument, match=said) as caught:
        masks.of(MI300X)
    assert "allow_empty_xcc" not in str(caught.value)


@pytest.mark.parametrize(
    "text, bits",
    [
        ("0xff00000000", tuple(range(32, 40))),
        ("0X3", (0, 1)),
        ("0-7,32", (0, 1, 2, 3, 4, 5, 6, 7, 32)),
        ("5", (5,)),
    ],
)
def test_masks_are_parsed(text, bits):
    assert parse_mask(text) == bits


@pytest.mark.parametrize("text", ["0x0", "0x", "0xg", "", "7-", "a", "5-3"])
def test_what_is_no_mask_is_refused(text):
    with pytest.raises(InvalidArgument):
        parse_mask(text)
