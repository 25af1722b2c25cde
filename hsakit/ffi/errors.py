"""Every exception hsakit raises, and the one place where a status code becomes one.

``check_hsa``, ``check_hip`` and ``check_cuda`` take what the C call returned; no other module looks at a status.
"""

from __future__ import annotations

import math

from hsakit.ffi.constants import CUDA, HIP, HSA

# Success, and two reports that are no failure: a callback ended an iteration, and fewer CUs were enabled than the mask
# named (the queue reads its mask back).
_FINE = frozenset((HSA.HSA_STATUS_SUCCESS, HSA.HSA_STATUS_INFO_BREAK, HSA.HSA_STATUS_CU_MASK_REDUCED))
_HSA_NAMES = {code: name for name, code in vars(HSA).items() if name.startswith("HSA_STATUS_")}


class HsakitError(Exception):
    """Base of all errors that hsakit raises itself."""


class InvalidArgument(HsakitError, ValueError):
    """Refused before the C call; the message says what would be valid."""


class ClosedError(HsakitError):
    """The object, or what it depends on, was closed."""


class ForkError(HsakitError):
    """A GPU object was used in a child of the process that made it: HSA and HIP state does not survive fork()."""


class DeadlineExceeded(HsakitError, TimeoutError):
    """A wait reached its deadline; the message names what was waited for and what had completed."""


class GpuMemoryFault(HsakitError):
    """A GPU touched memory that it may not. ``address`` (int) and ``agent`` are what the driver reported.

    Hardware reports the page, not the byte. ``offset`` is the address counted from the start of the nearest buffer
    (None without one), ``work`` what was in flight on that GPU, in words: one of it did it.
    """

    def __init__(
        self,
        message: str,
        *,
        address: int | None = None,
        agent=None,
        offset: int | None = None,
        work: tuple[str, ...] = (),
    ):
        super().__init__(message)
        self.address = address
        self.agent = agent
        self.offset = offset
        self.work = work


class LibraryNotFound(HsakitError):
    """No usable library. ``searched`` lists (where, why not) in the order tried."""

    def __init__(self, library: str, searched: list[tuple[str, str]], advice: str):
        self.library = library
        self.searched = list(searched)
        self.advice = advice
        tried = "".join(f"\n  {where}: {why}" for where, why in searched)
        super().__init__(f"no usable {library}. {advice}\nSearched:{tried}")


class SymbolMissing(HsakitError):
    """The library that was found lacks a function. ``since`` is the release that brought it, None if not known."""

    def __init__(self, symbol: str, library: str, since: str | None):
        self.symbol = symbol
        self.library = library
        self.since = since
        remedy = f"it came with {since}: use that release or a later one" if since else "is it the right library?"
        super().__init__(f"{symbol} is missing from {library}; {remedy}")


class CompilerNotFound(HsakitError):
    """No compiler for a GPU's kernels. ``searched`` lists (where, why not) in the order tried."""

    def __init__(self, searched: list[tuple[str, str]], advice: str, language: str = "HIP"):
        self.searched = list(searched)
        self.advice = advice
        tried = "".join(f"\n  {where}: {why}" for where, why in searched)
        super().__init__(f"no usable {language} compiler. {advice}\nSearched:{tried}")


class KernelBuildError(HsakitError):
    """The compiler refused a kernel source. ``output`` is what it printed, ``command`` what was run."""

    def __init__(self, source: str, arch: str, command: list[str], output: str):
        self.source = source
        self.arch = arch
        self.command = command
        self.output = output
        super().__init__(f"{source} does not build for {arch}:\n{output.strip() or '(the compiler printed nothing)'}")


class CodeObjectError(HsakitError):
    """A code object that cannot be used: damaged, for another target, or without the kernel asked for."""

    def __init__(self, origin: str, problem: str):
        self.origin = origin
        super().__init__(f"code object {origin}: {problem}")


