"""Sweeps: plan the points, run each one verified, write a row."""
