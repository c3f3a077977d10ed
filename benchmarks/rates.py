"""Sweeps of the learning rate that the default rates rest on, and how near the defaults come to the optimum.

    ODEUM_DATA=… OMP_NUM_THREADS=1 python benchmarks/rates.py    # continues where it stopped
    python benchmarks/rates.py --show                            # the sweeps (benchmarks/results/rates.jsonl)
    python benchmarks/rates.py --table                           # the table of docs/rates.md

A case is a data set, a width, a batch size and a number of steps. It is trained with the sequential architecture at
rates a factor of 2 apart, until the best of them lies between two others. Cases marked `fit` decided the rule
(`odeum/lab/train/rates.py`); the others are held out: they are trained at the default rate too, which judges it. Each
line of the result file is one case at one rate. Language models
of 300 steps and more are of an earlier version of this script, which trained by the command line, with sinusoidal
positions.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import math
import os
import statistics
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from pydoc_data import topics
from typing import Any

import torch
from short_runs import scores

from odeum.lab.tasks import KINDS, Task, open_task
from odeum.lab.train.provenance import git_revision, versions

RESULT = Path(__file__).parent / "results" / "rates.jsonl"
SEEDS = 1000, 1001, 1002
"""of the held-out runs of texts and images, the others have the first: no comparison uses them"""
START = {"language": 0.008, "classification": 0.004, "images": 0.004, "translation": 0.008}
"""the middle of the first three rates"""
NEAR = {"loss": 0.03, "accuracy": 0.01}
"""how far a default may be from the best rate: in nat, or where there is an accuracy in points of it"""
LIMIT = {"language": 160, "classification": 3000, "images": 4000, "translation": 500}
"""test examples of a run; of translation, validation examples"""
Grid = dict[float, dict[str, float]]
"""scores by rate"""


@dataclass(frozen=True)
class Case:
    """One sweep."""

    kind: str
    data: str
    """a named set, or one of the generated files below"""
    width: int
    batch: int
    steps: int
    options: Mapping[str, Any] = field(default_factory=dict)
    """of the data"""
    model: Mapping[str, Any] = field(default_factory=dict)
    fit: bool = False

    @property
    def name(self) -> str:
        return f"{self.kind}/{self.data}/{self.width}w/{self.batch}b/{self.steps}s"

    @property
    def seeds(self) -> tuple[int, ...]:
        """Accuracies of one seed are too uncertain to be held against one point."""
        return SEEDS if self.kind in ("classification", "images") and not self.fit else SEEDS[:1]

    @property
    def default(self) -> float | None:
        """The default rate (none: the kind has no rule)."""
        rule = KINDS[self.kind].rates
        return None if rule is None else rule.at(self.width)


def two(*arguments: Any) -> list[Case]:
    """A held-out set at two widths."""
    kind, data, *rest = arguments
    return [Case(kind, data, width, *rest) for width in (64, 128)]


def fitted(*arguments: Any) -> list[Case]:
    """A set at two widths, and with larger batches and longer training."""
    plain, wide = (replace(case, fit=True) for case in two(*arguments))
    longer = [replace(plain, steps=times * plain.steps) for times in (4, 16)]
    return [plain, wide, replace(plain, batch=4 * plain.batch), *longer]


WINDOWS = {"tokens": "bpe", "vocabulary": 2000, "length": 64}, {"depth": 4, "heads": 2, "hidden": None}
TEXTS = {"vocabulary": 8000, "length": 48}, {"depth": 4, "heads": 4}
IMAGES = {}, {"depth": 4, "heads": 4, "patch_size": 4}
PAIRS = {"vocabulary": 2000, "length": 48, "beam": 1}, {"depth": 3, "heads": 4, "hidden": None}
CASES = (
    *two("language", "wikitext2", 16, 150, *WINDOWS),
    *two("language", "multi30k", 16, 150, *WINDOWS),
    *fitted("classification", "imdb", 16, 300, {"vocabulary": 8000, "length": 96}, TEXTS[1]),
    *(replace(case, fit=True) for case in two("classification", "ag_news", 32, 200, *TEXTS)),
    *two("classification", "modules", 32, 200, *TEXTS),
    *two("classification", "topics", 32, 200, *TEXTS),
    *fitted("images", "cifar100", 32, 300, {"size": 16}, IMAGES[1]),
    *two("images", "digits", 32, 200, {}, {"depth": 4, "heads": 4}),
    *two("images", "glyphs", 32, 200, *IMAGES),
    *fitted("translation", "multi30k-en-de", 512, 100, *PAIRS),
    *two("translation", "tatoeba-en-fr", 512, 100, *PAIRS),
    *two("translation", "multi30k-en-fr", 512, 100, *PAIRS),
)


def opened(case: Case, folder: Path) -> Task:
    """The data of a case, after writing generated files."""
    source = case.data
    if case.kind == "language" and case.data == "multi30k":
        text = Path(os.environ["ODEUM_DATA"], "multi30k", "train.en").read_text(encoding="utf-8")
        source = str(folder / "multi30k.txt")
        Path(source).write_text(text, encoding="utf-8")
    elif case.data in ("modules", "topics"):
        source = str(folder / f"{case.data}.csv")
        with Path(source).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *(_modules() if case.data == "modules" else _topics())])
    elif case.data == "glyphs":
        source = str(folder / "glyphs")
        if not Path(source).exists():
            _glyphs(Path(source))
    return open_task(source, kind=case.kind, **case.options)


def _modules() -> Iterator[tuple[str, str]]:
    """Lines of eight modules of Python's library, each with the name of its module."""
    for module in ("argparse", "ast", "datetime", "decimal", "inspect", "tarfile", "turtle", "typing"):
        source = Path(sysconfig.get_paths()["stdlib"], "_pydecimal.py" if module == "decimal" else f"{module}.py")
        lines = {line.strip() for line in source.read_text(encoding="utf-8").splitlines()}
        yield from ((line, module) for line in sorted(lines) if len(line) >= 40)


