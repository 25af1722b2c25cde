import pytest

from hsakit.check.assumed import Assumed
from hsakit.ffi.errors import InvalidArgument

FILE = """
gpus = 2
[gpu]
xccs = 2
shader_engines = 3
cus = 8
clock_mhz = 1000
[xgmi]
max_bandwidth = 50000
[pcie]
max_bandwidth = 64000
[cu_rates]
matrix = { bf16 = 2048 }
[model]
hbm_gb_s = 1600
link_efficiency = 0.96
engine_start_ns = 2400
engine_packet_ns = 300
[model.untuned]
beta = 1
engine_headroom = 1
[model.calibrated]
beta = 2
engine_headroom = 1.25
"""


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "node.toml"
        path.write_text(text)
        return str(path)

    return write


def test_what_follows_from_a_node_file(file):
    assumed = Assumed(file(FILE))
    assert (assumed.gpus, assumed.cus, assumed.link_gb_s, assumed.engine_gb_s) == (2, 16, 48.0, 60.0)
    assert assumed.engine_cus == ((3, 3, 2), (3, 3, 2))
    assert assumed.engine_wait_ns == 2700
    assert [assumed.hbm_gb_s_of(cus) for cus in (2, 8, 16)] == [400.0, 1600.0, 1600.0]
    assert assumed.peak_tflop_s("bf16") == pytest.approx(2048 * 16 * 1e9 / 1e12)
    assert assumed.recommended(0, 1) is None and assumed.beta == 2
    with pytest.raises(AttributeError):
        assumed.gamma  # noqa: B018


def test_what_is_wrong_with_one_is_said(file, tmp_path):
    for text in ("gpus = [", FILE.replace("[xgmi]", "[other]"), FILE.replace("beta = 2\n", 'beta = "two"\n')):
        with pytest.raises(InvalidArgument, match="node.toml"):
            Assumed(file(text))
    with pytest.raises(InvalidArgument, match="no-such-node"):
        Assumed("no-such-node")
    with pytest.raises(InvalidArgument, match="missing.toml"):
        Assumed(str(tmp_path / "missing.toml"))
