"""Processes: how they fault, end, are killed, fork and are interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.softgpu.rawhsa import ROOT, child

FAULTS = """
import threading
told, seen = [], threading.Event()
def open_node():
    raw = Raw()
    @raw.ffi.callback("hsa_amd_system_event_callback_t")
    def handler(event, _data):
        fault = event.memory_fault
        told.append((event.event_type, raw.gpus.index(fault.agent), fault.virtual_address, fault.fault_reason_mask))
        seen.set()
        return 0
    raw.handler = handler
    raw.check("handler", raw.lib.hsa_amd_register_system_event_handler(handler, raw.ffi.NULL))
    return raw
def report(raw, expected):
    print(seen.wait(20), told == [expected], told if told != [expected] else "")
    told.clear(); seen.clear()
    raw.close()
"""


def test_memory_faults_name_address_agent_and_reason():
    """One fault a runtime: it listens for no second one, so it is shut down and opened again."""
    done = child(
        FAULTS
        + """
NOT_PRESENT = 1
raw = open_node()
source, _ = raw.host(4096)
outside = 0x7A0000000000
signal = raw.copy(outside, raw.gpus[2], source, raw.cpu, 64, engine=0)
report(raw, (0, 2, outside, NOT_PRESENT))

raw = open_node()
(source, _), mine = raw.host(4 << 20), raw.allocate(raw.gpus[3], 4 << 20, access=[raw.gpus[3]])
foreign = raw.allocate(raw.gpus[4], 4 << 20, access=[raw.gpus[4]])
raw.copy(foreign, raw.gpus[4], mine, raw.gpus[3], 4096, engine=2)
report(raw, (0, 3, foreign, NOT_PRESENT))

raw = open_node()
source, _ = raw.host(4096)
device = raw.allocate(raw.gpus[5], 8 << 20)
gate = raw.signal()
raw.copy(device, raw.gpus[5], source, raw.cpu, 64, after=[gate])
raw.free(device)
raw.store(gate, 0)
report(raw, (0, 5, device, NOT_PRESENT))

raw = open_node()
queue = raw.queue(raw.gpus[6])
queue.submit(packet(BARRIER_AND, [0x1230]))
report(raw, (0, 6, 0x1238, NOT_PRESENT))
"""
    )
    assert done.stdout.splitlines() == ["True True "] * 4, (done.stdout, done.stderr)
    assert "not allocated; nearest: " in done.stderr
    assert "not mapped for this GPU: memory of GPU 4" in done.stderr


def test_without_a_handler_the_runtime_aborts_and_says_where():
    done = child("raw = Raw(); raw.copy(0x7A0000000000, raw.gpus[1], raw.host(4096)[0], raw.cpu, 64); time.sleep(20)")
    assert done.returncode == -signal.SIGABRT
    assert "Memory access fault by GPU node-2" in done.stderr and "0x7a0000000000" in done.stderr


def test_memory_that_goes_away_under_a_running_copy():
    """Freed, and taken from the GPU, while an engine is in the middle of it."""
    done = child(
        FAULTS
        + """
for take in ("free", "ungrant"):
    raw = open_node()
    size = 512 << 20
    source = raw.allocate(raw.gpus[0], size)
    device = raw.allocate(raw.gpus[1], size)
    signal = raw.copy(device, raw.gpus[1], source, raw.gpus[0], size, engine=3)
    time.sleep(0.02)
    raw.free(device) if take == "free" else raw.grant(device, [raw.gpus[1]])
    print(seen.wait(20), told[0][:2] == (0, 0), device <= told[0][2] < device + size, raw.load(signal))
    told.clear(); seen.clear()
    raw.close()
"""
    )
    assert done.stdout.splitlines() == ["True True True 1"] * 2, (done.stdout, done.stderr)


@pytest.mark.parametrize("how", ["raise RuntimeError", "del raw, queue; sys.exit(5)"])
def test_ending_with_everything_alive_is_clean(how):
    done = child(
        f"""
import sys, threading
raw = Raw()
queue = raw.queue()
memory = [raw.allocate(gpu, 1 << 20) for gpu in raw.gpus]
gate = raw.signal()
raw.copy(memory[1], raw.gpus[1], memory[0], raw.gpus[0], 4096, engine=2, after=[gate])
queue.submit(packet(BARRIER_AND, [gate]))
threading.Thread(target=lambda: raw.wait(gate, 3600), daemon=True).start()
{how}
""",
        timeout=30,
    )
    assert done.returncode == (1 if "raise" in how else 5), done.stderr
    assert "softgpu" not in done.stderr and "cffi" not in done.stderr and "Fatal" not in done.stderr


def test_what_the_libraries_give_back_after_the_end_is_taken():
    """As by their exit handlers, which run when there is no interpreter any more."""
    done = child(
        """
