from hsakit.check.finding import BESIDE, DIFFERS, OK, UNMEASURED, at_most, beside, near, same, unmeasured


def test_verdicts():
    assert near("rate", 48.0, 43.5, "GB/s").verdict == near("rate", 48.0, 52.5, "GB/s").verdict == OK
    assert near("rate", 48.0, 43.0, "GB/s").verdict == near("rate", 48.0, 53.0, "GB/s").verdict == DIFFERS
    assert near("rate", 48.0, 43.0, "GB/s", within=0.25).verdict == OK
    assert "25%" in near("rate", 48.0, 43.0, "GB/s", within=0.25).note
    assert [at_most("late", 5, late, "ns").verdict for late in (-1, 0, 5, 6)] == [DIFFERS, OK, OK, DIFFERS]
    assert same("engines", "2-15", "2-15").verdict == OK and same("engines", "2-15", "2-9").verdict == DIFFERS
    assert beside("lost", 17, 99, "%").verdict == BESIDE
    assert unmeasured("rate", 1, "no GPU").verdict == UNMEASURED


def test_constants_have_the_paths_of_a_node_file():
    found = near("rate", 1.0, 1.0, "", model__beta=2.0, gpus=8, xgmi__weight=None)
    assert found.constants == {"model.beta": 2.0, "gpus": 8}
