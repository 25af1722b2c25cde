import os
import signal as signals
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from hsakit.ffi.errors import ClosedError
from hsakit.hsa import Runtime

BUSY = """
    import sys
    from hsakit.hsa import Runtime, barrier_and
    from hsakit.ffi.errors import ClosedError

    def suppressed(use):
        try:
            use()
        except ClosedError:
            pass

    runtime = Runtime()
    cpu, gpu = runtime.cpus[0], runtime.gpus[0]
    gate, done = runtime.create_signal(1), runtime.create_signal(1)
    queue = gpu.create_queue(64)
    queue.barrier_and([gate], done)
    queue.submit_batch([barrier_and()] * 30)
    h = cpu.pool("fine").allocate(1 << 20, access=gpu)
    a = gpu.pool("coarse").allocate(1 << 20)
    view = h.view()
    moved = gpu.engine(0).copy(a, h)
"""


def test_what_it_says(runtime):
    major, minor = runtime.version.split()[0].split(".")
    assert int(major) >= 1 and int(minor) >= 11
    assert runtime.timestamp_frequency > 0
    assert f"{len(runtime.gpus)} GPUs" in repr(runtime)


def test_two_in_one_process(runtime):
    with Runtime() as second:
        assert [gpu.bdf for gpu in second.gpus] == [gpu.bdf for gpu in runtime.gpus]
        left = second.create_signal(3)
    assert second.closed
    with runtime.create_signal(5) as signal:
        assert signal.load() == 5  # the library is still there
    with pytest.raises(ClosedError):
        _ = left.value


def test_use_after_close(runtime):
    second = Runtime()
    gpu, signal = second.gpus[0], second.create_signal()
    buffer, queue = gpu.pool("coarse").allocate(4096), gpu.create_queue(64)
    engine = gpu.engine(0)
    second.close()
    second.close()
    assert repr(second) == "<Runtime closed>" and signal.closed and buffer.closed and queue.closed
    for use in (
        second.create_signal,
        signal.load,
        signal.wait,
        lambda: signal.value,
        lambda: buffer.address,
        queue.barrier_and,
        gpu.create_queue,
        lambda: gpu.pool("coarse").allocate(64),
        lambda: engine.idle,
        lambda: second.pointer_info(0),
        lambda: gpu.xcc_count,
    ):
        with pytest.raises(ClosedError):
            use()
    for each in (signal, buffer, queue):
        each.close()


def test_closing_ends_the_waits_of_other_threads(runtime):
    second = Runtime()
    signal, ended = second.create_signal(1), []

    def wait(use):
        with pytest.raises(ClosedError):
            use()
        ended.append(use)

    uses = [signal.wait, lambda: second.wait_any([signal])]
    threads = [threading.Thread(target=wait, args=(use,)) for use in uses * 2]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    begin = time.monotonic()
    second.close()
    assert time.monotonic() - begin < 2
    for thread in threads:
        thread.join()
    assert len(ended) == 4


@pytest.mark.parametrize(
    "end",
    [
        "",
        "runtime.close()",
        "del runtime, cpu, gpu, gate, done, queue, h, a, view, moved",
        "keep = sys.modules; keep['kept'] = [runtime, queue, view]",
        "import _thread; _thread.start_new_thread(lambda: suppressed(done.wait), ())",
    ],
)
def test_the_interpreter_ends_cleanly_with_live_objects(script, end):
    done = script(BUSY + f"    {end}\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_interpreter_ends_though_a_copy_never_completes(script):
    done = script(BUSY + "    stuck = gpu.engine(1).copy(h, a, after=[gate])\n")
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr


def test_an_exception_is_what_the_process_ends_with(script):
    done = script(BUSY + "    raise SystemExit('over')\n")
    assert (done.returncode, done.stderr) == (1, "over\n")


def test_a_killed_process_does_not_stop_the_next(script, tmp_path):
    program = tmp_path / "busy.py"
    program.write_text(textwrap.dedent(BUSY) + "print('busy', flush=True)\ndone.wait(deadline=100)\n")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    killed = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True, env=environment)
    assert killed.stdout.readline() == "busy\n"
    killed.send_signal(signals.SIGKILL)
    assert killed.wait(timeout=10) == -signals.SIGKILL
    killed.stdout.close()
    begin = time.monotonic()
    again = script(
        BUSY + "    gate.store(0)\n    done.wait(deadline=10)\n    moved.wait(deadline=10)\n    print('well')\n"
    )
    assert (again.returncode, again.stdout, again.stderr) == (0, "well\n", "")
    assert time.monotonic() - begin < 30
