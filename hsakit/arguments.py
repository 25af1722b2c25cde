"""A kernel's argument block: where each argument lies, what may be put there, and the bytes that the kernel reads.

The layout is the code object's own metadata. It says how large each argument is and whether it is a pointer, but not
what a value means: an ``int`` is packed as an integer, a ``float`` as a floating-point number of the argument's size,
so a float argument wants ``1.0``, not ``1``.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from numbers import Integral
from typing import TYPE_CHECKING

from hsakit.ffi.errors import CodeObjectError, InvalidArgument

if TYPE_CHECKING:
    from hsakit.codeobject import Argument, KernelInfo
    from hsakit.geometry import Geometry
    from hsakit.hsa import Agent
    from hsakit.hsa.memory import BufferHandle, Span

_INTEGERS = {1: struct.Struct("<B"), 2: struct.Struct("<H"), 4: struct.Struct("<I"), 8: struct.Struct("<Q")}
_FLOATS = {2: struct.Struct("<e"), 4: struct.Struct("<f"), 8: struct.Struct("<d")}

# What pack_hidden fills.
_FILLED = frozenset(
    ("hidden_grid_dims", "hidden_dynamic_lds_size")
    + tuple(f"hidden_{what}_{axis}" for what in ("block_count", "group_size") for axis in "xyz")
)

Values = Sequence | Mapping  # in the kernel's order, or by name


class Layout:
    """Where a kernel's arguments lie in its block: made once a kernel, for all of its launches."""

    def __init__(self, info: KernelInfo):
        self.info = info
        self.fields = _fields(info)
        self.by: dict[int | str, _Field] = {field.index: field for field in self.fields}
        self.by.update({field.argument.name: field for field in self.fields if field.argument.name})
        # The size of the block up to the last argument that the caller gives
        self.nbytes = max((field.offset + field.argument.size for field in self.fields), default=0)
        # Memory of the host that the kernel's GPU may access, once asked: it stays so. Of other GPUs' it may not.
        self.admitted: weakref.WeakSet = weakref.WeakSet()
        self.hidden = tuple(argument for argument in info.arguments if argument.kind in _FILLED)

    def __str__(self) -> str:
        return ", ".join(f"{f.argument.name or f.index}: {f.wants}" for f in self.fields) or "no arguments"


class Arguments:
    """The argument block of one prepared launch, ``block``, and what it points to.

    ``changes`` counts the calls of ``set``, ``moves`` those that changed what is to be kept alive. ``agent`` is the GPU
    that will run the kernel: buffers that it may not access are refused.
    """

    def __init__(self, layout: Layout, values: Values, agent: Agent):
        self.info = layout.info
        self.block = bytearray(self.info.kernarg_size)
        self.changes = self.moves = 0
        self._layout = layout
        self._held: list[tuple] = [()] * len(layout.fields)
        self._agent = agent
        self._admitted: weakref.WeakSet | None = None  # memory of other GPUs that the agent may access
        self._by = layout.by
        self._set_all(values)

    def set(self, which: int | str, value, hold: Iterable = ()) -> None:
        """Repack one argument, named or counted from 0, for the launches to come; those in flight keep what they had.

        A pointer is a buffer, a part of one, or an address as ``int``. A value is an ``int``, a ``float``, or bytes of
        exactly the argument's size (anything with the buffer protocol: a struct, an array, a numpy scalar). Buffers are
        kept alive by the launch; for addresses within a struct or a table name their buffers, or signals, in ``hold``.
        """
        try:
            field = self._by[which]
        except KeyError:
            raise InvalidArgument(f"{self.info.name} has no argument {which!r}; it takes {self._layout}") from None
        held: tuple = ()
        if type(value) is int and 0 <= value <= field.top and not hold:  # the usual case, without further questions
            field.pack(self.block, field.offset, value)
        else:
            for each in hold:
                signal = hasattr(each, "handle") and not hasattr(each, "buffer")
                held += (each.handle(),) if signal else self._address(each, "hold")[1]
            put = self._put_pointer if field.argument.pointer else self._put_value
            held = put(field, value) + held
        if held is not self._held[field.index]:  # there is only one empty tuple
            self._held[field.index] = held
            self.moves += 1
        self.changes += 1

    @property
    def nbytes(self) -> int:
        """The size of the block up to the last argument that the caller gives."""
        return self._layout.nbytes

    def buffers(self) -> tuple:
        """What keeps alive the memory that the block points to."""
        return tuple(chain.from_iterable(self._held))

    def pack_hidden(self, geometry: Geometry) -> None:
        """Fill what the runtime owes the kernel besides its own arguments, as HIP does for code object version 5.

        Buffers for printf, hostcalls and the device's heap stay 0: only HIP offers those.
        """
        if not self._layout.hidden:
            return
        block, grid, lds = geometry.block, geometry.grid, geometry.lds
        values = {"hidden_grid_dims": 3, "hidden_dynamic_lds_size": lds}
        for axis, blocks, items in zip("xyz", grid, block):
            values[f"hidden_block_count_{axis}"] = blocks
            values[f"hidden_group_size_{axis}"] = items  # the remainders are 0: every workgroup is full
        for argument in self._layout.hidden:
            _INTEGERS[argument.size].pack_into(self.block, argument.offset, values[argument.kind])

    def _put_pointer(self, field: _Field, value) -> tuple:
        address, held = self._address(value, field.where)
        field.pack(self.block, field.offset, address)
        return held

    def _address(self, value, where: str) -> tuple[int, tuple]:
        """The address that the kernel is to be given, and what keeps the memory alive."""
        buffer = getattr(value, "buffer", None)
        if buffer is not None:
            handle = buffer.handle()
            if handle.agent is not self._agent and handle not in self._layout.admitted:
                self._admit(value, handle)
            return handle.raw + value.offset, (handle,)
        if isinstance(value, (int, Integral)) and not isinstance(value, bool) and 0 <= int(value) < 1 << 64:
            return int(value), ()
        advice = ""
        if hasattr(value, "__array_interface__"):
            advice = "; a numpy array must be locked for the GPU: runtime.lock(array, agents)"
        raise InvalidArgument(
            f"{where} is a pointer: a buffer, a part of one or an address, not {type(value).__name__} {value!r}{advice}"
        )

    def _admit(self, span: Span, handle: BufferHandle) -> None:
        if self._admitted is not None and handle in self._admitted:
            return
        # Without the grant the kernel would fault, far from the line that is wrong.
        if self._agent not in span.buffer.grants:
            raise InvalidArgument(
                f"{self._agent.label} was not granted access to {span}: name it in allocate(access=...), or call the "
                "buffer's allow_access; in HIP, enable_peer_access"
            )
        if handle.agent.kind == "cpu":
            self._layout.admitted.add(handle)
            return
        if self._admitted is None:
            self._admitted = weakref.WeakSet()
        self._admitted.add(handle)

    def _put_value(self, field: _Field, value) -> tuple:
        if field.top >= 0 and isinstance(value, (int, Integral)):
            number = int(value)
            if not -(field.top + 1) // 2 <= number <= field.top:
                raise InvalidArgument(
                    f"{field.where} is {field.wants}: {-(field.top + 1) // 2} to {field.top}, not {number}"
                )
            field.pack(self.block, field.offset, number & field.top)
        elif isinstance(value, float):
            field.pack_float(self.block, value)
        elif hasattr(value, "buffer"):
            raise InvalidArgument(
                f"{field.where} is {field.wants}, not a pointer: {value!r} does not fit"
                + ("; pass its .address if the number is meant" if field.argument.size == 8 else "")
            )
        else:
            field.pack_bytes(self.block, value)
        return ()

    def _set_all(self, values: Values) -> None:
        fields = self._layout.fields
        if not isinstance(values, Mapping):
            if len(values) != len(fields):
                raise InvalidArgument(
                    f"{self.info.name} takes {len(fields)} arguments, not {len(values)}: {self._layout}"
                )
            for index, value in enumerate(values):
                self.set(index, value)
            return
        for which, value in values.items():
            self.set(which, value)
        given = {self._by[which].index for which in values}
        missing = [field.label for field in fields if field.index not in given]
        if missing:
            raise InvalidArgument(f"{self.info.name} lacks {', '.join(missing)}")


