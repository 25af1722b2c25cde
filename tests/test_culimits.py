"""What HSA_CU_MASK and ROC_GLOBAL_CU_MASK do to masks."""

from __future__ import annotations

import os

import pytest

from hsakit.culayout import CuLayout
from hsakit.culimits import effective, hsa_limits, refuse_idle_xccs, roc_global
from hsakit.cumask import CuMask
from hsakit.ffi.errors import InvalidArgument

MI300X = CuLayout.even(304, 8, 4)
RDNA = CuLayout.even(40, engines=2, arrays=2, pairs=True)
ALL = CuMask.all(MI300X)


def after(asked, api, gpu=0, **environ):
    found = effective(asked, api, gpu=gpu, gpus=8, environ=environ)
    return found.mask, list(found.notes)


# The results are those of ROCr 6.1.2's parser, compiled and asked.
@pytest.mark.parametrize(
    ("text", "limits", "ignored"),
    [
        ("0:0-31", {0: 0xFFFFFFFF}, None),
        ("0,2-4:0x337F", {0: 0x337F, 2: 0x337F, 3: 0x337F, 4: 0x337F}, None),
        (" 1 : 0 , 2-3 ; 2 : 0Xff ", {1: 0b1101, 2: 0xFF}, None),
        ("0:1;", {0: 0b10}, None),
        ("0-1:0;1:5;2:6", {0: 1, 1: 1}, "1:5"),  # a GPU twice
        ("0:1,1;1:2", {}, "0:1,1"),  # a CU twice
        ("0:0x0;1:0xF", {}, "0:0X0"),  # no CU
        ("0:3-1", {}, "0:3-1"),
        ("0:1x5", {}, "0:1X5"),
        ("0:0xG", {}, "0:0XG"),
        ("0:0x", {}, "0:0X"),
        ("0:a", {}, "0:A"),
        ("0:1-2-3", {}, "0:1-2-3"),
        ("0", {}, "0"),
        ("0:1:2", {}, "0:1:2"),
        ("9:0-3;0:0-3", {}, "9:0-3"),  # no such GPU: an error, too
        ("7-99:302-999", {7: 0b111 << 302, 8: 0b111 << 302}, None),  # one past the end is still taken
        ("0:" + "0x1" + "0" * 80, {}, "0:" + "0X1" + "0" * 80),  # all bits are past the words that the part needs
    ],
)
def test_hsa_cu_mask(text, limits, ignored):
    assert hsa_limits(text, 8, 304) == (limits, ignored)


# The results are those of HIP 5.7.1's parser, compiled and asked.
@pytest.mark.parametrize(
    ("text", "layout", "value"),
    [
        ("0xff", MI300X, 0xFF),
        ("FF00000000", MI300X, 0xFF << 32),
        ("0X0", MI300X, None),
        ("f" * 76, MI300X, None),  # all CUs
        ("7" + "f" * 75, MI300X, (1 << 303) - 1),
        ("3f" + "0" * 9, CuLayout.even(38, engines=4), None),  # CUs 36 to 41 of 38, of which HIP reads whole digits
        ("1" + "0" * 80, MI300X, None),
        ("5", RDNA, 0b110011),  # pairs
    ],
)
def test_roc_global_cu_mask(text, layout, value):
    assert roc_global(text, layout) == value


def test_roc_global_cu_mask_nonsense():
    with pytest.raises(InvalidArgument, match="ROC_GLOBAL_CU_MASK=0-3 is not a hexadecimal number"):
        roc_global("0-3", MI300X)


def test_nothing_set():
    for api in ("hsa", "hip"):
        assert after(ALL.first(8), api) == (ALL.first(8), [])


def test_environment_by_default(monkeypatch):
    monkeypatch.setitem(os.environ, "HSA_CU_MASK", "3:0-7")
    assert effective(ALL, "hsa", gpu=3, gpus=8).mask == ALL.first(8)
    assert effective(ALL, "hsa", gpu=2, gpus=8).mask == ALL


def test_hsa_limits_both():
    environ = {"HSA_CU_MASK": "0-7:0-31"}
    assert after(ALL.first(32), "hsa", **environ) == (ALL.first(32), [])
    assert after(ALL.first(64), "hsa", **environ) == (ALL.first(32), ["HSA_CU_MASK takes away 32 of the 64 CUs"])
    mask, notes = after(ALL.first(64), "hip", gpu=7, **environ)
    assert mask == ALL.first(32)
    assert notes == [
        "HSA_CU_MASK takes away 32 of the 64 CUs",
        "HIP takes a mask that HSA_CU_MASK reduced for a failure: it cannot create the stream",
    ]


