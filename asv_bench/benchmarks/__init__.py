"""Benchmarks that airspeed velocity runs, made from the registry: a new class of problems needs no edit here.

A profile is an asv machine; ``GRADGATE_PROFILE`` names the one that is benchmarked.
"""

import os

if "GRADGATE_IMPORT" in os.environ:  # so that the processes which benchmarks start import the same commit
    os.environ["PYTHONPATH"] = os.environ["GRADGATE_IMPORT"]
