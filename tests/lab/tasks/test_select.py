"""Single examples of every kind of task: their keys, and parts of some of them alone."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from odeum.lab.tasks import open_task
from odeum.lab.tasks.base import Task
from odeum.lab.tasks.language.task import LanguageTask
from odeum.models import build
from odeum.registry.spelling import parse

WORDS = [
    "a",
    "black",
    "cat",
    "saw",
    "nine",
    "tall",
    "birds",
    "under",
    "the",
    "old",
    "bridge",
    "near",
    "my",
    "small",
    "house",
    "today",
]


def _words(count: int, draw: random.Random) -> str:
    return " ".join(draw.choice(WORDS) for _ in range(count))


def _task(kind: str, folder: Path) -> Task:
    draw = random.Random(0)
    rows = [_words(draw.randint(3, 9), draw) for _ in range(120)]
    options: dict[str, Any] = {}
    if kind == "images":
        return open_task("digits")
    if kind in ("classification", "regression"):
        label = (lambda i: "yn"[i % 2]) if kind == "classification" else (lambda i: f"{i * 0.37 % 5:.2f}")
        text = "text,label\n" + "".join(f"{row},{label(i)}\n" for i, row in enumerate(rows))
        path = folder / "rows.csv"
    elif kind == "translation":
        text = "".join(f"{row}\t{row[::-1]}\n" for row in rows)
        path = folder / "pairs.tsv"
    else:
        text, path = "\n".join(rows * 8), folder / "lines.txt"
        options = {"length": 16, "lines": True} if kind == "lines" else {"length": 16}
        kind = "language" if kind == "lines" else kind
    path.write_text(text)
    return open_task(path, kind=kind, **options)


@pytest.mark.parametrize(
    "kind", ["images", "classification", "regression", "translation", "masked", "language", "lines"]
)
def test_two_halves_have_the_losses_of_the_whole(kind: str, tmp_path: Path) -> None:
    """One key per loss; the losses of any two halves together are those of the part, and no other example is read."""
    task = _task(kind, tmp_path)
    model = build(parse("sequential"), task.model(), depth=1).eval()
    keys = task.example_keys("valid")
    _, evidence = task.examine(model, "valid")
    assert evidence is not None and len(keys) == len(evidence.losses) > 3
    order = torch.randperm(len(keys), generator=torch.Generator().manual_seed(1))
    parts = []
    for rows in (order[: len(order) // 3].sort().values, order[len(order) // 3 :].sort().values):
        part = task.select("valid", rows)
        _, some = part.examine(model, "valid")
        assert some is not None and len(some.losses) == len(rows)
        assert sorted(part.example_keys("valid")) == sorted(keys[row] for row in rows)
        sample = next(iter(part.sample(2).values()))
        assert 1 <= len(sample) <= 2
        parts.append(some.losses)
    torch.testing.assert_close(
        torch.cat(parts).double().sort().values, evidence.losses.double().sort().values, atol=1e-5, rtol=1e-5
    )
    assert task.example_keys("valid") == keys  # the task itself is as it was


@pytest.mark.parametrize("kind", ["images", "classification", "regression", "translation", "masked", "lines"])
def test_everything_in_the_test_part(kind: str, tmp_path: Path) -> None:
    """Data for a model that was trained on none of it: each example of all parts is in the test part once."""
    task = _task(kind, tmp_path)
    sizes = task.sizes()
    others = [key for part in ("train", "valid", "test") for key in task.example_keys(part)] if kind != "lines" else []
    task.test_on_everything()
    keys = task.example_keys("test")
    assert len(keys) == sum(sizes.values()) if kind != "lines" else len(keys) > sizes["test"]
    assert kind == "lines" or sorted(keys) == sorted(others)
    _, evidence = task.examine(build(parse("sequential"), task.model(), depth=1).eval(), "test")
    assert evidence is not None and len(evidence.losses) == len(keys)


def test_pieces_of_a_short_file_are_one_document(tmp_path: Path) -> None:
    """Files of few lines have no piece in the held-out parts; those that have one keep their number."""
    for file in range(80):
        text = "".join(f"line {line} of text {file} and words {file * line % 17}\n" for line in range(5 + file % 20))
        (tmp_path / f"{file:02}.txt").write_text(text)
    task = open_task(tmp_path, kind="language", length=16)
    assert isinstance(task, LanguageTask)
    held = [set(numbers[lengths > 0].tolist()) for lengths, numbers in (x.T for x in task.documents.values())]
    assert held[0] > held[1] > held[2] and len(held[0]) == 80
    task.test_on_everything()
    groups = task.example_groups("test")
    assert groups is not None and groups.unit == "documents" and len(groups.numbers.unique()) <= 80
