"""Pages, the address space and who may touch what: byte for byte, and every way to miss."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsakit.softgpu.memory import PAGE, PROT_READ, PROT_WRITE, AddressSpace, Backing, MemoryFault, Overlap
from hsakit.softgpu.uapi import C, ffi

PRIVATE_ANONYMOUS = 0x22


# -- pages ------------------------------------------------------------------------------------------------------------


def close(backing: Backing) -> None:
    C.munmap(ffi.cast("void *", backing.base), backing.size)
    os.close(backing.fd)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 6), st.integers(0, 40)), max_size=60))
def test_page_allocator_never_overlaps_and_joins_what_is_freed(steps):
    backing = Backing("test", 32 * PAGE)
    live: dict[int, int] = {}
    for allocate, pages, which in steps:
        if allocate:
            offset = backing.allocate(pages * PAGE)
            if offset is None:
                taken = np.zeros(32, dtype=bool)
                for start, size in live.items():
                    taken[start // PAGE : (start + size) // PAGE] = True
                free = "".join("x" if t else "." for t in taken)
                assert "." * pages not in free  # refused only where there is no such gap
                continue
            assert 0 <= offset and offset + pages * PAGE <= 32 * PAGE
            assert all(offset + pages * PAGE <= start or start + size <= offset for start, size in live.items())
            live[offset] = pages * PAGE
        elif live:
            offset = sorted(live)[which % len(live)]
            backing.free(offset, live.pop(offset))
        assert backing.used == sum(live.values())
    for offset, size in live.items():
        backing.free(offset, size)
    assert backing.allocate(32 * PAGE) == 0  # all in one piece again
    close(backing)


def test_freed_pages_come_back_zeroed():
    backing = Backing("test", 4 * PAGE)
    offset = backing.allocate(PAGE)
    bytes_ = ffi.buffer(ffi.cast("void *", backing.base + offset), PAGE)
    bytes_[:] = b"\xa5" * PAGE
    backing.free(offset, PAGE)
    assert backing.allocate(PAGE) == offset
    assert bytes_[:] == bytes(PAGE)
    close(backing)


# -- the table --------------------------------------------------------------------------------------------------------


@pytest.fixture
def space():
    """Two allocations with a gap: A [0x10000, 0x12000) of GPUs 0 and 1, B [0x20000, 0x21000) of GPU 0, read-only."""
    made = AddressSpace()
    made.pages = np.random.default_rng(1).integers(0, 256, 3 * PAGE, dtype=np.uint8)
    made.add(0x10000, 0x2000, made.pages.ctypes.data, "A").gpus.update({0, 1})
    made.add(0x20000, 0x1000, made.pages.ctypes.data + 0x2000, "B", read_only=True).gpus.add(0)
    return made


def fault(space, gpu: int, address: int, nbytes: int, write: bool = False) -> MemoryFault:
    with pytest.raises(MemoryFault) as caught:
        space.place(gpu, address, nbytes, write)
    return caught.value


def test_places_are_where_the_bytes_are(space):
    base = space.pages.ctypes.data
    assert space.place(0, 0x10000, 1, False).pointer == base
    assert space.place(1, 0x11FF8, 8, True).pointer == base + 0x1FF8
    assert space.place(0, 0x20000, 0x1000, False).pointer == base + 0x2000


def test_an_address_outside_names_the_nearest_allocation(space):
    assert "1 bytes before A [0x10000, 0x12000)" in str(fault(space, 0, 0xFFFF, 1))
    assert "0 bytes past A" in str(fault(space, 0, 0x12000, 1))
    assert "256 bytes past A" in str(fault(space, 0, 0x12100, 1))
    assert "4096 bytes before B [0x20000, 0x21000)" in str(fault(space, 0, 0x1F000, 1))
    assert "there is no allocation" in str(fault(AddressSpace(), 0, 0x1000, 1))


def test_an_access_past_the_end_faults_at_the_end(space):
    error = fault(space, 0, 0x11FFF, 2)
    assert (error.address, error.present) == (0x12000, False)
    assert "began at 0x11fff" in str(error)


def test_only_gpus_that_were_granted(space):
    error = fault(space, 2, 0x10010, 4)
    assert (error.gpu, error.address, error.present) == (2, 0x10010, False)
    assert "not mapped for this GPU" in str(error) and "GPUs [0, 1]" in str(error)


def test_read_only_memory_is_present_but_not_written(space):
    space.place(0, 0x20000, 8, write=False)
    error = fault(space, 0, 0x20000, 8, write=True)
    assert error.present and "read-only" in str(error)


def test_removed_memory_is_gone_and_its_range_may_be_used_again(space):
    allocation = space.find(0x10000)
    before = space.generation
    space.remove(allocation)
    assert space.generation > before and len(space) == 1
    fault(space, 0, 0x10000, 1)
    space.add(0x11000, 0x1000, 0, "C")
    with pytest.raises(Overlap, match="C"):
        space.add(0x10000, 0x1001, 0, "D")


def test_the_two_halves_of_a_ring_are_the_same_pages():
    space = AddressSpace()
    space.add(0x10000, 0x4000, 0x7000, "aql-ring", bytes=0x2000).gpus.add(0)
    assert space.place(0, 0x12010, 64, True).pointer == space.place(0, 0x10010, 64, True).pointer


# -- pinned memory of the process -------------------------------------------------------------------------------------


@pytest.fixture
def mapped():
    """Four pages of this process that a test may unmap: their address."""
    base = C.mmap(ffi.NULL, 4 * PAGE, PROT_READ | PROT_WRITE, PRIVATE_ANONYMOUS, -1, 0)
    yield int(ffi.cast("uintptr_t", base))
    C.munmap(base, 4 * PAGE)


def bytes_at(address: int, nbytes: int) -> bytes:
    return bytes(ffi.buffer(ffi.cast("void *", address), nbytes))


def pin(space, start: int, pages: int, gpu: int, read_only: bool = False) -> None:
    for piece in space.pinned(start, start + pages * PAGE):
        piece.gpus.add(gpu)
        piece.read_only = read_only


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 15), st.integers(1, 8), st.integers(0, 3), st.booleans()), max_size=12))
def test_pins_that_overlap_keep_each_pages_own_grants(steps):
    """Against a table with one entry a page."""
    space, base = AddressSpace(), 0x100000
    pages: dict[int, set[int]] = {}
    for first, count, gpu, drop in steps:
        if drop:
            space.unpin(base + first * PAGE, base + (first + count) * PAGE)
        else:
            pin(space, base + first * PAGE, count, gpu)
        for page in range(first, first + count):
            if drop:
                pages.pop(page, None)
            else:
                pages.setdefault(page, set()).add(gpu)
    for page in range(24):
        for gpu in range(4):
            if gpu in pages.get(page, ()):
                assert space.place(gpu, base + page * PAGE, PAGE, True).pointer == base + page * PAGE
            else:
                fault(space, gpu, base + page * PAGE, PAGE)
    assert len(space) == 0  # pins are no allocations of the driver's


def test_a_range_pinned_in_pieces_is_one_range_to_an_access():
    space = AddressSpace()
    pin(space, 0x10000, 1, 0)
    pin(space, 0x11000, 2, 0)
    assert space.place(0, 0x10800, 0x2000, True) == (0x10800, True)
    pin(space, 0x12000, 1, 0, read_only=True)
    assert fault(space, 0, 0x10800, 0x2000, write=True).address == 0x12000


def test_an_allocation_over_pins_that_the_process_unmapped_replaces_them():
    space = AddressSpace()
    pin(space, 0x10000, 4, 0)
    space.add(0x11000, 0x1000, 0x7000, "memory of GPU 0").gpus.add(1)
    assert space.place(1, 0x11000, 8, True) == (0x7000, False)
    space.place(0, 0x10FF8, 8, True)
    space.place(0, 0x12000, 8, True)
    fault(space, 0, 0x11000, 8)
    with pytest.raises(Overlap):
        space.pinned(0x10000, 0x14000)


def test_copies_to_and_from_pinned_memory(space, mapped):
    pin(space, mapped, 4, 0)
    space.copy(0, mapped + 5, 0x10003, 8000)
    assert bytes_at(mapped + 5, 8000) == space.pages[3:8003].tobytes()
    space.copy(0, mapped + 2 * PAGE + 1, mapped + 5, 8000)  # both sides
    assert bytes_at(mapped + 2 * PAGE + 1, 8000) == space.pages[3:8003].tobytes()
    space.copy(0, 0x10000, mapped + 5, 100)
    assert space.pages[:100].tobytes() == bytes_at(mapped + 5, 100)


@pytest.mark.parametrize("write", [True, False])
def test_pinned_memory_that_the_process_unmapped_is_a_fault(space, mapped, write):
    pin(space, mapped, 4, 0)
    C.munmap(ffi.cast("void *", mapped + PAGE), 3 * PAGE)
    there, here = (mapped + 16, 0x10000) if write else (0x10000, mapped + 16)
    with pytest.raises(MemoryFault, match="unmapped or protected") as caught:
        space.copy(0, there, here, 2 * PAGE)
    assert mapped <= caught.value.address <= mapped + PAGE


def test_control_words_do_not_lie_in_pinned_memory(space, mapped):
    pin(space, mapped, 1, 0)
    with pytest.raises(MemoryFault, match="pinned"):
        space.pointer(0, mapped, 8, write=True)
