"""Build HIP sources into code objects, once: kernels_src/ and any other source.

    path = kernels("gemm", "gfx942")

The compiler is found where ROCm's libraries are found. What it made is kept under build/kernels of a checkout, else in
the user's cache, under a name made of everything that decides it: source, headers beside it, target, flags, compiler.

``python -m hsakit.compiler [TARGET...]`` builds all of kernels_src and lists what it made.
"""

from __future__ import annotations

import functools
import glob
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from hsakit.ffi.errors import CompilerNotFound, InvalidArgument, KernelBuildError

TARGETS = ("gfx90a", "gfx942", "gfx950")
NVIDIA = re.compile(r"sm_[0-9]+a?")  # targets that hsakit.cuda.nvcc builds for

# Code object version 4 is the oldest that names its target, and the last in which a kernel finds its sizes in the
# dispatch packet instead of in hidden arguments. Names of arguments are kept for those who launch by name. Our sources
# need neither HIP's headers nor the device libraries.
FLAGS = (
    "-O3",
    "-nogpuinc",
    "-nogpulib",
    "-mcode-object-version=4",
    "-fhip-kernel-arg-name",
)
# For sources that include HIP's headers, which a ROCm has beside its compiler: these want the device library too.
HIP_FLAGS = tuple(flag for flag in FLAGS if flag not in ("-nogpuinc", "-nogpulib"))
# A bare ELF file, which both runtimes load.
_MODE = ("-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output")
_TARGET = re.compile(r"gfx[0-9a-f]+(:(sramecc|xnack)[+-])*")
_TIME_LIMIT = 600.0  # seconds for one run of a compiler

_CHECKOUT = Path(__file__).resolve().parents[1]
_ADVICE = (
    "Set ROCM_PATH to a ROCm installation that has a compiler, or run `make rocm` to put Debian's into build/rocm "
    "(`ROCM_SUITE=trixie make rocm` on a machine with a ROCm of its own)."
)
_HEADERS_ADVICE = (
    "\nThe source includes HIP's headers, and was compiled without what they need: hsakit.compiler.build(source, "
    "target, flags=hsakit.compiler.HIP_FLAGS) takes those of the compiler's ROCm (`make rocm`'s has them)."
)


@dataclass(frozen=True)
class Compiler:
    command: str
    version: str  # all that --version prints


def kernels_source(family: str, target: str = "") -> Path:
    """The source file of a family of kernels, such as gemm: for NVIDIA's targets its .cu, where it has one."""
    path = _sources() / f"{family}.hip"
    own = path.with_suffix(".cu")
    if NVIDIA.fullmatch(target) and own.is_file():
        return own
    if not path.is_file():
        raise InvalidArgument(f"no kernel family {family!r}; there are {', '.join(families())}")
    return path


def families() -> list[str]:
    return sorted(path.stem for path in _sources().glob("*.hip"))


def kernels(family: str, target: str) -> Path:
    """The code object of a family of kernels for a target such as ``gfx942`` or ``sm_90a``, built if it was not yet."""
    source = kernels_source(family, target)
    if NVIDIA.fullmatch(target):
        from hsakit.cuda import nvcc

        return nvcc.build(source, target)
    return build(source, target)


def build(source: str | os.PathLike, target: str, flags: tuple[str, ...] = FLAGS) -> Path:
    """The code object of a HIP source file, built if it was not yet. A source that includes HIP's headers needs the
    ``flags`` HIP_FLAGS.

    CompilerNotFound says where a compiler was looked for; KernelBuildError has the compiler's output, or the folders
    in which nothing could be kept.
    """
    if not _TARGET.fullmatch(target):
        raise InvalidArgument(f"target {target!r}: a processor such as gfx942, or with settings, gfx90a:xnack-")
    source = Path(source).resolve()
    compiler = find_compiler()
    name = f"{source.stem}-{target.replace(':', '-')}-{_key(source, target, flags, compiler)}.co"
    for folder in cache_folders():
        if (folder / name).exists():
            return folder / name
    with workshop(source, target) as scratch:
        made, kept = Path(scratch, "made"), Path(scratch).parent / name
        arguments = [*_MODE, f"--offload-arch={target}", *flags, "-o", str(made), str(source)]
        returned, output = run(compiler.command, arguments)
        if returned != 0 or not made.exists():
            if "-nogpuinc" in flags and re.search(rb"#\s*include\s*[<\"]hip/", source.read_bytes()):
                output += _HEADERS_ADVICE
            raise KernelBuildError(str(source), target, [compiler.command, *arguments], output)
        made.replace(kept)  # whole or not at all, also when two processes build it at once
    return kept


def knows(target: str) -> bool:
    """Whether the compiler can build for a target."""
    if NVIDIA.fullmatch(target):
        return True  # nvcc says itself what it does not know
    arguments = [*_MODE, f"--offload-arch={target}", "-nogpuinc", "-nogpulib", "-fsyntax-only", os.devnull]
    return run(find_compiler().command, arguments)[0] == 0


