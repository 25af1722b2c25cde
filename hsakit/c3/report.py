"""A folder that says what a sweep found: rows, tables as text and CSV, plots, and one page as HTML and as Markdown."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hsakit import plots
from hsakit.c3 import classes, interference, judged
from hsakit.c3.figures import figures
from hsakit.c3.heuristics import Machine
from hsakit.c3.outcome import KIND, outcomes
from hsakit.c3.tables import Table, failures, tables
from hsakit.ffi.errors import HsakitError
from hsakit.figure import Figure, clock_words
from hsakit.results import latest, read

ROWS = "rows.jsonl"
SLOWDOWNS = "slowdowns.json"  # the table for heuristics that was made from the rows


class ReportError(HsakitError):
    """There is nothing to report on."""


@dataclass(frozen=True)
class Report:
    """What was written: the page, and why there are no plots if there are none."""

    page: Path
    tables: list[Table]
    figures: list[Figure]
    without_plots: str | None


def write(folder: Path | str) -> Report:
    """Write the report of the rows in ``folder``/rows.jsonl beside them. Needs no ROCm; plots need matplotlib."""
    folder = Path(folder)
    source = folder / ROWS
    if not source.is_file():
        raise ReportError(f"{folder} has no {ROWS}: a sweep with --out {folder} writes it")
    rows = latest(read(source))
    chosen = [row for row in rows if row["kind"] in (KIND, interference.KIND)]
    if not chosen:
        raise ReportError(f"{source} has no rows of a c3 or interference sweep")
    of_c3, disturbed = ([row for row in chosen if row["kind"] == kind] for kind in (KIND, interference.KIND))
    found = outcomes(of_c3)
    machine = machine_of(of_c3)
    made, drawn = tables(of_c3, found, machine) if of_c3 else [], figures(found)
    if of_c3:
        made[-1:-1] = classes.tables(found)
    if disturbed:
        made.append(interference.as_table(disturbed))
        drawn += interference.figures(disturbed)
    if machine:
        slowdowns = judged.table_of(found, machine)
        if any((judgements := judged.judge(found, slowdowns, machine)).values()):
            made.insert(-1, judged.as_table(judgements, slowdowns))
            slowdowns.save(folder / SLOWDOWNS)
    for table in made:
        (folder / f"{table.name}.txt").write_text(f"{table.title}\n\n{table.text()}\n\n{table.note}".rstrip() + "\n")
        (folder / f"{table.name}.csv").write_text(table.csv())
    without = None
    if plots.available():
        for figure in drawn:
            plots.draw([figure], folder / f"{figure.name}.png")
    elif drawn:
        without = "no plots: they need matplotlib (pip install 'hsakit[plot]')"
    head = _head(chosen)
    (folder / "report.md").write_text(_markdown(head, made, drawn, failures(chosen), without))
    page = folder / "report.html"
    page.write_text(_html(head, made, drawn, failures(chosen), without, folder))
    return Report(page, made, drawn, without)


def machine_of(rows: Sequence[dict]) -> Machine | None:
    """The machine's measured rates, if the rows have them."""
    for row in rows:
        if (rates := row["parameters"].get("machine")) is not None:
            return Machine(**rates)
    return None


_TITLE = "Concurrent computation and communication"
_ORDER = "Definitions and strategies are those of arXiv 2412.14335; scenarios are this project's own, not the paper's."


def _head(rows: Sequence[dict]) -> list[str]:
    """What holds for all of it."""
    one = rows[0]
    runs = sorted({len(row["samples"]) for row in rows if row["error"] is None})
    lines = [
        clock_words(row["clock"] for row in rows),
        f"{len({row['parameters']['scenario']['name'] for row in rows})} scenarios, {len(rows)} rows, GPUs: "
        f"{', '.join(map(str, sorted({row['parameters']['gpus'] for row in rows})))}; measured runs a row: "
        f"{', '.join(map(str, runs)) or 'none'}.",
        "Versions: " + ", ".join(f"{name} {value}" for name, value in one["versions"].items()) + ".",
    ]
    if one["environment"]:
        lines.append("Environment: " + ", ".join(f"{k}={v}" for k, v in one["environment"].items()) + ".")
    if any(row["clock"] == "model" for row in rows):
        lines.append(
            "Modelled times have one sample: identical samples would be no dispersion. Unless the environment names "
            "other constants, those of the model were calibrated on the paper's averages: nearness proves nothing."
        )
    return [*lines, _ORDER]


def _markdown(head, made, drawn, failed, without) -> str:
    out = [f"# {_TITLE}", *head, *([f"**{len(failed)} rows are left out**"] if failed else [])]
    out += [f"- {line}" for line in failed]
    if without:
        out.append(without)
    for table in made:
        out += [f"## {table.title}", _markdown_table(table), table.note]
    for figure in drawn:
        out.append(f"## {figure.title}")
        if not without:
            out.append(f"![{figure.title}]({figure.name}.png)")
        out.append(figure.caption)
    return "\n\n".join(part for part in out if part) + "\n"


def _markdown_table(table: Table) -> str:
    lines = [table.headers, ["---", *["---:"] * (len(table.headers) - 1)], *table.lines]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
h2 { margin-top: 2.2rem }
img { max-width: 100% }
.table { overflow-x: auto }
table { border-collapse: collapse; font-size: 13px }
th, td { padding: .2rem .6rem; text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left }
th { border-bottom: 1px solid #888 }
tr:nth-child(even) td { background: #f6f6f6 }
.note { color: #555; font-size: 13px }
.wrong { color: #a00 }
"""


def _html(head, made, drawn, failed, without, folder: Path) -> str:
    def text(words: str) -> str:
        return html.escape(words)

    out = [f"<!doctype html><html lang=en><meta charset=utf-8><title>{_TITLE}</title><style>{_STYLE}</style>"]
    out += [f"<h1>{_TITLE}</h1>", *(f"<p>{text(line)}</p>" for line in head)]
    if failed:
        out.append(f"<p class=wrong><b>{len(failed)} rows are left out:</b></p><ul>")
        out += [f"<li>{text(line)}</li>" for line in failed]
        out.append("</ul>")
    if without:
        out.append(f"<p class=wrong>{text(without)}</p>")
    for table in made:
        out.append(f"<h2>{text(table.title)}</h2><div class=table><table><tr>")
        out += [f"<th>{text(each)}</th>" for each in table.headers]
        out.append("</tr>")
        out += ["<tr>" + "".join(f"<td>{text(cell)}</td>" for cell in line) + "</tr>" for line in table.lines]
        out.append(f"</table></div><p class=note>{text(table.note)}</p>")
    for figure in drawn:
        out.append(f"<h2>{text(figure.title)}</h2>")
        if not without:  # else a picture that lies there is of other rows
            data = base64.b64encode((folder / f"{figure.name}.png").read_bytes()).decode()
            out.append(f'<img alt="{text(figure.title)}" src="data:image/png;base64,{data}">')
        out.append(f"<p class=note>{text(figure.caption)}</p>")
    return "\n".join(out) + "\n"
