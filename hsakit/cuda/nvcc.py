"""Build kernels for NVIDIA's GPUs: a cubin, and beside it the names of its kernels' arguments, which it lacks.

They come from the preprocessed source. How many arguments there are, and where, the driver says: hsakit.cuda.module
compares.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from hsakit import compiler
from hsakit.ffi.errors import CompilerNotFound, KernelBuildError

FLAGS = ("-O3", "-std=c++17")
_ADVICE = "Set CUDA_HOME to a CUDA toolkit (13.0 or later)."
_KERNEL = re.compile(r'extern "C" (?=[^;{}]*\bglobal\b)[^;{}]*?\bvoid\s+(\w+)\(([^)]*)\)\s*\{')
_PARAMETER = re.compile(r"(.*?)(\w+)\s*$", re.DOTALL)


@functools.cache
def toolkit() -> Path:
    """The folder that has bin/nvcc and include/cuda.h: CUDA_HOME, that of nvcc on PATH, /usr/local/cuda*."""
    searched: list[tuple[str, str]] = []
    for candidate in _candidates():
        if (candidate / "bin" / "nvcc").is_file() and (candidate / "include" / "cuda.h").is_file():
            return candidate
        searched.append((str(candidate), "no bin/nvcc with include/cuda.h"))
    raise CompilerNotFound(searched, _ADVICE, "CUDA")


def _candidates() -> Iterator[Path]:
    if os.environ.get("CUDA_HOME"):
        yield Path(os.environ["CUDA_HOME"])
    found = shutil.which("nvcc")
    if found:
        yield Path(found).resolve().parents[1]
    yield Path("/usr/local/cuda")
    yield from sorted(Path("/usr/local").glob("cuda-*"), reverse=True)


def build(source: Path, target: str) -> Path:
    """The cubin of a source file, kept where ``hsakit.compiler`` keeps code objects, built if it was not yet."""
    nvcc = str(toolkit() / "bin" / "nvcc")
    name = f"{source.stem}-{target}-{_key(source, target, nvcc)}.cubin"
    for folder in compiler.cache_folders():
        if (folder / name).exists():
            return folder / name
    number = target.removeprefix("sm_")
    mode = ("-x", "cu", f"-gencode=arch=compute_{number},code={target}")
    with compiler.workshop(source, target) as workshop:
        text, made = Path(workshop, "text"), Path(workshop, "made.cubin")
        kept = Path(workshop).parent / name
        for command in (
            [nvcc, "-E", *mode, *FLAGS, "-o", str(text), str(source)],
            [nvcc, "-cubin", *mode, *FLAGS, "-o", str(made), str(source)],
        ):
            returned, output = compiler.run(command[0], command[1:])
            if returned != 0:
                raise KernelBuildError(str(source), target, command, output)
        names = Path(workshop, "names")
        names.write_text(json.dumps(signatures(text.read_text(errors="replace"))))
        names.replace(kept.with_suffix(".json"))
        made.replace(kept)  # last: whoever finds it finds the names
    return kept


def signatures(text: str) -> dict[str, list[tuple[str, bool]]]:
    """The kernels of a preprocessed source: each argument's name, and whether it is a pointer."""
    found = _KERNEL.findall(text)
    return {name: [_parameter(each) for each in listed.split(",") if each.strip()] for name, listed in found}


def _parameter(text: str) -> tuple[str, bool]:
    match = _PARAMETER.match(text)
    assert match, text
    return match[2], "*" in match[1]


@functools.cache
def _version(nvcc: str) -> str:
    return subprocess.run([nvcc, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout


def _key(source: Path, target: str, nvcc: str) -> str:
    digest = hashlib.sha256()
    for part in (_version(nvcc), target, *FLAGS):
        digest.update(part.encode() + b"\0")
    compiler.digest_files(digest, source)
    return digest.hexdigest()[:16]
