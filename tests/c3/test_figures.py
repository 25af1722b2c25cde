"""What the plots show, by hand; the drawing itself where matplotlib is there."""

import pytest

from hsakit import plots
from hsakit.c3.figures import figures
from hsakit.c3.outcome import outcomes


def named(rows):
    return {figure.name: figure for figure in figures(outcomes(rows))}


def test_figures_come_in_the_papers_order(rows):
    assert list(named(rows)) == [
        "fig06_bandwidth",
        "fig07_ideal",
        "fig08_strategies",
        "fig09_engines",
        "fig10_conccl",
        "strategies_all",
        "average_percent_of_ideal",
    ]


def test_every_caption_names_the_clock(rows, row):
    for figure in figures(outcomes(rows)):
        assert "Clock: device (ticks of the GPUs)." in figure.caption
    modelled = [row("gemm", [[(0, 6), None]], clock="model"), row("kernels", [[None, (0, 4)]], clock="model")]
    assert "no measurement" in figures(outcomes(modelled))[0].caption


@pytest.mark.parametrize("name", ["fig06_bandwidth", "fig07_ideal", "average_percent_of_ideal"])
def test_captions_name_who_sets_tc(rows, row, name):
    assert "by kernels" in named(rows)[name].caption
    caption = named([*rows, row("nccl", [[None, (0, 2000)]] * 3)])[name].caption
    assert "by NCCL" in caption and "by kernels" not in caption


def test_points(rows):
    drawn = named(rows)
    assert [s.name for s in drawn["fig08_strategies"].series] == ["c3_base", "c3_rp", "ideal"]
    assert drawn["fig08_strategies"].series[1].y[0] == pytest.approx(10 / 7)
    assert drawn["fig07_ideal"].series[0].x == ("s1-ag",)
    engines = drawn["fig09_engines"].series[0]
    assert (engines.name, engines.x, engines.y) == ("all-gather", (1.0,), (1.25,))
    here, paper = drawn["average_percent_of_ideal"].series
    assert here.x == ("c3_base", "c3_rp", "conccl") and paper.y == (21.0, 41.0, 66.0)
    gemm, collective = drawn["fig06_bandwidth"].series
    assert gemm.y[0] == pytest.approx(3 * 512 * 512 * 2 / 6000)  # bytes a nanosecond are GB/s
    assert collective.y[0] == pytest.approx((1 << 20) / 4000)


def test_without_isolated_times_nothing_is_drawn(rows):
    assert figures(outcomes(rows[2:])) == []


def test_drawn_files_are_pictures(rows, tmp_path):
    pytest.importorskip("matplotlib", reason="an optional dependency: pip install 'hsakit[plot]'")
    for figure in figures(outcomes(rows)):
        plots.draw([figure], tmp_path / "a.png")
        assert (tmp_path / "a.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_without_matplotlib_the_error_says_what_to_install(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "available", lambda: False)
    with pytest.raises(plots.PlotError, match="pip install"):
        plots.draw(figures(outcomes(rows)), tmp_path / "a.png")
