"""`script/faults [--quick] [--only WORD]`: try every family, print what became of the work, write the table."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import platform
import tempfile
import time
from collections import Counter
from datetime import date
from importlib import import_module
from pathlib import Path

import torch

import odeum
from faults.families import FAMILIES, Trial
from odeum.lab.cli import VERBS
from odeum.lab.cli import main as run
from odeum.lab.tasks import open_task
from odeum.lab.train.provenance import git_revision

PAGE = Path(__file__).parent.parent.parent / "docs" / "guarantees.md"
BEGIN, END = "<!-- faults: written by script/faults -->", "<!-- /faults -->"
WORDS = ("survived", "lost", "silent")


def warm() -> None:
    """Import what children need; nothing is trained here, since a fork does not take autograd's threads along."""
    for name in (
        "odeum.hf",
        "tokenizers",
        "torch._dynamo",
        "matplotlib.pyplot",
        "rich.table",
        "PIL.Image",
        "odeum.lab.study.execute",
    ):
        import_module(name)
    for name in (
        "odeum.lab.train",
        "odeum.lab.tasks.run",
        "odeum.lab.study",
        *(module for module, _ in VERBS.values()),
    ):
        import_module(name)
    torch.set_num_threads(1)
    open_task("digits")
    with contextlib.redirect_stdout(io.StringIO()):
        run(["describe", "sequential", "--model", "vit_8"])


def attempt(quick: bool, only: str = "") -> tuple[dict[str, Counter[str]], list[str]]:
    """The counts of each family, and what went wrong."""
    counts: dict[str, Counter[str]] = {}
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="odeum-faults-") as root:
        trial = Trial(Path(root), quick)
        for name, family in FAMILIES.items():
            if only not in name:
                continue
            begin, counts[name] = time.monotonic(), Counter()
            for outcome in family(trial):
                counts[name][outcome.word] += 1
                if outcome.word != "survived":
                    wrong.append(f"{outcome.word}: {outcome.what}")
                    print(f"  {wrong[-1]}", flush=True)
            print(f"{_line(name, counts[name])} {time.monotonic() - begin:.0f} s", flush=True)
    return counts, wrong


def _line(name: str, count: Counter[str]) -> str:
    return f"| {name} | {sum(count.values())} | {' | '.join(str(count[word]) for word in WORDS)} |"


def write(counts: dict[str, Counter[str]], command: str) -> None:
    """Put the table where docs/guarantees.md has a place for it."""
    rows = [_line(name, count) for name, count in counts.items()]
    rows.append(_line("**all**", sum(counts.values(), Counter())))
    versions = f"odeum {odeum.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    table = "\n".join(["| fault | tried | survived | lost | silent |", "|:--|--:|--:|--:|--:|", *rows])
    note = f"`{command}`, {date.today()}, commit {git_revision()}, {versions}, {platform.system()}."
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{table}\n\n{note}\n{END}{after}", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="script/faults", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a sample of each family, in minutes")
    parser.add_argument("--only", default="", help="families whose name holds this word; the page is left alone")
    chosen = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    warm()
    begin = time.monotonic()
    counts, wrong = attempt(chosen.quick, chosen.only)
    print(f"{_line('all', sum(counts.values(), Counter()))} {time.monotonic() - begin:.0f} s")
    if not chosen.only:
        write(counts, "script/faults" + (" --quick" if chosen.quick else ""))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
