"""What ticks say: times of parts, overlap, order of starts."""

from hsakit.c3.ticks import Work, check_order, check_overlap, covered, elapsed, overlap, shared, spans_of

G0, C0 = Work("gemm", 0, "queue 0"), Work("collective", 0, "engine 2")
G1, C1 = Work("gemm", 1, "queue 0"), Work("collective", 1, "engine 2")


def test_spans_and_elapsed():
    works, sample = [G0, C0, G1, C1], [[0, 10], [5, 20], [2, 12], [6, 30]]
    assert spans_of(works, sample, "gemm") == [[0, 10], [2, 12]]
    assert spans_of(works, sample, "collective", 1) == [[6, 30]]
    assert elapsed(sample) == 30
    assert elapsed(spans_of(works, sample, "gemm")) == 12


def test_covered_joins_what_touches():
    assert covered([[5, 8], [0, 3], [3, 4], [6, 7]]) == [(0, 4), (5, 8)]


def test_shared_by_hand():
    assert shared([[0, 10]], [[5, 20]]) == 5
    assert shared([[0, 10]], [[10, 20]]) == 0
    assert shared([[0, 10], [20, 30]], [[5, 25]]) == 10
    assert shared([[0, 10]], [[1, 2], [1, 2], [4, 6]]) == 3  # copies at the same time count once


def test_overlap_is_of_the_shorter_part():
    assert overlap([G0, C0], [[0, 10], [8, 12]]) == 0.5
    assert overlap([G0, C0], [[0, 10], [2, 6]]) == 1.0
    # the node overlaps, GPU 1 does not
    works, sample = [G0, C0, G1, C1], [[0, 10], [0, 10], [0, 4], [4, 10]]
    assert overlap(works, sample) == 1.0 and overlap(works, sample, 1) == 0.0


def test_a_run_without_overlap_is_told():
    works, sample = [G0, C0, G1, C1], [[0, 10], [0, 10], [0, 4], [4, 10]]
    assert "did not overlap on GPU 1" in check_overlap(works, sample, concurrent=True)
    assert check_overlap(works, [[0, 10], [0, 10], [0, 5], [4, 10]], concurrent=True) is None


def test_a_serial_run_that_overlaps_is_told():
    assert check_overlap([G0, C0], [[0, 10], [10, 20]], concurrent=False) is None
    assert "overlapped (10.0%) on GPU 0" in check_overlap([G0, C0], [[0, 10], [9, 20]], concurrent=False)


def test_the_order_of_first_starts():
    works, sample = [G0, C0, C0, G1, C1], [[5, 10], [9, 12], [6, 8], [5, 10], [3, 9]]
    wrong = check_order(works, sample, ("gemm", "collective"))
    assert wrong == "on GPU 1 the collective started 2 ns before the gemm: not the order stated"
    assert "on GPU 0" in check_order(works, sample, ("collective", "gemm"))
    assert check_order(works[:3], sample[:3], ("gemm", "collective")) is None
    assert check_order(works, sample, ("gemm",)) is None
