"""Slopes of activations and updates over width and depth, for each architecture with a transfer rule.

python benchmarks/transfer.py            # writes benchmarks/results/transfer.json
python benchmarks/transfer.py --show     # the table of docs/family.md
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from odeum.errors import OdeumError
from odeum.lab.train.coordinate_check import check_transfer
from odeum.lab.train.provenance import git_revision, versions
from odeum.models.settings import find_preset
from odeum.registry.names import ARCHITECTURES
from odeum.registry.spelling import parse
from odeum.storage import write_json

RESULT = Path(__file__).parent / "results" / "transfer.json"


def show(result: dict[str, Any]) -> str:
    """The table of the docs."""
    lines = ["| architecture | update over depth | update over width |", "|---|--:|--:|"]
    for name, slopes in result["slopes"].items():
        if "no rule" not in slopes:
            lines.append(f"| {name} | {slopes['update over depth']:+.2f} | {slopes['update over width']:+.2f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", action="store_true", help="print the table of the results that there are")
    parser.add_argument("--result", type=Path, default=RESULT)
    asked = parser.parse_args()
    if not asked.show and git_revision() is None:
        parser.error("run in a git checkout: the result records its commit")
    if not asked.show:
        settings = replace(find_preset("language_small"), positions="sinusoidal")  # ty: ignore[unknown-argument]
        slopes: dict[str, dict[str, Any]] = {
            "sequential, standard": check_transfer(parse("sequential"), settings, "standard").slopes
        }
        for name in ARCHITECTURES:
            try:
                slopes[name] = check_transfer(parse(name), settings, "completep").slopes
            except OdeumError as error:
                slopes[name] = {"no rule": str(error)}
            print(name, slopes[name], file=sys.stderr, flush=True)
        facts = {
            "command": "python benchmarks/transfer.py",
            "date": datetime.date.today().isoformat(),
            "git": git_revision(),
            "versions": versions(),
        }
        write_json(asked.result, facts | {"slopes": slopes})
    print(show(json.loads(asked.result.read_text(encoding="utf-8"))), end="")


if __name__ == "__main__":
    main()
