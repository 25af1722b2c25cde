"""Loads: what is poisoned, what is compared, and which wrong bytes are seen."""

import numpy as np
import pytest

from hsakit import compiler
from hsakit.ffi.errors import CodeObjectError, HsakitError, InvalidArgument
from hsakit.gemm import GemmError
from hsakit.sweep.loads import GUARD, Argument, Copy, Gemm, Memory, Output, OutputError, Program
from hsakit.sweep.masked import MaskedQueue
from hsakit.verify import VerifyError

LOADS = [Gemm("f32", 65, 66, 5, "tn"), Gemm("bf16", 130, 7, 9, "nt"), Copy(5001), Copy(20_000, 3)]


@pytest.fixture
def queue(gpu):
    made = MaskedQueue(gpu, None)
    yield made
    made.close()


@pytest.fixture
def memory(gpu):
    made = Memory(gpu, 20)
    yield made
    made.close()


@pytest.fixture
def program(gpu):
    """The copy kernel as a program of one's own: (dst, src, bytes)."""
    file = compiler.kernels("copy", gpu.agent.target.partition(":")[0])

    def made(*arguments):
        return Program(file, "copy", (2,), (256,), tuple(arguments))

    return made


def run(load, job, kernels, queue):
    job.prepare()
    assert queue.run(load.launch(kernels, job), 60) > 0


def change(memory, span, at):
    """Change one byte of an output."""
    view = memory.get(span).copy()
    view[at] ^= 0x55
    memory.put(span, lambda out: np.copyto(out, view))


@pytest.mark.parametrize("load", LOADS, ids=str)
def test_right_results_pass_again_and_again(memory, kernels, queue, load):
    job = load.job(memory)
    for _ in range(2):
        run(load, job, kernels, queue)
        job.check()


@pytest.mark.parametrize("load", LOADS, ids=str)
def test_a_kernel_that_did_not_run_is_seen(memory, kernels, queue, load):
    job = load.job(memory)
    job.prepare()
    with pytest.raises(HsakitError):
        job.check()
    run(load, job, kernels, queue)
    job.check()
    job.prepare()  # what is there no longer is what was
    with pytest.raises(HsakitError):
        job.check()


@pytest.mark.parametrize("load, error", [(LOADS[0], GemmError), (LOADS[3], VerifyError)], ids=["gemm", "copy"])
def test_one_wrong_byte_is_seen(memory, kernels, queue, load, error):
    job = load.job(memory)
    run(load, job, kernels, queue)
    change(memory, job.outputs[0].span, 3)
    with pytest.raises(error):
        job.check()


def test_after_the_first_product_bytes_are_compared(memory, kernels, queue):
    """A change of the last bit is within the bounds of a product; another run of the same kernel has none."""
    load = LOADS[0]
    job = load.job(memory)
    run(load, job, kernels, queue)
    job.check()
    view = memory.get(job.outputs[0].span).copy()
    view[40] ^= 1
    memory.put(job.outputs[0].span, lambda out: np.copyto(out, view))
    with pytest.raises(OutputError, match="1 of 17160 bytes of C wrong, the first at 40: expected"):
        job.check()


@pytest.mark.parametrize("at, side", [(0, "before"), (GUARD - 1, "before"), (GUARD + 100, "behind")])
def test_a_write_outside_is_seen(memory, at, side):
    output = Output(memory, 100, "it", np.arange(100, dtype=np.uint8))
    output.prepare()
    memory.put(output.span, lambda out: np.copyto(out, output.expected))
    output.check()
    change(memory, output.span.buffer, at)
    with pytest.raises(OutputError, match=f"1 bytes {side} it were overwritten"):
        output.check()


def test_a_program_is_compared_with_its_first_run(memory, kernels, queue, program):
    load = program(Argument("out", nbytes=5000), Argument("in", nbytes=5000), Argument("value", value=5000))
    job = load.job(memory)
    assert job.reference == "unmasked run"
    run(load, job, kernels, queue)
    job.check()
    run(load, job, kernels, queue)
    job.check()
    change(memory, job.outputs[0].span, 4999)
    with pytest.raises(OutputError, match="1 of 5000 bytes of argument 0 wrong, the first at 4999"):
        job.check()


def test_a_program_that_writes_nothing_is_seen(memory, kernels, queue, program):
    load = program(Argument("out", nbytes=5000), Argument("in", nbytes=5000), Argument("value", value=0))
    job = load.job(memory)
    run(load, job, kernels, queue)
    with pytest.raises(OutputError, match="wrote nothing to argument 0"):
        job.check()


def test_a_program_is_compared_with_a_file(memory, kernels, queue, program, tmp_path):
    content = np.random.default_rng(1).integers(0, 256, 5000, np.uint8)
    source, target = tmp_path / "source", tmp_path / "target"
    content.tofile(source)
    content.tofile(target)
    load = program(Argument("out", file=target), Argument("in", file=source), Argument("value", value=5000))
    job = load.job(memory)
    assert job.reference == "file"
    run(load, job, kernels, queue)
    job.check()
    content[77] ^= 1
    content.tofile(target)
    job = load.job(memory)
    run(load, job, kernels, queue)
    with pytest.raises(OutputError, match="1 of 5000 bytes of argument 0 wrong, the first at 77"):
        job.check()


def test_memory_both_read_and_written_begins_the_same(memory, kernels, queue, program, tmp_path):
    """The kernel copies the second half over the first: run twice on what it left, it would change nothing."""
    source = tmp_path / "source"
    (np.arange(10_000) % 251).astype(np.uint8).tofile(source)
    load = program(Argument("inout", file=source), Argument("in", nbytes=5000), Argument("value", value=5000))
    job = load.job(memory)
    assert job.reference == "unmasked run"
    job.prepare()
    with pytest.raises(OutputError, match="changed nothing in argument 0"):
        job.check()
    for _ in range(2):
        run(load, job, kernels, queue)
        job.check()
    left = memory.get(job.outputs[0].span)
    assert (left[5000:] == np.fromfile(source, np.uint8)[5000:]).all() and left[:5000].any()


def test_a_program_without_outputs(memory, kernels, queue, program):
    load = program(Argument("value", value=0), Argument("value", value=0), Argument("value", value=0))
    job = load.job(memory)
    assert job.reference == "nothing" and job.outputs == ()
    run(load, job, kernels, queue)
    job.check()


def test_what_cannot_be_launched_is_refused(memory, kernels, program):
    load = program(Argument("out", nbytes=5000), Argument("in", nbytes=5000))
    with pytest.raises(InvalidArgument, match="takes 3 arguments, not 2"):
        load.launch(kernels, load.job(memory))
    load = Program(load.file, "nope", (1,), (1,))
    with pytest.raises(CodeObjectError, match="no kernel 'nope'"):
        load.launch(kernels, load.job(memory))


def test_a_load_is_named_by_all_that_it_is(tmp_path):
    file = tmp_path / "k.co"
    file.write_bytes(b"one")
    first = str(Program(file, "k", (1, 2), (64,), (Argument("value", value=1.5), Argument("out", nbytes=4)), 128))
    assert "k 1x2 of 64" in first and "lds 128" in first and first.endswith("1.5 out:4")
    file.write_bytes(b"two")
    assert (
        str(Program(file, "k", (1, 2), (64,), (Argument("value", value=1.5), Argument("out", nbytes=4)), 128)) != first
    )
    assert str(Gemm("f32", 1, 2, 3)) == "gemm f32:1x2x3:nn" and str(Copy(4097, 8)) == "copy 4097B/8"
    assert Copy(4096).label == "copy 4K"
