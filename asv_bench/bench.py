"""Benchmark commits on hardware profiles: ``python asv_bench/bench.py --profiles cpu,tpu-v5p --commits main~5..main``.

One ``asv run`` per profile, under the profile's name as the machine. Earlier measurements are reused: bytes come from
the measurement cache, and without ``--again`` a commit is skipped if the machine has results for it.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from asv.machine import MachineCollection
from benchmarks.common import derive

from gradgate.hw_profiles import profile as hardware

HERE = Path(__file__).resolve().parent
QUICK = r"^figures\."


def main():
    """Run asv for every profile; the exit status: 0, 2 if a benchmark failed, 3 for wrong usage."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--profiles", default="cpu", help="names, separated by commas; 'all': every profile whose compiler is installed"
    )
    parser.add_argument("--commits", default="HEAD^!", help="a range of commits, as for git log (default: HEAD)")
    parser.add_argument(
        "--full", action="store_true", help="also measure errors, times, imports and memory, which need runs"
    )
    parser.add_argument("--again", action="store_true", help="also measure commits that have results")
    chosen = parser.parse_args()
    try:
        profiles = [hardware.load(name) for name in _names(chosen.profiles)]
    except hardware.ProfileError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 3
    statuses = [_run(profile, chosen) for profile in profiles]
    return 2 if any(statuses) else 0


def _names(text):
    if text != "all":
        return [name.strip() for name in text.split(",")]
    return [p.name for p in hardware.load_all() if hardware.availability(p).available]


def _run(profile, chosen):
    present = hardware.availability(profile)
    if not present.available:
        print(f"bench: {profile.name}: {present.reason}", file=sys.stderr)
        return 2
    # Only facts of the profile: a version here would split every line of the dashboard at each update.
    memory = str(profile.memory_bytes or "")
    facts = {
        "machine": profile.name,
        "os": "",
        "arch": profile.kind,
        "cpu": profile.compiler,
        "num_cpu": "",
        "ram": memory,
    }
    MachineCollection.save(profile.name, facts)
    command = [sys.executable, "-m", "asv", "run", chosen.commits, "--machine", profile.name, "--show-stderr"]
    command += [] if chosen.full and profile.compiler == "host" else ["--bench", QUICK]
    command += [] if chosen.again else ["--skip-existing-successful"]
    manifest = HERE / ".asv" / f"manifest-{profile.name}.json"
    manifest.parent.mkdir(exist_ok=True)
    manifest.write_text(json.dumps(derive(profile.name)))
    environment = {**os.environ, "GRADGATE_PROFILE": profile.name, "GRADGATE_MANIFEST": str(manifest)}
    return subprocess.run(command, cwd=HERE, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
