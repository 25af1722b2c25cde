"""The tables of a report: a name, headers and lines of words, as text and as CSV."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hsakit.c3 import paper, taxonomy, ticks
from hsakit.c3.heuristics import Machine
from hsakit.c3.outcome import (
    KIND,
    QUARTERS,
    Measured,
    Outcome,
    average_percent,
    good,
    outcomes,
    strategies,
    who_sets_tc,
)
from hsakit.figure import clock_words
from hsakit.sweep.sizes import format_size


@dataclass(frozen=True)
class Table:
    """``note`` is what must be known to read it."""

    name: str
    title: str
    headers: tuple[str, ...]
    lines: list[list[str]]
    note: str = ""

    def csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.headers)
        writer.writerows(self.lines)
        return out.getvalue()

    def text(self) -> str:
        """Columns side by side: the first to the left, the others to the right."""
        cells = [list(self.headers), *self.lines]
        widths = [max(len(line[i]) for line in cells) for i in range(len(self.headers))]
        lines = [
            "  ".join(
                cell.ljust(width) if not i else cell.rjust(width) for i, (cell, width) in enumerate(zip(line, widths))
            )
            for line in cells
        ]
        lines.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join(line.rstrip() for line in lines)


def tables(rows: Sequence[dict], found: Sequence[Outcome], machine: Machine | None = None) -> list[Table]:
    """All tables that the rows have anything for."""
    complete = [outcome for outcome in found if outcome.complete]
    made = [scenarios(complete, machine)] if complete else []
    if strategies(complete):
        made = [averages(complete), claims(complete), *made, percent(complete), speedups(complete), parts(complete)]
    return [*made, checks(rows)]


def summary(rows: Sequence[dict]) -> tuple[tuple[str, ...], list[list[str]]]:
    """What a sweep prints at its end: the averages by strategy, or the scenarios if no strategy ran."""
    found = [outcome for outcome in outcomes(rows) if outcome.complete]
    chosen = averages(found) if strategies(found) else scenarios(found, None) if found else checks(rows)
    return chosen.headers, chosen.lines


def remarks(rows: Sequence[dict]) -> list[str]:
    """Sentences without which the averages would be misread."""
    scaled = sum(row["verified"] == "scaled" for row in rows)
    said = [clock_words(row["clock"] for row in rows)]
    apart = [m for row in rows if row["kind"] == KIND and good(row) for m in [Measured(row)] if _never_together(m)]
    if apart:
        names = ", ".join(dict.fromkeys(m.label for m in apart))
        said.append(
            f"{len(apart)} host-driven rows ({names}) had GPUs whose parts did not overlap: they were too short"
        )
    for who in {str(by): by for row in rows if (by := row["parameters"].get("gemm_by")) and "stamps" in by}.values():
        said.append(
            f"GEMMs by {who['name']} {who['version']}: their times are between stamps, which add {who['stamps']} ns"
        )
    if scaled:
        said.append(f"{scaled} rows are scaled: the same plans were verified at a smaller size, in this command")
    return said


def _never_together(measured: Measured) -> bool:
    both = {work.part for work in measured.works} >= set(ticks.PARTS)
    return measured.row["launch"] == "host" and both and min(measured.overlaps()) == 0


def averages(found: Sequence[Outcome]) -> Table:
    """Per cent of ideal beside the paper's."""
    lines = []
    for name in strategies(found):
        having = [outcome.results[name] for outcome in found if name in outcome.results]
        published = paper.PERCENT_OF_IDEAL.get(name)
        average = average_percent(found, name)
        each = [result.percent.value for result in having]
        lines.append(
            [
                name,
                "-" if average is None else average.show(".1f"),
                "-" if published is None else str(published),
                f"{min(each):.1f}",
                f"{max(each):.1f}",
                f"{statistics.fmean(result.speedup.value for result in having):.3f}",
                f"{max(result.speedup.value for result in having):.3f}",
                str(len(having)),
                "fastest split" if any(result.oracle for result in having) else "",
            ]
        )
    headers = ("strategy", "% of ideal", "paper", "least", "most", "mean S", "best S", "scenarios", "oracle")
    return Table(
        "averages",
        "Average per cent of ideal, beside the paper's",
        headers,
        lines,
        f"Tc is the collective by {who_sets_tc(found)}, for every strategy. The paper's averages are over its own 30 "
        "scenarios, which are not public and not these. An oracle knows all its splits' times.",
    )


def claims(found: Sequence[Outcome]) -> Table:
    """The paper's other figures beside the same of these rows."""
    lines = []

    def add(what: str, here: float | None, published: float) -> None:
        lines.append([what, "-" if here is None else f"{here:.3f}", f"{published:g}"])

    def mean_speedup(name: str, chosen: Sequence[Outcome]) -> float | None:
        values = [outcome.results[name].speedup.value for outcome in chosen if name in outcome.results]
        return statistics.fmean(values) if values else None

    best = [o.results[name].speedup.value for o in found for name in ("conccl", "conccl_rp") if name in o.results]
    add("best speedup of ConCCL", max(best) if best else None, paper.BEST_SPEEDUP)
    add("c3_base, mean speedup", mean_speedup("c3_base", found), paper.BASE_SPEEDUP)
    all_to_all = [outcome for outcome in found if outcome.scenario["collective"] == "all-to-all"]
    for name, published in paper.ALL_TO_ALL_SPEEDUP.items():
        add(f"{name}, all-to-all, mean speedup", mean_speedup(name, all_to_all), published)
    return Table("claims", "Other published figures", ("figure", "here", "paper"), lines)


