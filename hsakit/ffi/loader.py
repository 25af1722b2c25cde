"""Find and open AMD's libraries, and CUDA's driver, on first use.

``hsa()``, ``hip()`` and ``cuda()`` return the process's one ``Library`` each. Its ``lib`` has the C functions under
their C names.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from hsakit.ffi import node_choice
from hsakit.ffi._cuda import ffi as _cuda_ffi
from hsakit.ffi._hip import ffi as _hip_ffi
from hsakit.ffi._hsa import ffi as _hsa_ffi
from hsakit.ffi.errors import LibraryNotFound, SymbolMissing

HSA_NAMES = ("libhsa-runtime64.so.1",)
CUDA_NAMES = ("libcuda.so.1",)
NCCL_NAMES = ("libnccl.so.2",)
CUBLASLT_NAMES = ("libcublasLt.so.13",)
ROCBLAS_NAMES = ("librocblas.so.5", "librocblas.so.4", "librocblas.so.3", "librocblas.so.0")
HIPBLASLT_NAMES = ("libhipblaslt.so.1", "libhipblaslt.so.0")
HIP_NAMES = ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5")

# Functions that a library still in use may lack: symbol -> (library, first release that has it).
OPTIONAL = {
    "hsa_amd_memory_async_copy_on_engine": ("libhsa-runtime64", "ROCm 5.6"),
    "hsa_amd_memory_copy_engine_status": ("libhsa-runtime64", "ROCm 5.6"),
    "hsa_amd_memory_get_preferred_copy_engine": ("libhsa-runtime64", "ROCm 7.0"),
    "hipGetDevicePropertiesR0600": ("libamdhip64", "ROCm 6.0"),
    "cuMemcpyBatchAsync_v2": ("libcuda", "CUDA 13.0"),
}

_ADVICE = (
    "Run `make rocm` to put AMD's libraries into build/rocm and use build/rocm/python, "
    "or set ROCM_PATH to a ROCm installation (6.1 or later)."
)


_CUDA_ADVICE = "It comes with NVIDIA's driver (CUDA 13.0 or later), not with a toolkit."


class Library:
    """An opened library: ``ffi``, ``lib`` (its functions), ``path`` (the file), ``searched`` (what failed before)."""

    def __init__(self, ffi, raw, probe: str, name: str, searched: list[tuple[str, str]]):
        self.ffi = ffi
        self.name = name
        self.path = _file_of(int(ffi.cast("uintptr_t", getattr(raw, probe))))
        self.searched = searched
        self.lib = _Functions(raw, self)

    def __repr__(self) -> str:
        return f"<Library {self.path}>"

    def has(self, symbol: str) -> bool:
        try:
            getattr(self.lib, symbol)
        except SymbolMissing:
            return False
        return True

    def require(self, *symbols: str) -> None:
        """Raise SymbolMissing for the first of ``symbols`` that this library lacks."""
        for symbol in symbols:
            getattr(self.lib, symbol)


class _Functions:
    """The library's functions. Each is looked up once and then an attribute: calls cost what cffi's cost."""

    def __init__(self, raw, library: Library):
        self._raw = raw
        self._library = library

    def __getattr__(self, name: str):
        raw, library = self._raw, self._library
        try:
            function = getattr(raw, name)  # AttributeError: not in our declarations
        except library.ffi.error:  # declared, but this library has no such symbol
            since = OPTIONAL.get(name, (None, None))[1]
            raise SymbolMissing(name, str(library.path), since) from None
        setattr(self, name, function)
        return function

    def __dir__(self):
        return dir(self._raw)


_lock = threading.RLock()
_hsa: Library | None = None
_hip: Library | None = None
_cuda: Library | None = None


def hsa() -> Library:
    """libhsa-runtime64, with the chosen node below it. LibraryNotFound if there is none."""
    global _hsa
    if _hsa is None:
        with _lock:
            if _hsa is None:
                library = probe()
                node_choice.ensure()
                _hsa = library
    return _hsa


def probe() -> Library:
    """libhsa-runtime64 as ``hsa()`` opens it, but no node is put below it: is it there, and what does it have?"""
    return _open(_hsa_ffi, HSA_NAMES, "hsa_init", [])


def hip() -> Library:
    """libamdhip64 on the same HSA library as ``hsa()``. LibraryNotFound if there is none that loads on it."""
    global _hip
    if _hip is None:
        with _lock:
            if _hip is None:
                # HSA first: HIP binds to the libhsa-runtime64 that is already loaded, and the node is already under it.
                beside = hsa().path.parent
                _hip = _open(_hip_ffi, HIP_NAMES, "hipInit", [str(beside / name) for name in HIP_NAMES])
    return _hip


def cuda() -> Library:
    """libcuda, the driver's own library; no toolkit is needed. LibraryNotFound if there is none."""
    global _cuda
    if _cuda is None:
        with _lock:
            if _cuda is None:
                # Streams beyond the number of hardware channels share one, and what waits in one stream then holds up
                # the other. The driver reads it in cuInit.
                os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
                _cuda = _open(_cuda_ffi, CUDA_NAMES, "cuInit", [], _CUDA_ADVICE)
    return _cuda


