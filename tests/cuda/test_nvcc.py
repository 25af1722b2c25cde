import json

import pytest

from hsakit import compiler
from hsakit.cuda import nvcc

TEXT = """
extern "C" int printf(const char *, ...);
extern "C" __attribute__((host)) void nothing(int x) { }
extern "C" __attribute__((global)) __attribute__((launch_bounds(64))) void
one(u8* dst, const u64* __restrict__ src, Sources by_value, u64 nbytes) { body(); }
extern "C" __attribute__((global)) __attribute__((launch_bounds(WORKGROUP))) void empty() {}
"""


def test_names_of_arguments_are_read_from_preprocessed_text():
    assert nvcc.signatures(TEXT) == {
        "one": [("dst", True), ("src", True), ("by_value", False), ("nbytes", False)],
        "empty": [],
    }


@pytest.mark.cuda_toolkit
@pytest.mark.deadline(240)
def test_all_kernels_build_from_the_same_sources(tmp_path, monkeypatch):
    monkeypatch.setattr(compiler, "cache_folders", lambda: [tmp_path])
    made = compiler.kernels("latch", "sm_90a")
    assert made.read_bytes().startswith(b"\x7fELF") and made == compiler.kernels("latch", "sm_90a")
    names = json.loads(made.with_suffix(".json").read_text())
    assert names["conduct"][3] == ["members", False] and names["empty"] == []
    assert compiler.kernels_source("gemm", "sm_90a").suffix == ".cu"
    assert compiler.kernels_source("gemm", "gfx942").suffix == ".hip"
