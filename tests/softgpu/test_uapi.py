"""Our declarations of the kernel driver's interface against the installed linux/kfd_ioctl.h, by the C compiler.

libdrm's amdgpu.h (``amdgpu_gpu_info_head``) is not among the installed headers; what the runtime reads through that
struct is compared in test_sysfs.py.
"""

from __future__ import annotations

import subprocess

import pytest
from cffi import FFI

from hsakit.ffi import loader
from hsakit.softgpu import uapi

# constants of ours -> the header's expression
CONSTANTS = {
    **{name: f"_IOC_NR(AMDKFD_IOC_{c_name})" for name, c_name in {
        "GET_VERSION": "GET_VERSION", "CREATE_QUEUE": "CREATE_QUEUE", "DESTROY_QUEUE": "DESTROY_QUEUE",
        "SET_MEMORY_POLICY": "SET_MEMORY_POLICY", "GET_CLOCK_COUNTERS": "GET_CLOCK_COUNTERS",
        "UPDATE_QUEUE": "UPDATE_QUEUE", "CREATE_EVENT": "CREATE_EVENT", "DESTROY_EVENT": "DESTROY_EVENT",
        "SET_EVENT": "SET_EVENT", "RESET_EVENT": "RESET_EVENT", "WAIT_EVENTS": "WAIT_EVENTS",
        "SET_SCRATCH_BACKING_VA": "SET_SCRATCH_BACKING_VA", "SET_TRAP_HANDLER": "SET_TRAP_HANDLER",
        "GET_TILE_CONFIG": "GET_TILE_CONFIG",
        "GET_PROCESS_APERTURES_NEW": "GET_PROCESS_APERTURES_NEW", "ACQUIRE_VM": "ACQUIRE_VM",
        "ALLOC_MEMORY_OF_GPU": "ALLOC_MEMORY_OF_GPU", "FREE_MEMORY_OF_GPU": "FREE_MEMORY_OF_GPU",
        "MAP_MEMORY_TO_GPU": "MAP_MEMORY_TO_GPU", "UNMAP_MEMORY_FROM_GPU": "UNMAP_MEMORY_FROM_GPU",
        "SET_CU_MASK": "SET_CU_MASK", "SVM": "SVM", "SET_XNACK_MODE": "SET_XNACK_MODE",
        "AVAILABLE_MEMORY": "AVAILABLE_MEMORY", "RUNTIME_ENABLE": "RUNTIME_ENABLE",
    }.items()},
    "QUEUE_TYPE_SDMA": "KFD_IOC_QUEUE_TYPE_SDMA",
    "QUEUE_TYPE_COMPUTE_AQL": "KFD_IOC_QUEUE_TYPE_COMPUTE_AQL",
    "QUEUE_TYPE_SDMA_XGMI": "KFD_IOC_QUEUE_TYPE_SDMA_XGMI",
    "MEM_VRAM": "KFD_IOC_ALLOC_MEM_FLAGS_VRAM",
    "MEM_GTT": "KFD_IOC_ALLOC_MEM_FLAGS_GTT",
    "MEM_USERPTR": "KFD_IOC_ALLOC_MEM_FLAGS_USERPTR",
    "MEM_DOORBELL": "KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL",
    "MEM_MMIO_REMAP": "KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP",
    "MEM_WRITABLE": "KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE",
    "MEM_AQL_QUEUE": "KFD_IOC_ALLOC_MEM_FLAGS_AQL_QUEUE_MEM",
    "MEM_COHERENT": "KFD_IOC_ALLOC_MEM_FLAGS_COHERENT",
    "MEM_UNCACHED": "KFD_IOC_ALLOC_MEM_FLAGS_UNCACHED",
    "EVENT_SIGNAL": "KFD_IOC_EVENT_SIGNAL",
    "EVENT_HW_EXCEPTION": "KFD_IOC_EVENT_HW_EXCEPTION",
    "EVENT_MEMORY": "KFD_IOC_EVENT_MEMORY",
    "SIGNAL_EVENT_LIMIT": "KFD_SIGNAL_EVENT_LIMIT",
    "WAIT_RESULT_COMPLETE": "KFD_IOC_WAIT_RESULT_COMPLETE",
    "WAIT_RESULT_TIMEOUT": "KFD_IOC_WAIT_RESULT_TIMEOUT",
    "WAIT_RESULT_FAIL": "KFD_IOC_WAIT_RESULT_FAIL",
    "SVM_SET_ATTR": "KFD_IOCTL_SVM_OP_SET_ATTR",
    "SVM_ATTR_ACCESS": "KFD_IOCTL_SVM_ATTR_ACCESS",
    "SVM_ATTR_ACCESS_IN_PLACE": "KFD_IOCTL_SVM_ATTR_ACCESS_IN_PLACE",
    "SVM_ATTR_NO_ACCESS": "KFD_IOCTL_SVM_ATTR_NO_ACCESS",
    "SVM_ATTR_SET_FLAGS": "KFD_IOCTL_SVM_ATTR_SET_FLAGS",
    "SVM_ATTR_CLR_FLAGS": "KFD_IOCTL_SVM_ATTR_CLR_FLAGS",
    "SVM_FLAG_GPU_RO": "KFD_IOCTL_SVM_FLAG_GPU_RO",
    **{name: name for name in vars(uapi) if name.startswith("EC_")},
}  # fmt: skip