def _topics() -> Iterator[tuple[str, str]]:
    """Lines of Python's documentation that occur in one topic alone, of the eight topics with most of them."""
    topics_of: dict[str, set[str]] = {}
    for topic, text in topics.topics.items():
        for line in text.splitlines():
            topics_of.setdefault(line.strip(), set()).add(topic)
    lines = [(line, min(found)) for line, found in sorted(topics_of.items()) if len(found) == 1 and len(line) >= 40]
    largest = {topic for topic, _ in Counter(topic for _, topic in lines).most_common(8)}
    yield from (each for each in lines if each[1] in largest)


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


def trained(case: Case, task: Task, rate: float) -> dict[str, float]:
    """The scores of a case at one rate: the mean over its seeds."""
    model = replace(task.model(), width=case.width, **case.model)
    recipe = replace(task.training(), batch_size=case.batch, steps=case.steps, learning_rate=rate)
    split = "valid" if case.kind == "translation" else "test"  # where nothing is translated
    runs = [scores("sequential", task, model, recipe, seed, LIMIT[case.kind], split) for seed in case.seeds]
    return {name: statistics.fmean(run[name] for run in runs) for name in runs[0]}


def stored() -> dict[str, Grid]:
    """The scores of each case by rate."""
    lines = RESULT.read_text(encoding="utf-8").splitlines() if RESULT.exists() else []
    out: dict[str, Grid] = {}
    for line in map(json.loads, lines):
        scores = {key: math.inf if value is None else value for key, value in line["test"].items()}
        out.setdefault(line["case"], {})[line["rate"]] = scores
    return out


def missing(case: Case, grid: Grid) -> list[float]:
    """The rates to try next: three, then one more beyond the end at which the best lies, then the default."""
    start = START[case.kind]
    if lacking := [rate for rate in (start / 2, start, start * 2) if rate not in grid]:
        return lacking
    swept = {rate: scores for rate, scores in grid.items() if math.log2(rate / start).is_integer()}
    best = best_rate(swept)
    if best in (min(swept), max(swept)):
        return [best / 2 if best == min(swept) else best * 2]
    return [] if case.fit or case.default is None or case.default in grid else [case.default]


def best_rate(grid: Grid, by: str = "loss") -> float:
    """The rate with the lowest loss, or the highest accuracy."""
    sign = 1 if by == "loss" else -1
    return min(grid, key=lambda rate: sign * grid[rate][by])


def behind(case: Case, grid: Grid) -> dict[str, float]:
    """How much worse the default rate is than the best of all rates, by each measure."""
    assert case.default is not None
    default = grid[case.default]
    return {name: abs(default[name] - grid[best_rate(grid, name)][name]) for name in NEAR if name in default}


def table(runs: Mapping[str, Grid]) -> str:
    """A row per held-out case: the swept optimum, the default, and how far apart their scores are."""
    lines = ["| kind | held-out set | width | best rate | default rate | behind the best |"]
    lines.append("| --- | --- | --: | --: | --: | --: |")
    for case in CASES:
        if case.fit or case.default is None or missing(case, grid := runs.get(case.name, {})):
            continue
        far = behind(case, grid)
        shown = f"{far['loss']:.3f} nat" + (f", {100 * far['accuracy']:.1f} points" if "accuracy" in far else "")
        near = any(far[name] <= NEAR[name] for name in far)
        row = [case.kind, case.data, f"{case.width}", f"{best_rate(grid):g}", f"{case.default:g}"]
        lines.append(f"| {' | '.join(row)} | {shown}{'' if near else ' (too far)'} |")
    return "\n".join(lines) + "\n"


def show(runs: Mapping[str, Grid]) -> str:
    """The loss by rate of each case."""
    lines = []
    for name, grid in runs.items():
        curve = "  ".join(f"{rate:g}: {score['loss']:.3f}" for rate, score in sorted(grid.items()))
        lines.append(f"{name:44} best {best_rate(grid):g}   {curve}")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", action="store_true", help="print the sweeps")
    parser.add_argument("--table", action="store_true", help="print the table of the docs")
    parser.add_argument("--only", default="", help="comma-separated kinds, or beginnings of cases")
    given = parser.parse_args()
    if given.show or given.table:
        print(show(stored()) if given.show else table(stored()), end="")
        return
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            if not case.name.startswith(tuple(given.only.split(","))):
                continue
            task = None
            while rates := missing(case, stored().get(case.name, {})):
                task = task or opened(case, Path(folder))
                run(case, task, rates[0])


def run(case: Case, task: Task, rate: float) -> None:
    """Train once and add a line to the results."""
    test = {key: value if math.isfinite(value) else None for key, value in trained(case, task, rate).items()}
    about = {
        "case": case.name,
        "rate": rate,
        "test": test,
        "seeds": case.seeds,
        "options": dict(case.options),
        "model": dict(case.model),
    }
    origin = {"date": datetime.date.today().isoformat(), "git": git_revision(), "versions": versions()}
    with RESULT.open("a", encoding="utf-8") as file:
        file.write(json.dumps(about | origin) + "\n")
    print(case.name, f"{rate:g}", test, flush=True)


if __name__ == "__main__":
    main()