def scenarios(found: Sequence[Outcome], machine: Machine | None) -> Table:
    lines = []
    for o in found:
        collective = o.bound_of_collective()
        lines.append(
            [
                o.name,
                o.scenario["gemm"],
                o.scenario["collective"],
                format_size(o.scenario["nbytes"]),
                us(o.rows["gemm"].times),
                us(o.collective),
                us(o.rows["engines"].times) if "engines" in o.rows else "-",
                o.ideal.show(".3f"),
                f"{o.duration.label}, {_median(o.gemm) / _median(o.collective):.3f}",
                f"{gemm_bound(o, machine).label}, {_intensity(o):.0f}" if machine else "-",
                f"{collective.label}, {_median(o.kernels) / _median(o.rows[QUARTERS['kernels']].times):.3f}"
                if collective
                else "-",
            ]
        )
    headers = (
        "scenario,GEMM,collective,bytes,Tg us,Tc us,Tc engines us,S ideal,longer: Tg / Tc,"
        "GEMM is: operations a byte,collective is: time over a quarter's"
    )
    note = (
        "G-long and C-long: Tg / Tc is above 1.15, or below 1 / 1.15. The collective (by kernels) is latency-bound if "
        "its time is at most 1.15 of the time that a quarter of its bytes takes."
    )
    if machine:
        note += (
            f" The GEMM is compute-bound from {machine.flops / machine.bandwidth:.1f} operations a byte on: this "
            f"machine's balance, of {machine.flops / 1e12:.4g} TFLOP/s and {machine.bandwidth / 1e12:.4g} TB/s."
        )
    return Table("scenarios", "Scenarios, isolated times (medians) and classes", tuple(headers.split(",")), lines, note)


def gemm_bound(outcome: Outcome, machine: Machine) -> taxonomy.Verdict:
    return taxonomy.bound_of_gemm(_intensity(outcome), machine.flops, machine.bandwidth)


def _intensity(outcome: Outcome) -> float:
    return outcome.scenario["flops"] / outcome.scenario["gemm_bytes"]


def _median(times: Sequence[float]) -> float:
    return float(statistics.median(times))


def _by_scenario(found: Sequence[Outcome], cell, last=None) -> tuple[tuple[str, ...], list[list[str]]]:
    names = strategies(found)
    lines = [[o.name, *(cell(o.results[n]) if n in o.results else "-" for n in names)] for o in found]
    if last:
        for line, outcome in zip(lines, found):
            line.append(last(outcome))
    return ("scenario", *names), lines


def percent(found: Sequence[Outcome]) -> Table:
    headers, lines = _by_scenario(found, lambda result: result.percent.show(".0f"))
    return Table("percent_of_ideal", "Per cent of ideal", headers, lines, _INTERVAL)


_INTERVAL = "In brackets the bootstrap interval of 95 %, where there is more than one sample."


def speedups(found: Sequence[Outcome]) -> Table:
    def winners(outcome: Outcome) -> str:
        first, *others = outcome.fastest() or ["-"]
        return first + (f" (ties: {', '.join(others)})" if others else "")

    headers, lines = _by_scenario(found, lambda result: _with_variant(result), winners)
    return Table(
        "speedups",
        "Speedup over the isolated times one after the other",
        (*headers, "fastest"),
        lines,
        f"{_INTERVAL} After a slash the split that was fastest. What is slower than the fastest by less than the "
        "interval of the difference is a tie.",
    )


def _with_variant(result) -> str:
    variant = "".join(f"/{value}" for value in result.best.variant.values())
    return result.speedup.show(".3f") + variant


def parts(found: Sequence[Outcome]) -> Table:
    def cell(result) -> str:
        return f"{result.gemm_slowdown.value:.2f} {result.collective_slowdown.value:.2f} {result.overlap:.0%}"

    headers, lines = _by_scenario(found, cell)
    return Table(
        "parts",
        "Slowdown of the GEMM and of the collective while both ran, and their overlap",
        headers,
        lines,
        "Time of the part over its isolated time (of kernels or engines, whoever carried it). Overlap: of the shorter "
        "part's running time, the least of any GPU, by ticks.",
    )


def checks(rows: Iterable[dict]) -> Table:
    """What the rows are worth: how they were verified, launched and timed, and what was wrong."""
    groups: dict[tuple, list[dict]] = {}
    for row in rows:
        if row["kind"] == KIND:
            groups.setdefault((row["parameters"]["strategy"], row["launch"], row["clock"]), []).append(row)
    lines = []
    for (name, launch, clock), each in groups.items():
        verified = [row["verified"] for row in each]
        lines.append(
            [
                name,
                launch,
                clock,
                str(len(each)),
                *(str(verified.count(word)) for word in ("full", "scaled", "none")),
                str(sum(_packets_as_planned(row) for row in each)),
                str(sum(not good(row) for row in each)),
            ]
        )
    headers = ("strategy", "launch", "clock", "rows", "full", "scaled", "none", "packets as planned", "left out")
    return Table("checks", "What was verified", headers, lines)


def _packets_as_planned(row: dict) -> bool:
    planned, counted = row["packets"]["planned"], row["packets"]["counted"]
    return counted is not None and all(counted.get(name) == number for name, number in planned.items())


def failures(rows: Iterable[dict]) -> list[str]:
    """In words what was wrong with the rows that are left out."""
    wrong = [row for row in rows if not good(row)]
    return [f"{Measured(row).scenario} {Measured(row).label}: {row['error'] or 'not verified'}" for row in wrong]


def us(times: Sequence[float]) -> str:
    return f"{statistics.median(times) / 1e3:.1f}"
