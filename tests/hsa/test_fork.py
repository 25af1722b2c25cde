# Python 3.12 warns of fork() in a process with threads, which the runtime makes it.
QUIET = {"PYTHONWARNINGS": "ignore::DeprecationWarning"}


def test_every_path_in_a_child_raises(script):
    done = script(
        """
        import os
        from hsakit.ffi.errors import ForkError
        from hsakit.hsa import Runtime, barrier_and
        runtime = Runtime()
        cpu, gpu = runtime.cpus[0], runtime.gpus[0]
        signal, queue = runtime.create_signal(1), gpu.create_queue(64)
        h = cpu.pool("fine").allocate(64, access=gpu)
        a = gpu.pool("coarse").allocate(64)
        copy, packet = gpu.engine(0).prepare(a, h), barrier_and()
        uses = [
            Runtime, runtime.create_signal, lambda: runtime.wait_any([signal]), lambda: runtime.version,
            lambda: runtime.pointer_info(1), lambda: signal.value, signal.load, signal.wait, lambda: signal.store(0),
            lambda: signal.add(1), gpu.create_queue, queue.barrier_and, queue.drain, lambda: queue.read_index,
            lambda: queue.submit(packet), lambda: queue.submit_batch([packet]), lambda: h.address, h.view,
            lambda: h[:8], lambda: gpu.pool("coarse").allocate(64), copy.submit, lambda: gpu.clock_mhz,
            lambda: gpu.engine(0).copy(a, h), lambda: gpu.engine(0).idle,
        ]
        child = os.fork()
        if not child:
            refused = 0
            for use in uses:
                try:
                    use()
                except ForkError as error:
                    refused += "spawn" in str(error)
            for each in (signal, queue, h, a, runtime):
                each.close()
            del signal, queue, h, a, copy, packet
            os._exit(refused)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == len(uses), (status, len(uses))
        copy.submit().wait(deadline=10)  # the parent goes on
        queue.barrier_and([], signal)
        assert signal.wait(deadline=10) == 0
        print("well")
        """,
        **QUIET,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "well\n", "")


def test_a_child_ends_as_usual(script):
    done = script(
        """
        import os, sys
        from hsakit.hsa import Runtime
        runtime = Runtime()
        signal = runtime.create_signal(1)
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            print(os.waitstatus_to_exitcode(status), signal.load())
        else:
            sys.exit(7)  # with exit handlers and finalisers
        """,
        **QUIET,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "7 1\n", "")


def test_a_child_may_open_what_its_parent_did_not(script):
    done = script(
        """
        import os
        import hsakit.hsa
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            print(os.waitstatus_to_exitcode(status))
        else:
            with hsakit.hsa.Runtime() as runtime, runtime.create_signal(3) as signal:
                assert signal.load() == 3
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
