"""Censuses: they find the CUs of a mask, and say so when workgroups ran elsewhere."""

from contextlib import closing

import pytest

from hsakit.culayout import Cu
from hsakit.cumask import CuMask
from hsakit.kernels import Kernels
from hsakit.sweep.census import Census, CensusError
from hsakit.sweep.masked import OPEN, MaskedQueue


@pytest.fixture
def census(gpu, kernels):
    with closing(Census(gpu, kernels, 30)) as made:
        yield made


def test_the_layout_is_what_a_census_without_a_mask_found(gpu, census):
    assert census.complete and not census.layout.assumed
    assert census.layout.count == gpu.agent.cu_count and census.layout.xccs == gpu.agent.xcc_count
    assert len(census.layout.cus[0]) * census.layout.xccs == gpu.agent.se_count


@pytest.mark.parametrize("api", OPEN)
def test_the_cus_of_a_mask(gpu, census, api):
    mask = CuMask.all(census.layout).per_xcc(3)
    with Kernels(gpu.agent if api == "hsa" else gpu.device) as kernels, closing(OPEN[api](gpu, mask)) as masked:
        launch = census.prepare(kernels)
        used = census.take(masked, launch, mask)
        assert used == set(mask.coordinates())
        assert masked.read_back(census.layout) == mask.value
    table = census.table(used)
    assert sum(int(word, 16).bit_count() for xcc in table for word in xcc) == 3 * census.layout.xccs
    assert all(sum(int(word, 16).bit_count() for word in xcc) == 3 for xcc in table)


def test_other_cus_than_those_of_the_mask_are_an_error(gpu, census, kernels):
    every = CuMask.all(census.layout)
    one, two = every.per_xcc(1), every.per_xcc(2)
    with closing(MaskedQueue(gpu, two)) as masked:
        with pytest.raises(CensusError, match=rf"found 0 CUs outside of .* and missed {len(two)} of"):
            census.take(masked, census.prepare(kernels), every.per_xcc(4))
        launch = census.prepare(kernels)
        with pytest.raises(CensusError, match=rf"found {len(one)} CUs outside of"):
            census.take(masked, launch, one)
        with pytest.raises(CensusError, match="outside of .* and missed"):
            census.take(masked, launch, two - one)


def test_where_not_all_cus_were_seen_only_their_number_is_compared(gpu, census, kernels):
    census.complete = False
    every = CuMask.all(census.layout)
    mask = every.per_xcc(2) - every.per_xcc(1)
    with closing(MaskedQueue(gpu, every.per_xcc(1))) as masked:
        assert census.take(masked, census.prepare(kernels), mask) == set(every.per_xcc(1).coordinates())
        with pytest.raises(CensusError, match="CUs by XCC"):
            census.take(masked, census.prepare(kernels), every.per_xcc(2))


def test_cus_are_numbered_as_the_driver_does(census):
    """On the die a harvested CU keeps its number."""
    census._numbers[0, 0] = [0, 2, 3]
    assert census._numbered(Cu(0, 0, 3)) == Cu(0, 0, 2)
    with pytest.raises(CensusError, match="which no workgroup"):
        census._numbered(Cu(0, 0, 1))


def test_a_workgroup_that_did_not_run_is_seen(gpu, census, kernels):
    class Idle:
        def run(self, launch, deadline):
            pass

    mask = CuMask.all(census.layout)
    with pytest.raises(CensusError, match=f"{len(mask)} of the census's {len(mask)} workgroups did not run"):
        census.take(Idle(), census.prepare(kernels), mask)
