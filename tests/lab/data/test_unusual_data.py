"""Data as users have them: sorted, in several files, with a comma too many, changed since the training."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image

import odeum
from odeum.errors import OdeumError
from odeum.lab.cli import main
from odeum.lab.data import table_files
from odeum.lab.data.sniffing import recognise
from odeum.lab.data.splits import mixed
from odeum.lab.tasks import open_task


def sentences(path: Path, rows: list[str]) -> Path:
    path.write_text("text,label\n" + "".join(f"{row}\n" for row in rows))
    return path


GOOD, BAD = ["a good film,pos"] * 30, ["a bad film,neg"] * 30


def test_tables_of_one_part_are_read_together(tmp_path: Path) -> None:
    paths = [sentences(tmp_path / f"train{i}.csv", GOOD + BAD) for i in (1, 2)]
    parts = open_task(*paths).parts
    assert sum(len(part[0]) for part in parts.values()) == 120
    unnamed = [sentences(tmp_path / f"x{i}.csv", GOOD + BAD) for i in (1, 2, 3, 4)]
    with pytest.raises(OdeumError, match=r"which part of the data is '.*x4\.csv'"):
        open_task(*unnamed)


def test_a_comma_too_many_is_not_a_label(tmp_path: Path) -> None:
    path = sentences(tmp_path / "reviews.csv", [*GOOD, *BAD, "good film, really,pos"])
    with pytest.raises(OdeumError, match=r"row 62 of '.*' has 3 columns where 2 were expected"):
        open_task(path)


def test_a_text_that_is_null_is_empty(tmp_path: Path) -> None:
    rows = [{"text": t, "label": n} for n, t in enumerate(("good", "bad")) for _ in range(30)]
    path = tmp_path / "reviews.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in [*rows, {"text": None, "label": 0}]))
    assert "none" not in open_task(path).tokens.to_json().lower()


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ('{"text": {"title": "a film"}, "label": "a"}', "'text' in row 61 of .* is a list or an object"),
        ('{"text": "a film", "label": ["a", "b"]}', "'label' in row 61 of .* is a list or an object"),
        ('{"text": "a film", "label": "a", "label": "b"}', "line 61 of .* says 'label' twice"),
        ('{"text": "half \\ud800", "label": "a"}', "line 61 of .* holds half of a character"),
    ],
)
def test_objects_that_are_no_rows(tmp_path: Path, row: str, sentence: str) -> None:
    rows = [json.dumps({"text": f"film {i}", "label": "ab"[i % 2], "more": [i]}) for i in range(60)]
    path = tmp_path / "reviews.jsonl"
    path.write_text("\n".join([*rows, '{"text": "whole \\ud83d\\ude00", "label": "a"}']))
    open_task(path)
    path.write_text("\n".join([*rows, row]))
    with pytest.raises(OdeumError, match=sentence):
        open_task(path)


def test_what_is_named_like_an_image_and_is_none_is_counted(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(6):
            Image.new("L", (8, 8), 20 * i + len(name)).save(tmp_path / name / f"{i}.png")
    os.mkfifo(tmp_path / "a" / "pipe.png")
    (tmp_path / "b" / "gone.png").symlink_to("nowhere")
    (tmp_path / "b" / "endless.png").symlink_to("/dev/zero")
    assert "3 of 15 images were left out" in open_task(tmp_path).notes[0]
    os.rename(tmp_path / "a", os.fsencode(tmp_path) + b"/caf\xe9")
    with pytest.raises(OdeumError, match=r"the name of the class .* is not UTF-8; rename the folder"):
        open_task(tmp_path)


def test_labels_that_are_no_numbers_have_an_order(tmp_path: Path) -> None:
    rows = [f"word{i},{label}" for i, label in enumerate(["nan", "10", "2", "inf", "b"] * 20)]
    assert open_task(sentences(tmp_path / "t.csv", rows)).classes == ["2", "10", "b", "inf", "nan"]


def test_a_text_file_named_test_is_not_trained_on(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("the cat sat on the mat\n" * 300)
    (tmp_path / "corpus_test.txt").write_text("zebras quietly examine jigsaws\n" * 30)
    task = open_task(tmp_path / "corpus.txt", tmp_path / "corpus_test.txt", tokens="characters")
    assert "j" not in task.tokens.to_json().replace("json", "")
    assert len(task.streams["test"]) == 30 * len("zebras quietly examine jigsaws\n")


def test_looks_on_the_way_see_all_classes(tmp_path: Path) -> None:
    """A table sorted by label: the first rows of its validation part are of one class."""
    rows = [f"a {'good' if i < 2_000 else 'bad'} film,{i >= 2_000}" for i in range(4_000)]
    task = open_task(sentences(tmp_path / "sorted.csv", rows))
    labels = task.parts["valid"][1]
    assert 0.4 < labels[mixed(len(labels), 300)].float().mean() < 0.6
    model = odeum.build("sequential", task.model(), depth=1)
    model.head.weight.data.zero_()
    model.head.bias.data.copy_(torch.tensor([1.0, 0.0]))  # always the first class
    assert 0.4 < task.evaluate(model, limit=300)["accuracy"] < 0.6


def test_changed_data_is_not_evaluated_in_silence(
    tmp_path: Path, complaint: Callable[[], str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = sentences(tmp_path / "reviews.csv", GOOD + BAD)
    assert main(["train", str(path), "--train.steps", "2", "--out", "run"]) == 0
    sentences(path, [*GOOD, *BAD, *GOOD])
    capsys.readouterr()
    assert main(["evaluate", "run"]) == 2 and "has changed since the run was trained" in complaint()
    path.unlink()
    assert main(["evaluate", "run"]) == 2 and "is not there any more" in complaint()


def test_a_table_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recognisers and the reader share it; it is not kept afterwards, and a changed file is read again."""
    rows = [{"review": f"the film number {i} was fine", "label": i % 2} for i in range(60)]
    path = tmp_path / "reviews.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    read: list[Path] = []
    monkeypatch.setattr(table_files, "_read_table", lambda p, f=table_files._read_table: (read.append(p), f(p))[1])
    assert open_task(path).sizes()["train"] < 60 and read == [path] and not table_files._looked_at
    assert recognise(path) == "classification" and len(read) == 2
    path.write_text("".join(json.dumps(row | {"label": row["label"] + 5}) + "\n" for row in rows))
    assert open_task(path, kind="classification").classes == ["5", "6"]  # ty: ignore[unresolved-attribute]


def test_large_data_is_announced_before_it_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "the quick brown fox jumps over the lazy dog and runs away\n"
    (tmp_path / "small.txt").write_text(line * 100)
    (tmp_path / "large.txt").write_text(line * 90_000)
    for name, quiet in (("small.txt", []), ("large.txt", []), ("large.txt", ["--quiet"])):
        arguments = ["compare", str(tmp_path / name), "--data.tokens", "words", "--print_config", *quiet]
        assert main(arguments) == 0
        said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("odeum: ")]
        large = ["odeum: reading 'large.txt' (5 MB)", "odeum: learning the tokens (5 MB)", "odeum: encoding (5 MB)"]
        assert [line for line in said if "MB)" in line] == (large if name == "large.txt" and not quiet else [])


def test_compiling_on_a_cpu_is_remarked(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, said in ((["--train.compile", "true"], 1), ([], 0)):
        assert main(["compare", "digits", "--print_config", "--train.device", "cpu", *arguments]) == 0
        assert capsys.readouterr().err.count("--train.compile on a CPU usually makes training slower") == said
