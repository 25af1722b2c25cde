"""The device library's functions, compiled for the part and executed, against the host's in double precision."""

from __future__ import annotations

import math
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from hsakit import compiler

HERE = Path(__file__).parent
N = 4096
TYPES = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


class Maps:
    def __init__(self, runtime, stack: ExitStack, *more_flags: str):
        gpu = runtime.gpus[0]
        flags = (*(flag for flag in compiler.FLAGS if flag != "-nogpulib"), *more_flags)
        path = compiler.build(HERE / "math.hip", gpu.target.partition(":")[0], flags)
        self._executable, self._queue = stack.enter_context(gpu.load(path)), stack.enter_context(gpu.create_queue(64))
        self._done = stack.enter_context(runtime.create_signal(1))
        self._buffers = [
            stack.enter_context(runtime.cpus[0].pool("fine").allocate(8 * N, access=runtime.gpus)) for _ in range(3)
        ]

    def __call__(self, name: str, a: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
        arrays = [buffer.view(a.dtype)[: len(a)] for buffer in self._buffers]
        arrays[1][:] = a
        arrays[2][:] = a if b is None else b
        self._done.store(1)
        launch = self._executable.kernel(name).prepare(len(a) // 256, 256, self._buffers)
        launch.launch(self._queue, self._done)
        self._done.wait(deadline=60)
        return arrays[0].copy()


@pytest.fixture(scope="module")
def maps(runtime):
    with ExitStack() as stack:
        yield Maps(runtime, stack)


def places(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """How far off, in units of the last place of the type."""
    dtype = got.dtype.type
    with np.errstate(all="ignore"):
        near = want.astype(dtype)
        size = np.maximum(np.abs(near), np.finfo(dtype).tiny)
        unit = np.spacing(np.where(np.isfinite(size), size, dtype(1))).astype(np.longdouble)
        off = np.abs(got.astype(np.longdouble) - want.astype(np.longdouble)) / unit
    same = (got == near) | np.isnan(got) & np.isnan(near)
    return np.where(same, 0, np.where(np.isfinite(off), off, np.inf))


def arguments(size: str, low: float, high: float, seed: int = 1) -> np.ndarray:
    """Numbers between the two, evenly and by magnitude; zeros, infinities and NaN."""
    rng = np.random.default_rng(seed)
    even = rng.uniform(low, high, N // 2)
    reach = min(max(abs(low), abs(high)), 1e4 if size == "f16" else 1e30)
    scaled = np.exp(rng.uniform(math.log(1e-4 if size == "f16" else 1e-30), math.log(reach), N // 2))
    scaled = scaled * (rng.choice([-1, 1], N // 2) if low < 0 else 1)
    x = np.concatenate([even, scaled])
    x[:6] = [0.0, 1.0, low, high, 0.5, 2.0]
    if low < 0:
        x[6:10] = [-0.0, -1.0, math.inf, -math.inf]
    x[10] = math.nan
    return x.astype(TYPES[size])


def by_math(function):
    """numpy lacks it."""

    def on_array(x):
        return np.array([function(float(value)) for value in x])

    return on_array


# function, range of the argument, how many units in the last place OpenCL allows (of f32, f64)
ONE = {
    "sin": (np.sin, -100, 100, 4),
    "cos": (np.cos, -100, 100, 4),
    "tan": (np.tan, -100, 100, 5),
    "exp": (np.exp, -80, 80, 3),
    "log": (np.log, 0, 1e6, 3),
    "log2": (np.log2, 0, 1e6, 3),
    "sqrt": (np.sqrt, 0, 1e6, 0.51),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 0, 1e6, 2),
    "cbrt": (np.cbrt, -1e6, 1e6, 2),
    "tanh": (np.tanh, -20, 20, 5),
    "sinh": (np.sinh, -80, 80, 4),
    "atan": (np.arctan, -1e3, 1e3, 5),
    "asin": (np.arcsin, -1, 1, 4),
    "erf": (by_math(math.erf), -5, 5, 16),
    "round": (lambda x: np.trunc(x + np.copysign(0.5, x)), -1e3, 1e3, 0),
    "rint": (np.rint, -1e3, 1e3, 0),
}


@pytest.mark.parametrize("size", ["f32", "f64"])
@pytest.mark.parametrize("name", ONE)
def test_functions(maps, name, size):
    function, low, high, allowed = ONE[name]
    x = arguments(size, low, high)
    got = maps(f"{name}_{size}", x)
    with np.errstate(all="ignore"):
        want = function(x.astype(np.longdouble))
    off = places(got, want)
    worst = int(off.argmax())
    assert off[worst] <= allowed, f"{name}({x[worst]!r}) = {got[worst]!r}, not {want[worst]!r}: {off[worst]} places"


def remainder(x, y):
    try:
        return math.remainder(x, y)
    except ValueError:
        return math.nan


TWO = {
    "pow": (np.power, (0.01, 100), (-10, 10), 16),
    "atan2": (np.arctan2, (-100, 100), (-100, 100), 6),
    "hypot": (np.hypot, (-1e4, 1e4), (-1e4, 1e4), 4),
    "fmod": (np.fmod, (-1e6, 1e6), (-50, 50), 0),
    "remainder": (lambda x, y: np.array([remainder(*pair) for pair in zip(x, y)]), (-1e6, 1e6), (-50, 50), 0),
}


@pytest.mark.parametrize("size", ["f32", "f64"])
@pytest.mark.parametrize("name", TWO)
def test_functions_of_two(maps, name, size):
    function, first, second, allowed = TWO[name]
    x, y = arguments(size, *first, seed=2), arguments(size, *second, seed=3)[::-1].copy()
    got = maps(f"{name}_{size}", x, y)
    with np.errstate(all="ignore"):
        want = function(x.astype(np.longdouble), y.astype(np.longdouble))
    off = places(got, want)
    worst = int(off.argmax())
    assert off[worst] <= allowed, f"{name}({x[worst]!r}, {y[worst]!r}) = {got[worst]!r}, not {want[worst]!r}"


@pytest.mark.parametrize("name", ["sin", "exp", "log", "sqrt", "tanh"])
def test_functions_of_halves(maps, name):
    function, low, high, _ = ONE[name]
    x = arguments("f16", max(low, -10), min(high, 10))
    got = maps(f"{name}_f16", x)
    with np.errstate(all="ignore"):
        want = function(x.astype(np.float64))
    off = places(got, want)
    assert off.max() <= (0.51 if name == "sqrt" else 2), (x[off.argmax()], got[off.argmax()], want[off.argmax()])


def floats(dtype, seed):
    """Any bits, and any near one."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 256, 8 * N, dtype=np.uint8).view(np.dtype(f"u{dtype().itemsize}"))[:N].copy()
    x = bits.view(dtype)
    x[: N // 2] = rng.uniform(-4, 4, N // 2)
    return x


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_quotients_are_correctly_rounded(maps, dtype):
    x, y = floats(dtype, 1), floats(dtype, 2)
    got = maps("divide_f32" if dtype is np.float32 else "divide_f64", x, y)
    with np.errstate(all="ignore"):
        want = x / y
    bits = np.dtype(f"u{dtype().itemsize}")
    assert ((got.view(bits) == want.view(bits)) | np.isnan(got) & np.isnan(want)).all()


def test_quotients_without_denormals(runtime):
    """The program's MODE flushes them, but for the steps of the division, which switch them on and off again."""
    x, y = floats(np.float32, 3), floats(np.float32, 4)
    with ExitStack() as stack:
        got = Maps(runtime, stack, "-fgpu-flush-denormals-to-zero")("divide_f32", x, y)

    def flush(a):
        return np.where(np.abs(a) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), a), a)

    with np.errstate(all="ignore"):
        want = flush(flush(x) / flush(y))
    assert ((got.view(np.uint32) == want.view(np.uint32)) | np.isnan(got) & np.isnan(want)).all()


def test_halves(maps):
    x, y = floats(np.float16, 1), floats(np.float16, 2)
    got = maps("divide_f16", x, y)
    with np.errstate(all="ignore"):
        want = (x.astype(np.float64) / y).astype(np.float16)
        assert places(got, want.astype(np.float64)).max() <= 1
        exact = x.astype(np.float64) * y + x  # no sum of these needs more than 53 bits
        want = exact.astype(np.float16)
    got = maps("contracted_f16", x, y)
    assert ((got == want) | np.isnan(got) & np.isnan(want)).all()


def integers(dtype, seed):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256, 8 * N, dtype=np.uint8).view(dtype)[:N].copy()
    return x >> rng.integers(0, 8 * dtype().itemsize, N).astype(dtype)  # of all sizes


def test_integer_division(maps):
    """Made of float reciprocals."""
    x, y = integers(np.uint32, 1), integers(np.uint32, 2)
    assert (maps("divide_u32", x, y) == x // (y | np.uint32(1))).all()
    x, y = integers(np.int32, 3), integers(np.int32, 4)
    want = np.trunc(x.astype(np.float64) / (y | np.int32(1))).astype(np.int64).astype(np.int32)
    assert (maps("divide_i32", x, y) == want).all()
    x, y = integers(np.uint64, 5), integers(np.uint64, 6)
    assert (maps("divide_u64", x, y) == x // (y | np.uint64(1))).all()
    assert (maps("modulo_u64", x, y) == x % (y >> np.uint64(40) | np.uint64(1))).all()


def test_conversions_of_64_bits(maps):
    x = integers(np.uint64, 7)
    x[:4] = [0, (1 << 64) - 1, (1 << 63) + (1 << 39), (1 << 24) + 1]
    signed = x.view(np.int64)
    assert (maps("float_of_u64", x) == x.astype(np.float32).view(np.uint32)).all()
    assert (maps("float_of_i64", x) == signed.astype(np.float32).view(np.uint32)).all()
    assert (maps("double_of_u64", x) == x.astype(np.float64).view(np.uint64)).all()
    assert (maps("double_of_i64", x) == signed.astype(np.float64).view(np.uint64)).all()
    rng = np.random.default_rng(8)
    v = np.ldexp(rng.uniform(-1, 1, N), rng.integers(-3, 63, N))
    assert (maps("u64_of_double", v) == np.trunc(np.abs(v))).all()
    assert (maps("i64_of_float", v) == np.trunc(v.astype(np.float32).astype(np.float64))).all()
