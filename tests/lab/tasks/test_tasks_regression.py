"""A number as the target: read, learned in units of its spread, measured and predicted in its own."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import odeum
from odeum.errors import Notice, OdeumError
from odeum.lab.cli import main
from odeum.lab.data.numbers import is_number, with_points
from odeum.lab.data.sniffing import recognise
from odeum.lab.tasks import load_task, open_task


def texts(path: Path, count: int = 120, scale: float = 1.0, shift: float = 0.0, name: str = "score") -> Path:
    """A number that is how often `good` occurs, and a little noise."""
    draw = random.Random(0)
    lines = [f"text,{name}"]
    for _ in range(count):
        words = draw.choices(["good", "film", "plot"], k=8)
        lines.append(f"{' '.join(words)},{shift + scale * (words.count('good') + draw.uniform(-0.1, 0.1))!r}")
    path.write_text("\n".join(lines) + "\n")
    return path


def images(folder: Path, count: int = 120, header: str = "") -> Path:
    """A number that is how bright an image is."""
    folder.mkdir(parents=True)
    draw, lines = random.Random(0), [header] if header else []
    for i in range(count):
        value = draw.random()
        Image.fromarray(np.full((8, 8), round(255 * value), np.uint8)).save(folder / f"{i}.png")
        lines.append(f"{i}.png,{value!r}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder


def rows(path: Path, *rows: str) -> Path:
    path.write_text("text,score\n" + "\n".join(rows) + "\n")
    return path


# recognised, or asked for


def test_many_different_numbers_are_recognised_and_said(tmp_path: Path) -> None:
    with pytest.warns(Notice, match="column 'score' of .* holds 120 different numbers: read as numbers to predict"):
        assert recognise(texts(tmp_path / "a.csv")) == "regression"
    with pytest.warns(Notice, match="names a number for each image"):
        assert recognise(images(tmp_path / "bright")) == "image-regression"


def test_few_different_numbers_stay_classes_and_that_is_said(tmp_path: Path) -> None:
    stars = rows(tmp_path / "stars.csv", *(f"a film,{1 + i % 5}" for i in range(200)))
    with pytest.warns(
        Notice, match=r"5 different numbers \(1, 2, 3, 4, 5 …\): read as classes.*; .* --kind regression"
    ):
        assert recognise(stars) == "classification"
    assert open_task(stars, kind="regression").kind == "regression"


def test_labels_that_are_words_or_two_numbers_cause_no_remark(tmp_path: Path, recwarn: Any) -> None:
    assert recognise(rows(tmp_path / "a.csv", *("a film,good", "a plot,bad") * 30)) == "classification"
    assert recognise(rows(tmp_path / "b.csv", *("a film,1", "a plot,0") * 30)) == "classification"
    assert not recwarn.list


def test_few_numbers_of_images_are_not_guessed(tmp_path: Path) -> None:
    folder = images(tmp_path / "d")
    (folder / "labels.csv").write_text("".join(f"{i}.png,{i % 10}\n" for i in range(120)))
    with pytest.raises(OdeumError, match=r"holds 10 different numbers; use --kind image-regression to predict them"):
        recognise(folder)
    assert open_task(folder, kind="image-regression").kind == "image-regression"


def test_a_list_of_classes_is_no_list_of_numbers(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        images(tmp_path / "pets" / name)
        (tmp_path / "pets" / name / "labels.csv").unlink()
    (tmp_path / "pets" / "labels.csv").write_text("name,id\ncat,0\ndog,1\n")
    assert recognise(tmp_path / "pets") == "images"


def test_tables_without_a_header_and_in_json(tmp_path: Path) -> None:
    headed = open_task(texts(tmp_path / "a.csv"))
    lines = (tmp_path / "a.csv").read_text().splitlines()[1:]
    (tmp_path / "b.csv").write_text("\n".join(lines) + "\n")
    split = [line.rsplit(",", 1) for line in lines]
    (tmp_path / "c.jsonl").write_text("\n".join(json.dumps({"text": t, "score": float(n)}) for t, n in split))
    for name in ("b.csv", "c.jsonl"):
        assert torch.equal(open_task(tmp_path / name).parts["train"][1], headed.parts["train"][1])
    assert open_task(images(tmp_path / "plain")).centre == open_task(images(tmp_path / "h", header="file,y")).centre


def test_a_number_in_a_nested_field_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = [json.dumps({"review": {"body": f"film {i}", "rating": i / 4}}) for i in range(60)]
    path.write_text("\n".join(lines))
    with pytest.warns(Notice, match="column 'review.rating' of .* holds 60 different numbers"):
        assert recognise(path) == "regression"
    assert open_task(path).summary().startswith("a.jsonl (regression): text = review.body, label = review.rating")


# what is wrong is named


@pytest.mark.parametrize("cell", ["n/a", "nan", "inf", "1e999", "1_000", "12 €", "٣"])
def test_what_is_no_number_is_named(tmp_path: Path, cell: str) -> None:
    assert not is_number(cell)
    path = rows(tmp_path / "a.csv", *(f"a film,{i}.5" for i in range(30)), f"a film,{cell}")
    with pytest.raises(OdeumError, match=f"row 32 of '.*a.csv', column 'score', holds '{cell}', which is not a finite"):
        open_task(path, kind="regression")


def test_decimal_commas_are_read_and_thousands_are_refused(tmp_path: Path) -> None:
    assert with_points(["1,5", "2", "1.234,56", ""]) == ["1.5", "2", "1234.56", ""]
    assert with_points(["1,234", "5,678"]) == ["1,234", "5,678"], "thousands, or three decimals?"
    rows = [f"a film {i};{i},5" for i in range(60)]
    (tmp_path / "a.csv").write_text("\n".join(["text;price", *rows]))
    task = open_task(tmp_path / "a.csv")
    assert task.kind == "regression" and {x % 1 for x in task.parts["train"][1].tolist()} == {0.5}
    (tmp_path / "a.tsv").write_text("text\tscore\na film\t1,500\na plot\t3,500\n")
    with pytest.raises(OdeumError, match=r"row 2 .* holds '1,500', which is not a finite number; write a decimal"):
        open_task(tmp_path / "a.tsv", kind="regression")


def test_numbers_that_do_not_differ(tmp_path: Path) -> None:
    with pytest.raises(OdeumError, match=r"all 24 training numbers of .* are 7; there is nothing to predict"):
        open_task(rows(tmp_path / "a.csv", *["a film,7.0"] * 30), kind="regression")
    with pytest.raises(OdeumError, match="too large to compute with"):
        open_task(rows(tmp_path / "a.csv", *(f"a film,{s}1e308" for s in ("", "-") * 30)), kind="regression")
    with pytest.raises(OdeumError, match="has 3 examples, too few to hold out some"):
        open_task(rows(tmp_path / "a.csv", "a,1.5", "b,2.5", "c,3.5"), kind="regression")


def test_r2_is_left_out_where_it_is_not_defined(tmp_path: Path) -> None:
    texts(tmp_path / "train.csv")
    rows(tmp_path / "test.csv", *["a good film,4.0"] * 5)
    task = open_task(tmp_path / "train.csv", tmp_path / "test.csv", kind="regression")
    assert "R² is not defined on the test part: its 5 numbers do not differ" in task.notes
    scores = task.evaluate(odeum.build("sequential", task.model(), depth=1), "test")
    assert "r2" not in scores and all(map(math.isfinite, scores.values()))


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("gone.png,0.5", r"row 121 of '.*labels\.csv' names 'gone\.png', which is not an image"),
        ("../outside.png,0.5", "which is not an image in"),
        ("3.png,0.5", r"row 121 .* names '3\.png' a second time; name each image once"),
        ("3.png", "row 121 .* has 1 columns where 2 were expected"),
    ],
)
def test_labels_that_fit_no_image(tmp_path: Path, line: str, sentence: str) -> None:
    folder = images(tmp_path / "bright")
    Image.new("L", (8, 8)).save(tmp_path / "outside.png")
    with open(folder / "labels.csv", "a") as file:
        file.write(line + "\n")
    with pytest.raises(OdeumError, match=sentence):
        open_task(folder, kind="image-regression")


def test_images_without_a_number_are_left_out_and_counted(tmp_path: Path) -> None:
    folder = images(tmp_path / "bright")
    Image.new("L", (8, 8)).save(folder / "other.png")
    with pytest.warns(Notice, match=r"1 images that .* does not name were left out, such as 'other\.png'"):
        task = open_task(folder, kind="image-regression")
    assert sum(len(part[1]) for part in task.parts.values()) == 120
    with pytest.raises(OdeumError, match=r"must be a folder of images with a labels\.csv"):
        open_task(texts(tmp_path / "a.csv"), kind="image-regression")


# what is learned and measured


def test_parts_are_apart_and_always_the_same(tmp_path: Path) -> None:
    path = texts(tmp_path / "a.csv")
    one, two = open_task(path), open_task(path)
    assert one.fingerprint() == two.fingerprint()
    found = [set(part[1].tolist()) for part in one.parts.values()]
    assert [len(part) for part in found] == [96, 12, 12] and len(set.union(*found)) == 120


def test_targets_are_learned_in_units_of_their_spread(tmp_path: Path) -> None:
    """A number far from zero with a small spread is no harder than any other: the batches are the same."""
    plain, far = open_task(texts(tmp_path / "a.csv")), open_task(texts(tmp_path / "b.csv", 120, 1e-3, 1e6))
    labels = torch.cat([batch["labels"] for batch in plain.batches(0, 32, 0)])
    assert labels.dtype == torch.float32 and abs(labels.mean()) < 0.2 and 0.8 < labels.std() < 1.2
    for one, other in zip(plain.batches(0, 32, 0), far.batches(0, 32, 0), strict=True):
        assert torch.allclose(one["labels"], other["labels"], atol=1e-5)
        assert torch.equal(one["input_ids"], other["input_ids"])


def test_metrics_are_those_of_the_textbook(tmp_path: Path) -> None:
    from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score

    task = open_task(texts(tmp_path / "a.csv", scale=50.0, shift=1000.0))
    model = odeum.build("parallel", task.model(), depth=1)
    outputs, targets = zip(*task.scored(model, "test", None, None), strict=True)
    predicted, right = task.in_data_units(torch.cat(outputs)).numpy(), torch.cat(targets).numpy()
    assert sorted(right.tolist()) == sorted(task.parts["test"][1].tolist())
    scores = task.evaluate(model, "test")
    assert scores["rmse"] == pytest.approx(mean_squared_error(right, predicted) ** 0.5)
    assert scores["mae"] == pytest.approx(mean_absolute_error(right, predicted))
    assert scores["r2"] == pytest.approx(r2_score(right, predicted))
    assert scores["loss"] == pytest.approx((scores["rmse"] / task.spread) ** 2)
    model.head.weight.data.zero_(), model.head.bias.data.zero_()  # always the mean
    scores = task.evaluate(model, "test")
    assert scores["rmse"] == pytest.approx(scores["rmse_of_mean"])
    assert task.predict(model, ["a good film"]) == pytest.approx([task.centre])


def test_label_smoothing_is_for_classes(tmp_path: Path) -> None:
    task = open_task(texts(tmp_path / "a.csv"))
    model = odeum.build("sequential", task.model(), depth=1)
    model.label_smoothing = 0.1
    with pytest.raises(OdeumError, match="label smoothing is for classes"):
        model(**next(task.batches(0, 8, 0)))


# every verb


@pytest.mark.usefixtures("without_plots")
def test_texts_through_every_verb(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = texts(tmp_path / "films.csv", 400, scale=10.0, shift=100.0)
    small = ["--model.depth", "1", "--model.width", "32", "--train.epochs", "12", "--out", "runs"]
    words = ["--architectures", "sequential,parallel", "--seeds", "1", "--jobs", "1", *small]
    assert main(["compare", str(path), *words]) == 0
    out, err = capsys.readouterr()
    assert "rmse" in out and "read as numbers to predict" in err
    page = (tmp_path / "runs/report.html").read_text()
    assert "Predicting the training mean" in page and "lower is better" in page
    run = tmp_path / "runs/sequential/seed-0"
    result = json.loads((run / "result.json").read_text())["test"]
    assert result["rmse"] < 0.5 * result["rmse_of_mean"] and result["r2"] > 0.75
    assert main(["evaluate", str(run), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["rmse"] == pytest.approx(result["rmse"])
    question = ["predict", str(run), "--text", "good good good good good good plot", "--text", "plot plot film"]
    assert main(question) == 0
    high, low = map(float, capsys.readouterr().out.split())
    assert high > low + 15
    assert main([*question, "--format", "json"]) == 0
    answers = [json.loads(line)["output"] for line in capsys.readouterr().out.splitlines()]
    assert answers == pytest.approx([high, low], rel=1e-4)
    assert main([*question, "--top", "3"]) == 2
    assert "--top has no effect on a run of the kind regression; it has no such options" in capsys.readouterr().err


def test_images_through_every_verb(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = images(tmp_path / "bright", 300)
    small = ["--model.depth", "1", "--train.epochs", "15", "--train.batch_size", "16", "--out", "run"]
    assert main(["train", str(folder), *small]) == 0
    assert json.loads(Path("run/result.json").read_text())["test"]["r2"] > 0.8
    assert load_task("run").kind == "image-regression"
    capsys.readouterr()
    files = [str(folder / "0.png"), str(folder / "1.png")]
    assert main(["predict", "run", *files]) == 0
    shown = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    numbers = [float(line.split(",")[1]) for line in (folder / "labels.csv").read_text().splitlines()[:2]]
    assert [name for name, _ in shown] == files
    assert [float(value) for _, value in shown] == pytest.approx(numbers, abs=0.25)