class _Field:
    """One argument that the caller gives."""

    def __init__(self, index: int, argument: Argument, kernel: KernelInfo):
        self.index = index
        self.argument = argument
        self.offset = argument.offset
        size = argument.size
        self.label = f"argument {index}" + (f" ({argument.name})" if argument.name else "")
        self.where = f"{self.label} of {kernel.name}"
        self.wants = "a pointer" if argument.pointer else f"{size} {'byte' if size == 1 else 'bytes'} by value"
        self.top = (1 << 8 * size) - 1 if size in _INTEGERS else -1  # the largest integer; -1: not for integers
        self.pack: Callable[[bytearray, int, int], None] = _INTEGERS.get(size, _INTEGERS[8]).pack_into  # an integer

    def pack_float(self, block: bytearray, value: float) -> None:
        packer = _FLOATS.get(self.argument.size)
        if packer is None:
            raise InvalidArgument(f"{self.where} is {self.wants}: there is no floating-point number of that size")
        try:
            packer.pack_into(block, self.offset, value)
        except OverflowError:
            raise InvalidArgument(f"{self.where} is {self.wants}: {value!r} is too large for it") from None

    def pack_bytes(self, block: bytearray, value) -> None:
        size = self.argument.size
        try:
            view = memoryview(value)
        except TypeError:
            kinds = "an int, a float or bytes of that size" if self.top >= 0 else "bytes of that size"
            raise InvalidArgument(f"{self.where} is {self.wants}: {kinds}, not {value!r}") from None
        if view.nbytes != size:
            raise InvalidArgument(f"{self.where} is {self.wants}, not {view.nbytes}: {value!r} does not fit")
        block[self.offset : self.offset + size] = view.tobytes()


def _fields(kernel: KernelInfo) -> list[_Field]:
    fields: list[_Field] = []
    end = 0
    for argument in kernel.arguments:
        if argument.offset < end or argument.offset + argument.size > kernel.kernarg_size:
            raise CodeObjectError(
                kernel.name,
                f"its metadata puts {argument.size} bytes of {argument.kind} at {argument.offset} of an argument block "
                f"of {kernel.kernarg_size} bytes, of which {end} are taken",
            )
        end = argument.offset + argument.size
        if argument.hidden:
            continue
        if argument.kind not in ("by_value", "global_buffer") or argument.pointer and argument.size != 8:
            raise CodeObjectError(
                kernel.name, f"an argument of kind {argument.kind}, which HIP kernels do not have, is not supported"
            )
        fields.append(_Field(len(fields), argument, kernel))
    return fields
