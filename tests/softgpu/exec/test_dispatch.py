"""From packet and kernel descriptor to waves: every work-item once, registers as the ABI says, bad packets refused."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import numpy as np
import pytest

from hsakit.softgpu.clock import Machine, Timeline
from hsakit.softgpu.exec.batch import WaveError
from hsakit.softgpu.exec.dispatch import Dispatch
from hsakit.softgpu.exec.launch import BadDispatch
from hsakit.softgpu.exec.placement import placement
from hsakit.softgpu.exec.state import Registers
from hsakit.softgpu.memory import MemoryFault
from hsakit.softgpu.node import load
from tests.softgpu.exec.machine import Memory, Text

PAGE = 4096
MASK = 0xFFFFFFFF
PLACES = placement(load().gpu, None).cus[0]  # (shader engine, CU), as workgroups are dealt to them
PACKET, QUEUE = 0x7F1234567000, 0x7F2345678000  # only ever handed to the kernel
TICK = 10_000  # picoseconds


class Case:
    """One kernel. ``user``: user SGPRs; s[4:5] begin with the kernarg address unless ``properties`` says otherwise."""

    def __init__(self, text: str, *, properties: int = 8, user: int = 2, ids: int = 7, vgprs: int = 16, agprs: int = 0,
                 group: int = 0, private: int = 0, rsrc1: int = 0, rsrc2: int = 0, preload: int = 0):  # fmt: skip
        self.memory = Memory()
        self.kernarg, self.arguments = self.memory.allocate(PAGE)
        self.descriptor, raw = self.memory.allocate(PAGE)
        self.program = Text(text)
        accum = vgprs // 4 - 1 if vgprs > 4 else 0
        rsrc1 |= (vgprs + agprs) // 8 - 1
        rsrc2 |= user << 1 | ids << 7
        packed = struct.pack("<4Iq20x3I2H4x", group, private, 0, 0, Text.BASE - self.descriptor, accum, rsrc1, rsrc2,
                             properties, preload)  # fmt: skip
        raw[: len(packed)] = list(packed)
        self.group, self.private = group, private
        spec = load()
        timeline = Timeline()
        self.machine = Machine(timeline, spec, spec.model["untuned"])
        self.driver = SimpleNamespace(
            space=self.memory.space,
            spec=spec,
            constants=self.machine.constants,
            timeline=timeline,
            ticks=lambda: 4711,
            apertures=(1 << 20, 1 << 21),
            coherence=None,
            executor=SimpleNamespace(parked={}, registers=Registers(), known={}, samples={}),
            sampled=False,
            host=SimpleNamespace(ahead=0, aligned=lambda when: -(-when // TICK) * TICK),
            processor=SimpleNamespace(wrote=lambda: None, see_doorbells=lambda: False),
        )

    def dispatch(self, grid, workgroup=(64, 1, 1), *, dims: int = 3, group=None, private=None, kernel=None) -> Dispatch:
        sizes = (self.private if private is None else private, self.group if group is None else group)
        kernel = self.descriptor if kernel is None else kernel
        packet = struct.pack("<HH3HH3I2I2Q16x", 2, dims, *workgroup, 0, *grid, *sizes, kernel, self.kernarg)
        return Dispatch(self.driver, self.program, 0, packet, PACKET, QUEUE, placement(self.driver.spec.gpu, None))

    def run(self, *args, **kwargs) -> Dispatch:
        made = self.start(*args, **kwargs)
        self.driver.timeline.run()
        assert made.ended, "the dispatch never ended"
        return made

    def start(self, *args, **kwargs) -> Dispatch:
        made = self.dispatch(*args, **kwargs)
        made.ended = False

        def done():
            made.ended = True

        made.done = done
        self.machine.dispatch(0, made)
        return made

    def output(self, nbytes: int) -> np.ndarray:
        """New memory, its address the kernel's first argument."""
        address, view = self.memory.allocate(-(-nbytes // PAGE) * PAGE)
        self.arguments[:8] = list(address.to_bytes(8, "little"))
        return view


# s[0:1] kernarg, s2-s4 workgroup: {packed work-item id, workgroup x, y, z} to out[global linear id]; counts there, too
EVERY_ITEM = """
    s_load_dwordx2 s[6:7], s[0:1], 0x0
    s_load_dwordx8 s[8:15], s[0:1], 0x8
    v_and_b32_e32 v1, 0x3ff, v0
    v_bfe_u32 v2, v0, 10, 10
    v_bfe_u32 v3, v0, 20, 10
    s_mul_i32 s20, s2, s8
    s_mul_i32 s21, s3, s9
    s_mul_i32 s22, s4, s10
    v_add_u32_e32 v1, s20, v1
    v_add_u32_e32 v2, s21, v2
    v_add_u32_e32 v3, s22, v3
    v_mul_lo_u32 v3, v3, s12
    v_add_u32_e32 v3, v3, v2
    v_mul_lo_u32 v3, v3, s11
    v_add_u32_e32 v3, v3, v1
    v_mul_lo_u32 v3, v3, 20
    v_mov_b32_e32 v5, s2
    v_mov_b32_e32 v6, s3
    v_mov_b32_e32 v7, s4
    v_mov_b32_e32 v4, v0
    global_store_dwordx4 v3, v[4:7], s[6:7]
    v_mov_b32_e32 v8, 1
    global_atomic_add v3, v8, s[6:7] offset:16
    s_endpgm
"""


@pytest.mark.parametrize(
    "grid, workgroup, dims",
    [
        ((64, 1, 1), (64, 1, 1), 1),
        ((1, 1, 1), (256, 1, 1), 1),
        ((1000, 1, 1), (256, 1, 1), 1),
        ((130, 1, 1), (1, 1, 1), 1),
        ((33, 17, 1), (16, 16, 1), 2),
        ((7, 6, 5), (4, 4, 4), 3),
        ((64, 3, 2), (64, 2, 1), 3),
        ((3, 5, 130), (1, 2, 64), 3),
        ((1030, 2, 1), (1024, 1, 1), 2),
        ((40000, 1, 1), (64, 1, 1), 1),  # more than one batch
    ],
)
def test_every_work_item_runs_once(grid, workgroup, dims):
    case = Case(EVERY_ITEM)
    items = grid[0] * grid[1] * grid[2]
    out = case.output(20 * items)
    case.arguments[8:40].view(np.uint32)[:] = [*workgroup, *grid, 0, 0]
    case.run(grid, workgroup, dims=dims)
    got = out[: 20 * items].view(np.uint32).reshape(items, 5)
    z, y, x = np.unravel_index(np.arange(items), grid[::-1])
    assert (got[:, 4] == 1).all()
    assert (got[:, 1:4] == np.stack([x // workgroup[0], y // workgroup[1], z // workgroup[2]], axis=1)).all()
    packed = x % workgroup[0] | y % workgroup[1] << 10 | z % workgroup[2] << 20
    assert (got[:, 0] == packed).all()
    assert not out[20 * items :].any()


# the kernarg address is in s[K:K+1]: s0 to s23 to out[workgroup], by lane 0
def dump(kernarg: int, workgroup: int) -> str:
    moves = "\n".join(f"v_mov_b32_e32 v{2 + i}, s{i}" for i in range(24))
    stores = "\n".join(f"global_store_dwordx4 v1, v[{2 + i}:{5 + i}], s[90:91] offset:{4 * i}" for i in range(0, 24, 4))
    return f"""
        {moves}
        s_load_dwordx2 s[90:91], s[{kernarg}:{kernarg + 1}], 0x0
        s_mov_b64 exec, 1
        s_mul_i32 s92, s{workgroup}, 0x60
        v_mov_b32_e32 v1, s92
        {stores}
        s_endpgm
    """


FIELDS = [  # bit of the descriptor's properties: SGPRs, in the order in which they stand
    (0, lambda case: [0, 1 << 31, MASK, 0xE00000]),
    (1, lambda case: [PACKET & MASK, PACKET >> 32]),
    (2, lambda case: [QUEUE & MASK, QUEUE >> 32]),
    (3, lambda case: [case.kernarg & MASK, case.kernarg >> 32]),
    (4, lambda case: [0, 0]),
    (5, lambda case: [0, 0]),
    (6, lambda case: [48]),
    (7, lambda case: [3]),
    (8, lambda case: [4]),
    (9, lambda case: [5]),
]


@pytest.mark.parametrize("bits", [{3}, {0, 3}, {1, 3}, {1, 2, 3, 4, 5, 6}, {0, 1, 3, 5, 6}, {3, 7, 8, 9}, {*range(10)}])
@pytest.mark.parametrize("ids", [1, 5, 7])
def test_scalar_registers_stand_in_the_abis_order(bits, ids):
    widths = {0: 4, 6: 1, 7: 1, 8: 1, 9: 1}
    kernarg = sum(widths.get(bit, 2) for bit in bits if bit < 3)
    user = sum(widths.get(bit, 2) for bit in bits)
    properties = sum(1 << bit for bit in bits)
    # workgroup ids, workgroup info and the scratch wave offset follow
    case = Case(dump(kernarg, user), properties=properties, user=user, ids=ids | 8, vgprs=32, rsrc2=1, private=48)
    out = case.output(96 * 3)
    case.run((3 * 64, 4, 5), (64, 1, 1))
    want = [x for bit, value in FIELDS if bit in bits for x in value(case)]
    for x in range(3):
        got = out[96 * x : 96 * (x + 1)].view(np.uint32).tolist()
        if ids == 7:  # the last workgroup to write had the highest y and z
            assert got[user : user + 5] == [x, 3, 4, 0, 0][:5]
        assert got[:user] == want and got[user] == x
        after = user + bin(ids).count("1")
        assert got[after : after + 2] == [0, 0]


def test_preloaded_arguments():
    """They follow the user SGPRs, and the kernel begins behind the code that would load them."""
    nops = "s_trap 2\n" * 64  # 256 bytes
    case = Case(nops + dump(0, 5), user=5, vgprs=32, preload=1 << 7 | 3)
    out = case.output(96)
    case.arguments[:16].view(np.uint32)[2:] = [111, 222]
    case.run((64, 1, 1))
    address = int.from_bytes(bytes(case.arguments[:8]), "little")
    assert out[:32].view(np.uint32).tolist()[2:6] == [address >> 32, 111, 222, 0]


def test_mode_and_place():
    text = """
        s_load_dwordx2 s[6:7], s[0:1], 0x0
        s_mov_b64 exec, 1
        s_getreg_b32 s10, hwreg(HW_REG_HW_ID)
        s_getreg_b32 s11, hwreg(HW_REG_XCC_ID, 0, 4)
        s_getreg_b32 s12, hwreg(HW_REG_MODE, 0, 8)
        s_memrealtime s[14:15]
        v_mov_b32_e32 v4, s10
        v_mov_b32_e32 v5, s11
        v_mov_b32_e32 v6, s12
        v_mov_b32_e32 v7, s14
        s_lshl_b32 s2, s2, 4
        v_mov_b32_e32 v1, s2
        global_store_dwordx4 v1, v[4:7], s[6:7]
        s_endpgm
    """
    case = Case(text, rsrc1=0xA5 << 12)
    out = case.output(16 * 700)
    case.run((700 * 64, 1, 1))
    got = out[: 16 * 700].view(np.uint32).reshape(700, 4).tolist()
    for n, (hw_id, xcc, mode, time) in enumerate(got):
        assert xcc == n % 8 and (hw_id >> 13 & 7, hw_id >> 8 & 15) == PLACES[n // 8 % 38]
        assert (mode, time) == (0xA5, 4711)


def test_each_workgroup_has_its_own_lds_and_begins_with_zeros():
    text = """
        s_load_dwordx2 s[6:7], s[0:1], 0x0
        v_lshlrev_b32_e32 v1, 2, v0
        ds_read_b32 v3, v1
        v_mov_b32_e32 v2, s2
        v_add_u32_e32 v2, 1, v2
        ds_add_u32 v1, v2
        ds_read_b32 v4, v1
        s_lshl_b32 s2, s2, 8
        v_add_u32_e32 v1, s2, v1
        v_add_u32_e32 v4, v4, v3
        global_store_dword v1, v4, s[6:7]
        s_endpgm
    """
    case = Case(text, group=256)
    out = case.output(256 * 1500)
    case.run((1500 * 64, 1, 1))
    assert (out[: 256 * 1500].view(np.uint32).reshape(1500, 64) == np.arange(1, 1501)[:, None]).all()


# -- how many are resident ---------------------------------------------------------------------------------------------

# each wave counts itself at out[0], then waits until out[1] is not 0
GATHER = """
    s_load_dwordx2 s[6:7], s[0:1], 0x0
    s_mov_b64 exec, 1
    v_mov_b32_e32 v1, 0
    v_mov_b32_e32 v2, 1
    global_atomic_add v1, v2, s[6:7]
    wait:
    s_sleep 1
    global_load_dword v3, v1, s[6:7] offset:4 sc0 sc1
    v_cmp_eq_u32_e32 vcc, 0, v3
    s_cbranch_vccnz wait
    s_endpgm
"""


@pytest.mark.parametrize(
    "workgroup, options, places",
    [
        (64, {"group": 65536}, 304),  # one a CU, by its LDS
        (1024, {"vgprs": 128}, 304),  # 4 waves of 128 registers a SIMD
        (256, {"vgprs": 256, "agprs": 256}, 304),
        (256, {"group": 20000, "vgprs": 128}, 304 * 3),
    ],
)
def test_workgroups_wait_for_room(workgroup, options, places):
    case = Case(GATHER, **options)
    out = case.output(8).view(np.uint32)
    made = case.start((workgroup * 2000, 1, 1), (workgroup, 1, 1))
    case.driver.timeline.run()
    assert not made.ended and out[0] == places * workgroup // 64
    out[1] = 1
    case.machine.changed()
    case.driver.timeline.run()
    assert made.ended and out[0] == 2000 * workgroup // 64


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, options, code, why",
    [
        ({"grid": (64, 1, 1), "dims": 0}, {}, 16, "0 dimensions"),
        ({"grid": (0, 1, 1)}, {}, 16, "grid"),
        ({"grid": (64, 0, 1)}, {}, 16, "grid"),
        ({"grid": (64, 1, 1), "workgroup": (0, 1, 1)}, {}, 21, "0 work-items"),
        ({"grid": (64, 1, 1), "workgroup": (1025, 1, 1)}, {}, 21, "1025 work-items"),
        ({"grid": (64, 1, 1), "workgroup": (32, 32, 2)}, {}, 21, "2048 work-items"),
        ({"grid": (64, 1, 1), "workgroup": (1024, 1, 1)}, {"vgprs": 256}, 21, "a CU holds 8"),
        ({"grid": (64, 1, 1), "group": 65537}, {}, 17, "65537 bytes of LDS"),
        ({"grid": (64, 1, 1), "kernel": 0}, {}, 18, "no kernel object"),
    ],
)
def test_bad_dispatches(arguments, options, code, why):
    with pytest.raises(BadDispatch, match=why) as caught:
        Case("s_endpgm", **options).dispatch(**arguments)
    assert caught.value.code == code


def test_a_kernel_object_that_is_nowhere_is_a_fault():
    with pytest.raises(MemoryFault, match="not allocated"):
        Case("s_endpgm").dispatch((64, 1, 1), kernel=0x1000)


def test_an_error_is_told_with_kernel_offset_and_workgroup():
    case = Case("s_nop 0\ns_trap 2")
    with pytest.raises(WaveError) as caught:
        case.run((200, 3, 2))
    told = case.dispatch((64, 1, 1)).describe(caught.value)
    assert told.startswith(f"kernel at {case.descriptor:#x}, 's_trap 2' at +0x4, wave 0 of workgroup (0, 0, 0): ")
