"""CUs of an XCC: dealt in turn, shared, given back."""

from __future__ import annotations

from hsakit.softgpu.clock.residency import CAPACITY, Crowds, Xcc, layers, lowest

WHOLE, HALF, THIRD = CAPACITY, CAPACITY // 2, CAPACITY // 3


def test_the_lowest_bits_of_a_mask():
    assert [lowest(0b101101, n) for n in range(5)] == [0, 0b1, 0b101, 0b1101, 0b101101]


def test_cus_are_dealt_in_turn_the_emptiest_first_and_given_back():
    xcc = Xcc(4)
    assert xcc.place(HALF, 0b1111, 6) == [0b1111, 0b0011]
    assert xcc.place(HALF, 0b0111, 9) == [0b0100]
    assert not xcc.room(HALF, 0b0111)
    assert xcc.place(WHOLE, 0b1111, 1) == []
    xcc.release(HALF, [0b1111])
    assert xcc.place(WHOLE, 0b1111, 4) == [0b1000]
    xcc.release(WHOLE, [0b1000])
    xcc.release(HALF, [0b0011, 0b0100])
    assert xcc.state == Xcc(4).state


def test_a_share_that_does_not_divide_a_cu_still_fits_as_often_as_it_should():
    for per_cu in range(1, 65):
        xcc = Xcc(1)
        assert len(xcc.place(CAPACITY // per_cu, 1, 1000)) == per_cu


def test_kernels_of_different_shares_add_up():
    xcc = Xcc(1)
    assert xcc.place(HALF, 1, 1) == [1]
    assert xcc.place(THIRD, 1, 2) == [1]
    assert not xcc.room(THIRD, 1)


def test_crowds_count_whom_each_workgroup_meets():
    cohorts = [layers([0b1111, 0b0011]), layers([0b0110]), layers([0b1000] * 5)]
    on_cu = [2, 3, 2, 6]
    met = [2 * on_cu[0] + 2 * on_cu[1] + on_cu[2] + on_cu[3], on_cu[1] + on_cu[2], 5 * on_cu[3]]
    assert [Crowds(cohorts).met(some) for some in cohorts] == met


def test_layers_count_the_workgroups_of_each_cu():
    assert layers([0b1111, 0b0011, 0b0110]) == [(0b0010, 3), (0b0001, 2), (0b0100, 2), (0b1000, 1)]
    assert layers([0b1111] * 8) == [(0b1111, 8)]
    assert layers([]) == []
