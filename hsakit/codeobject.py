"""What a code object says about itself: its target and its kernels, with the layout of their arguments.

``read`` takes a bare AMDGPU ELF file, as ``clang --no-gpu-bundle-output`` makes it, or a bundle of several, as
``hipcc --genco`` makes it. Formats: LLVM's "User Guide for AMDGPU Backend" (code object metadata, version 4 and later)
and "Clang Offload Bundler". No ROCm library is needed.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from hsakit import msgpack
from hsakit.ffi.errors import CodeObjectError, InvalidArgument

_BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
_COMPRESSED_BUNDLE = b"CCOB"
_EM_AMDGPU = 224
_PT_NOTE = 4
_NT_AMDGPU_METADATA = 32
_TRIPLE = "amdgcn-amd-amdhsa--"

_ELF_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_NOTE_HEADER = struct.Struct("<III")
_BUNDLE_ENTRY = struct.Struct("<QQQ")


@dataclass(frozen=True)
class Argument:
    """One argument in a kernel's argument block. ``offset`` and ``size`` are in bytes."""

    name: str | None  # None: the compiler was not told to keep names (-fhip-kernel-arg-name)
    offset: int
    size: int
    kind: str  # the metadata's value_kind: by_value, global_buffer, hidden_block_count_x, ...
    address_space: str | None = None
    type_name: str | None = None  # OpenCL's compiler gives it, HIP's does not

    @property
    def hidden(self) -> bool:
        """Filled in by the runtime, not by the caller."""
        return self.kind.startswith("hidden_")

    @property
    def pointer(self) -> bool:
        return self.kind in ("global_buffer", "dynamic_shared_pointer")


@dataclass(frozen=True)
class KernelInfo:
    """One kernel of a code object. Sizes are in bytes, registers a lane (vector) or a wave (scalar)."""

    name: str
    symbol: str  # its descriptor: what hsa_executable_get_symbol_by_name takes
    arguments: tuple[Argument, ...]
    kernarg_size: int
    kernarg_align: int
    group_segment_size: int  # static LDS; what a launch asks for comes on top
    private_segment_size: int  # scratch a lane
    dynamic_stack: bool  # private_segment_size is then only a lower bound
    vgprs: int
    agprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    wavefront_size: int
    max_workgroup_size: int
    required_workgroup_size: tuple[int, int, int] | None


@dataclass(frozen=True)
class CodeObject:
    """A code object for one target. ``data`` is the ELF file that the runtimes load."""

    target: str  # such as gfx942 or gfx90a:sramecc+:xnack-
    kernels: Mapping[str, KernelInfo]
    data: bytes = field(repr=False)
    origin: str

    def kernel(self, name: str) -> KernelInfo:
        try:
            return self.kernels[name]
        except KeyError:
            raise CodeObjectError(self.origin, f"no kernel {name!r}; it has {_listed(self.kernels)}") from None


def read(source: str | os.PathLike | bytes, target: str | None = None) -> CodeObject:
    """The code object in a file or in bytes.

    ``target`` is what it has to run on (as an agent's ISA is called, ``gfx942:sramecc+:xnack-``): of a bundle the entry
    for it is taken. Without it a bundle must hold a single entry. CodeObjectError says what is wrong with the input.
    """
    if isinstance(source, bytes):
        origin, data = f"of {len(source)} bytes", source
    elif isinstance(source, (str, os.PathLike)):
        origin, data = os.fspath(source), Path(source).read_bytes()
    else:
        raise InvalidArgument(f"a code object is the path of a file, or the file as bytes, not {source!r}")
    if data.startswith(_COMPRESSED_BUNDLE):
        raise CodeObjectError(origin, "a compressed bundle; build it with --no-offload-compress")
    if data.startswith(_BUNDLE):
        data = _choose(_bundle(data, origin), target, origin)
    found = _code_object(data, origin)
    if target is not None and not runs_on(found.target, target):
        raise CodeObjectError(origin, f"built for {found.target}, which does not run on {target}")
    return found


def runs_on(built: str, target: str) -> bool:
    """Whether code for ``built`` runs on ``target``: the same processor, with every setting (sramecc, xnack) that the
    code was built for. Code that names no setting runs with either."""
    processor, *settings = built.split(":")
    its_processor, *its_settings = target.split(":")
    return processor == its_processor and set(settings) <= set(its_settings)


def _listed(names) -> str:
    return ", ".join(sorted(names)) or "none"


# --- bundles ----------------------------------------------------------------------------------------------------------


def _bundle(data: bytes, origin: str) -> dict[str, bytes]:
    """Device entries: target -> ELF file."""
    try:
        entries = {}
        (count,) = struct.unpack_from("<Q", data, len(_BUNDLE))
        at = len(_BUNDLE) + 8
        for _ in range(count):
            offset, size, length = _BUNDLE_ENTRY.unpack_from(data, at)
            at += _BUNDLE_ENTRY.size
            name = data[at : at + length].decode()
            at += length
            if offset + size > len(data):
                problem = f"truncated: {name} ends at byte {offset + size}, the file at {len(data)}"
                raise CodeObjectError(origin, problem)
            # "hipv4-amdgcn-amd-amdhsa--gfx942"; the host's entry is empty
            _, found, target = name.partition(_TRIPLE)
            if found:
                entries[target] = data[offset : offset + size]
        return entries
    except (struct.error, UnicodeDecodeError) as error:
        raise CodeObjectError(origin, f"a bundle with a damaged table of contents ({error})") from None


