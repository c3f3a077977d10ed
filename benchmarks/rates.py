"""Sweeps of the learning rate from which the default rates are taken, and how near the defaults come to the optimum.

    ODEUM_DATA=… python benchmarks/rates.py            # hours on one core; continues where it stopped
    python benchmarks/rates.py --show                  # the sweeps so far (benchmarks/results/rates.jsonl)

Each case is a data set, a width, a batch size and a length; each is trained with the sequential architecture at rates
that are a factor of 2 apart. Cases marked `fit` decide the rule; the others are held out and only judge it. Every line
of the result is one run: case, rate, validation and test figures, versions.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

RESULT = Path(__file__).parent / "results" / "rates.jsonl"
SEED = 1000
"""of every run: no comparison uses it"""


@dataclass(frozen=True)
class Case:
    """One sweep."""

    kind: str
    data: str
    """a named set, or one of the generated files below"""
    width: int
    batch: int
    steps: int
    fit: bool
    options: tuple[str, ...] = ()
    rates: tuple[float, ...] = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)

    @property
    def name(self) -> str:
        return f"{self.kind}/{self.data}/{self.width}w/{self.batch}b/{self.steps}s"


LANGUAGE = ("--data.length", "64", "--model.depth", "4", "--model.heads", "2")
TEXTS = ("--model.depth", "4", "--model.heads", "4")
IMAGES = ("--model.depth", "4", "--model.heads", "4")
PAIRS = ("--model.heads", "4", "--data.vocabulary", "4000", "--data.beam", "1")


def _around(kind: str, data: str, batch: int, steps: int, options: tuple[str, ...], fit: bool) -> list[Case]:
    """The usual case and, for the fit, one that is wider, one with larger batches and one that trains for longer."""
    usual = Case(kind, data, 64, batch, steps, fit, options)
    if not fit:
        return [usual, Case(kind, data, 128, batch, 2 * steps, fit, options)]
    return [
        usual,
        Case(kind, data, 128, batch, steps, fit, options),
        Case(kind, data, 64, 4 * batch, steps, fit, options),
        Case(kind, data, 64, batch, 4 * steps, fit, options),
    ]


CASES = (
    *_around("language", "python", 16, 300, LANGUAGE, fit=True),
    *_around("language", "wikitext2", 16, 300, LANGUAGE, fit=False),
    *_around("language", "multi30k-text", 16, 300, LANGUAGE, fit=False),
    *_around("classification", "ag_news", 32, 300, TEXTS, fit=True),
    *_around("classification", "imdb", 16, 300, (*TEXTS, "--data.length", "128"), fit=False),
    *_around("classification", "listops", 32, 300, (*TEXTS, "--data.length", "64"), fit=False),
    *_around("images", "cifar100", 64, 300, (*IMAGES, "--model.patch_size", "8"), fit=True),
    *_around("images", "digits", 32, 300, IMAGES, fit=False),
    *_around("images", "glyphs", 32, 300, IMAGES, fit=False),
    *_around("translation", "multi30k-en-de", 1024, 300, PAIRS, fit=True),
    *_around("translation", "tatoeba-en-fr", 1024, 300, PAIRS, fit=False),
    *_around("translation", "multi30k-en-fr", 1024, 300, PAIRS, fit=False),
)


def source(case: Case, folder: Path) -> list[str]:
    """The data argument of `odeum train`, after writing generated files."""
    home = Path(os.environ.get("ODEUM_DATA", ""))
    if case.data == "multi30k-text":
        path = folder / "multi30k.txt"
        if not path.exists():
            path.write_text((home / "multi30k" / "train.en").read_text(encoding="utf-8"), encoding="utf-8")
        return [str(path), "--kind", "language"]
    if case.data == "glyphs":
        path = folder / "glyphs"
        if not path.exists():
            _glyphs(path)
        return [str(path)]
    return [case.data]


def _glyphs(path: Path) -> None:
    """Letters and digits of matplotlib's fonts, turned and shifted at random: 36 classes of 60 images of 16 × 16."""
    import random

    import matplotlib
    from PIL import Image, ImageDraw, ImageFont

    fonts = sorted(Path(matplotlib.get_data_path(), "fonts", "ttf").glob("DejaVu*.ttf"))
    draw = random.Random(0)
    for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789":
        (path / letter).mkdir(parents=True)
        for number in range(60):
            image = Image.new("L", (32, 32), 0)
            font = ImageFont.truetype(str(fonts[number % len(fonts)]), draw.randint(16, 22))
            at = (16 + draw.randint(-4, 4), 16 + draw.randint(-4, 4))
            ImageDraw.Draw(image).text(at, letter, 255, font, anchor="mm")
            image.rotate(draw.uniform(-25, 25)).resize((16, 16)).save(path / letter / f"{number}.png")


def train(case: Case, rate: float, folder: Path) -> dict[str, Any]:
    """One run by the command line, so that the sweep measures what users get."""
    out = folder / case.name / f"{rate:g}"
    command = [sys.executable, "-m", "odeum", "train", *source(case, folder), "--architecture", "sequential"]
    command += ["--model.width", str(case.width), *case.options, "--train.batch_size", str(case.batch)]
    command += ["--train.steps", str(case.steps), "--train.learning_rate", f"{rate:g}", "--train.precision", "fp32"]
    command += ["--seed", str(SEED), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if not (out / "result.json").exists():
        raise SystemExit(f"{case.name} at {rate:g} failed:\n{done.stderr[-2000:]}")
    result = json.loads((out / "result.json").read_text(encoding="utf-8"))
    run = json.loads((out / "run.json").read_text(encoding="utf-8"))
    keep = {key: result.get(key) for key in ("valid", "test", "failed") if key in result}
    return {"case": asdict(case), "rate": rate, **keep, "versions": run["versions"], "git": run["git"]}


def stored() -> list[dict[str, Any]]:
    lines = RESULT.read_text(encoding="utf-8").splitlines() if RESULT.exists() else []
    return [json.loads(line) for line in lines]


def sweeps(lines: Sequence[dict[str, Any]]) -> Iterator[tuple[Case, dict[float, float]]]:
    """Each case with its validation loss by rate; a run that diverged is infinite."""
    for case in CASES:
        own = [line for line in lines if line["case"]["data"] == case.data and _same(line["case"], case)]
        losses = {line["rate"]: (line.get("valid") or {}).get("loss", math.inf) for line in own}
        if losses:
            yield case, losses


def _same(record: dict[str, Any], case: Case) -> bool:
    return all(record[key] == getattr(case, key) for key in ("kind", "data", "width", "batch", "steps"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", action="store_true", help="print the sweeps")
    parser.add_argument("--only", default="", help="comma-separated kinds")
    given = parser.parse_args()
    if given.show:
        for case, losses in sweeps(stored()):
            best = min(losses, key=lambda rate: losses[rate])
            curve = "  ".join(f"{rate:g}: {loss:.3f}" for rate, loss in sorted(losses.items()))
            print(f"{case.name:45} best {best:g}   {curve}")
        return
    kinds = given.only.split(",") if given.only else None
    folder = Path(os.environ.get("RATES_RUNS", tempfile.gettempdir())) / "odeum-rates"
    folder.mkdir(parents=True, exist_ok=True)
    done = {(case.name, rate) for case, losses in sweeps(stored()) for rate in losses}
    for case in CASES:
        for rate in case.rates:
            if (kinds is None or case.kind in kinds) and (case.name, rate) not in done:
                line = train(case, rate, folder)
                with RESULT.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                print(case.name, f"{rate:g}", (line.get("valid") or {}).get("loss"), flush=True)


if __name__ == "__main__":
    main()
