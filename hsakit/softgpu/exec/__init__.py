"""The instruction executor: kernels on the software node."""
