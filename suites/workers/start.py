"""How a worker starts: it records what it reads (`gradgate.hw_profiles.recording`) before it imports anything else."""

from __future__ import annotations

import sys

from gradgate.hw_profiles import recording

if __name__ == "__main__":
    recorder = recording.install()
    from gradgate.suites.workers import worker

    recorder.constants = frozenset(worker.environment())
    worker.run(sys.argv[1:])
