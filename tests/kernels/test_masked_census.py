"""The CUs that workgroups run on are those of the mask, no more and no fewer, through HSA and through HIP."""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from hsakit.culayout import Cu, CuLayout
from hsakit.cumask import CuMask
from hsakit.kernels import PLACE, Kernels

# Enable registers as the kernel driver's own loop (mqd_symmetrically_map_cu_mask) left them, [xcc][shader engine].
DRIVER = json.loads((Path(__file__).parents[1] / "cu_masks.json").read_text())
MASKS = 50
NAPS = 8  # a workgroup is still there when the last one is placed
APIS = ("hsa", "hip")


class Part:
    """A GPU of the node, asked through one API."""

    def __init__(self, node, gpu, api: str, stack: ExitStack):
        self.gpu, self.agent, self.api = gpu, gpu.agent, api
        self._runtime = node.runtime
        self._stack = stack
        self._kernels = stack.enter_context(Kernels(gpu.agent if api == "hsa" else gpu.device))
        nbytes = 2 * self.agent.cu_count * PLACE.itemsize
        self._places = stack.enter_context(node.cpus[0].pool("fine").allocate(nbytes, access=self.agent))
        # Without a mask: which CUs there are, as they are numbered on the die. The driver numbers those from 0.
        self._numbers = defaultdict(list)
        for xcc, se, cu in sorted(self._found(*self._start(None, 2 * self.agent.cu_count))):
            self._numbers[xcc, se].append(cu)
        engines = range(1 + max(se for _, se in self._numbers))
        counts = [[len(self._numbers[xcc, se]) for se in engines] for xcc in range(self.agent.xcc_count)]
        self.layout = CuLayout(tuple(map(tuple, counts)))
        assert self.layout.count == self.agent.cu_count

    def start(self, mask: CuMask):
        """Enough workgroups for all CUs that there are, XCCs having the same share of them."""
        return self._start(mask, self.layout.xccs * max(sum(map(sum, xcc)) for xcc in self.layout.cus))

    def finish(self, *started) -> set[Cu]:
        """The CUs that ran workgroups, as the driver numbers them."""
        return {Cu(xcc, se, self._numbers[xcc, se].index(cu)) for xcc, se, cu in self._found(*started)}

    def _start(self, mask, workgroups: int):
        self._places.view()[:] = 0xFF
        launch = self._kernels.census(self._places, workgroups, naps=NAPS, lds=self.agent.limits.lds)
        if self.api == "hip":
            stream = self._stack.enter_context(self.gpu.device.create_stream(cu_mask=mask))
            launch.launch(stream)
            return workgroups, lambda: stream.synchronize(60), stream
        queue = self._stack.enter_context(self.agent.create_queue(64, cu_mask=mask))
        done = self._stack.enter_context(self._runtime.create_signal(1))
        launch.launch(queue, done)
        return workgroups, lambda: done.wait(deadline=60), queue

    def _found(self, workgroups: int, wait, where) -> set[tuple]:
        wait()
        places = self._places.view(PLACE)
        where.close()
        assert (places["xcc"][:workgroups] < self.agent.xcc_count).all(), "a workgroup did not run"
        assert (places["xcc"][workgroups:] == 0xFFFFFFFF).all()
        return set(places[:workgroups][["xcc", "se", "cu"]].tolist())


@pytest.fixture
def parts(node):
    with ExitStack() as stack:
        yield lambda api: [Part(node, gpu, api, stack) for gpu in node.gpus]


@pytest.fixture
def part(node):
    with ExitStack() as stack:
        yield lambda api: Part(node, node.gpus[0], api, stack)


def legal(rng, layout: CuLayout) -> CuMask:
    """A random mask that leaves each XCC a CU: from few CUs to nearly all of them."""
    density = rng.uniform(0.01, 1)
    bits = {bit for bit in range(layout.count) if rng.random() < density}
    bits |= {int(rng.choice(range(xcc, layout.count, layout.xccs))) for xcc in range(layout.xccs)}
    return CuMask.from_bits(layout, bits)


@pytest.mark.parametrize("api", APIS)
def test_random_masks_on_one_gpu(part, api):
    one, rng = part(api), np.random.default_rng(1)
    seen = set()
    for _ in range(MASKS):
        mask = legal(rng, one.layout)
        assert one.finish(*one.start(mask)) == set(mask.coordinates()), mask
        seen.add(mask.value)
    assert len(seen) == MASKS


@pytest.mark.parametrize("api", APIS)
def test_random_masks_on_all_gpus_at_once(parts, api):
    """Each GPU has a mask of its own; that of a neighbour would show."""
    every, rng = parts(api), np.random.default_rng(2)
    for _ in range(-(-MASKS // len(every))):
        masks = [legal(rng, one.layout) for one in every]
        started = [one.start(mask) for one, mask in zip(every, masks)]
        for one, mask, run in zip(every, masks, started):
            assert one.finish(*run) == set(mask.coordinates()), (one.gpu, mask)


def enabled(registers) -> set[Cu]:
    return {
        Cu(xcc, se, cu)
        for xcc, engines in enumerate(registers)
        for se, word in enumerate(engines)
        for cu in range(16)
        if int(word, 16) >> cu & 1
    }


@pytest.mark.parametrize("api", APIS)
def test_the_kernel_drivers_own_vectors(parts, api):
    """Where a vector has CUs of some XCCs only, the others get their first CU, which is bit i of XCC i."""
    every = parts(api)
    known = [case for case in DRIVER if case["cus"] == [[list(se) for se in xcc] for xcc in every[0].layout.cus]]
    if not known:
        pytest.skip(f"no vectors for a part with {every[0].layout.cus}")
    count = every[0].layout.count
    tried = set()
    for case in known:
        value = sum(int(word, 16) << 32 * i for i, word in enumerate(case["words"])) & (1 << count) - 1
        cus = enabled(case["registers"])
        for xcc in range(every[0].layout.xccs):
            if not any(cu.xcc == xcc for cu in cus):
                value |= 1 << xcc
                cus.add(Cu(xcc, 0, 0))
        masks = [CuMask(one.layout, value) for one in every]
        started = [one.start(mask) for one, mask in zip(every, masks)]
        for one, run in zip(every, started):
            assert one.finish(*run) == cus, (one.gpu, case["name"])
        tried.add(case["name"])
    if count == 304:
        assert {"MI300X: bit 8", "MI300X: bit 32", "MI300X: random"} <= tried


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("bit, place", [(8, Cu(0, 1, 0)), (32, Cu(0, 0, 1))])
def test_single_bits_of_an_mi300x(part, api, bit, place):
    one = part(api)
    if one.layout.xccs != 8 or len(one.layout.cus[0]) != 4:
        pytest.skip("a part of 8 XCCs with 4 shader engines each")
    mask = CuMask.from_bits(one.layout, [bit, 1, 2, 3, 4, 5, 6, 7])
    assert one.finish(*one.start(mask)) == {place, *(Cu(xcc, 0, 0) for xcc in range(1, 8))}