class _StatusError(HsakitError):
    """``call``, ``code``, ``name`` and ``text`` as the library gives them; ``advice`` is ours, or None."""

    def __init__(self, call: str, code: int, name: str, text: str, advice: str | None = None):
        self.call = call
        self.code = code
        self.name = name
        self.text = text
        self.advice = advice
        sentences = [part if part.endswith((".", "!", "?")) else f"{part}." for part in (text.strip(), advice) if part]
        detail = "".join(f" {sentence}" for sentence in sentences)
        super().__init__(f"{call}: {name} ({self._number(code)}){':' if detail else ''}{detail}")

    @staticmethod
    def _number(code: int) -> str:
        return str(code)


class HsaError(_StatusError):
    """A call of the HSA runtime failed."""

    @staticmethod
    def _number(code: int) -> str:
        return f"0x{code:x}"


class QueueError(HsaError):
    """A queue went into error: its callback reported a status. ``call`` names the queue."""


class GpuException(HsaError):
    """The driver reported that a GPU hangs, or that its memory is bad: nothing more completes."""


LOST = (GpuException, GpuMemoryFault)  # after these nothing of the runtime completes


class HipError(_StatusError):
    """A call of the HIP runtime failed."""


class BlasError(_StatusError):
    """A call of rocBLAS or hipBLASLt failed."""


class CudaError(_StatusError):
    """A call of CUDA's driver, or of a library on top of it, failed."""


def check_deadline(deadline: float) -> None:
    """InvalidArgument unless it is a number of seconds that ends."""
    if not isinstance(deadline, (int, float)) or not 0 <= deadline < math.inf:
        raise InvalidArgument(f"deadline is a number of seconds, not {deadline!r}: every wait has one")


def check_hsa(call: str, status: int, advice: str | None = None) -> None:
    """Raise HsaError unless ``status``, as returned by the function named ``call``, is success or only a report."""
    if status not in _FINE:
        raise HsaError(call, status, *_hsa_words(status), advice)


def queue_error(queue: str, status: int, advice: str | None = None) -> QueueError:
    """The exception for a status given to a queue's error callback (to be raised by the next wait)."""
    return QueueError(queue, status, *_hsa_words(status), advice)


def check_hip(call: str, status: int, advice: str | None = None) -> None:
    """Raise HipError unless ``status``, as returned by the function named ``call``, is hipSuccess."""
    if status != HIP.hipSuccess:
        name, text = _hip_words(status)
        _forget_hip_error()
        raise HipError(call, status, name, text, advice)


def hip_answered(call: str, status: int, answer: int, advice: str | None = None) -> bool:
    """Whether the function named ``call`` returned ``answer``, a code that says something and is no failure.

    False if it returned hipSuccess; HipError for any other code.
    """
    if status == answer:
        _forget_hip_error()
        return True
    if status:
        check_hip(call, status, advice)
    return False


def check_cuda(call: str, status: int, advice: str | None = None) -> None:
    """Raise CudaError unless ``status``, as returned by the function named ``call``, is CUDA_SUCCESS.

    GpuMemoryFault for an illegal address: the driver says no more, and every later call of the process returns it.
    """
    if status == CUDA.CUDA_ERROR_ILLEGAL_ADDRESS:
        raise GpuMemoryFault(f"{call}: a kernel or copy touched memory that it may not; go on in a new process")
    if status != CUDA.CUDA_SUCCESS:
        raise CudaError(call, status, *_cuda_words(status), advice)


def check_nccl(call: str, status: int) -> None:
    """Raise CudaError unless ``status``, as returned by the function named ``call``, is ncclSuccess."""
    if status:
        from hsakit.ffi import loader

        nccl = loader.nccl()
        # const char *ncclGetErrorString(ncclResult_t result)
        raise CudaError(call, status, "ncclResult_t", nccl.ffi.string(nccl.lib.ncclGetErrorString(status)).decode())


