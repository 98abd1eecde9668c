"""Benchmark commits on hardware profiles: ``python asv_bench/bench.py --profiles cpu,tpu-v5p --commits main~5..main``.

One ``asv run`` per profile, under the profile's name as the machine. Earlier measurements are reused: bytes come from
the measurement cache, and without ``--again`` a commit is skipped if the machine has results for it. asv writes the
points of a commit before it begins the next one, and newer commits come first. So a run that is stopped keeps what it
has measured, and the newest commit never waits for old ones.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import history
from asv.machine import MachineCollection
from asv.util import load_json
from benchmarks.common import derive

from gradgate.hw_profiles import profile as hardware
from gradgate.references.contract import UsageError
from gradgate.suites.gate.git import Repository

HERE = Path(__file__).resolve().parent
MACHINES = HERE / ".asv" / "machines.json"
QUICK = r"^figures\."


def main() -> int:
    """Run asv for every profile; the exit status: 0, 2 if a benchmark failed, 3 for wrong usage."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--profiles", default="cpu", help="names, separated by commas; 'all': every profile whose compiler is installed"
    )
    parser.add_argument(
        "--commits", metavar="RANGE", help="a range of commits, as for git log (default: HEAD; with --missing: none)"
    )
    parser.add_argument(
        "--missing",
        action="store_true",
        help="the commits of the branch that a profile lacks, from the first one that it has; without any, HEAD",
    )
    parser.add_argument("--most", type=int, metavar="N", help="no more than the N newest of them, for each profile")
    parser.add_argument(
        "--full", action="store_true", help="also measure errors, times, imports and memory, which need runs"
    )
    parser.add_argument("--again", action="store_true", help="also measure commits that have results")
    chosen = parser.parse_args()
    try:
        profiles = [hardware.load(name) for name in _names(chosen.profiles)]
        asked = _hashes(chosen.commits or "HEAD^!") if chosen.commits or not chosen.missing else []
        branch = _branch() if chosen.missing else []
    except (hardware.ProfileError, UsageError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 3
    statuses = [_run(profile, chosen, asked, branch) for profile in profiles]
    return 2 if any(statuses) else 0


def _names(text: str) -> list[str]:
    if text != "all":
        return [name.strip() for name in text.split(",")]
    return [p.name for p in hardware.load_all() if hardware.availability(p).available]


def _hashes(commits: str) -> list[str]:
    """The commits of a range, newest first; of a merge, its first parents, because asv draws these.

    Raises:
        UsageError: git does not know the range, or it is empty.
    """
    command = ["git", "rev-list", "--first-parent", "--end-of-options", commits]
    ran = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    if ran.returncode or not ran.stdout.strip():
        reason = (ran.stderr.strip().splitlines() or ["it is empty"])[0]
        raise UsageError(f"no commits in {commits!r} ({reason}); give a range such as main~5..main, or HEAD^!")
    return ran.stdout.split()


def _branch() -> list[str]:
    """The commits of the branch whose history is drawn, newest first.

    Raises:
        UsageError: the clone is shallow, or has no such branch.
    """
    if Repository.around(HERE).shallow:
        raise UsageError("the clone is shallow, so it does not show which commits are missing: git fetch --unshallow")
    return _hashes(load_json(str(HERE / "asv.conf.json"), 1, js_comments=True)["branches"][0])


def _run(profile: hardware.Profile, chosen: argparse.Namespace, asked: list[str], branch: list[str]) -> int:
    """Benchmark one profile; says what is left out. Not zero if something failed."""
    present = hardware.availability(profile)
    if not present.available:
        print(f"bench: {profile.name}: {present.reason}", file=sys.stderr)
        return 2
    results, wanted = HERE / ".asv" / "results", asked
    if chosen.missing:
        missing = history.missing(results, profile.name, branch)
        for commit in missing.given_up:
            print(
                f"bench: {profile.name}: {commit[:8]} failed {history.TRIES} times; --commits {commit[:8]}^! tries it"
            )
        order = {commit: place for place, commit in enumerate(branch)}
        wanted = sorted({*asked, *missing.commits}, key=lambda commit: order.get(commit, -1))
    if chosen.most is not None and len(wanted) > chosen.most:
        print(f"bench: {profile.name}: {len(wanted) - chosen.most} older commits are left for another --missing")
        wanted = wanted[: chosen.most]
    if not wanted:
        print(f"bench: {profile.name}: no commit is missing")
        return 0
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
    MACHINES.parent.mkdir(exist_ok=True)
    MachineCollection.save(profile.name, facts, str(MACHINES))
    command = [sys.executable, "-m", "asv", "run", "HASHFILE:-", "--machine", profile.name, "--show-stderr"]
    command += [] if chosen.full and profile.compiler == "host" else ["--bench", QUICK]
    command += [] if chosen.again else ["--skip-existing-successful"]
    manifest = HERE / ".asv" / f"manifest-{profile.name}.json"
    manifest.write_text(json.dumps(derive(profile.name)))
    alive = HERE / ".asv" / f"alive-{profile.name}"
    shutil.rmtree(alive, ignore_errors=True)
    alive.mkdir()
    environment = {**os.environ, "GRADGATE_PROFILE": profile.name, "GRADGATE_MANIFEST": str(manifest)}
    environment["GRADGATE_ALIVE"] = str(alive)
    ran = subprocess.run(command, cwd=HERE, env=environment, input="\n".join(wanted), text=True, check=False)
    history.record_alive(results, profile.name, alive)
    failed = history.record_tries(results, profile.name, wanted)
    if failed:
        print(f"bench: {profile.name}: no points of {', '.join(commit[:8] for commit in failed)}", file=sys.stderr)
    return ran.returncode or len(failed)


if __name__ == "__main__":
    sys.exit(main())
