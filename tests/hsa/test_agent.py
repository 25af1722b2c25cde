import pytest

from hsakit.ffi.errors import InvalidArgument


def test_kinds_and_order(runtime):
    assert runtime.gpus and runtime.cpus
    for kind, agents in (("gpu", runtime.gpus), ("cpu", runtime.cpus)):
        assert [agent.index for agent in agents] == list(range(len(agents)))
        assert {agent.kind for agent in agents} == {kind}
    assert set(runtime.agents) == {*runtime.gpus, *runtime.cpus}
    assert len({agent.raw for agent in runtime.agents}) == len(runtime.agents)


def test_a_gpu_says_what_it_is(gpu):
    assert gpu.name.startswith("gfx") and gpu.product
    assert gpu.uuid.startswith("GPU-")
    domain, bus, rest = gpu.bdf.split(":")
    device, function = rest.split(".")
    assert (len(domain), len(bus), len(device), len(function)) == (4, 2, 2, 1)
    assert gpu.cu_count > 0 and gpu.cu_count % gpu.xcc_count == 0 and gpu.se_count % gpu.xcc_count == 0
    assert gpu.simds_per_cu > 0 and gpu.clock_mhz > 0
    assert gpu.label == "GPU 0" and gpu.bdf in repr(gpu)


def test_gpus_differ_by_address(runtime):
    for name in ("bdf", "uuid", "driver_node"):
        assert len({getattr(gpu, name) for gpu in runtime.gpus}) == len(runtime.gpus)


def test_a_cpu_has_neither_queues_nor_engines(runtime):
    cpu = runtime.cpus[0]
    assert cpu.bdf is None and cpu.copy_engines == () and cpu.xcc_count == 0
    with pytest.raises(InvalidArgument, match="runtime.gpus"):
        cpu.create_queue()
    with pytest.raises(InvalidArgument, match="runtime.gpus"):
        cpu.engine(0)


def test_pools_by_kind(runtime, gpu):
    for agent, kinds in ((gpu, {"coarse"}), (runtime.cpus[0], {"coarse", "fine", "kernarg"})):
        assert kinds <= {pool.kind for pool in agent.pools}
        for pool in agent.pools:
            assert agent.pool(pool.kind).kind == pool.kind
            assert pool.agent is agent and pool.nbytes > 0 and pool.granule > 0
    with pytest.raises(InvalidArgument, match="'slow' is none of coarse, fine, kernarg, uncached"):
        gpu.pool("slow")
    with pytest.raises(InvalidArgument, match="GPU 0 has no kernarg pool: it has coarse"):
        gpu.pool("kernarg")


def test_engines_by_number(gpu):
    assert [engine.index for engine in gpu.copy_engines] == list(range(len(gpu.copy_engines)))
    assert [gpu.engine(engine.index) for engine in gpu.copy_engines] == list(gpu.copy_engines)
    last = len(gpu.copy_engines) - 1
    for missing in (-1, 16, 99):
        with pytest.raises(InvalidArgument, match=rf"GPU 0 has no engine {missing}: it has 0-{last}$"):
            gpu.engine(missing)


def test_attributes_are_those_of_the_handle(runtime, gpu):
    same = type(gpu)(runtime, gpu.raw, "gpu", 0)
    assert same == gpu and hash(same) == hash(gpu) and gpu != runtime.cpus[0]