def _choose(entries: dict[str, bytes], target: str | None, origin: str) -> bytes:
    fitting = [built for built in entries if target is None or runs_on(built, target)]
    if len(fitting) > 1 and target is None:
        raise CodeObjectError(origin, f"a bundle for {_listed(entries)}: say which target is wanted")
    if not fitting:
        raise CodeObjectError(origin, f"a bundle for {_listed(entries)}, none of which runs on {target or 'a GPU'}")
    return entries[max(fitting, key=lambda built: built.count(":"))]  # the one with most settings fits best


# --- ELF --------------------------------------------------------------------------------------------------------------


def _code_object(data: bytes, origin: str) -> CodeObject:
    try:
        metadata = _metadata(data, origin)
        target = _text(metadata, "amdhsa.target").removeprefix(_TRIPLE)
        kernels = [_kernel(k) for k in metadata["amdhsa.kernels"]]
    except msgpack.Error as error:
        raise CodeObjectError(origin, f"its metadata is damaged: {error}") from None
    except (KeyError, TypeError, AttributeError) as error:
        problem = f"its metadata is not of code object version 4 or later ({type(error).__name__}: {error})"
        raise CodeObjectError(origin, problem) from None
    return CodeObject(target, MappingProxyType({k.name: k for k in kernels}), data, origin)


def _metadata(data: bytes, origin: str) -> dict:
    if data[:6] != b"\x7fELF\x02\x01":
        kind = "empty" if not data else f"it begins with {data[:4].hex(' ')}"
        raise CodeObjectError(origin, f"neither an ELF file nor a bundle of clang's: {kind}")
    if len(data) < _ELF_HEADER.size:
        raise CodeObjectError(origin, f"truncated within its ELF header: {len(data)} of {_ELF_HEADER.size} bytes")
    header = _ELF_HEADER.unpack_from(data)
    machine, phoff, shoff, phentsize, phnum, shentsize, shnum = (header[i] for i in (2, 5, 6, 9, 10, 11, 12))
    if machine != _EM_AMDGPU:
        raise CodeObjectError(origin, f"an ELF file for machine {machine}, not for an AMD GPU ({_EM_AMDGPU})")
    # Segments and section headers (the last thing in the file) must be there in full: the runtimes do not look.
    _whole(data, max(shoff + shentsize * shnum, phoff + phentsize * phnum), origin)
    if phnum and phentsize < _PROGRAM_HEADER.size:
        raise CodeObjectError(origin, f"damaged: its ELF header speaks of program headers of {phentsize} bytes")
    segments = [_PROGRAM_HEADER.unpack_from(data, phoff + i * phentsize) for i in range(phnum)]
    _whole(data, max((offset + size for _, _, offset, _, _, size, _, _ in segments), default=0), origin)
    for kind, _, offset, _, _, size, _, _ in segments:
        if kind == _PT_NOTE:
            for name, note, content in _notes(data[offset : offset + size]):
                if (name, note) == (b"AMDGPU", _NT_AMDGPU_METADATA):
                    return msgpack.decode(content)
    raise CodeObjectError(origin, "an ELF file for AMD GPUs without metadata (an object file that was not linked?)")


def _whole(data: bytes, end: int, origin: str) -> None:
    if end > len(data):
        raise CodeObjectError(origin, f"truncated: its ELF header speaks of {end} bytes, there are {len(data)}")


def _notes(segment: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    at = 0
    while at + _NOTE_HEADER.size <= len(segment):
        name_size, size, kind = _NOTE_HEADER.unpack_from(segment, at)
        at += _NOTE_HEADER.size
        name = segment[at : at + name_size].rstrip(b"\0")
        at += (name_size + 3) & ~3
        yield name, kind, segment[at : at + size]
        at += (size + 3) & ~3


def _kernel(raw: dict) -> KernelInfo:
    required = raw.get(".reqd_workgroup_size")
    return KernelInfo(
        name=_text(raw, ".name"),
        symbol=_text(raw, ".symbol"),
        arguments=tuple(_argument(a) for a in raw.get(".args", ())),
        kernarg_size=_count(raw, ".kernarg_segment_size"),
        kernarg_align=_count(raw, ".kernarg_segment_align"),
        group_segment_size=_count(raw, ".group_segment_fixed_size"),
        private_segment_size=_count(raw, ".private_segment_fixed_size"),
        dynamic_stack=bool(raw.get(".uses_dynamic_stack")),
        vgprs=_count(raw, ".vgpr_count"),
        agprs=_count(raw, ".agpr_count", 0),
        sgprs=_count(raw, ".sgpr_count"),
        vgpr_spills=_count(raw, ".vgpr_spill_count", 0),
        sgpr_spills=_count(raw, ".sgpr_spill_count", 0),
        wavefront_size=_count(raw, ".wavefront_size"),
        max_workgroup_size=_count(raw, ".max_flat_workgroup_size"),
        required_workgroup_size=tuple(required) if required else None,
    )


def _argument(raw: dict) -> Argument:
    return Argument(
        name=raw.get(".name"),
        offset=_count(raw, ".offset"),
        size=_count(raw, ".size"),
        kind=_text(raw, ".value_kind"),
        address_space=raw.get(".address_space"),
        type_name=raw.get(".type_name"),
    )


def _text(raw: dict, key: str) -> str:
    if not isinstance(raw[key], str):
        raise TypeError(f"{key} is {raw[key]!r}")
    return raw[key]


def _count(raw: dict, key: str, default: int | None = None) -> int:
    value = raw[key] if default is None else raw.get(key, default)
    if not isinstance(value, int) or value < 0:
        raise TypeError(f"{key} is {value!r}")
    return value
