"""Scenarios drawn at random by a stated seed: for judging what was made with the shipped ones in view."""

from __future__ import annotations

import random

from hsakit.c3.scenario import COLLECTIVES, Scenario

# Of m, n and k. In the set 10 of 15 GEMMs are bound by computing, the others have few rows, or a short k.
_COMPUTE = ((8192, 16384), (8192, 57344), (8192, 53248))
_FEW_ROWS = ((64, 256), (57344, 106496), (8192, 16384))
_SHORT = ((8192, 16384), (57344, 106496), (64, 256))
_KINDS = (_COMPUTE, _COMPUTE, _FEW_ROWS, _COMPUTE, _COMPUTE, _SHORT)
_BYTES = 128, 3328  # MiB
_MB = 1 << 20


def drawn(seed: int, count: int = 30) -> list[Scenario]:
    """So many scenarios over the ranges of the set ``llama``: M, N, K and bytes each drawn evenly by their logarithm,
    rounded to multiples of 64 and to MiB; all-gather and all-to-all in turn. A seed gives the same ones for ever."""
    generator = random.Random(seed)

    def one(least: int, most: int, step: int) -> int:
        return round(least * (most / least) ** generator.random() / step) * step

    made = []
    kinds = list(COLLECTIVES.items())
    for number in range(count):
        m, n, k = (one(least, most, 64) for least, most in _KINDS[number // 2 % len(_KINDS)])
        nbytes = one(*_BYTES, 1) * _MB
        kind, short = kinds[number % 2]
        derivation = f"number {number + 1} of the draw with seed {seed}"
        made.append(Scenario(f"d{number + 1}-{short}", "bf16", m, n, k, kind, nbytes, derivation, "drawn"))
    return made
