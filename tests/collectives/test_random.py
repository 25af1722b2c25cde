"""Random collectives: any operation, size, shape and option, each run verified."""

from contextlib import ExitStack

import pytest

from hsakit.collectives import Buffers, Operation, engines
from hsakit.collectives.operation import OPERATIONS, REDUCTIONS, ROOTED
from hsakit.gate import Gate

CASES = 10_000


@pytest.mark.slow
@pytest.mark.deadline(4 * 3600)
def test_random_cases(node):
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as some

    every = range(len(node.gpus))
    sizes = some.one_of(
        some.integers(0, 300), some.integers(0, 70_000), some.sampled_from([4095, 4096, 65_536, 1 << 20])
    )

    @some.composite
    def operations(draw):
        name = draw(some.sampled_from(OPERATIONS))
        ranks = draw(some.integers(1, len(node.gpus)))
        options = {"in_place": draw(some.booleans())}
        if name == "all-to-all-v":
            row = some.lists(some.integers(0, 5000), min_size=ranks, max_size=ranks).map(tuple)
            options["counts"] = tuple(draw(some.lists(row, min_size=ranks, max_size=ranks)))
        elif name in REDUCTIONS:  # a software node adds slowly
            options["nbytes"] = 4 * draw(some.integers(0, 300))
            options["dtype"] = draw(some.sampled_from(["i32", "f32", "f16", "bf16"]))
        else:
            options["nbytes"] = draw(sizes)
        if name in ROOTED:
            options["root"] = draw(some.integers(0, ranks - 1))
        return Operation(name, ranks, **options)

    @settings(max_examples=CASES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(
        operation=operations(),
        order=some.permutations(every),
        skew=some.integers(0, 5),
        form=some.sampled_from(engines.FORMS),
        split=some.integers(1, 3),
        split_from=some.sampled_from([1, 1000, 4096]),
        gated=some.booleans(),
        runs=some.integers(1, 2),
    )
    def check(operation, order, skew, form, split, split_from, gated, runs):
        gpus = [node.gpus[i] for i in order[: operation.ranks]]
        with ExitStack() as stack:
            buffers = stack.enter_context(
                Buffers(node, operation, gpus=gpus, skew=4 * skew if operation.reduces else skew)
            )
            gate = stack.enter_context(Gate(node)) if gated else None
            after = [gate.signals] * operation.ranks if gate else ()
            collective = stack.enter_context(
                engines.prepare(
                    node,
                    operation,
                    buffers.send,
                    buffers.recv,
                    gpus=gpus,
                    after=after,
                    form=form,
                    split=split,
                    split_from=split_from,
                )
            )
            for _ in range(runs):
                buffers.prepare(collective)
                if gate:
                    gate.hold([collective])
                    gate.release()
                else:
                    collective.submit()
                collective.wait()
                buffers.check(collective)

    check()
