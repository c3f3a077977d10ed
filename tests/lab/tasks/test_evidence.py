"""What a run keeps of its test: scores of classes as the textbook has them, a confusion matrix, a loss an example."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, f1_score
from small_runs import digits, run

from odeum.errors import Notice
from odeum.lab.study.grid import Grid
from odeum.lab.study.page import _matrix
from odeum.lab.study.runs import RunRecord
from odeum.lab.tasks import open_task
from odeum.lab.tasks.evidence import CONFUSION, EXAMPLES, class_scores, read_losses
from odeum.lab.tasks.language.task import LanguageTask
from odeum.lab.tasks.run import load
from odeum.lab.tasks.translation.task import TranslationTask
from odeum.models.base import IGNORE
from odeum.storage import Damaged, write_json


def test_scores_of_classes_are_those_of_scikit_learn() -> None:
    random = torch.Generator().manual_seed(0)
    true = torch.randint(0, 4, (200,), generator=random)
    predicted = torch.where(
        torch.rand(200, generator=random) < 0.6, true, torch.randint(0, 5, (200,), generator=random)
    )
    table = torch.bincount(true * 6 + predicted, minlength=36).view(6, 6)  # class 4 is only said, class 5 never occurs
    found = class_scores(table)
    assert found["macro_f1"] == pytest.approx(f1_score(true, predicted, average="macro"))
    with pytest.warns(UserWarning, match="not in y_true"):
        assert found["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(true, predicted))


def test_a_run_keeps_losses_and_confusion(tmp_path: Path) -> None:
    result = run(tmp_path)
    losses = read_losses(tmp_path)
    assert losses is not None and len(losses) == digits().sizes()["test"]
    assert float(losses.double().mean()) == pytest.approx(result["test"]["loss"], rel=1e-5)
    kept = json.loads((tmp_path / CONFUSION).read_text())
    counts = torch.tensor(kept["counts"])
    assert counts.diag().sum() / counts.sum() == pytest.approx(result["test"]["accuracy"])
    assert {"macro_f1", "balanced_accuracy", "majority_accuracy", "top5"} <= result["test"].keys()
    again, evidence = digits().examine(load(tmp_path).model, "test")
    assert again == result["test"] and evidence is not None and torch.equal(evidence.losses, losses)
    (tmp_path / EXAMPLES).write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(Damaged, match=r"examples\.npz' is damaged"):
        read_losses(tmp_path)
    (tmp_path / EXAMPLES).unlink()
    assert read_losses(tmp_path) is None


def test_few_classes_have_no_top_5(tmp_path: Path) -> None:
    path = tmp_path / "two.csv"
    path.write_text(
        "text,label\n" + "".join(f"note {i % 7} {'x' * (i % 2)},{'no' if i % 4 else 'yes'}\n" for i in range(80))
    )
    task = open_task(path)
    from odeum.models import build
    from odeum.registry.spelling import parse

    scores = task.evaluate(build(parse("sequential"), task.model()), "test")
    assert "top5" not in scores
    assert scores["majority_accuracy"] == pytest.approx(0.75)


def test_the_page_shows_what_is_taken_for_what(tmp_path: Path) -> None:
    from synthetic_runs import page_of, write_plan, write_run

    from odeum.storage import write_json

    write_plan(tmp_path, ["sequential", "parallel"])
    for name, score in (("sequential", 0.8), ("parallel", 0.9)):
        for seed in range(2):
            folder = write_run(tmp_path, name, seed, score)
            counts = [[8, 2], [1, 9]] if name == "parallel" else [[10, 0], [4, 6]]
            write_json(folder / CONFUSION, {"classes": ["cat", "<dog>"], "counts": counts})
    page = page_of(tmp_path)
    assert "Confusion matrix of parallel" in page and "&lt;dog&gt;" in page and "<dog>" not in page
    assert all(f">{2 * count}</td>" in page for count in (8, 2, 1, 9))
    (folder / CONFUSION).write_text('{"classes": ["cat"], "counts": "many"}')
    assert "Confusion matrix of parallel" in page_of(tmp_path)


def test_trained_models_stand_beside_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from odeum.lab.cli import main

    first, second = tmp_path / "first", tmp_path / "second"
    values = [run(first)["test"], run(second, "parallel")["test"]]
    assert main(["evaluate", str(first), str(second), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [{k: line[k] for k in values[0]} for line in found] == [pytest.approx(value) for value in values]
    assert [line["solver"] for line in found] == ["lie-trotter, 1 step per layer", "euler, 1 step per layer"]
    assert main(["evaluate", str(first), str(second)]) == 0
    shown = capsys.readouterr().out
    mean = values[1]["loss"] - values[0]["loss"]
    assert f"mean over examples, paired: {mean:+.4g} [" in shown and "solver" in shown and "split" in shown
    assert main(["evaluate", str(first), str(second), "--format", "md"]) == 0
    assert f" |\n\nloss of column 2 minus column 1, mean over examples, paired: {mean:+.4g} [" in (
        capsys.readouterr().out
    )
    assert main(["evaluate", str(second), "--solver", "rk4", "--steps", "2", "--format", "csv"]) == 0
    head, trained, changed = capsys.readouterr().out.strip().split("\n")
    assert head.startswith("run,split,solver,loss") and "euler" in trained and "rk4, 2 steps" in changed
    assert main(["evaluate", str(first), str(second), "--solver", "heun"]) == 0  # each solver against its own model
    shown = capsys.readouterr().out
    assert all(f"column {pair}," in shown for pair in ("2 minus column 1", "3 minus column 1", "4 minus column 3"))


def test_an_interval_that_was_cut_says_so(tmp_path: Path) -> None:
    from synthetic_runs import page_of, write_plan, write_run

    for folder, scores in (("wide", (0.5, 0.95)), ("narrow", (0.700, 0.702))):
        (tmp_path / folder).mkdir()
        write_plan(tmp_path / folder, ["sequential", "parallel"])
        for seed, score in enumerate(scores):
            write_run(tmp_path / folder, "sequential", seed, 0.6)
            write_run(tmp_path / folder, "parallel", seed, score)
    said = ["clipped to possible values" in page_of(tmp_path / folder) for folder in ("wide", "narrow")]
    assert said == [True, False]


def test_models_of_other_data_are_not_paired(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from odeum.lab.cli import main
    from odeum.storage import read_json, write_json

    for name in ("first", "second"):
        run(tmp_path / name)
    record = read_json(tmp_path / "second" / "run.json")
    write_json(tmp_path / "second" / "run.json", record | {"fingerprint": "another"})
    assert main(["evaluate", str(tmp_path / "first"), str(tmp_path / "second")]) == 2
    assert "was trained on other data" in capsys.readouterr().err


def test_windows_of_text_and_sentences_have_losses_of_their_own(tmp_path: Path) -> None:
    """In one order for every model; weighted by their tokens they are the loss of the whole."""
    from odeum.models import build

    (tmp_path / "prose.txt").write_text("".join(f"line {i} of a text that goes on and on\n" for i in range(600)))
    (tmp_path / "pairs.tsv").write_text("".join(f"a cat {'x ' * (i % 5)}\tein Tier {i}\n" for i in range(60)))
    torch.manual_seed(0)
    for name, kind, loss, small in (
        ("prose.txt", "language", "loss", {"width": 16, "heads": 2, "depth": 1}),
        ("pairs.tsv", "translation", "plain_loss", {"width": 16, "heads": 2, "depth": 1}),
    ):
        task = open_task(tmp_path / name, kind=kind)
        model = build("sequential", replace(task.model(), **small))
        scores, evidence = task.examine(model, "valid")
        assert scores == task.evaluate(model, "valid") and evidence is not None
        if isinstance(task, LanguageTask):
            counts = torch.cat([(batch["labels"] != IGNORE).sum(1) for batch in task.windows("valid")])
        else:
            assert isinstance(task, TranslationTask)
            counts = task.parts["valid"][1].lengths
        assert len(evidence.losses) == len(counts) > 1
        weighted = float((evidence.losses.double() * counts).sum() / counts.sum())
        assert weighted == pytest.approx(scores[loss], rel=1e-5)
        evidence.save(tmp_path)
        kept = read_losses(tmp_path)
        assert kept is not None and torch.equal(kept, evidence.losses)


def test_columns_that_do_not_fit_stand_below() -> None:
    grid = Grid.of(["run", "a/seed-0", "b/seed-0", "c/seed-0"], [["loss", "0.25", "0.5", "1"]])
    one, two = "run   a/seed-0  b/seed-0\nloss  0.25      0.5", "run   c/seed-0\nloss  1"
    assert grid.blocks(24) == f"{one}\n\n{two}"
    assert grid.blocks(80) == "run   a/seed-0  b/seed-0  c/seed-0\nloss  0.25      0.5       1"


def test_a_confusion_matrix_of_another_run_is_left_out(tmp_path: Path) -> None:
    content = {"classes": ["a", "b"], "counts": [[3, 0], [1, 2]], "run_id": "1"}
    write_json(tmp_path / "confusion.json", content)
    assert _matrix(RunRecord("rk4", 0, tmp_path, {"run_id": "1"}, (), {})) == (["a", "b"], [[3, 0], [1, 2]])
    with pytest.warns(Notice, match=r"confusion.json' is of another run than run.json beside it; it is left out"):
        assert _matrix(RunRecord("rk4", 0, tmp_path, {"run_id": "2"}, (), {})) is None
