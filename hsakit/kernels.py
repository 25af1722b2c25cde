"""Prepared launches of the kernels in ``kernels_src``: the grid that each needs, and its arguments in their places.

    kernels = Kernels(agent)        # an hsa Agent: launches for its queues; a hip Device: launches for its streams
    launch = kernels.copy(dst, src)
    launch.launch(queue)            # as often as wanted; launch.set("src", other) changes an argument

Sizes are in bytes unless said otherwise. What a kernel writes for the host to read is described by a dtype here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hsakit import compiler
from hsakit.ffi.errors import ClosedError, InvalidArgument
from hsakit.gemm import FORMATS, TILES, choose_tile
from hsakit.scoped import Scoped

if TYPE_CHECKING:
    from hsakit import hip, hsa
    from hsakit.geometry import Extent
    from hsakit.hsa.memory import Span
    from hsakit.pattern import Pattern

PLACE = np.dtype([("xcc", "<u4"), ("se", "<u4"), ("cu", "<u4"), ("hw_id", "<u4"), ("start", "<u8"), ("end", "<u8")])
MISMATCH = np.dtype([("count", "<u8"), ("first", "<u8")])  # set to (0, NOWHERE) before a comparison
MEMBER = np.dtype([("value", "<u8"), ("offset", "<u8")])  # of a gate: a signal's address; ticks from the release
REPORT = np.dtype([("state", "<u8"), ("start", "<u8"), ("end", "<u8"), ("looks", "<u8")])
BLOCK = np.dtype([("src", "<u8"), ("nbytes", "<u8"), ("first", "<u4"), ("targets", "<u4")])  # of an exchange
TARGET = np.dtype([("dst", "<u8"), ("flag", "<u8")])
RUNS = np.dtype([("arrived", "<u8"), ("complete", "<u8")])
STEP = np.dtype([("src", "<u8"), ("out", "<u8"), ("nbytes", "<u8"), ("receive", "<u4"), ("send", "<u4")])  # of a ring
NOWHERE = (1 << 64) - 1
RELEASED, TIMED_OUT = 1, 2  # states of a latch's report
SENT_TO, TAKEN_BY = 1, 2  # what a rank of a ring waited for in vain: the previous rank's slice, the next one's slot
SOURCES = 8  # at most, of one reduction
SLOTS, SLICE = 4, 32768  # of a ring, where the caller names none

_WORKGROUP = 256
_TILE = 16384  # bytes that a workgroup copies at a time
_PER_CU = 4  # workgroups a CU that saturate its memory, where the caller names no number
COUNTERS = 64  # bytes of a workgroup's counters in a ring
_ITEMSIZE = {"f32": 4, "f16": 2, "bf16": 2}
_SUMMED = {**_ITEMSIZE, "i32": 4}
_LAYOUTS = ("nn", "nt", "tn", "tt")


class Kernels(Scoped):
    """The kernels for one GPU, each family loaded when its first launch is prepared. ``close()`` unloads them.

    Every method returns a launch of the API that the GPU was taken from. ``options`` are those of that API's
    ``Kernel.prepare``: for HSA ``barrier``, ``acquire`` and ``release``.
    """

    def __init__(self, gpu: hsa.Agent | hip.Device):
        self.gpu = gpu
        self._loaded: dict[str, Any] | None = {}

    def __repr__(self) -> str:
        return f"<Kernels on {self.gpu.label}{', closed' if self._loaded is None else ''}>"

    def close(self) -> None:
        """Unload them, each when its launches in flight are complete. Closing twice is fine."""
        loaded, self._loaded = self._loaded, None
        for module in (loaded or {}).values():
            module.close()

    def kernel(self, family: str, name: str) -> Any:
        """A kernel of a family: of the file ``kernels_src/<family>.hip``, built and loaded if it was not yet."""
        if self._loaded is None:
            raise ClosedError(f"{self!r}: it gives no more launches")
        if family not in self._loaded:
            self._loaded[family] = self.gpu.load(compiler.kernels(family, self.gpu.target.partition(":")[0]))
        return self._loaded[family].kernel(name)

    # Computation

    def gemm(
        self,
        dtype: str,
        layout: str,
        a: Span,
        b: Span,
        c: Span,
        m: int,
        n: int,
        k: int,
        *,
        lda: int | None = None,
        ldb: int | None = None,
        ldc: int | None = None,
        tile: tuple[int, int] | None = None,
        **options,
    ):
        """C = A B for A of m x k, B of k x n and C of m x n elements of ``f32``, ``f16`` or ``bf16``.

        ``layout`` has a letter for A and one for B: ``n`` row-major, ``t`` column-major (stored transposed). C is
        row-major; for a column-major C compute its transpose. Leading dimensions are in elements, by default without
        gaps. 16-bit products are summed in f32. ``tile`` is one of ``gemm.TILES``, by default what
        ``gemm.choose_tile`` says for all CUs of the GPU; name it where launches are to be compared.
        """
        if dtype not in TILES or layout not in _LAYOUTS:
            raise InvalidArgument(f"gemm {dtype!r} {layout!r}: {', '.join(TILES)}, and {', '.join(_LAYOUTS)}")
        if not 1 <= min(m, n, k) <= max(m, n, k) < 1 << 31:
            raise InvalidArgument(f"gemm of m={m}, n={n}, k={k}: each is at least 1 and less than 2**31")
        tile = choose_tile(dtype, m, n, self.gpu.cu_count) if tile is None else tile
        if tile not in TILES[dtype]:
            raise InvalidArgument(f"gemm {dtype} in tiles {tile!r}: {', '.join(map(str, TILES[dtype]))}")
        rows, columns = tile
        arguments: dict[str, Any] = {"m": m, "n": n, "k": k}
        stored = {
            "a": (a, lda, (m, k) if layout[0] == "n" else (k, m)),
            "b": (b, ldb, (k, n) if layout[1] == "n" else (n, k)),
            "c": (c, ldc, (m, n)),
        }
        for name, (memory, pitch, (lines, length)) in stored.items():
            pitch = length if pitch is None else pitch
            arguments |= {name: memory, f"ld{name}": pitch}
            _check_matrix(name, memory, lines, length, pitch, _ITEMSIZE[dtype])
        grid = (-(-n // columns), -(-m // rows))
        return self._prepare("gemm", f"gemm_{dtype}_{layout}_{rows}x{columns}", grid, arguments, **options)

    # Copies

    def copy(self, dst: Span, src: Span, nbytes: int | None = None, *, workgroups: int | None = None, **options):
        """Copy ``nbytes``, by default all of ``src``, by so many workgroups."""
        nbytes = src.nbytes if nbytes is None else nbytes
        _check_room("dst", dst, nbytes)
        _check_room("src", src, nbytes)
        return self._prepare(
            "copy", "copy", self._workgroups(workgroups, nbytes), {"dst": dst, "src": src, "nbytes": nbytes}, **options
        )

    # Sums, and what ranks of a collective do

    def reduce(self, dtype: str, dst: Span, src: Sequence[Span], *, workgroups: int | None = None, **options):
        """The element-wise sum of 1 to 8 sources, in their order, each as large as ``dst``, which may be one of them.

        Elements are ``f32``, ``f16``, ``bf16`` or ``i32`` and aligned to their size; 16-bit floats are summed in f32
        and rounded once. Sums of more take a launch for each 7 more, with ``dst`` among the sources.
        """
        itemsize = _check_summed(dtype)
        if not 1 <= len(src) <= SOURCES:
            raise InvalidArgument(f"{len(src)} sources: a reduction has 1 to {SOURCES}")
        count, rest = divmod(dst.nbytes, itemsize)
        if rest:
            raise InvalidArgument(f"dst: {dst!r} is no whole number of elements of {itemsize} bytes")
        for name, each in (("dst", dst), *((f"src[{p}]", each) for p, each in enumerate(src))):
            _check_room(name, each, dst.nbytes)
            _check_aligned(name, each, itemsize)
        arguments = {"dst": dst, "src": _addresses(src), "sources": len(src), "count": count}
        grid = self._workgroups(workgroups, dst.nbytes)
        launch = self._prepare("reduce", f"reduce_{dtype}", grid, arguments, **options)
        launch.set("src", arguments["src"], hold=src)
        return launch

    def exchange(
        self,
        blocks: Span,
        targets: Span,
        runs: Span,
        inbox: Span,
        late: Span,
        *,
        senders: int,
        workgroups: int,
        limit: int = NOWHERE,
        hold: Sequence[Span] = (),
        **options,
    ):
        """One rank's part of a collective in which every rank writes straight into others' memory.

        ``blocks`` are BLOCKs, each for so many of the TARGETs in ``targets``. When all bytes are there, the flag of
        every target is raised; then it waits until the first ``senders`` 64-bit flags in ``inbox``, this rank's own
        fine-grained memory, were raised as often. ``runs`` is one RUNS of the GPU's own memory. It and all flags are
        zeros before the first run. Blocks may have 0 bytes.

        ``late`` (8 bytes, 0 before) becomes 1 + the number of a flag that did not come within ``limit`` looks: runs and
        flags are then to be set to zeros. ``hold`` names the buffers that blocks and targets have only addresses of.
        """
        for name, table, kind in (("blocks", blocks, BLOCK), ("targets", targets, TARGET)):
            if table.nbytes % kind.itemsize:
                raise InvalidArgument(f"{name}: {table!r} is no whole number of {name} of {kind.itemsize} bytes")
        _check_room("runs", runs, RUNS.itemsize)
        _check_room("inbox", inbox, 8 * senders)
        _check_room("late", late, 8)
        arguments = {
            "blocks": blocks,
            "count": blocks.nbytes // BLOCK.itemsize,
            "targets": targets,
            "told": targets.nbytes // TARGET.itemsize,
            "runs": runs,
            "inbox": inbox,
            "senders": senders,
            "limit": limit,
            "late": late,
        }
        launch = self._prepare("exchange", "exchange", workgroups, arguments, **options)
        launch.set("blocks", blocks, hold=hold)
        return launch

    def ring(
        self,
        steps: Span,
        longest: int,
        ring: tuple[Span, Span, Span],
        late: Span,
        *,
        workgroups: int,
        dtype: str | None = None,
        slots: int = SLOTS,
        slice_: int = SLICE,
        limit: int = NOWHERE,
        hold: Sequence[Span] = (),
        **options,
    ):
        """One rank's part of a collective in which every rank sends to the next one only (``kernels_src/ring.hip``).

        ``steps`` are STEPs, as many on every rank, ``longest`` is the largest ``nbytes`` of any of any rank. ``ring``
        is fine-grained memory of this rank, of the next and of the previous one, each of ``ring_nbytes`` bytes, zeros
        before the first run. All ranks have the same ``workgroups``, ``slots`` (at least 2) and ``slice_`` (bytes, a
        multiple of 16). With ``dtype`` a step that both receives and has a source adds.

        ``late`` (8 bytes, 0 before) becomes SENT_TO or TAKEN_BY, with the step's number from bit 8 on, where a
        neighbour was not there after ``limit`` looks: the ring's memory is then to be set to zeros. ``hold`` names the
        buffers of the steps, which have only their addresses.
        """
        if dtype is not None:
            _check_summed(dtype)
        if slots < 2 or slice_ < 16 or slice_ % 16 or workgroups < 1:
            raise InvalidArgument(
                f"a ring of {workgroups} workgroups, {slots} slots, slices of {slice_} bytes: at least 1 workgroup and "
                "2 slots, slices of a multiple of 16 bytes"
            )
        if steps.nbytes % STEP.itemsize:
            raise InvalidArgument(f"steps: {steps!r} is no whole number of STEPs of {STEP.itemsize} bytes")
        for name, each in zip(("mine", "next", "previous"), ring):
            _check_room(name, each, ring_nbytes(workgroups, slots, slice_))
            _check_aligned(name, each, 16)
        _check_room("late", late, 8)
        words = np.zeros(1, np.dtype([("memory", "<u8", 3), ("slots", "<u4"), ("slice", "<u4")]))
        words[0] = ([each.address for each in ring], slots, slice_)
        arguments = {
            "ring": words,
            "steps": steps,
            "count": steps.nbytes // STEP.itemsize,
            "longest": longest,
            "limit": limit,
            "late": late,
        }
        launch = self._prepare("ring", f"ring_{dtype or 'copy'}", workgroups, arguments, **options)
        launch.set("ring", words, hold=ring)
        launch.set("steps", steps, hold=hold)
        return launch

    # Patterns

    def fill(
        self,
        dst: Span,
        pattern: Pattern,
        offset: int = 0,
        *,
        inverted: bool = False,
        workgroups: int | None = None,
        **options,
    ):
        """Write the pattern's bytes from ``offset`` on into all of ``dst``; ``inverted``: every byte wrong."""
        arguments = {"dst": dst, "nbytes": dst.nbytes, "offset": offset, "base": pattern.base}
        name = "pattern_poison" if inverted else "pattern_fill"
        return self._prepare("pattern", name, self._workgroups(workgroups, dst.nbytes), arguments, **options)

    def compare(
        self, src: Span, pattern: Pattern, mismatch: Span, offset: int = 0, *, workgroups: int | None = None, **options
    ):
        """Compare all of ``src`` with the pattern's bytes from ``offset`` on.

        ``mismatch`` is one MISMATCH in the GPU's own memory, (0, NOWHERE) before: how many bytes differ, and which is
        the first.
        """
        _check_room("mismatch", mismatch, MISMATCH.itemsize)
        arguments = {
            "src": src,
            "nbytes": src.nbytes,
            "offset": offset,
            "base": pattern.base,
            "mismatch": mismatch,
        }
        grid = self._workgroups(workgroups, src.nbytes)
        return self._prepare("pattern", "pattern_compare", grid, arguments, **options)

    def check_product(
        self,
        dtype: str,
        c: Span,
        m: int,
        n: int,
        expected: Span,
        bound: Span,
        rows: int,
        columns: int,
        mismatch: Span,
        **options,
    ):
        """Compare C, m x n elements without gaps, with a float32 matrix of ``rows`` x ``columns`` that it repeats, each
        element within its ``bound``. ``mismatch`` as for ``compare``, but of elements."""
        if dtype not in FORMATS or min(m, n, rows, columns) < 1:
            raise InvalidArgument(f"a product in {dtype!r} of {m} x {n}, repeating {rows} x {columns}: each at least 1")
        _check_room("c", c, m * n * FORMATS[dtype].element.itemsize)
        for name, each in (("expected", expected), ("bound", bound)):
            _check_room(name, each, 4 * rows * columns)
        _check_room("mismatch", mismatch, MISMATCH.itemsize)
        arguments = {
            "c": c,
            "m": m,
            "n": n,
            "expected": expected,
            "bound": bound,
            "rows": rows,
            "columns": columns,
            "mismatch": mismatch,
        }
        grid = max(1, min(m, 2 * _PER_CU * self.gpu.cu_count))
        return self._prepare("product", f"product_{dtype}", grid, arguments, **options)

    # What gates, brackets and calibrates other work

    def census(self, places: Span, workgroups: int, *, naps: int = 0, lds: int = 0, **options):
        """Every workgroup (of one wave) writes where and when it ran: ``places`` holds a PLACE for each.

        It stays for ``naps`` naps of some 8192 clocks. ``lds`` of all that a CU has keeps it to one workgroup a CU.
        """
        _check_room("places", places, workgroups * PLACE.itemsize)
        return self._prepare("census", "census", workgroups, {"places": places, "naps": naps}, lds=lds, **options)

    def latch(
        self, flag: Span, report: Span, *, released: int = 1, limit: int = NOWHERE, workgroups: int = 1, **options
    ):
        """Hold a queue, or so many places on the GPU, until the 64-bit ``flag`` is ``released``, looking ``limit``
        times at most. ``report`` gets a REPORT for each workgroup."""
        _check_room("flag", flag, 8)
        _check_room("report", report, workgroups * REPORT.itemsize)
        arguments = {"flag": flag, "released": released, "limit": limit, "report": report}
        return self._prepare("latch", "latch", workgroups, arguments, **options)

    def conduct(self, flag: Span, table: Span, members: int, report: Span, *, patience: int, **options):
        """Set the signals of a ``table`` of MEMBERs to 0, each at its time after the 64-bit ``flag`` became 0.

        It waits for the flag ``patience`` ticks. ``report`` gets 3 + members words of 64 bits: RELEASED or TIMED_OUT,
        the ticks at which it began and saw the flag, and that of each member. ``set("table", table, hold=signals)``
        keeps the signals alive.
        """
        _check_room("flag", flag, 8)
        _check_room("table", table, members * MEMBER.itemsize)
        _check_room("report", report, 8 * (3 + members))
        arguments = {"flag": flag, "patience": patience, "table": table, "members": members, "report": report}
        return self._prepare("latch", "conduct", 1, arguments, **options)

    def stamp(self, tick: Span, **options):
        """Write the GPU's tick (8 bytes) at the time when it runs."""
        _check_room("tick", tick, 8)
        return self._prepare("latch", "stamp", 1, {"tick": tick}, **options)

    def empty(self, workgroups: Extent = 1, **options):
        """Do nothing: what a launch costs."""
        return self._prepare("latch", "empty", workgroups, {}, **options)

    def _prepare(self, family: str, name: str, grid: Extent, arguments: dict, **options):
        kernel = self.kernel(family, name)
        return kernel.prepare(grid, kernel.info.max_workgroup_size, arguments, **options)

    def _workgroups(self, asked: int | None, nbytes: int) -> int:
        """As many as asked for; by default enough to saturate the GPU, but none that would have nothing to do."""
        return asked if asked is not None else max(1, min(-(-nbytes // _TILE), _PER_CU * self.gpu.cu_count))


def ring_nbytes(workgroups: int, slots: int = SLOTS, slice_: int = SLICE) -> int:
    """The bytes of a rank's memory for a ring: for every workgroup its counters and its slots."""
    return workgroups * (COUNTERS + slots * slice_)


def _addresses(memory: Sequence[Span]) -> np.ndarray:
    packed = np.zeros(SOURCES, np.uint64)
    packed[: len(memory)] = [each.address for each in memory]
    return packed


def _check_summed(dtype: str) -> int:
    if dtype not in _SUMMED:
        raise InvalidArgument(f"sums of {dtype!r}: there are {', '.join(_SUMMED)}")
    return _SUMMED[dtype]


def _check_aligned(name: str, memory: Span, alignment: int) -> None:
    if memory.address % alignment:
        raise InvalidArgument(f"{name}: {memory!r} is not aligned to {alignment} bytes")


def _check_room(name: str, memory: Span, nbytes: int) -> None:
    if memory.nbytes < nbytes:
        raise InvalidArgument(f"{name}: {memory!r} is smaller than the {nbytes} bytes that the kernel will touch")


def _check_matrix(name: str, memory: Span, lines: int, length: int, pitch: int, itemsize: int) -> None:
    if pitch < length:
        raise InvalidArgument(f"ld{name}={pitch}: lines of {name} have {length} elements")
    _check_room(name, memory, ((lines - 1) * pitch + length) * itemsize)
    if memory.address % itemsize:
        raise InvalidArgument(f"{name}: {memory!r} is not aligned to its elements of {itemsize} bytes")
