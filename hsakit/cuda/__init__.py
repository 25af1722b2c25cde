"""NVIDIA's GPUs as a second platform (``hsakit.platform``), through CUDA's driver API alone."""

from hsakit.cuda.node import CudaNode

__all__ = ["CudaNode"]
