"""Random collectives by engines and by kernels: any operation, size, shape and option, each run verified."""

from contextlib import ExitStack

import pytest

from hsakit.collectives import Buffers, Operation, engines, kernels
from hsakit.collectives.operation import OPERATIONS, REDUCTIONS, ROOTED
from hsakit.gate import Gate

CASES = {engines: 10_000, kernels: 2_000}  # a software node executes kernels slowly


@pytest.mark.slow
@pytest.mark.deadline(4 * 3600)
@pytest.mark.parametrize("by", CASES, ids=["engines", "kernels"])
def test_random_cases(node, by):
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as some

    sizes = [some.integers(0, 300), some.integers(0, 5000)]
    if by is engines:
        sizes += [some.integers(0, 70_000), some.sampled_from([4095, 4096, 65_536, 1 << 20])]
        options = {
            "form": some.sampled_from(engines.FORMS),
            "order": some.sampled_from(["fan-out", "by-rank"]),
            "split": some.integers(1, 3),
            "split_from": some.sampled_from([1, 1000, 4096]),
        }
    else:
        options = {
            "algorithm": some.sampled_from(kernels.ALGORITHMS),
            "workgroups": some.one_of(some.none(), some.integers(1, 12)),
            "cu_mask": some.one_of(some.none(), some.just(range(16))),
            "slots": some.integers(2, 4),
            "slice_": some.one_of(some.none(), some.integers(1, 256).map(lambda n: 16 * n)),
        }

    @some.composite
    def operations(draw):
        name = draw(some.sampled_from(OPERATIONS))
        ranks = draw(some.integers(1, len(node.gpus)))
        shape = {"in_place": draw(some.booleans())}
        if name == "all-to-all-v":
            row = some.lists(some.integers(0, 5000), min_size=ranks, max_size=ranks).map(tuple)
            shape["counts"] = tuple(draw(some.lists(row, min_size=ranks, max_size=ranks)))
        elif name in REDUCTIONS:  # a software node adds slowly
            shape["nbytes"] = 4 * draw(some.integers(0, 300))
            shape["dtype"] = draw(some.sampled_from(["i32", "f32", "f16", "bf16"]))
        else:
            shape["nbytes"] = draw(some.one_of(sizes))
        if name in ROOTED:
            shape["root"] = draw(some.integers(0, ranks - 1))
        return Operation(name, ranks, **shape)

    @settings(max_examples=CASES[by], deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(
        operation=operations(),
        order=some.permutations(range(len(node.gpus))),
        skew=some.integers(0, 5),
        options=some.fixed_dictionaries(options),
        gated=some.booleans(),
        runs=some.integers(1, 2),
    )
    def check(operation, order, skew, options, gated, runs):
        gpus = [node.gpus[i] for i in order[: operation.ranks]]
        skew *= 4 if operation.reduces else 1
        with ExitStack() as stack:
            buffers = stack.enter_context(Buffers(node, operation, gpus=gpus, skew=skew))
            gate = stack.enter_context(Gate(node)) if gated else None
            after = [gate.signals] * operation.ranks if gate else ()
            prepared = by.prepare(node, operation, buffers.send, buffers.recv, gpus=gpus, after=after, **options)
            collective = stack.enter_context(prepared)
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