@functools.cache
def find_compiler() -> Compiler:
    """The first of ROCM_PATH, /opt/rocm, pip's rocm_sdk, the root whose Python this is, build/rocm, PATH."""
    searched: list[tuple[str, str]] = []
    for candidate in dict.fromkeys(_candidates()):
        if not os.access(candidate, os.X_OK):
            searched.append((candidate, "no such program"))
            continue
        returned, output = run(candidate, ["--version"])
        if returned == 0:
            return Compiler(candidate, output)
        searched.append((candidate, output.strip() or f"exit status {returned}"))
    raise CompilerNotFound(searched, _ADVICE)


def cache_folders() -> list[Path]:
    """Where code objects are kept, the first choice first."""
    folders = [_CHECKOUT / "build" / "kernels"] if _in_checkout() else []
    try:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # nobody's home
        return folders
    return [*folders, Path(cache, "hsakit", "kernels")]


def workshop(source: Path, target: str) -> tempfile.TemporaryDirectory[str]:
    """A folder to build in, within the first folder that can be written."""
    tried = []
    for folder in cache_folders():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return tempfile.TemporaryDirectory(dir=folder, prefix="building-")
        except OSError as error:
            tried.append(f"  {folder}: {error.strerror}")
    places = "\n".join(tried) or "  none: no home folder is known"
    problem = f"no folder to keep it in can be written; XDG_CACHE_HOME names one that can. Tried:\n{places}"
    raise KernelBuildError(str(source), target, [], problem)


def _in_checkout() -> bool:
    return (_CHECKOUT / "kernels_src").is_dir()


def _sources() -> Path:
    # The wheel has them inside of the package.
    return _CHECKOUT / "kernels_src" if _in_checkout() else Path(__file__).with_name("kernels_src")


def _candidates() -> Iterator[str]:
    """Programs that take clang's options, in the order in which hsakit.ffi.loader looks for libraries."""
    prefixes = [os.environ["ROCM_PATH"]] if os.environ.get("ROCM_PATH") else []
    prefixes.append("/opt/rocm")
    sdk = importlib.util.find_spec("_rocm_sdk_core")
    prefixes += (sdk.submodule_search_locations or ()) if sdk else ()
    for prefix in prefixes:
        yield f"{prefix}/llvm/bin/clang"
        yield f"{prefix}/lib/llvm/bin/clang"
        yield from _newest_first(glob.glob(f"{prefix}/lib/llvm-*/bin/clang"))  # Debian's place
        yield f"{prefix}/bin/hipcc"
    # A root that `make rocm` made: its `cc` runs clang's steps one by one through the root's own loader.
    yield str(Path(sys.executable).parent / "cc")
    yield str(_CHECKOUT / "build" / "rocm" / "cc")
    for name in ("amdclang", "hipcc", "clang"):
        yield shutil.which(name) or f"{name} (on PATH)"
    yield from _newest_first(glob.glob("/usr/lib/llvm-*/bin/clang"))


def _newest_first(paths: list[str]) -> list[str]:
    def version(path: str) -> int:
        found = re.search(r"llvm-(\d+)[^/]*/bin/clang$", path)
        return int(found[1]) if found else -1  # llvm-toolset, or one of somebody's own

    return sorted(paths, key=version, reverse=True)


def run(program: str, arguments: list[str]) -> tuple[int, str]:
    """Exit status and all output of a run of the compiler."""
    try:
        done = subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_TIME_LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return -1, f"stopped after {_TIME_LIMIT:.0f} s"
    except OSError as error:
        return -1, str(error)
    return done.returncode, done.stdout


def _key(source: Path, target: str, flags: tuple[str, ...], compiler: Compiler) -> str:
    digest = hashlib.sha256()
    for part in (compiler.version, *_MODE, target, *flags):
        digest.update(part.encode() + b"\0")
    digest_files(digest, source)
    return digest.hexdigest()[:16]


def digest_files(digest, source: Path) -> None:
    """Add a source file, and the headers beside it."""
    for file in (source, *sorted(source.parent.glob("*.h"))):
        content = file.read_bytes()
        digest.update(f"{file.name}\0{len(content)}\0".encode() + content)


def main(targets: list[str]) -> int:
    compiler = find_compiler()
    print(f"{compiler.command}: {compiler.version.splitlines()[0]}")
    wanted = targets or list(TARGETS)
    known = [target for target in wanted if knows(target)]
    for target in wanted:
        if target not in known:
            print(f"{target}: skipped, this compiler does not know it")
    failed = False
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [(pool.submit(kernels, family, target), family, target) for target in known for family in families()]
        for job, family, target in jobs:
            try:
                print(f"{target} {family}: {job.result()}")
            except KernelBuildError as error:
                failed = True
                print(error, file=sys.stderr)
    return 1 if failed or (targets and len(known) < len(targets)) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
