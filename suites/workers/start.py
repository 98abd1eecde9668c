"""How a worker starts: it records what it reads (`gradgate.hw_profiles.recording`) before it imports anything else."""

from __future__ import annotations

import os
import sys

from gradgate.hw_profiles import recording

WALL = "GRADGATE_WALL"
"""Variable with the folders into which a worker may write; it is set by ``gradgate verify --wall``."""

if __name__ == "__main__":
    os.environ.pop("PYTEST_CURRENT_TEST", None)  # a test may have started the worker; none runs in it
    recorder = recording.install()
    if os.environ.get(WALL):
        from gradgate.suites.workers import landlock

        if not landlock.enter(os.environ[WALL].split(os.pathsep)):
            sys.exit("no wall can be put up here, though one was a moment ago")
    from gradgate.suites.workers import variables, worker

    recorder.constants = frozenset(variables.environment())
    worker.run(sys.argv[1:])
