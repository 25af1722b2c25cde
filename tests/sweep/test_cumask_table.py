"""The table of a cu-mask sweep, and the sentences with it."""

from hsakit.sweep.cumask_table import remarks, table


def row(mask="all", ns=1000, cus=304, api="hsa", error=None, clock="device", reference="pattern", **parameters):
    p = {
        "gpu": 0,
        "api": api,
        "load": "copy 4096B",
        "label": "copy 4K",
        "mask": mask,
        "cus": cus,
        "notes": [],
        "census": {"cus": cus},
        "reference": reference,
        "waves": 9728,
        "waves_a_cu": 9728 / cus,
        "waves_a_cu_holds": 32,
    }
    return {
        "parameters": p | parameters,
        "samples": [[[0, ns]], [[0, 2 * ns]], [[0, ns]]],
        "verified": "none" if error or reference in ("unmasked run", "nothing") else "full",
        "error": error,
        "clock": clock,
    }


def column(rows, name):
    headers, lines = table(rows)
    return [line[headers.index(name)] for line in lines]


def test_slowdown_is_against_all_cus_of_the_same_api():
    rows = [row(), row("8", 4000, 8), row(api="hip", ns=2000), row("8", 4000, 8, api="hip")]
    assert column(rows, "slowdown") == ["1.00", "4.00", "1.00", "2.00"]
    assert column(rows, "median us") == ["1.0", "4.0", "2.0", "4.0"]
    assert column(rows, "spread") == ["100%"] * 4
    assert column(rows, "waves a CU") == ["32", "1.22e+03", "32", "1.22e+03"]
    assert column(rows, "used (census)") == [304, 8, 304, 8]
    assert all(len(line) == len(table(rows)[0]) for line in table(rows)[1])


def test_without_the_run_on_all_cus_there_is_no_slowdown():
    assert column([row(error="wrong bytes"), row("8", cus=8)], "slowdown") == [None, None]


def test_a_point_that_failed_has_no_times():
    failed = row("8", cus=8, error="wrong bytes", census=None)
    del failed["parameters"]["waves"]
    rows = [row(), failed]
    assert column(rows, "median us") == ["1.0", None]
    assert column(rows, "verified") == ["full", "none"]
    assert column(rows, "used (census)") == [304, None]


def test_what_verified_says():
    rows = [row(), row(reference="unmasked run"), row(reference="nothing")]
    assert column(rows, "verified") == ["full", "as unmasked run", "none"]


def test_nothing_to_remark():
    assert remarks([row(), row("8", cus=8)]) == []


def test_remarks():
    said = remarks([row(clock="model"), row("8", cus=8, clock="model")])
    assert len(said) == 1 and "no measurement" in said[0]
    (said,) = remarks([row(waves_a_cu=31.9), row("64", cus=64, waves_a_cu=150)])
    assert said.startswith("copy 4K: 31.9 waves a CU, which holds 32: not saturated")
    said = remarks([row(notes=["HSA_CU_MASK takes away 8 of the 16 CUs"])] * 2)
    assert said == ["hsa: HSA_CU_MASK takes away 8 of the 16 CUs"]
    assert "without a mask" in remarks([row(reference="unmasked run")])[0]
    assert "no output" in remarks([row(reference="nothing")])[0]
