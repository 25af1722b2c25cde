"""Bytes go to a GPU's memory and come back, whichever way they take."""

import numpy as np
import pytest

from hsakit import staging
from hsakit.hsa import CopyEngine
from hsakit.pattern import Pattern

PATTERN = Pattern(5, 1)


@pytest.fixture
def moved(monkeypatch):
    """(whether towards the GPU, bytes) of each copy by an engine."""
    seen, copy = [], CopyEngine.copy

    def watched(self, dst, src, *arguments, **named):
        seen.append((dst.agent.kind == "gpu", dst.nbytes))
        return copy(self, dst, src, *arguments, **named)

    monkeypatch.setattr(CopyEngine, "copy", watched)
    return seen


@pytest.mark.parametrize("nbytes, granted", [(1000, False), (1000, True), (300_000, True), (300_000, False)])
def test_there_and_back(node, moved, nbytes, granted):
    gpu, host = node.gpus[0].agent, node.cpus[0]
    pool = gpu.pool("coarse")
    granted = granted and pool.reachable_by(host)
    with pool.allocate(nbytes + 64, access=[host] if granted else ()) as buffer:
        with host.pool("fine").allocate(nbytes, access=gpu) as stage:
            piece = buffer[32 : 32 + nbytes]
            staging.put(piece, PATTERN.fill, stage, 20)
            stage.view()[:] = 0
            assert (staging.get(piece, stage, 20) == PATTERN.bytes(0, nbytes)).all()
    direct = granted and nbytes <= 128 << 10
    assert moved == ([] if direct else [(True, nbytes), (False, nbytes)])


def test_memory_of_the_host_is_written_as_it_is(node, moved):
    with node.cpus[0].pool("fine").allocate(300_000) as buffer:
        staging.put(buffer, PATTERN.fill, buffer, 20)
        assert (np.asarray(staging.get(buffer, buffer, 20)) == PATTERN.bytes(0, 300_000)).all()
    assert moved == []
