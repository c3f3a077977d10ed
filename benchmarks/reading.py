"""Reading data: CPU time and memory from a file to a task that is ready to train, beside an earlier commit.

    python benchmarks/reading.py --beside /path/to/earlier/checkout    # writes benchmarks/results/reading.json

Each reading runs in a process of its own, in turns, with as many threads as there are cores. CPU time is of all
threads. Both sides must give the same fingerprint of the data: the same tokens, splits and labels.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from odeum.lab.train.provenance import git_revision, versions
from odeum.storage import write_json

ROOT = Path(__file__).parent.parent
RESULT = Path(__file__).parent / "results" / "reading.json"
READ = """
import contextlib, json, os, resource, sys, time
import odeum.lab.tasks.language.task, odeum.lab.tasks.classification.task, tokenizers
from odeum.lab.tasks import open_task
def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024
def reset():
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")
reset()
memory, cpu, wall = peak(), time.process_time(), time.perf_counter()
with contextlib.redirect_stderr(None):
    task = open_task(sys.argv[1])
cpu, wall, memory = time.process_time() - cpu, time.perf_counter() - wall, peak() - memory
print(json.dumps({"cpu": cpu, "wall": wall, "memory": memory, "fingerprint": task.fingerprint()}))
"""
"""memory: MB that the peak lies above what the imports took"""


def sentences(random: np.random.Generator, count: int, words: int) -> list[str]:
    """Sentences whose words are distributed like those of a language: rank r has weight 1 / r."""
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    vocabulary = ["".join(random.choice(letters, size)) for size in random.integers(2, 10, 30_000)]
    weights = 1 / np.arange(1, len(vocabulary) + 1)
    drawn = random.choice(len(vocabulary), size=(count, words), p=weights / weights.sum())
    return [" ".join(vocabulary[word] for word in row) + "." for row in drawn.tolist()]


def write_data(folder: Path, megabytes: float, rows: int) -> dict[str, Path]:
    """The files that are read: plain text, CSV and JSON lines."""
    random = np.random.default_rng(0)
    paths = {name: folder / name for name in ("text.txt", "rows.csv", "rows.jsonl")}
    lines = sentences(random, round(megabytes * 1e6 / 75), 14)
    paths["text.txt"].write_text("\n".join(lines) + "\n")
    texts, labels = sentences(random, rows, 12), random.integers(0, 2, rows).tolist()
    with paths["rows.csv"].open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["id", "review", "label"])
        table.writerows(
            [number, text, ["neg", "pos"][label]]
            for number, (text, label) in enumerate(zip(texts, labels, strict=True))
        )
    with paths["rows.jsonl"].open("w") as file:
        for text, label in zip(texts, labels, strict=True):
            file.write(json.dumps({"review": text, "label": label}) + "\n")
    return paths


def measured(checkout: Path, path: Path) -> dict[str, float | str]:
    environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path)], env=environment, cwd=path.parent, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", type=Path, required=True, help="a checkout of an earlier commit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=float, default=50.0, help="of the text")
    parser.add_argument("--rows", type=int, default=500_000, help="of each table")
    parser.add_argument("--result", type=Path, default=RESULT)
    asked = parser.parse_args()
    earlier = subprocess.run(["git", "-C", asked.beside, "rev-parse", "HEAD"], capture_output=True, text=True).stdout
    about: dict[str, object] = {"earlier": earlier.strip()[:12], "commit": git_revision(), "versions": versions()}
    with tempfile.TemporaryDirectory() as folder:
        for name, path in write_data(Path(folder), asked.megabytes, asked.rows).items():
            turns = [(measured(asked.beside, path), measured(ROOT, path)) for _ in range(asked.rounds)]
            if any(before["fingerprint"] != after["fingerprint"] for before, after in turns):
                sys.exit(f"{name}: the data that was read differs")
            about[name] = {
                what: statistics.median(before[what] / after[what] for before, after in turns)
                for what in ("cpu", "wall", "memory")
            } | {"turns": turns}
            print(name, {what: round(about[name][what], 2) for what in ("cpu", "wall", "memory")}, flush=True)
    about |= {"megabytes": asked.megabytes, "rows": asked.rows, "cores": len(os.sched_getaffinity(0))}
    words = ["EARLIER" if word == str(asked.beside) else word for word in sys.argv]
    about |= {"command": " ".join(["python", *words]), "date": datetime.date.today().isoformat()}
    write_json(asked.result, about)


if __name__ == "__main__":
    main()
