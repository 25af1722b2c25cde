"""GEMMs of AMD's own libraries as launches for measurements, through their C APIs: rocBLAS and hipBLASLt.

They exist only as calls that put kernels into a HIP stream. ``StreamQueue`` makes such a stream a queue of the
platform: its work waits for HSA signals, completes one, and has times by stamps of the GPU around it.
"""

from hsakit.blas.queue import StreamQueue

__all__ = ["StreamQueue"]
