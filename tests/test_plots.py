"""Pictures, where matplotlib is there; without it, what the error says."""

import pytest

from hsakit import plots
from hsakit.figure import Figure, HeatMap, Series

LINES = Figure(
    "lines", "Lines", "A caption. " * 30, "x", "y",
    (Series("one", (64, 4096), (1.0, 2.0), ((0.5, 1.5), None)), Series("two", (64, 4096), (3.0, 0.1))),
    log_x=True, log_y=True, lines={"par": 1.0}, words="{:.0f} B".format,
)  # fmt: skip
BARS = Figure("bars", "Bars", "", "", "y", (Series("one", ("a", "b"), (1.0, -2.0)),), bars=True)
HEAT = HeatMap("heat", "Heat", "", "x", "y", "GB/s", ("0-1", "0-2"), ("2",), ((1.0, None),))


@pytest.mark.parametrize("name", ["p.txt", "p", "png"])
def test_a_picture_is_png_or_svg(tmp_path, name):
    with pytest.raises(plots.PlotError, match=r"\*\.png or \*\.svg"):
        plots.check_path(tmp_path / name)


def test_a_picture_is_in_a_folder_that_is_there(tmp_path):
    with pytest.raises(plots.PlotError, match="there is no folder"):
        plots.check_path(tmp_path / "no" / "p.png")


def test_without_matplotlib_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "available", lambda: False)
    with pytest.raises(plots.PlotError, match=r"pip install 'hsakit\[plot\]'"):
        plots.draw([LINES], tmp_path / "p.png")


def test_several_figures_are_one_picture(tmp_path):
    pytest.importorskip("matplotlib", reason="an optional dependency: pip install 'hsakit[plot]'")
    plots.draw([LINES, BARS, HEAT], tmp_path / "p.png", captions=True)
    assert (tmp_path / "p.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    for name in ("a.svg", "b.svg"):
        plots.draw([LINES, BARS, HEAT], tmp_path / name)
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text() and "<svg" in text and "Date" not in text


def test_names_along_an_axis_have_room():
    sizes = [4096 << 2 * i for i in range(10)]
    assert plots._apart([*sizes, (1 << 20) + 8, 0]) == sizes
    assert len(plots._apart(range(8, 305, 8))) <= plots._TICKS + 1
    assert plots._apart([]) == [] and plots._apart([5, 5]) == [5]
