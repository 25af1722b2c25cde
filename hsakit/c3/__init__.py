"""Concurrent computation and communication (C3): scenarios, strategies, measurement, report."""
