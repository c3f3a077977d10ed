"""Slopes of activations and updates over width and depth, for each architecture with a transfer rule.

python benchmarks/transfer.py            # writes benchmarks/results/transfer.json
python benchmarks/transfer.py --kinds    # only the classifiers anew
python benchmarks/transfer.py --show     # the tables of docs/family.md
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from odeum.errors import OdeumError
from odeum.lab.train.coordinate_check import check_transfer
from odeum.lab.train.provenance import git_revision, versions
from odeum.models.settings import Classification, Vision, find_preset
from odeum.registry.names import ARCHITECTURES
from odeum.registry.spelling import parse
from odeum.storage import read_json, write_json

RESULT = Path(__file__).parent / "results" / "transfer.json"
DEPTHS = (8, 16, 32, 64)


def show(result: dict[str, Any]) -> str:
    """The tables of the docs."""
    lines = ["| architecture | update over depth | update over width |", "|---|--:|--:|"]
    for name, slopes in result["slopes"].items():
        if "no rule" not in slopes:
            lines.append(f"| {name} | {slopes['update over depth']:+.2f} | {slopes['update over width']:+.2f} |")
    lines += [
        "",
        f"| model | {' | '.join(f'{depth} layers' for depth in DEPTHS)} | slope, first two | slope, last two |",
    ]
    lines += ["|---|" + "--:|" * (len(DEPTHS) + 2)]
    for name, updates in result["kinds"]["updates"].items():
        ends = [math.log2(updates[i + 1] / updates[i]) for i in (0, -2)]
        lines.append(f"| {name} | {' | '.join(f'{x:.2f}' for x in updates)} | {ends[0]:+.2f} | {ends[1]:+.2f} |")
    return "\n".join(lines) + "\n"


def kinds() -> dict[str, Any]:
    """Updates of small classifiers over depth, sequential with the rule."""
    sizes: dict[str, Any] = {"width": 32, "heads": 2, "depth": 8, "classes": 16}
    image = Vision(image_size=16, patch_size=4, **sizes)
    models = {
        "images, mean over patches": replace(image, pooling="mean"),
        "images, class token": image,
        "texts, mean over tokens": Classification(vocabulary=64, length=16, **sizes),
    }
    updates = {}
    for name, settings in models.items():
        check = check_transfer(parse("sequential"), settings, "completep", widths=(32,), depths=DEPTHS)
        updates[name] = [size.update for size in check.depths]
        print(name, updates[name], file=sys.stderr, flush=True)
    facts = {"command": "python benchmarks/transfer.py --kinds", "date": datetime.date.today().isoformat()}
    return {**facts, "git": git_revision(), "versions": versions(), "updates": updates}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", action="store_true", help="print the tables of the results that there are")
    parser.add_argument("--kinds", action="store_true", help="measure only the classifiers anew")
    parser.add_argument("--result", type=Path, default=RESULT)
    asked = parser.parse_args()
    if not asked.show and git_revision() is None:
        parser.error("run in a git checkout: the result records its commit")
    if asked.kinds:
        write_json(asked.result, read_json(asked.result) | {"kinds": kinds()})
    elif not asked.show:
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
        write_json(asked.result, facts | {"slopes": slopes, "kinds": kinds()})
    print(show(json.loads(asked.result.read_text(encoding="utf-8"))), end="")


if __name__ == "__main__":
    main()
