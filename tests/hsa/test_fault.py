"""A fault is the end of a process's GPU work: each of these runs in a process of its own."""

import re

FAULT = """
    from hsakit.ffi.errors import GpuMemoryFault
    from hsakit.hsa import Runtime
    runtime = Runtime()
    cpu, gpu, peer = runtime.cpus[0], runtime.gpus[0], runtime.gpus[-1]
    # Larger than what the runtime cuts from blocks of its own: those share their grants.
    b = peer.pool("coarse").allocate(8 << 20)
    a = gpu.pool("coarse").allocate(8 << 20, access=peer)
    queue, before, done = gpu.create_queue(64), runtime.create_signal(1), runtime.create_signal(1)
    b.handle().grants |= {gpu}  # get past hsakit's own check
"""


def test_a_fault_names_address_agent_and_buffer(script):
    done = script(
        FAULT
        + """
    queue.barrier_and([], before)
    before.wait(deadline=10)
    copy = gpu.engine(2).copy(b[4096:8192], a[:4096])
    b.handle().grants -= {gpu}
    try:
        copy.wait(deadline=20)
    except GpuMemoryFault as fault:
        assert fault.agent == gpu and b.address <= fault.address < b.address + b.nbytes
        text = str(fault)
        assert text.startswith(f"GPU 0 touched 0x{fault.address:x}: page not present"), text
        assert f"offset {fault.address - b.address} of the buffer of 8388608 bytes at 0x{b.address:x} on" in text
        assert "which was not granted to it. Nothing more completes here: close every Runtime" in text, text
        print("named")
    queue.barrier_and([copy], done)
    try:
        done.wait(deadline=20)
    except GpuMemoryFault:
        print("again", before.wait())  # what was complete before is not disturbed
"""
    )
    assert (done.returncode, done.stdout) == (0, "named\nagain 0\n"), done.stderr


def test_a_fault_outside_of_all_buffers_names_the_nearest(script):
    done = script(
        FAULT
        + """
    copy = gpu.engine(2).prepare(b[:4096], a[:4096])
    address, nbytes = b.address, b.nbytes
    copy._held = ()
    b.close()
    try:
        copy.submit().wait(deadline=20)
    except GpuMemoryFault as fault:
        print(fault)
"""
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"It is (offset|\d+ bytes before).* the buffer of 8388608 bytes at 0x.* on GPU 0", done.stdout)