def check_cublaslt(call: str, status: int) -> None:
    """Raise CudaError unless ``status``, as returned by the function named ``call``, is CUBLAS_STATUS_SUCCESS."""
    if status:
        from hsakit.ffi import loader

        lt = loader.cublaslt()
        # const char *cublasLtGetStatusName(cublasStatus_t status); const char *cublasLtGetStatusString(...)
        name, text = (say(status) for say in (lt.lib.cublasLtGetStatusName, lt.lib.cublasLtGetStatusString))
        raise CudaError(call, status, lt.ffi.string(name).decode(), lt.ffi.string(text).decode())


def check_rocblas(call: str, status: int, advice: str | None = None) -> None:
    """Raise BlasError unless ``status``, as returned by the function named ``call``, is rocblas_status_success."""
    if status:
        from hsakit.ffi import loader

        blas = loader.rocblas()
        # const char *rocblas_status_to_string(rocblas_status status)
        name = blas.ffi.string(blas.lib.rocblas_status_to_string(status)).decode(errors="replace")
        raise BlasError(call, status, name, "", advice)


def check_hipblaslt(call: str, status: int, advice: str | None = None) -> None:
    """Raise BlasError unless ``status``, as returned by the function named ``call``, is HIPBLAS_STATUS_SUCCESS."""
    if status:
        from hsakit.ffi._hipblaslt import ffi

        names = ffi.typeof("hipblasStatus_t").elements
        raise BlasError(call, status, names.get(status, "unknown status"), "", advice)


def cuda_answered(call: str, status: int, answer: int) -> bool:
    """As ``hip_answered``: whether the function returned ``answer``; False for success, CudaError for other codes."""
    if status == answer:
        return True
    if status:
        check_cuda(call, status)
    return False


def _cuda_words(status: int) -> tuple[str, str]:
    from hsakit.ffi import loader

    cuda = loader.cuda()
    out = cuda.ffi.new("const char **")
    words = []
    # CUresult cuGetErrorName(CUresult error, const char **pStr); CUresult cuGetErrorString(CUresult error, ...)
    for say in (cuda.lib.cuGetErrorName, cuda.lib.cuGetErrorString):
        known = say(status, out) == CUDA.CUDA_SUCCESS and out[0]
        words.append(cuda.ffi.string(out[0]).decode(errors="replace") if known else "")
    return words[0] or "unknown status", words[1]


def _hsa_words(status: int) -> tuple[str, str]:
    from hsakit.ffi import loader  # here: the loader raises what this module defines

    hsa = loader.hsa()
    out = hsa.ffi.new("const char **")
    # hsa_status_t hsa_status_string(hsa_status_t status, const char **status_string)
    failed = hsa.lib.hsa_status_string(status, out)
    text = "" if failed or not out[0] else hsa.ffi.string(out[0]).decode(errors="replace")
    # The runtime's text begins with the code's own name, which a newer runtime may know and we may not.
    name, colon, rest = text.partition(": ")
    if not colon:
        name, rest = "", text
    return _HSA_NAMES.get(status) or name or "unknown status", rest


def _hip_words(status: int) -> tuple[str, str]:
    from hsakit.ffi import loader

    hip = loader.hip()
    # const char *hipGetErrorName(hipError_t hip_error); const char *hipGetErrorString(hipError_t hipError)
    name = hip.ffi.string(hip.lib.hipGetErrorName(status)).decode(errors="replace")
    text = hip.ffi.string(hip.lib.hipGetErrorString(status)).decode(errors="replace")
    return name, text


def _forget_hip_error() -> None:
    # HIP remembers a thread's last error, and some releases keep it over calls that succeed: whoever asks later (a
    # kernel launch of another library in this process) would take it for his own.
    from hsakit.ffi import loader

    # hipError_t hipGetLastError(void)
    loader.hip().lib.hipGetLastError()
