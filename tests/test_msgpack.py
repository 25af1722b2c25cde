import pytest

from hsakit import msgpack

VALUES = [
    ("00", 0),
    ("7f", 127),
    ("ff", -1),
    ("e0", -32),
    ("cc 80", 128),
    ("cd 0100", 256),
    ("ce 00010000", 65536),
    ("cf 8000000000000000", 1 << 63),
    ("d0 80", -128),
    ("d1 8000", -32768),
    ("d2 80000000", -(1 << 31)),
    ("d3 8000000000000000", -(1 << 63)),
    ("ca 3fc00000", 1.5),
    ("cb 3ff8000000000000", 1.5),
    ("c0", None),
    ("c2", False),
    ("c3", True),
    ("a0", ""),
    ("a3 2e6b64", ".kd"),
    ("d9 03 2e6b64", ".kd"),
    ("da 0003 2e6b64", ".kd"),
    ("db 00000003 2e6b64", ".kd"),
    ("c4 02 00ff", b"\x00\xff"),
    ("c5 0002 00ff", b"\x00\xff"),
    ("c6 00000002 00ff", b"\x00\xff"),
    ("93 01 90 80", [1, [], {}]),
    ("dc 0002 01 02", [1, 2]),
    ("dd 00000002 01 02", [1, 2]),
    ("82 a1 61 01 a1 62 92 02 03", {"a": 1, "b": [2, 3]}),
    ("de 0001 a1 61 01", {"a": 1}),
    ("df 00000001 a1 61 01", {"a": 1}),
]


@pytest.mark.parametrize("encoded, value", VALUES)
def test_values_of_every_format(encoded, value):
    data = bytes.fromhex(encoded)
    decoded = msgpack.decode(data + b"\0\0\0")  # as padded in a note
    assert decoded == value and type(decoded) is type(value)


@pytest.mark.parametrize("encoded", [encoded for encoded, _ in VALUES])
def test_a_value_cut_short(encoded):
    data = bytes.fromhex(encoded)
    for size in range(len(data)):
        with pytest.raises(msgpack.Error):
            msgpack.decode(data[:size])


@pytest.mark.parametrize("encoded", ["c1", "d4 00 00", "c7 00 00", "a1 ff", "81 90 00", "91" * 5000])
def test_what_is_refused(encoded):
    with pytest.raises(msgpack.Error):
        msgpack.decode(bytes.fromhex(encoded))