@functools.cache
def nccl() -> Library:
    """libnccl, which some measurements compare with. LibraryNotFound if there is none."""
    from hsakit.ffi._nccl import ffi

    return _open(ffi, NCCL_NAMES, "ncclGetVersion", _pip(NCCL_NAMES), "pip has it as nvidia-nccl-cu13.")


@functools.cache
def cublaslt() -> Library:
    """libcublasLt, whose GEMM measurements may use. LibraryNotFound if there is none."""
    from hsakit.ffi._cublaslt import ffi

    return _open(ffi, CUBLASLT_NAMES, "cublasLtCreate", _pip(CUBLASLT_NAMES), "pip has it as nvidia-cublas.")


@functools.cache
def rocblas() -> Library:
    """librocblas, whose GEMM measurements may use, on the same HIP library as ``hip()``. LibraryNotFound if there is
    none."""
    from hsakit.ffi._rocblas import ffi

    return _on_hip(ffi, ROCBLAS_NAMES, "rocblas_create_handle", "rocblas (Debian: librocblas0)")


@functools.cache
def hipblaslt() -> Library:
    """libhipblaslt, as ``rocblas()``."""
    from hsakit.ffi._hipblaslt import ffi

    return _on_hip(ffi, HIPBLASLT_NAMES, "hipblasLtCreate", "hipblaslt")


def _on_hip(ffi, names: tuple[str, ...], probe: str, package: str) -> Library:
    """A library on top of HIP: first the one beside the HIP that is loaded, which it then takes."""
    beside = hip().path.parent
    advice = (
        f"Install ROCm's package {package}, of the release that the HIP library {hip().path} is of, or set ROCM_PATH "
        "to a ROCm installation that has both. hsakit's own GEMM needs neither."
    )
    return _open(ffi, names, probe, [str(beside / name) for name in names], advice)


def _pip(names: tuple[str, ...]) -> list[str]:
    """Where NVIDIA's packages of pip keep these libraries."""
    found = importlib.util.find_spec("nvidia")
    folders = [Path(each) for each in (found.submodule_search_locations or ())] if found else []
    return [str(path) for folder in folders for name in names for path in sorted(folder.glob(f"*/lib/{name}"))]


def _open(ffi, names: tuple[str, ...], probe: str, first: list[str], advice: str = _ADVICE) -> Library:
    searched: list[tuple[str, str]] = []
    for candidate in _unique((*_loaded(names), *first, *_candidates(names))):
        if os.sep in candidate and not os.path.exists(candidate):
            searched.append((candidate, "no such file"))
            continue
        try:
            # RTLD_NOW: a HIP built for another HSA fails here and the next is tried, instead of dying at a later call.
            raw = ffi.dlopen(candidate, ffi.RTLD_NOW | ffi.RTLD_LOCAL)
            getattr(raw, probe)
        except (OSError, ffi.error) as error:
            searched.append((candidate, str(error)))
            continue
        return Library(ffi, raw, probe, names[0].partition(".so")[0], searched)
    raise LibraryNotFound(names[0].partition(".so")[0], searched, advice)


def _unique(candidates) -> Iterator[str]:
    return iter(dict.fromkeys(candidates))


def _candidates(names: tuple[str, ...]) -> Iterator[str]:
    for folder in _folders():
        for name in names:
            yield str(folder / name)
    yield from names  # the dynamic linker's own paths


def _folders() -> Iterator[Path]:
    if Path(sys.base_prefix, "versions.txt").exists():
        # The Python of `make rocm`: its own libraries, whatever older ROCm the machine has beside it.
        yield Path(sys.base_prefix, "lib", "x86_64-linux-gnu")
    root = os.environ.get("ROCM_PATH")
    if root:
        yield Path(root, "lib")
        yield Path(root, "lib", "x86_64-linux-gnu")  # Debian's place, under a root of its own
    yield Path("/opt/rocm/lib")
    sdk = importlib.util.find_spec("_rocm_sdk_core")  # pip's rocm_sdk keeps its libraries in this package
    for location in (sdk.submodule_search_locations or ()) if sdk else ():
        yield Path(location, "lib")


def _mappings() -> Iterator[tuple[int, int, str]]:
    with open("/proc/self/maps") as maps:
        for line in maps:
            fields = line.split(maxsplit=5)
            if len(fields) == 6:
                start, _, end = fields[0].partition("-")
                yield int(start, 16), int(end, 16), fields[5].rstrip("\n")


def _loaded(names: tuple[str, ...]) -> list[str]:
    """Files of these libraries that something else in this process has loaded: two copies would not share agents."""
    stem = names[0].partition(".so")[0] + ".so"
    return [path for path in dict.fromkeys(path for *_, path in _mappings()) if os.path.basename(path).startswith(stem)]


def _file_of(address: int) -> Path:
    return Path(next(path for start, end, path in _mappings() if start <= address < end))
