"""Bytes and work of methods over sweeps of sizes."""