def test_hsa_leaves_nothing():
    rest = ALL - ALL.first(32)
    mask, notes = after(rest, "hsa", HSA_CU_MASK="0:0-31")
    assert not mask
    assert notes == [
        "HSA_CU_MASK takes away 272 of the 272 CUs",
        "no CU of XCC 0, 1, 2, 3, 4, 5, 6, 7 is left: a dispatch can hang",
    ]
    with pytest.raises(InvalidArgument):
        mask.words  # noqa: B018


def test_hsa_leaves_no_cu_of_some_xccs():
    mask, notes = after(ALL, "hsa", HSA_CU_MASK="0:0-3")
    assert mask.xcc_counts == (1, 1, 1, 1, 0, 0, 0, 0)
    assert notes[-1] == "no CU of XCC 4, 5, 6, 7 is left: a dispatch can hang"


def test_hsa_error_is_reported():
    assert after(ALL, "hsa", gpu=1, HSA_CU_MASK="0:0-31;1:x") == (
        ALL,
        ["HSA_CU_MASK has an error in '1:X': the runtime ignores that set and those after it"],
    )


def test_roc_global_limits_hip_only():
    environ = {"ROC_GLOBAL_CU_MASK": "ffff"}
    assert after(ALL.first(32), "hsa", **environ) == (ALL.first(32), [])
    assert after(ALL.first(32), "hip", **environ) == (
        ALL.first(16),
        ["ROC_GLOBAL_CU_MASK takes away 16 of the 32 CUs"],
    )
    assert after(ALL.first(8), "hip", **environ) == (ALL.first(8), [])


@pytest.mark.node
def test_a_gpu_with_an_xcc_without_cus_is_given_no_kernel(runtime):
    gpu = runtime.gpus[0]
    xccs, every = gpu.xcc_count, f"0-{gpu.cu_count - 1}"
    refuse_idle_xccs(gpu, {})
    refuse_idle_xccs(gpu, {"HSA_CU_MASK": f"0:0-{xccs - 1}"})
    refuse_idle_xccs(gpu, {"HSA_CU_MASK": "0:x"})  # the runtime ignores it
    refuse_idle_xccs(gpu, {"HSA_CU_MASK": f"0:{every};1:0"})
    if xccs > 1:
        for one in ({"HSA_CU_MASK": "0:0"}, {"HSA_CU_MASK": f"0-99:1-{xccs - 1}"}):
            with pytest.raises(InvalidArgument, match=r"leaves XCC .* of GPU 0 no CU"):
                refuse_idle_xccs(gpu, one)


def test_roc_global_replaces_a_disjoint_mask():
    """The trap: a stream that asked for other CUs gets the global mask, not an error."""
    first, rest = ALL.split(32)
    mask, notes = after(rest, "hip", ROC_GLOBAL_CU_MASK="ffffffff")
    assert mask == first
    assert not mask & rest
    assert len(notes) == 1
    assert "silently takes the global mask" in notes[0]


def test_roc_global_without_effect():
    assert after(ALL, "hip", ROC_GLOBAL_CU_MASK="0") == (
        ALL,
        ["ROC_GLOBAL_CU_MASK=0 has no effect: it names no CU, or as many as there are"],
    )


def test_both():
    mask, notes = after(ALL.first(64), "hip", ROC_GLOBAL_CU_MASK="ffffffff", HSA_CU_MASK="0:0-15")
    assert mask == ALL.first(16)
    assert [note.split(":")[0] for note in notes] == [
        "ROC_GLOBAL_CU_MASK takes away 32 of the 64 CUs",
        "HSA_CU_MASK takes away 16 of the 32 CUs",
        "HIP takes a mask that HSA_CU_MASK reduced for a failure",
    ]


def test_permission_stays():
    asked = CuMask.from_bits(MI300X, range(0, 304, 8), allow_empty_xcc=True)
    mask, _ = after(asked, "hsa", HSA_CU_MASK="0:0-31")
    assert mask.words == (0x01010101, *[0] * 9)
