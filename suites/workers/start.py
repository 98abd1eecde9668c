"""How a worker starts: it records what it reads (`gradgate.hw_profiles.recording`) before it imports anything else."""

from __future__ import annotations

import os
import sys

from gradgate.hw_profiles import recording

if __name__ == "__main__":
    os.environ.pop("PYTEST_CURRENT_TEST", None)  # a test may have started the worker; none runs in it
    recorder = recording.install()
    from gradgate.suites.workers import variables, worker

    recorder.constants = frozenset(variables.environment())
    worker.run(sys.argv[1:])
