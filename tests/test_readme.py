"""The script that the README opens with is run as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def script() -> str:
    (found,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    return found


def test_it_is_short(script):
    assert len(script.splitlines()) <= 30


@pytest.mark.node
def test_it_runs(script, tmp_path):
    path = tmp_path / "by_hand.py"
    path.write_text(script)
    done = subprocess.run(
        [sys.executable, str(path)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"1000003 bytes from GPU 0 to GPU 1 on engine 2 in [0-9.]+ us, all right\n", done.stdout)
    assert done.stderr == ""


def test_links_lead_somewhere():
    text = (ROOT / "README.md").read_text()
    for target in re.findall(r"\]\(((?!https?:)[^)#]+)", text):
        assert (ROOT / target).exists(), target


def test_make_targets_and_tools_exist():
    text = (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"\bmake (\w+)\b", text)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for tool in set(re.findall(r"\btools/\w+\.py", text)):
        assert os.access(ROOT / tool, os.X_OK), tool
