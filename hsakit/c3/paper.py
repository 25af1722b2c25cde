"""What the C3 / ConCCL paper published (arXiv 2412.14335, on eight MI300X): targets to put beside what is measured.

Point averages of 9 runs, without dispersion. Marked (2nd): taken from a summary of the paper, not from its text.
"""

from __future__ import annotations

# Average per cent of ideal over the paper's 30 scenarios, whose table of shapes is not public.
PERCENT_OF_IDEAL = {"c3_base": 21, "c3_sp": 42, "c3_rp": 41, "c3_sp_rp": 42, "conccl": 66, "conccl_rp": 72}

BEST_SPEEDUP = 1.67  # over serial, of ConCCL
ALL_TO_ALL_SPEEDUP = {"c3_base": 1.05, "conccl": 1.43}
BASE_SPEEDUP = 1.13  # average of c3_base (2nd)
GEMM_WITHOUT_CUS = {32: 1.17, 64: 1.27}  # slowdown of a compute-bound GEMM by CUs taken away (2nd)
SATURATION = {"all-gather": 32, "all-to-all": 64}  # CUs from which a collective of kernels is no faster
LIBRARY_WORKGROUPS = {"all-gather": 64, "all-to-all": 56}  # the CU-based library's defaults
HEURISTIC = {"hits": 24, "of": 30, "worst_loss": 0.015}
