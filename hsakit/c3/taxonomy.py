"""What kind of scenario it is, and the figures that decided: which part is longer, and what bounds each.

The limit of 15 % of the paper is exact: times of 115 and 100 are equal, 116 and 100 are not.
"""

from __future__ import annotations

from dataclasses import dataclass

from hsakit.c3.metrics import Undefined

G_LONG, C_LONG, GC_EQUAL = "G-long", "C-long", "GC-equal"
COMPUTE, MEMORY = "compute-bound", "memory-bound"
LATENCY, BANDWIDTH = "latency-bound", "bandwidth-bound"
# The limit as a fraction: 1.15 has no exact binary form, and 20 a > 23 b is exact for integers and halves.
_PARTS, _LIMIT = 20, 23


@dataclass(frozen=True)
class Verdict:
    """A class, and in words the figures that decided it."""

    label: str
    because: str

    def __str__(self) -> str:
        return f"{self.label} ({self.because})"


def duration(tg: float, tc: float) -> Verdict:
    """G-long: Tg > 1.15 Tc. C-long: Tc > 1.15 Tg. Else GC-equal. Nanoseconds."""
    if not (tg > 0 and tc > 0):
        raise Undefined(f"Tg is {tg} ns and Tc is {tc} ns: there is no longer one where one of them did not run")
    label = G_LONG if _beyond(tg, tc) else C_LONG if _beyond(tc, tg) else GC_EQUAL
    longer, shorter, ratio = ("Tg", "Tc", tg / tc) if tg >= tc else ("Tc", "Tg", tc / tg)
    return Verdict(
        label, f"Tg {_ms(tg)}, Tc {_ms(tc)}: {longer} is {ratio:.3f} {shorter}, the limit is {_LIMIT / _PARTS}"
    )


def bound_of_gemm(intensity: float, flops: float, bandwidth: float) -> Verdict:
    """By arithmetic intensity (operations a byte) against the machine's balance, of measured rates: operations a second
    of a GEMM that nothing else holds up, and bytes a second of memory."""
    if not (flops > 0 and bandwidth > 0):
        raise Undefined(f"{flops} operations/s and {bandwidth} bytes/s: no balance without both rates")
    balance = flops / bandwidth
    relation = "at least" if intensity >= balance else "less than"
    return Verdict(
        COMPUTE if intensity >= balance else MEMORY,
        f"{intensity:.1f} operations a byte, {relation} the machine's {balance:.1f}: {flops / 1e12:.4g} TFLOP/s over "
        f"{bandwidth / 1e12:.4g} TB/s",
    )


def bound_of_collective(time: float, quarter: float) -> Verdict:
    """Latency-bound: its time is within 15 % of the time at a quarter of its size. Nanoseconds."""
    if not (time > 0 and quarter > 0):
        raise Undefined(f"{time} ns, and {quarter} ns at a quarter of the size: nothing ran")
    return Verdict(
        BANDWIDTH if _beyond(time, quarter) else LATENCY,
        f"{_ms(time)} is {time / quarter:.3f} of the {_ms(quarter)} at a quarter of the size, the limit is "
        f"{_LIMIT / _PARTS}",
    )


def _beyond(a: float, b: float) -> bool:
    """a > 1.15 b"""
    return _PARTS * a > _LIMIT * b


def _ms(ns: float) -> str:
    return f"{ns / 1e6:.4g} ms"
