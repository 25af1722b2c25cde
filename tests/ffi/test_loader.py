"""The loader, in processes of its own where it must find something else than the installed libraries."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from hsakit.ffi import HSA, hsa
from hsakit.ffi.errors import SymbolMissing
from hsakit.ffi.loader import OPTIONAL

OLD_HSA = """
int hsa_init(void) { return 0x1008; }
int hsa_status_string(int status, const char **text) { *text = "HSA_STATUS_NEW: Newer than us."; return 0; }
"""


def python(code: str, base_prefix: str = "", **environment: str) -> str:
    """Run code in a new process that leaves the node alone, return what it printed."""
    env = {**os.environ, "HSAKIT_NODE": "hw", **environment}
    # Where it is not named, as any Python but that of `make rocm`, which takes its own libraries first.
    code = f"import sys; sys.base_prefix = {base_prefix!r}\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.rstrip("\n")


@pytest.fixture
def shared_object(cc, tmp_path):
    """Build ``lib/<name>`` under a root of its own; returns the root, to be ROCM_PATH."""

    def build(name: str, code: str) -> str:
        (tmp_path / "lib").mkdir(exist_ok=True)
        source = tmp_path / f"{name}.c"
        source.write_text(code)
        target = tmp_path / "lib" / name
        command = [cc, "-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{name}", "-o", str(target), str(source)]
        subprocess.run(command, check=True, timeout=60)
        return str(tmp_path)

    return build


def test_importing_hsakit_loads_nothing():
    loaded = python(
        "import hsakit, hsakit.ffi, sys\n"
        "print([m for m in sys.modules if m.startswith('hsakit.softgpu')],"
        " [l for l in open('/proc/self/maps') if 'hsa-runtime' in l or 'amdhip' in l])"
    )
    assert loaded == "[] []"


def test_nothing_found_tells_where_it_looked_and_why_not(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libhsa-runtime64.so.999").write_bytes(b"not a library" * 100)
    said = python(
        "from hsakit.ffi import loader, errors\n"
        "loader.HSA_NAMES = ('libhsa-runtime64.so.999',)\n"  # the process's own linker path has the real one
        "try: loader.hsa()\n"
        "except errors.LibraryNotFound as error:\n"
        "    print(*(f'{where}|{why}' for where, why in error.searched), error, sep='\\n')",
        ROCM_PATH=str(tmp_path),
    )
    lines = said.split("\n")
    searched = dict(line.split("|") for line in lines if "|" in line)
    assert "invalid ELF header" in searched[f"{tmp_path}/lib/libhsa-runtime64.so.999"]
    assert searched["/opt/rocm/lib/libhsa-runtime64.so.999"] == "no such file"
    assert "cannot open shared object file" in searched["libhsa-runtime64.so.999"]  # the linker's own paths
    message = said[said.index("no usable libhsa-runtime64") :]
    assert "make rocm" in message and "ROCM_PATH" in message
    assert all(f"  {where}: {why}" in message for where, why in searched.items())


def test_rocm_path_comes_first_and_an_old_library_names_what_it_lacks(shared_object):
    root = shared_object("libhsa-runtime64.so.1", OLD_HSA)
    said = python(
        "from hsakit.ffi import errors, hsa\n"
        "library = hsa()\n"
        "print(library.path)\n"
        "print(library.has('hsa_init'), library.has('hsa_amd_memory_async_copy_on_engine'))\n"
        "for attempt in (lambda: library.lib.hsa_amd_memory_async_copy_on_engine,\n"
        "                lambda: library.require('hsa_init', 'hsa_signal_create')):\n"
        "    try: attempt()\n"
        "    except errors.SymbolMissing as e: print(e.symbol, e.library, e.since, sep='|'); print(e)\n"
        "try: errors.check_hsa('hsa_init', library.lib.hsa_init() + 0x1000)\n"
        "except errors.HsaError as e: print(e)",
        ROCM_PATH=root,
    ).split("\n")
    path = f"{root}/lib/libhsa-runtime64.so.1"
    assert said == [
        path,
        "True False",
        f"hsa_amd_memory_async_copy_on_engine|{path}|ROCm 5.6",
        f"hsa_amd_memory_async_copy_on_engine is missing from {path}; "
        + "it came with ROCm 5.6: use that release or a later one",
        f"hsa_signal_create|{path}|None",
        f"hsa_signal_create is missing from {path}; is it the right library?",
        "hsa_init: HSA_STATUS_NEW (0x2008): Newer than us.",  # a code that only the library knows
    ]


def test_the_python_of_make_rocm_takes_its_own_libraries(shared_object, tmp_path):
    root = shared_object("libhsa-runtime64.so.1", OLD_HSA)
    own = tmp_path / "own/lib/x86_64-linux-gnu"
    own.mkdir(parents=True)
    (tmp_path / "own/versions.txt").touch()
    shutil.copy(f"{root}/lib/libhsa-runtime64.so.1", own)
    found = python("from hsakit.ffi import hsa; print(hsa().path)", base_prefix=str(tmp_path / "own"), ROCM_PATH=root)
    assert found == f"{own}/libhsa-runtime64.so.1"


def test_probing_leaves_the_node_undecided():
    said = python(
        "from hsakit.ffi import loader, node_choice\n"
        "library = loader.probe()\n"
        "print(library.has('hsa_init'), node_choice._node)\n"
        "print(node_choice.choose('soft'), loader.probe().path == library.path)"
    )
    assert said == "True None\nsoft True"


def test_hip_that_does_not_fit_this_hsa_is_passed_over(shared_object):
    """A HIP built for a later HSA lies beside the HSA that was found; the one that fits is taken, on the same HSA."""
    future = "int hsa_from_the_future(void); int hipInit(unsigned f) { return hsa_from_the_future(); }"
    root = shared_object("libamdhip64.so.7", future)
    shutil.copy(hsa().path, f"{root}/lib/libhsa-runtime64.so.1")
    said = python(
        "from hsakit.ffi import hip, hsa\n"
        "print(hsa().path)\n"
        "print(hip().path.name)\n"
        "print(dict(hip().searched)[str(hsa().path.parent / 'libamdhip64.so.7')])\n"
        "print({l.split()[-1] for l in open('/proc/self/maps') if 'libhsa-runtime64' in l})",
        ROCM_PATH=root,
    ).split("\n")
    assert said[0] == f"{root}/lib/libhsa-runtime64.so.1"
    assert said[1].startswith("libamdhip64.so.")
    assert "undefined symbol: hsa_from_the_future" in said[2]
    assert said[3] == str({said[0]})


def test_a_library_already_in_the_process_is_taken(shared_object):
    root = shared_object("libhsa-runtime64.so.1", OLD_HSA)
    there = python(
        "import ctypes; ctypes.CDLL('libhsa-runtime64.so.1')\n"
        "before = {l.split()[-1] for l in open('/proc/self/maps') if 'libhsa-runtime64' in l}\n"
        "from hsakit.ffi import hsa\n"
        "print({str(hsa().path)} == before)",
        ROCM_PATH=root,
    )
    assert there == "True"


def test_functions_are_looked_up_once():
    lib = hsa().lib
    assert lib.hsa_signal_store_screlease is lib.hsa_signal_store_screlease
    assert vars(lib)["hsa_signal_store_screlease"] is lib.hsa_signal_store_screlease
    with pytest.raises(AttributeError, match="hsa_not_declared"):
        lib.hsa_not_declared()


def test_the_library_under_test_has_all_but_the_optional():
    library = hsa()
    missing = {name for name in dir(library.lib) if not hasattr(HSA, name) and not library.has(name)}
    assert missing <= set(OPTIONAL)
    for name in missing:
        with pytest.raises(SymbolMissing):
            library.require(name)
