"""Which CU masks a sweep goes through."""

from __future__ import annotations

from dataclasses import dataclass

from hsakit.culayout import CuLayout
from hsakit.cumask import CuMask
from hsakit.ffi.errors import InvalidArgument
from hsakit.sweep.sizes import parse_numbers

ALL = "all"
STEP = 8  # CUs: one of each XCC of an MI300X
QUICK = (8, 64)


@dataclass(frozen=True)
class Masks:
    """counts: so many CUs, taken evenly. per_xcc: so many of each XCC. explicit: bits. All CUs come first, always."""

    counts: tuple[int, ...] = ()
    per_xcc: tuple[int, ...] = ()
    explicit: tuple[tuple[int, ...], ...] = ()

    def of(self, layout: CuLayout) -> dict[str, CuMask]:
        """The masks by name. InvalidArgument for those that this part cannot have."""
        every = CuMask.all(layout)
        fewest = min(every.xcc_counts)
        for n in self.counts:
            if not layout.xccs <= n <= layout.count:
                one_each = f", one of each of its {layout.xccs} XCCs at least" if layout.xccs > 1 else ""
                raise InvalidArgument(f"{n} CUs: a mask of this part has {layout.xccs} to {layout.count}{one_each}")
        for n in self.per_xcc:
            if not 1 <= n <= fewest:
                raise InvalidArgument(f"{n} CUs of each XCC: a mask of this part has 1 to {fewest}")
        masks = {ALL: every}
        masks |= {str(n): every.first(n) for n in self.counts if n != layout.count}
        masks |= {f"{n}/xcc": every.per_xcc(n) for n in self.per_xcc}
        for bits in self.explicit:
            mask = CuMask.from_bits(layout, bits, allow_empty_xcc=True)
            if mask.empty_xccs:
                raise InvalidArgument(
                    f"mask {mask.value:#x} leaves XCC {', '.join(map(str, mask.empty_xccs))} no CU, which can hang a "
                    f"dispatch: bit i is a CU of XCC i % {layout.xccs}"
                )
            mask = CuMask(layout, mask.value)
            masks[f"{mask.value:#x}"] = mask
        return masks


def default(layout: CuLayout) -> Masks:
    """Every eighth number of CUs."""
    step = max(STEP, layout.xccs)
    return Masks(counts=tuple(range(step, layout.count, step)))


def parse_mask(text: str) -> tuple[int, ...]:
    """Bits of a mask: ``0xff00000000``, or numbers and ranges, ``0-7,32``."""
    if text[:2].lower() == "0x":
        try:
            value = int(text, 16)
        except ValueError:
            value = None
        if value == 0:
            raise InvalidArgument(f"mask {text!r} names no CU: bit i is CU i")
        if value:
            return tuple(bit for bit in range(value.bit_length()) if value >> bit & 1)
    else:
        return parse_numbers(text)
    raise InvalidArgument(f"mask {text!r}: expected bits as 0xff00000000, or as 0-7,32")
