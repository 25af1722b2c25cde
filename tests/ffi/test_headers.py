"""Every declaration of ours against the installed headers, by the C compiler.

Our text is parsed, its types are written out again with the header's own type names (a handle of ours is the header's
struct, an address is its ``void *``), and each becomes a ``_Static_assert`` on what cffi will believe: sizes, offsets,
field types, enumerators, function types.
"""

from __future__ import annotations

import copy
import re
import subprocess
from pathlib import Path

import cffi
import pytest
from pycparser import c_ast, c_generator, c_parser

from hsakit.cuda import nvcc
from hsakit.ffi import generate, hip, hsa
from hsakit.ffi.loader import OPTIONAL
from hsakit.hip.abi import abi_of

DECL = Path(generate.__file__).parent / "decl"
INCLUDES = {
    "_hsa": ("hsa/hsa.h", "hsa/hsa_ext_amd.h"),
    "_hip": ("hip/hip_runtime_api.h",),
    "_cuda": ("cuda.h",),
    "_rocblas": ("rocblas/rocblas.h",),
    "_hipblaslt": ("hipblaslt/hipblaslt.h",),
    "_nccl": ("nccl.h",),
    "_cublaslt": ("cublasLt.h",),
}
OF_NVIDIA = {"_cuda": "cuda_toolkit", "_nccl": "nccl_header", "_cublaslt": "cublaslt_header"}
MARKERS = {**OF_NVIDIA, "_rocblas": "rocblas_header", "_hipblaslt": "hipblaslt_header"}
# What stands in the header where we have one of our own names.
OURS_IN_C = "typedef void *hsakit_address;\ntypedef const void *hsakit_const_address;\n"
NUMBERS = {"hsakit_address", "hsakit_const_address", "hsakit_enum", "hsakit_handle", "hsakit_opaque"}
PARSER_PRELUDE = "".join(
    f"typedef {base} {name};\n"
    for name, base in {
        "bool": "_Bool",
        "size_t": "unsigned long",
        "int64_t": "long",
        "int32_t": "int",
        "uint64_t": "unsigned long",
        "uint32_t": "unsigned int",
        "uint16_t": "unsigned short",
        "uint8_t": "unsigned char",
    }.items()
)


def include_folder(library: Path, header: str) -> Path:
    for parent in library.parents:
        if (parent / "include" / header).exists():
            return parent / "include"
    pytest.fail(f"no include/{header} above {library}: install the development files of that library")


def type_text(node) -> str:
    """The C type of a declarator, without its name."""
    node = copy.deepcopy(node)
    inner = node
    while not isinstance(inner, c_ast.TypeDecl):
        inner = inner.type
    inner.declname = None
    return c_generator.CGenerator().visit(node)


def same(actual: str, declared: str, what: str) -> str:
    return f'_Static_assert(__builtin_types_compatible_p({actual}, {declared}), "{what}: other type");\n'


def equal(actual: str, value: int, what: str) -> str:
    return f'_Static_assert({actual} == {value}, "{what}: not {value}");\n'


class Checks(list):
    """The assertions for one module's declarations."""

    def __init__(self, text: str, header_text: str):
        super().__init__([OURS_IN_C])
        self.ffi = cffi.FFI()
        self.ffi.cdef(text)
        self.header_text = header_text
        bare = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
        for node in c_parser.CParser().parse(PARSER_PRELUDE + bare).ext[PARSER_PRELUDE.count("\n") :]:
            self.add(node)

    def add(self, node) -> None:
        if isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.FuncDecl):
            if node.name in OPTIONAL and node.name not in self.header_text:
                return  # this header is older than the function
            self.append(same(f"__typeof__({node.name})", type_text(node.type), node.name))
        elif isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.Enum):
            self.enumerators(node.type)
        else:
            assert isinstance(node, c_ast.Typedef), node
            self.typedef(node.name, node.type)

    def typedef(self, name: str, declared) -> None:
        base = declared.type
        names = base.names[0] if isinstance(base, c_ast.IdentifierType) else None
        if name in NUMBERS:
            return
        if name.startswith("hsakit_"):  # no such name in the header: it is compared where it is used
            self.append(c_generator.CGenerator().visit(c_ast.Typedef(name, [], ["typedef"], declared)) + ";\n")
            return
        if isinstance(base, c_ast.Struct) and base.decls is None:  # handed to the library and never looked into
            return
        self.append(equal(f"sizeof({name})", self.ffi.sizeof(name), f"sizeof {name}"))
        if isinstance(base, c_ast.Enum):
            self.enumerators(base)
        elif isinstance(base, c_ast.Struct):
            self.fields(name, base)
        elif names == "hsakit_handle":
            self.append(same(f"__typeof__((({name} *)0)->handle)", "uint64_t", f"{name}.handle"))
        elif names == "hsakit_opaque":
            self.append(equal(f"__builtin_classify_type(*({name} *)0)", 5, f"{name} as pointer"))
        else:
            self.append(same(name, type_text(declared), name))

    def enumerators(self, enum) -> None:
        values = self.ffi.dlopen(None)
        for entry in enum.values.enumerators:
            self.append(equal(f"(long long){entry.name}", getattr(values, entry.name), entry.name))

    def fields(self, name: str, struct) -> None:
        for field in struct.decls:
            # The members of an anonymous union are reached as the struct's own.
            for member in field.type.decls if field.name is None else (field,):
                self.field(name, member)

    def field(self, name: str, field) -> None:
        what = f"{name}.{field.name}"
        self.append(equal(f"offsetof({name}, {field.name})", self.ffi.offsetof(name, field.name), f"offsetof {what}"))
        if type_text(field.type) == "hsakit_enum":
            self.append(equal(f"sizeof((({name} *)0)->{field.name})", self.ffi.sizeof("hsakit_enum"), what))
            return
        self.append(same(f"__typeof__((({name} *)0)->{field.name})", type_text(field.type), what))


