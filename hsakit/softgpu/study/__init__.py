"""What the clock's model says of concurrent computation and communication: synthetic kernels, no driver, no bytes."""
