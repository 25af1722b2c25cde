"""The operands of a GEMM of any size, and whether its result is right, without a float64 product of that size.

Rows of A and columns of B repeat after PERIOD, so C repeats too: one period is computed in float64 and compared element
by element, everything else must be the same bytes, for the same sums in the same order give them. The period is no
multiple of a tile's side, so a tile that is skipped, late or elsewhere shows.
"""

from __future__ import annotations

import numpy as np

from hsakit.c3.scenario import Scenario
from hsakit.gemm import FORMATS, GemmError, Product

PERIOD = 320
_POISON = 0xFF  # NaN in every type
_SEED = 1


class Operands:
    """A, B and C of a scenario's GEMM; views are one-dimensional uint8 arrays of a whole matrix as it is stored."""

    def __init__(self, scenario: Scenario, seed: int = _SEED):
        self._scenario = scenario
        self._element = FORMATS[scenario.dtype].element
        rows, columns = min(scenario.m, PERIOD), min(scenario.n, PERIOD)
        self._product = Product(scenario.dtype, rows, columns, scenario.k, seed)

    @property
    def product(self) -> Product:
        """What C repeats."""
        return self._product

    def fill_a(self, view: np.ndarray) -> None:
        s = self._scenario
        self._repeat(view, self._product.a, (s.m, s.k), s.layout[0] == "t")

    def fill_b(self, view: np.ndarray) -> None:
        s = self._scenario
        self._repeat(view, self._product.b, (s.k, s.n), s.layout[1] == "t")

    def _repeat(self, view: np.ndarray, period: np.ndarray, shape: tuple[int, int], transposed: bool) -> None:
        if transposed:
            period, shape = period.T, shape[::-1]
        matrix = view.view(self._element).reshape(shape)
        rows, columns = period.shape
        for first in range(0, shape[1], columns):
            part = matrix[:rows, first : first + columns]
            part[:] = period[: part.shape[0], : part.shape[1]]
        for first in range(rows, shape[0], rows):
            part = matrix[first : first + rows]
            part[:] = matrix[: part.shape[0]]

    def poison(self, view: np.ndarray) -> None:
        """Make every element of C wrong."""
        view[:] = _POISON

    def check(self, view: np.ndarray) -> None:
        """Raise GemmError unless every element of C is right."""
        s = self._scenario
        matrix = view.view(self._element).reshape(s.m, s.n)
        rows, columns = self._product.result.shape
        period = np.ascontiguousarray(matrix[:rows, :columns])
        self._product.check(period)
        line = np.tile(period, (1, -(-s.n // columns)))[:, : s.n]
        for first in range(0, s.m, rows):
            part = matrix[first : first + rows]
            wrong = part.view(np.uint8) != np.ascontiguousarray(line[: part.shape[0]]).view(np.uint8)
            if wrong.any():
                row, byte = map(int, np.argwhere(wrong)[0])
                at = first + row, byte // self._element.itemsize
                raise GemmError(
                    f"{np.count_nonzero(wrong)} bytes of rows {first} to {first + part.shape[0] - 1} of C wrong, the "
                    f"first at element {at}: it is not what the same operands gave at {at[0] % rows, at[1] % columns}"
                )