def declarations(module: str) -> str:
    return "\n".join((DECL / header).read_text() for header in generate.DECLARATIONS[module])


def complaints(module: str, text: str, cc: str, tmp_path: Path) -> str:
    """What the compiler says about ``text`` beside the installed headers; empty if it agrees."""
    include = include_of(module)
    checks = Checks(text, "".join((include / header).read_text() for header in INCLUDES[module]))
    assert sum(line.startswith("_Static_assert") for line in checks) > 15
    return compiled(module, "".join(checks), cc, tmp_path)


def include_of(module: str) -> Path:
    if module in OF_NVIDIA:
        toolkit = nvcc.toolkit() / "include"
        return toolkit if (toolkit / INCLUDES[module][0]).is_file() else Path("/usr/include")
    return include_folder((hsa() if module == "_hsa" else hip()).path, INCLUDES[module][0])


def compiled(module: str, checks: str, cc: str, tmp_path: Path) -> str:
    """What the compiler says about assertions behind the installed headers."""
    include = include_of(module)
    headers = "".join(f"#include <{header}>\n" for header in INCLUDES[module])
    if module == "_hipblaslt":
        headers = in_c((include / INCLUDES[module][0]).read_text())
    source = tmp_path / f"{module}.c"
    source.write_text("#include <stddef.h>\n#include <stdint.h>\n#include <stdbool.h>\n" + headers + checks)
    # After the compiler's own: the root's C library headers belong to another compiler.
    folders = [f"-idirafter{folder}" for folder in (include, include / "x86_64-linux-gnu")]
    if module in OF_NVIDIA:
        folders.append(f"-idirafter{nvcc.toolkit() / 'include'}")  # what its headers include
    command = [cc, "-x", "c", "-std=gnu11", "-fsyntax-only", "-D__HIP_PLATFORM_AMD__", *folders, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    if done.returncode == 0:
        return ""
    assert "static assertion failed" in done.stderr.lower() or "error:" in done.stderr, done.stderr
    return done.stderr


def in_c(header: str) -> str:
    """hipBLASLt's header, which only C++ can read, without what C has not: includes, and what members begin with."""
    kept = [
        line
        for line in header.splitlines()
        if not re.match(r'#include (<(memory|regex|vector|hip/hip_fp8)|".*types)', line)
    ]
    return re.sub(r"(\w) *= *[\w.]+;", r"\1;", "#include <hip/library_types.h>\n" + "\n".join(kept) + "\n")


def marks_of(module: str):
    return getattr(pytest.mark, MARKERS[module]) if module in MARKERS else ()


@pytest.mark.parametrize("module", [pytest.param(name, marks=marks_of(name)) for name in INCLUDES])
def test_declarations_agree_with_the_installed_headers(module, cc, tmp_path):
    assert complaints(module, declarations(module), cc, tmp_path) == ""


def test_what_goes_by_the_version_agrees_with_the_installed_headers(cc, tmp_path):
    text = (include_of("_hip") / "hip/hip_version.h").read_text()
    major, minor = (int(re.search(rf"VERSION_{part} +([0-9]+)", text)[1]) for part in ("MAJOR", "MINOR"))
    abi = abi_of(major * 10_000_000 + minor * 100_000)
    words = {"unknown": "Unregistered", "pinned": "Host"}
    checks = "".join(
        equal(f"(int)hipMemoryType{words.get(kind, kind.capitalize())}", value, kind)
        for value, kind in abi.memory_types.items()
    )
    checks += equal("sizeof(hipDeviceProp_t)", abi.properties_size, "size")
    checks += equal("offsetof(hipDeviceProp_t, gcnArchName)", abi.arch_name, "gcnArchName")
    assert compiled("_hip", checks, cc, tmp_path) == ""


# A mistake: the module, what our text says, what it says wrongly, and what the compiler must then name.
PLANTS = {
    "handle of 32 bits": (
        "_hsa",
        "typedef hsakit_handle hsa_signal_t;",
        "typedef uint32_t hsa_signal_t;",
        "sizeof hsa_signal_t",
    ),
    "handle where the header has a number": (
        "_hsa",
        "int64_t hsa_signal_value_t",
        "hsakit_handle hsa_signal_value_t",
        "hsa_signal_value_t.handle",
    ),
    "signedness": (
        "_hsa",
        "typedef int64_t hsa_signal_value_t",
        "typedef uint64_t hsa_signal_value_t",
        "hsa_signal_value_t",
    ),
    "narrow argument": (
        "_hsa",
        "size_t size, uint32_t flags,",
        "uint32_t size, uint32_t flags,",
        "hsa_amd_memory_pool_allocate",
    ),
    "narrow return": (
        "_hsa",
        "uint64_t hsa_queue_load_write",
        "uint32_t hsa_queue_load_write",
        "hsa_queue_load_write_index_relaxed",
    ),
    "narrow field": (
        "_hsa",
        "uint64_t virtual_address",
        "uint32_t virtual_address",
        "hsa_amd_gpu_memory_fault_info_t.virtual_address",
    ),
    "swapped fields": (
        "_hsa",
        "size_t pitch;\n    size_t slice",
        "size_t slice;\n    size_t pitch",
        "offsetof hsa_pitched_ptr_t.slice",
    ),
    "lost last field": (
        "_hsa",
        "hsa_agent_t agentOwner;\n    uint32_t global_flags;",
        "hsa_agent_t agentOwner;",
        "sizeof hsa_amd_pointer_info_t",
    ),
    "array length": ("_hsa", "dep_signal[5]", "dep_signal[4]", "sizeof hsa_barrier_or_packet_t"),
    "enum value": ("_hsa", "INFO_NUM_XCC = 0xA111", "INFO_NUM_XCC = 0xA112", "HSA_AMD_AGENT_INFO_NUM_XCC"),
    "unnamed enum's value": ("_hsa", "CU_MASK_REDUCED = 44", "CU_MASK_REDUCED = 45", "HSA_STATUS_CU_MASK_REDUCED"),
    "pointer level": ("_hsa", "hsa_queue_t **queue", "hsa_queue_t *queue", "hsa_queue_create"),
    "level of an address": ("_hsa", "hsakit_address *ptr", "hsakit_address ptr", "hsa_amd_memory_pool_allocate"),
    "callback's argument": (
        "_hsa",
        "hsakit_pool_callback)(hsa_amd_memory_pool_t",
        "hsakit_pool_callback)(hsa_agent_t",
        "hsa_amd_agent_iterate_memory_pools",
    ),
    "lost argument": ("_hsa", "engine_id, bool force_copy_on_sdma", "engine_id", "hsa_amd_memory_async_copy_on_engine"),
    "pointer level in HIP": ("_hip", "void **kernelParams", "void *kernelParams", "hipModuleLaunchKernel"),
    "width in HIP": ("_hip", "char bytes[16]", "char bytes[8]", "sizeof hipUUID"),
    "enum value in HIP": ("_hip", "hipErrorNoDevice = 100", "hipErrorNoDevice = 99", "hipErrorNoDevice"),
    "width in CUDA": ("_cuda", "uint64_t value, unsigned", "uint32_t value, unsigned", "cuStreamWaitValue64_v2"),
    "padding in CUDA": ("_cuda", "_internal_padding[92]", "_internal_padding[96]", "sizeof CUdevResource"),
    "width in NCCL": ("_nccl", "size_t sendcount", "uint32_t sendcount", "ncclAllGather"),
    "enum value in NCCL": ("_nccl", "ncclInvalidArgument = 4", "ncclInvalidArgument = 5", "ncclInvalidArgument"),
    "width in cuBLASLt": ("_cublaslt", "size_t workspaceSizeInBytes", "int workspaceSizeInBytes", "cublasLtMatmul"),
    "array length in cuBLASLt": ("_cublaslt", "int reserved[4]", "int reserved[3]", "HeuristicResult_t.reserved"),
    "number as opaque pointer in HIP": ("_hip", "int hipDevice_t", "hsakit_opaque hipDevice_t", "hipDevice_t"),
}


@pytest.mark.parametrize("plant", [pytest.param(name, marks=marks_of(planted[0])) for name, planted in PLANTS.items()])
def test_a_planted_mistake_is_named_by_the_compiler(plant, cc, tmp_path):
    module, right, wrong, named = PLANTS[plant]
    text = declarations(module)
    assert right in text
    said = complaints(module, text.replace(right, wrong), cc, tmp_path)
    assert named in said  # the compiler quotes the assertions that fail, and no others
