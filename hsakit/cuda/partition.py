"""A GPU cut in two: green contexts, each with multiprocessors of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from hsakit.cuda import driver
from hsakit.ffi import CUDA
from hsakit.ffi._cuda import ffi
from hsakit.ffi.errors import InvalidArgument, check_cuda

if TYPE_CHECKING:
    from hsakit.cuda.gpu import CudaGpu


class Part(NamedTuple):
    """``sms`` multiprocessors, as the driver reads them back."""

    green: int
    context: int
    sms: int


class Parts(NamedTuple):
    first: Part
    rest: Part


def cut(cu_mask: Iterable[int], count: int) -> tuple[int, bool]:
    """Where a mask cuts ``count`` multiprocessors, and whether it names the part behind the cut."""
    chosen = sorted(set(cu_mask))
    for n, last in ((len(chosen), False), (count - len(chosen), True)):
        if chosen and chosen == list(range(n, count) if last else range(n)):
            return n, last
    raise InvalidArgument(
        f"a mask of {len(chosen)} multiprocessors: one of the first ones, range(n), or of the others, range(n, {count})"
    )


def split(gpu: CudaGpu, n: int) -> Parts:
    """``n`` multiprocessors, and the others. InvalidArgument unless the driver grants exactly so many."""
    lib, whole = driver.lib(), ffi.new("CUdevResource *")
    kind = CUDA.CU_DEV_RESOURCE_TYPE_SM
    # CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource* resource, CUdevResourceType type)
    check_cuda("cuDeviceGetDevResource", lib.cuDeviceGetDevResource(gpu.device, whole, kind))
    first, rest, groups = ffi.new("CUdevResource *"), ffi.new("CUdevResource *"), ffi.new("unsigned int *", 1)
    # CUresult cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* nbGroups, const CUdevResource* input,
    #     CUdevResource* remaining, unsigned int useFlags, unsigned int minCount)
    check_cuda("cuDevSmResourceSplitByCount", lib.cuDevSmResourceSplitByCount(first, groups, whole, rest, 0, n))
    if groups[0] != 1 or first.sm.smCount != n or rest.sm.smCount == 0:
        step = whole.sm.smCoscheduledAlignment
        raise InvalidArgument(
            f"{n} multiprocessors of {gpu.label}: the driver grants {first.sm.smCount} and leaves {rest.sm.smCount}"
            + (f"; they come in steps of {step}, {whole.sm.minSmPartitionSize} at the least" if step else "")
        )
    return Parts(_make(gpu, first), _make(gpu, rest))


def _make(gpu: CudaGpu, resource) -> Part:
    lib, description, green = driver.lib(), ffi.new("CUdevResourceDesc *"), ffi.new("CUgreenCtx *")
    # CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *phDesc, CUdevResource *resources, unsigned int nbResources)
    check_cuda("cuDevResourceGenerateDesc", lib.cuDevResourceGenerateDesc(description, resource, 1))
    # CUresult cuGreenCtxCreate(CUgreenCtx* phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags)
    flags = CUDA.CU_GREEN_CTX_DEFAULT_STREAM
    check_cuda("cuGreenCtxCreate", lib.cuGreenCtxCreate(green, description[0], gpu.device, flags))
    context, granted = ffi.new("CUcontext *"), ffi.new("CUdevResource *")
    # CUresult cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
    check_cuda("cuCtxFromGreenCtx", lib.cuCtxFromGreenCtx(context, green[0]))
    # CUresult cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource* resource, CUdevResourceType type)
    status = lib.cuGreenCtxGetDevResource(green[0], granted, CUDA.CU_DEV_RESOURCE_TYPE_SM)
    check_cuda("cuGreenCtxGetDevResource", status)
    return Part(green[0], context[0], granted.sm.smCount)
