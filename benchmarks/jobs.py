"""Runs side by side: what a whole comparison takes with --jobs 2 beside --jobs 1.

    python benchmarks/jobs.py            # on an idle machine of two cores; writes benchmarks/results/jobs.json

Both commands are run in turns, each in a folder of its own, from the first import to the written page; the ratio is
that of each turn, and all must have found the same numbers. The load of the machine before each turn stands in the
file: where it is not near zero the figure says something of the neighbours too.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from odeum.lab.launch.local import cores
from odeum.lab.train.provenance import versions
from odeum.storage import write_json

RESULT = Path(__file__).parent / "results" / "jobs.json"


def timed(jobs: int, seeds: int, steps: int | None, folder: Path) -> tuple[float, list[str]]:
    """Seconds of the whole command, and what it found."""
    asked = ["compare", "digits", "--seeds", str(seeds), "--jobs", str(jobs), "--quiet", "--out", str(folder)]
    asked += ["--train.steps", str(steps)] if steps else []
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-m", "odeum", *asked], check=True, capture_output=True)
    seconds = time.perf_counter() - begin
    with (folder / "table.csv").open(encoding="utf-8") as file:
        return seconds, [f"{row['architecture']} {row['test_mean']} {row['verdict']}" for row in csv.DictReader(file)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=None, help="of each run, to try the script out (none: the recipe)")
    parser.add_argument("--result", type=Path, default=RESULT)
    asked = parser.parse_args()
    turns = []
    for turn in range(asked.rounds):
        load, seconds, found = os.getloadavg()[0], {}, {}
        for jobs in (1, 2) if turn % 2 == 0 else (2, 1):
            with tempfile.TemporaryDirectory() as folder:
                seconds[jobs], found[jobs] = timed(jobs, asked.seeds, asked.steps, Path(folder) / "out")
        if found[1] != found[2]:
            sys.exit(f"one process found {found[1]}, two found {found[2]}")
        turns.append(
            {"load_before": load, "jobs_1": seconds[1], "jobs_2": seconds[2], "ratio": seconds[2] / seconds[1]}
        )
        print(
            f"jobs 1: {seconds[1]:.1f} s, jobs 2: {seconds[2]:.1f} s, ratio {seconds[2] / seconds[1]:.2f}", flush=True
        )
    facts = {
        "command": " ".join(["python", "benchmarks/jobs.py", *sys.argv[1:]]),
        "date": datetime.date.today().isoformat(),
        "cores": cores(),
        "versions": versions(),
        "seeds": asked.seeds,
        "turns": turns,
        "ratio": statistics.median(turn["ratio"] for turn in turns),
    }
    write_json(asked.result, facts)


if __name__ == "__main__":
    main()