from hsakit import softgpu
raw = Raw()
queue, memory = raw.queue(), raw.allocate(raw.gpus[0], 1 << 20)
softgpu._installed[1].close()
raw.free(memory)
queue.destroy()
raw.close()
print("given back")
"""
    )
    assert (done.returncode, done.stdout) == (0, "given back\n"), done.stderr


def test_the_end_keeps_status_and_output_and_skips_exit_handlers():
    """Those of the libraries may wait for GPUs, which end with the interpreter."""
    done = child(
        """
import ctypes, sys
c = ctypes.CDLL(None)
c.__cxa_atexit(c.puts, b"a handler of the libraries", None)
raw = Raw()
c.printf(b"in a buffer\\n")
sys.exit(7)
"""
    )
    assert (done.returncode, done.stdout) == (7, "in a buffer\n"), done.stderr


def test_too_little_address_space_says_what_to_raise():
    done = child("import resource; resource.setrlimit(resource.RLIMIT_AS, (64 << 30, 64 << 30)); Raw()")
    assert done.returncode == 1
    assert "256 GiB of address space" in done.stderr and "ulimit -v" in done.stderr


def folders(where: Path) -> list[Path]:
    return list(where.glob("hsakit-node-*"))


def test_a_killed_process_leaves_nothing_that_the_next_one_minds(tmp_path):
    done = child("raw = Raw(); queue = raw.queue(); queue.barrier(); os.kill(os.getpid(), 9)", TMPDIR=str(tmp_path))
    assert done.returncode == -signal.SIGKILL
    assert len(folders(tmp_path)) == 1
    done = child("with Raw() as raw: print(raw.wait(raw.queue().barrier()))", TMPDIR=str(tmp_path))
    assert done.stdout == "0\n", done.stderr
    assert folders(tmp_path) == []


def test_a_forked_child_has_no_gpu_and_ends_at_once():
    """While another thread is inside a wait, whose locks the child would inherit."""
    done = child(
        """
import threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)
raw = Raw()
queue, memory, gate = raw.queue(), raw.allocate(raw.gpus[0], 4096), raw.signal()
threading.Thread(target=lambda: raw.wait(gate, 3600), daemon=True).start()
time.sleep(0.1)
for leave in ("sys.exit", "os._exit"):
    child = os.fork()
    if child == 0:
        started = time.monotonic()
        out = raw.ffi.new("hsa_queue_t **")
        status = raw.lib.hsa_queue_create(raw.gpus[0], 64, 1, raw.ffi.NULL, raw.ffi.NULL, 0, 0, out)
        eval(leave)(7 if status else 8)
    started = time.monotonic()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), time.monotonic() - started < 5)
print(raw.wait(queue.barrier()), raw.driver.tree.root.exists())
""",
        timeout=40,
    )
    assert done.stdout.splitlines() == ["7 True", "7 True", "0 True"], done.stderr


def test_a_forked_child_ends_though_a_thread_held_cffis_lock():
    """Which cffi takes when a function or a type is looked up for the first time; in the child nobody lets go of it."""
    done = child(
        """
import warnings
from hsakit.softgpu.uapi import ffi
warnings.simplefilter("ignore", DeprecationWarning)
raw = Raw()
ffi._lock.acquire()
child = os.fork()
if child == 0:
    sys.exit(7)
ffi._lock.release()
end = time.monotonic() + 10
while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
    time.sleep(0.01)
if ended == (0, 0):
    os.kill(child, 9)
print(os.waitstatus_to_exitcode(ended[1]), ended[0] == child)
""",
        timeout=40,
    )
    assert done.stdout == "7 True\n", done.stderr


def test_what_a_signals_handler_raises_in_a_wait_is_kept_until_the_wait_is_over():
    """Ctrl-C, and any exception of another handler.  The wait runs to its end in C, as on hardware; then the exception
    comes, and the node still works."""
    done = child(
        """
import signal, threading
class Late(Exception): pass
def handler(*_):
    raise Late
signal.signal(signal.SIGALRM, handler)
raw = Raw()
gate = raw.signal()
for which, expected in ((signal.SIGINT, KeyboardInterrupt), (signal.SIGALRM, Late)):
    for _ in range(10):
        threading.Timer(0.02, os.kill, (os.getpid(), which)).start()
        started = time.monotonic()
        try:
            raw.wait(gate, 0.2)
            print("not interrupted")
        except expected:
            if time.monotonic() - started < 0.2: print("too early")
    print("interrupted")
    print(raw.wait(raw.queue().barrier()))
raw.close()
"""
    )
    assert done.stdout.splitlines() == ["interrupted", "0"] * 2, done.stderr
    assert "cffi" not in done.stderr and "internal error" not in done.stderr


def test_ctrl_c_ends_a_process():
    code = """
from tests.softgpu.rawhsa import *
raw = Raw()
gate = raw.signal()
print("ready", flush=True)
while True:
    raw.wait(gate, 0.2)
"""
    env = {**os.environ, "HSAKIT_NODE": "soft", "PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", code], env=env, cwd=ROOT, text=True, **pipes)
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().splitlines()[-1].startswith(("KeyboardInterrupt", "Warning: Resource leak")), errors
