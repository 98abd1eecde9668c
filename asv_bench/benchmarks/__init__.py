"""Benchmarks that airspeed velocity runs."""