def fields(struct, prefix: str = "", base: int = 0):
    """(name in C, offset, type) of every field, those of unnamed members as the struct's own."""
    for name, field in struct.fields:
        full = f"{prefix}{name}"
        if field.type.kind in ("struct", "union"):
            yield from fields(field.type, f"{full}." if name else prefix, base + field.offset)
        else:
            yield full, base + field.offset, field.type


def assertions(text: str) -> str:
    ffi = FFI()
    ffi.cdef(text)
    out = []
    for name in ffi.list_types()[1]:
        struct = ffi.typeof(f"struct {name}")
        # A later kernel may add to a call's arguments at their end; it then copies what the caller has.
        relation = ">=" if name.endswith("_args") else "=="
        out.append((f"sizeof(struct {name}) {relation} {ffi.sizeof(struct)}", f"sizeof {name}"))
        for field, offset, type_ in fields(struct):
            what = f"{name}.{field}"
            out.append((f"offsetof(struct {name}, {field}) == {offset}", f"offset of {what}"))
            if type_.kind == "primitive":
                member = f"((struct {name} *)0)->{field}"
                signed = int(type_.cname.startswith("int"))
                out.append((f"sizeof({member}) == {ffi.sizeof(type_)}", f"size of {what}"))
                out.append((f"((__typeof__({member}))-1 < 0) == {signed}", f"sign of {what}"))
    return "".join(f'_Static_assert({condition}, "{what}");\n' for condition, what in out)


def complaints(text: str, cc: str, tmp_path) -> str:
    include = next(parent / "include" for parent in loader.hsa().path.parents if (parent / "include/linux").exists())
    source = tmp_path / "kfd.c"
    # By its path: the machine's own header, which the compiler would find first, may be older.
    source.write_text(f'#include <stddef.h>\n#include "{include}/linux/kfd_ioctl.h"\n{text}')
    folders = [f"-idirafter{folder}" for folder in (include, include / "x86_64-linux-gnu")]
    command = [cc, "-x", "c", "-std=gnu11", "-fsyntax-only", *folders, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.stderr if done.returncode else ""


def test_structs_agree_with_the_installed_header(cc, tmp_path):
    text = assertions(uapi.KFD_STRUCTS)
    assert text.count("_Static_assert") > 300
    assert complaints(text, cc, tmp_path) == ""


def test_constants_agree_with_the_installed_header(cc, tmp_path):
    checks = [
        f'_Static_assert((unsigned int)({c}) == {getattr(uapi, ours)}u, "{ours}");' for ours, c in CONSTANTS.items()
    ]
    checks.append("_Static_assert(_IOC_TYPE(AMDKFD_IOC_SVM) == 'K', \"type\");")
    assert complaints("\n".join(checks), cc, tmp_path) == ""


def test_no_constant_is_left_out():
    """Every upper-case number of the module is compared above, or is not the header's."""
    ours = {name for name, value in vars(uapi).items() if name[0] != "_" and name.isupper() and type(value) is int}
    assert ours - set(CONSTANTS) == {"NONSIGNAL_EVENT"}  # kfd_events.h, which is the kernel's own


@pytest.mark.parametrize(
    ("right", "wrong", "named"),
    [
        ("int32_t xnack_enabled", "uint32_t xnack_enabled", "sign of kfd_ioctl_set_xnack_mode_args.xnack_enabled"),
        ("uint64_t va_addr, size,", "uint64_t size, va_addr,", "offset of kfd_ioctl_alloc_memory_of_gpu_args.size"),
        ("uint64_t last_event_age;", "uint32_t last_event_age;", "size of kfd_hsa_signal_event_data.last_event_age"),
        ("    uint32_t err_event_id, reserved1;\n", "", "sizeof kfd_context_save_area_header"),
    ],
)
def test_a_planted_mistake_is_named(right, wrong, named, cc, tmp_path):
    assert uapi.KFD_STRUCTS.count(right) == 1
    assert named in complaints(assertions(uapi.KFD_STRUCTS.replace(right, wrong)), cc, tmp_path)


def test_atomic_add_wraps_as_the_hardware_does():
    word = uapi.ffi.new("uint64_t *", 1)
    assert uapi.atomic_add64(word, -1) == 1
    assert uapi.atomic_add64(word, -1) == 0
    assert word[0] == 2**64 - 1
