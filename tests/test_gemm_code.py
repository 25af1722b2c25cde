"""What the compiler made of the GEMM: registers, LDS, occupancy, and the loop in which nearly all time is spent.

The loop is bound by the matrix cores if all else fits beside their instructions. llvm-mca, with LLVM's model of the
processor, tells what a wave alone on its SIMD takes for it; its cycles are 4 clocks of the hardware.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from hsakit import codeobject, compiler
from hsakit.gemm import TILES
from hsakit.geometry import Geometry
from hsakit.occupancy import workgroups_a_cu

TARGETS = ("gfx90a", "gfx942")
CU = SimpleNamespace(simds_per_cu=4, waves_per_cu=32, limits=SimpleNamespace(lds=65536))  # MI210's and MI300X's
HELD = {(64, 64): 7, (128, 128): 2, (256, 128): 1}  # workgroups a CU: by registers the first, by LDS the others
PASSES = {"gfx90a": 16, "gfx942": 8}  # of 4 clocks each, of a matrix instruction of 32 x 32 x 8 (the ISA guides)
KERNELS = [
    f"gemm_{kind}_{layout}_{rows}x{columns}"
    for kind in ("f16", "bf16")
    for layout in ("nn", "nt", "tn", "tt")
    for rows, columns in TILES[kind]
]


def llvm(program: str) -> list[str]:
    """How to run a program of the compiler's LLVM."""
    found = Path(compiler.find_compiler().command)
    if found.name == "cc":  # of a root that `make rocm` made
        return [str(found.with_name("run")), program]
    beside = found.parent / program if found.name != "hipcc" else found.parents[1] / "llvm" / "bin" / program
    if not beside.exists():
        pytest.skip(f"the compiler {found} comes without {program}")
    return [str(beside)]


def run(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.fixture(scope="module", params=TARGETS)
def target(request):
    return request.param


@pytest.fixture(scope="module")
def listing(target):
    """The instructions of each kernel: (address, text, address that it branches to)."""
    text = run([*llvm("llvm-objdump"), "-d", f"--mcpu={target}", str(compiler.kernels("gemm", target))])
    kernels = {}
    for name, body in re.findall(r"^[0-9a-f]+ <(gemm_\w+)>:\n(.*?)(?=^\n|\Z)", text, re.M | re.S):
        found = re.findall(r"^\s+(\S.*?)\s*// ([0-9A-F]+): .*?(?:<(\w+)(?:\+0x([0-9a-f]+))?>)?$", body, re.M)
        start = int(found[0][1], 16)
        kernels[name] = [
            (int(at, 16), instruction, start + int(offset or "0", 16) if symbol else None)
            for instruction, at, symbol, offset in found
        ]
    return kernels


def inner_loop(instructions) -> list[str]:
    """The loop without branches that has the most matrix instructions."""
    loops = []
    for at, text, to in instructions:
        if text.startswith("s_cbranch") and to is not None and to <= at:
            body = [each for address, each, _ in instructions if to <= address <= at]
            if not any(each.startswith(("s_cbranch", "s_branch")) for each in body[:-1]):
                loops.append(body)
    return max(loops, key=lambda body: sum(each.startswith("v_mfma") for each in body))


def count(body: list[str], *prefixes: str) -> int:
    return sum(each.startswith(prefixes) for each in body)


def test_every_kernel_has_its_registers(target):
    code = codeobject.read(compiler.kernels("gemm", target))
    for name, kernel in code.kernels.items():
        rows, columns = map(int, name.rpartition("_")[2].split("x"))
        assert (kernel.vgpr_spills, kernel.sgpr_spills, kernel.private_segment_size) == (0, 0, 0), name
        assert workgroups_a_cu(kernel, Geometry((9, 9, 1), (256, 1, 1), 0), CU) >= HELD[rows, columns], name
        if rows > 64:
            assert kernel.agprs == rows * columns // 256, name  # all of C that a lane has
            assert kernel.group_segment_size == 2 * (rows + columns) * 32 * 2, name  # two halves, 32 k of 2 bytes
    assert set(KERNELS) < set(code.kernels)


@pytest.mark.parametrize("name", KERNELS)
def test_the_inner_loop(listing, target, name, tmp_path):
    """Two turns of 32 k: every byte goes once through every place, in the widest instructions that the layout allows,
    and all of it hides behind the matrix instructions but for 5 % at most."""
    layout, (rows, columns) = name.split("_")[2], map(int, name.rpartition("_")[2].split("x"))
    body = inner_loop(listing[name])
    matrix = count(body, "v_mfma_f32_32x32x8")
    assert matrix == 2 * rows * columns * 32 // (32 * 32 * 8) // 4  # of each of four waves
    assert count(body, "global_load_dwordx4") == 2 * (rows + columns) // 64
    assert count(body, "global_", "flat_", "buffer_") == count(body, "global_load_dwordx4")
    assert count(body, "ds_read_b128") == count(body, "ds_read") == 2 * 2 * (rows + columns) // 2 // 32
    wide = 2 * (rows * (layout[0] == "n") + columns * (layout[1] == "t")) // 64
    assert count(body, "ds_write_b128") == wide
    words = count(body, "ds_write_b32") + 2 * count(body, "ds_write2")
    assert words == 4 * (2 * (rows + columns) // 64 - wide)
    assert count(body, "s_barrier") == 2
    waits = [int(found[1]) for each in body if (found := re.search(r"vmcnt\((\d+)\)", each))]
    assert waits and min(waits) >= (rows + columns) // 64  # the loads of the last turn go on: memory has two turns
    assert count(body, "scratch_", "v_accvgpr") == 0
    # A wave issues an instruction in 4 clocks, so there is time for one less than PASSES beside each of these.
    assert len(body) < 0.75 * PASSES[target] * matrix

    # llvm-mca counts a load from memory among those of LDS, and would wait for both: the registers make LDS's wait.
    source = tmp_path / "loop.s"
    source.write_text("\n".join("s_nop 0" if each.startswith("s_waitcnt lgkmcnt") else each for each in body))
    report = run([*llvm("llvm-mca"), "-mtriple=amdgcn", f"-mcpu={target}", "--iterations=100", str(source)])
    cycles = int(re.search(r"Total Cycles: +(\d+)", report)[1]) / 100
    assert float(re.search(r"Block RThroughput: +([\d.]+)", report)[1]) == PASSES[target] * matrix
    assert PASSES[target] * matrix <= cycles < 1.05 * PASSES[target] * matrix
    print(f"{target} {name}: {matrix} of {len(body)} instructions; {cycles:.0f} of {PASSES[target] * matrix} cycles")
