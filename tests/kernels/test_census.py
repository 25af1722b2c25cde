"""Where workgroups ran."""

import numpy as np

PLACE = np.dtype([("xcc", "<u4"), ("se", "<u4"), ("cu", "<u4"), ("hw_id", "<u4"), ("start", "<u8"), ("end", "<u8")])


def census(bench, groups: int, naps: int, lds: int, gpu: int = 0) -> np.ndarray:
    places = bench.shared(np.full(groups * PLACE.itemsize, 0xFF, np.uint8))
    bench.run("census", "census", groups, places, naps, lds=lds, gpu=gpu)
    return places.view().view(PLACE).copy()


def test_a_grid_of_one_workgroup_a_cu_is_on_every_cu(bench):
    for gpu in {0, len(bench.gpus) - 1}:
        agent = bench.gpus[gpu]
        places = census(bench, agent.cu_count, naps=20, lds=1 << 16, gpu=gpu)
        assert len(np.unique(places[["xcc", "se", "cu"]])) == agent.cu_count
        assert sorted(np.unique(places["xcc"])) == list(range(agent.xcc_count))
        assert (places["se"] == places["hw_id"] >> 13 & 7).all() and (places["cu"] == places["hw_id"] >> 8 & 15).all()


def test_workgroups_go_round_the_xccs(bench):
    places = census(bench, 64, naps=0, lds=0)
    assert (places["xcc"] == np.arange(64) % bench.gpus[0].xcc_count).all()


def test_ticks(bench):
    places = census(bench, 10, naps=3, lds=0)
    assert (places["start"] < places["end"]).all()
