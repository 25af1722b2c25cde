"""Node files: what is one, and what is wrong with one that is not."""

from __future__ import annotations

import pytest

from hsakit.softgpu.node import NODES, load
from tests.softgpu.rawhsa import child

TEXT = (NODES / "mi300x-8.toml").read_text()


def written(tmp_path, text: str) -> str:
    path = tmp_path / "other.toml"
    path.write_text(text)
    return str(path)


def test_the_node_that_ships_is_eight_mi300x():
    spec = load()
    assert (spec.name, spec.gpus) == ("mi300x-8", 8)
    assert (spec.gpu.total_cus, spec.gpu.xccs, spec.gpu.vram_gib) == (304, 8, 192)
    assert (spec.gpu.sdma_engines, spec.gpu.sdma_xgmi_engines) == (2, 14)


def test_recommended_engines_are_seven_different_even_ones_a_gpu():
    spec = load()
    for gpu in range(8):
        masks = [spec.recommended_mask(gpu, peer) for peer in range(8) if peer != gpu]
        assert sorted(mask.bit_length() - 1 for mask in masks) == [2, 4, 6, 8, 10, 12, 14]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("gpus = 8", "gpus = 17", "gpus = 17; a whole number from 1 to 16"),
        ("gpus = 8", 'gpus = "8"', "gpus = '8'"),
        ("gpus = 8\n", "", "gpus is missing"),
        ("cus = 38\n", "", "lacks cus"),
        ("cus = 38", "cus = 38\nspeed = 1", "has no speed"),
        ("cus = 38", "cus = -1", "gpu.cus = -1"),
        ("vram_gib = 192", "vram_gib = 1.5", "gpu.vram_gib = 1.5"),
        ("sdma_xgmi_engines = 14", "sdma_xgmi_engines = 17", "gpu.sdma_xgmi_engines = 17; a whole number from 0 to 16"),
        ("min_bandwidth = 50000\n", "", "min_bandwidth is missing"),
        ("min_bandwidth = 50000\n", "min_bandwidth = 50000\nbandwidth = 1\n", "[xgmi] has no bandwidth; it has weight"),
        ("gpus = 8\n", "gpus = 8\nengines = 16\n", "a node file has no engines; it has name, gpus"),
        (TEXT, "xgmi = 1\n" + TEXT.replace("[xgmi]", "[other]"), "xgmi = 1; it is a table, [xgmi]"),
        ("[recommended_engines]", "[recommended_engine]", "a node file has no recommended_engine;"),
        ("sdma_engines = 2", "sdma_engines = 0", "gpu.sdma_engines = 0; a whole number from 1 to 15"),
        ('type = "instruction"', 'type = "code"', "type = 'code'"),
        ("    [-1, 14, 12, 2, 4, 8, 10, 6],\n", "", "table has 7 rows of 8 columns; gpus = 8 wants as many"),
        ("gpus = 8", "gpus = 4", "has 8 rows of 8 columns; gpus = 4 wants as many"),
        ("[-1, 14, 12,", "[-1, 16, 12,", "table[0][1] = 16; 0 to 15"),
        ("[gpu]", "[gpu", "other.toml"),
    ],
)
def test_a_bad_file_is_a_value_error_that_says_what_is_wrong(old, new, said, tmp_path):
    assert TEXT.count(old) >= 1
    with pytest.raises(ValueError) as caught:
        load(written(tmp_path, TEXT.replace(old, new, 1)))
    assert said in str(caught.value)
    assert "other.toml" in str(caught.value)


def test_an_unknown_name_lists_those_that_there_are():
    with pytest.raises(ValueError, match="mi300x-8"):
        load("mi300a-4")


def test_another_node_is_another_file(tmp_path):
    """Four smaller GPUs with 2 + 6 engines and nothing recommended, through the real libraries."""
    text = TEXT[: TEXT.index("[recommended_engines]")]
    for old, new in (("gpus = 8", "gpus = 4"), ("vram_gib = 192", "vram_gib = 2"), ("engines = 14", "engines = 6")):
        text = text.replace(old, new)
    done = child(
        """
with Raw() as raw:
    print(len(raw.gpus), raw.pool_info(raw.pool(raw.gpus[0], 4), 2, "size_t *") >> 30)
    a, b = raw.allocate(raw.gpus[3], 4096), raw.allocate(raw.gpus[0], 4096)
    address, view = raw.host(4096)
    view[:] = 77
    first = raw.copy(a, raw.gpus[3], address, raw.cpu, 4096, engine=0)
    second = raw.copy(b, raw.gpus[0], a, raw.gpus[3], 4096, engine=7, after=[first])
    view2 = raw.host(4096)
    third = raw.copy(view2[0], raw.cpu, b, raw.gpus[0], 4096, engine=1, after=[second])
    print(raw.wait(third), set(view2[1].tolist()))
    mask = raw.ffi.new("uint32_t *")
    raw.lib.hsa_amd_memory_copy_engine_status(raw.gpus[1], raw.gpus[0], mask)
    print(hex(mask[0]))
""",
        HSAKIT_NODE_FILE=written(tmp_path, text),
    )
    assert done.stdout.split("\n")[:3] == ["4 2", "0 {77}", "0xfc"], done.stderr


def test_a_bad_node_file_stops_the_process_with_its_message(tmp_path):
    done = child("Raw()", HSAKIT_NODE_FILE=written(tmp_path, TEXT.replace("gpus = 8", "gpus = 0")))
    assert done.returncode == 1
    assert "gpus = 0; a whole number from 1 to 16 is possible" in done.stderr.splitlines()[-1]
