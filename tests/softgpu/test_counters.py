"""The counts of packets: a plain file that always shows the present values."""

from __future__ import annotations

from hsakit.softgpu.counters import AQL, SDMA, Counters


def read(path) -> dict[str, int]:
    return {name: int(value) for name, value in (line.split() for line in path.read_text().splitlines())}


def test_a_reader_of_the_file_sees_every_count_at_once(tmp_path):
    path = tmp_path / "packets"
    counters = Counters(path, engines=3)
    assert read(path) == dict.fromkeys([*AQL, *SDMA, *(f"sdma_copy_engine_{k}" for k in range(3))], 0)
    for _ in range(12):
        counters.add("sdma_copy_engine_2")
    counters.add("aql_dispatch")
    assert (read(path)["sdma_copy_engine_2"], read(path)["aql_dispatch"], sum(read(path).values())) == (12, 1, 13)
    assert counters["sdma_copy_engine_2"] == 12


def test_the_packets_of_one_copy_and_one_barrier(raw):
    path = raw.driver.tree.node(5) / "packets"
    address, _ = raw.host(4096)
    queue = raw.queue(raw.gpus[5])
    before = read(path)
    raw.lib.hsa_amd_profiling_async_copy_enable(True)
    dependency = raw.signal(0)
    copied = raw.copy(raw.allocate(raw.gpus[5], 4096), raw.gpus[5], address, raw.cpu, 4096, after=[dependency])
    assert raw.wait(copied) == 0
    assert raw.wait(queue.barrier()) == 0
    after = read(path)
    for _ in range(2000):  # the trap follows the completion
        if after["sdma_trap"] > before["sdma_trap"]:
            break
        after = read(path)
    engine = {name: after[name] - n for name, n in before.items() if name.startswith("sdma_copy_engine_")}
    assert sorted(engine.values()) == [*[0] * 15, 1]
    assert {name: after[name] - before[name] for name in (*AQL, *SDMA) if after[name] != before[name]} == {
        "aql_barrier_and": 1,
        "sdma_poll": 2,
        "sdma_timestamp": 2,
        "sdma_hdp_flush": 1,
        "sdma_copy": 1,
        "sdma_atomic": 1,
        "sdma_fence": 1,
        "sdma_trap": 1,
    }
