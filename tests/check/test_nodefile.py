import sys

import pytest

from hsakit.check.nodefile import rewrite

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TEXT = """# A node.
name = "a"
gpus = 8

[gpu]
cus = 38  # documented
caches = [
    { level = 1, type = "data" },  # of a CU ]
    { level = 2, type = "data" },
]
clock_mhz = 2100

[model]
hbm_gb_s = 4200  # published

[model.untuned]
beta = 1.8

[model.calibrated]
beta = 2.1  # calibrated

[recommended_engines]
table = [
    [-1, 14],
    [14, -1],
]
"""


def test_measured_values_replace_and_say_so():
    out = rewrite(
        TEXT,
        {
            "name": "b",
            "gpus": 2,
            "gpu.cus": 40,
            "gpu.caches": [1],
            "gpu.engine_cus": [[10, 9]],
            "model.hbm_gb_s": 4123.456,
            "model.beta": 2.0469,
            "model.host_copy_ns": 12345.6,
            "recommended_engines.table": [[-1, 2], [2, -1]],
        },
        "measured",
    )
    data = tomllib.loads(out)
    assert (data["name"], data["gpus"]) == ("b", 2)
    assert data["gpu"] == {"cus": 40, "caches": [1], "clock_mhz": 2100, "engine_cus": [[10, 9]]}
    assert data["model"] == {
        "hbm_gb_s": 4123,
        "host_copy_ns": 12346,
        "untuned": {"beta": 2.047},
        "calibrated": {"beta": 2.047},
    }
    assert data["recommended_engines"]["table"] == [[-1, 2], [2, -1]]
    assert "cus = 40  # measured" in out and "# documented" not in out and "# A node." in out


def test_nothing_measured_changes_nothing():
    assert rewrite(TEXT, {}, "measured") == TEXT


@pytest.mark.parametrize("value", [True, 1.5, 'a "b"\\', 1e-5, 123456.0])
def test_values_are_toml(value):
    assert tomllib.loads(rewrite("a = 1\n", {"a": value}, ""))["a"] == value


def test_a_table_that_is_not_there_is_added():
    assert tomllib.loads(rewrite(TEXT, {"pcie.weight": 20}, "measured"))["pcie"] == {"weight": 20}
