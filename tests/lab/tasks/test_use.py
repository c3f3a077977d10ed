"""A run in use: answers in files, lists of inputs, generation that streams, and what Python gives instead of paths."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from small_runs import write_photos

import odeum
from odeum.errors import OdeumError
from odeum.lab.cli import main
from odeum.lab.tasks.language.task import final_prefix
from odeum.lab.terminal import LiveLine

TINY = ["--model.width", "8", "--model.heads", "2", "--model.depth", "1", "--train.steps", "1"]
Capture = pytest.CaptureFixture[str]


def trained(folder: Path, *data: Path | str, words: tuple[str, ...] = ()) -> str:
    out = str(folder / "run")
    assert main(["train", *map(str, data), *TINY, *words, "--out", out]) == 0
    return out


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("photos"))


@pytest.fixture(scope="module")
def images(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return trained(tmp_path_factory.mktemp("images"), photos)


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("language")
    (folder / "text.txt").write_text("the cat sat on the mat. äöü €! " * 60, encoding="utf-8")
    return trained(folder, folder / "text.txt", words=("--data.tokens", "bpe", "--data.vocabulary", "300"))


@pytest.fixture(scope="module")
def translation(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("pairs")
    (folder / "pairs.tsv").write_text("".join(f"one {i} and two\teins {i} und zwei\n" for i in range(40)))
    return trained(folder, folder / "pairs.tsv")


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_answers_in_files_keep_the_place_of_what_failed(
    images: str, photos: Path, tmp_path: Path, capfd: Capture
) -> None:
    (tmp_path / "bad.png").write_bytes(b"no image")
    inputs = [str(tmp_path / "bad.png"), str(photos / "dark"), "nowhere.png"]
    assert main(["predict", images, *inputs, "--out", str(tmp_path / "new" / "a.csv"), "--top", "2"]) == 1
    found = rows(tmp_path / "new" / "a.csv")
    assert len(found) == 8 and [bool(row["error"]) for row in found] == [True, *[False] * 6, True]
    assert list(found[0]) == [*("file", "row", "input", "class", "probability", "class_2", "probability_2", "error")]
    assert {row["class"] for row in found[1:7]} <= {"bright", "dark"} and float(found[1]["probability"]) >= 0.5
    assert main(["predict", images, *inputs, "--out", str(tmp_path / "a.jsonl")]) == 1
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [set(line) for line in lines] == [{"input", "error"}, *[{"input", "output"}] * 6, {"input", "error"}]
    assert capfd.readouterr().out.count("\n") < 5  # what training said; no answers


def test_a_file_that_is_there_or_is_read_is_not_written_over(
    images: str, photos: Path, tmp_path: Path, complaint
) -> None:
    listed = tmp_path / "list.csv"
    listed.write_text(f"file\n{photos / 'dark' / '1.png'}\n")
    for out, more, sentence in (
        (listed, (), "is one of the inputs"),
        (tmp_path / "old.csv", (), "exists already; name another file, or add --overwrite"),
        (tmp_path / "a.xlsx", (), "must end in .csv or .jsonl"),
        (tmp_path / "a.csv", ("--format", "json"), "--format applies to standard output"),
    ):
        (tmp_path / "old.csv").write_text("mine")
        assert main(["predict", images, str(listed), "--out", str(out), *more]) == 2
        assert sentence in complaint()
    assert (tmp_path / "old.csv").read_text() == "mine" and listed.read_text().startswith("file")
    assert main(["predict", images, str(listed), "--out", str(tmp_path / "old.csv"), "--overwrite"]) == 0
    assert len(rows(tmp_path / "old.csv")) == 1


def test_lists_of_images(images: str, photos: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    (photos / "list.txt").write_text("dark/1.png\n\nbright/2.png\n")
    (photos / "list.csv").write_text("id,picture\n1,dark/1.png\n2,bright/2.png\n")
    asked = [str(photos / "dark" / "1.png"), str(photos / "bright" / "2.png")]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(asked).encode())))
    outputs = []
    for words in (asked, [str(photos / "list.txt")], [str(photos / "list.csv"), "--column", "picture"], ["-"]):
        capsys.readouterr()
        assert main(["predict", images, *words]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0].count("\n") == 2 and len(set(outputs)) == 1
    assert main(["predict", images, str(photos / "list.csv")]) == 2
    assert "has no column of image paths" in capsys.readouterr().err


def test_a_file_that_is_wrong_leaves_the_others_their_answers(
    language: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("the\ncat\n")
    few = ["--max_new_tokens", "2", "--temperature", "0"]
    assert main(["predict", language, "missing.txt", str(tmp_path / "a.txt"), *few]) == 1
    out, err = capsys.readouterr()
    assert out.count("\n") >= 2 and "missing.txt" in err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the\ncaf\xe9\ncat\n")))
    assert main(["predict", language, "-", *few, "--format", "json"]) == 1
    out, err = capsys.readouterr()
    assert [json.loads(line)["input"] for line in out.splitlines()] == ["the", "cat"]
    assert "line 2 of standard input is not UTF-8" in err


def test_what_streams_is_what_is_generated(language: str, tmp_path: Path, capsys: Capture) -> None:
    run = odeum.load(language)
    how = {"max_new_tokens": 24, "temperature": 1.5, "top_p": 1.0, "seed": 3}
    drawn = run.generate(["the cat", "on"], samples=3, **how)
    assert len(drawn) == 6 and len(set(drawn)) == 6
    assert drawn[0] == run.generate("the cat", **how)[0] == run.predict(["the cat"], **how)[0]
    assert "".join(run.stream("the cat", sample=2, **how)) == drawn[2]
    words = [x for name, value in how.items() for x in (f"--{name}", str(value))]
    capsys.readouterr()
    assert main(["predict", language, "--text", "the cat", "--text", "on", "--samples", "3", *words]) == 0
    shown = capsys.readouterr().out
    asked = ["the cat"] * 3 + ["on"] * 3
    from odeum.lab.terminal import plain

    assert shown == "".join(plain(f"{a}{b}") + "\n" for a, b in zip(asked, drawn, strict=True))
    (tmp_path / "prompt.txt").write_text("the cat\non the\n")
    assert main(["predict", language, "--text-file", str(tmp_path / "prompt.txt"), *words, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["input"] == "the cat\non the"
    out = tmp_path / "drawn.jsonl"
    assert main(["predict", language, "--text", "the cat", "--samples", "2", *words, "--out", str(out)]) == 0
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [(line["sample"], line["output"]) for line in lines] == [(0, drawn[0]), (1, drawn[1])]


def test_a_continuation_ends_before_a_stop_string(language: str) -> None:
    run = odeum.load(language)
    how = {"max_new_tokens": 40, "temperature": 1.2, "top_p": 1.0, "seed": 1}
    [whole] = run.generate("the", **how)
    stop = whole[10:13]
    [cut] = run.generate("the", stop=["not in it at all", stop], **how)
    assert cut == whole[: whole.index(stop)] == "".join(run.stream("the", stop=[stop], **how))
    assert final_prefix("one tw", ["two"]) == "one " and final_prefix("one \N{REPLACEMENT CHARACTER}", []) == "one "
    for options, sentence in (
        ({"stop": "a"}, "stop must be a list of texts"),
        ({"stop": [""]}, "none of them empty"),
        ({"samples": 2, "temperature": 0}, "would all be the same"),
        ({"samples": 0}, "at least 1 and at most 1,000,000, not 0"),
        ({"temprature": 1.0}, "unknown option of predict for a language run 'temprature'; did you mean 'temperature'?"),
    ):
        with pytest.raises(OdeumError, match=sentence.replace("?", r"\?")):
            run.generate("the", **options)


def test_images_of_pillow_numpy_and_torch_are_the_file(images: str, photos: Path) -> None:
    run = odeum.load(images)
    path = photos / "dark" / "1.png"
    picture = Image.open(path)
    array = np.array(picture)
    tensor = torch.from_numpy(array).permute(2, 0, 1)
    [[first, *_]] = run.predict([path])
    same = [picture, array, tensor, array / 255, tensor.float() / 255, array.astype(np.int64), run.task.prepare(path)]
    assert [answer[0] for answer in run.predict(same)] == [first] * len(same)
    assert [answer[0] for answer in run.predict(np.stack([array, array]))] == [first] * 2
    assert torch.equal(run.embed([path]), run.embed(torch.stack([tensor])))
    grey = run.predict([np.full((5, 5), 7, np.uint8), Image.new("RGBA", (9, 9)), torch.zeros(1, 8, 8)])
    assert len(grey) == 3
    for wrong, sentence in (
        (tensor, "give a list of images, or a batch of four dimensions, not one of shape"),
        (picture, "not a single image"),
        ([array.astype(np.float32)], "values from 0 to 1, not from 0 to"),
        ([np.full((4, 4), np.nan)], "values from 0 to 1"),
        ([np.zeros((5, 5, 2), np.uint8)], "with 1, 3 or 4 channels"),
        ([3], "an image must be a path, a Pillow image, an array or a tensor, not int"),
    ):
        with pytest.raises(OdeumError, match=sentence):
            run.predict(wrong)


def test_embeddings_stand_for_their_inputs(images: str, language: str, translation: str) -> None:
    texts = ["the cat", "on the mat. the cat sat", "the cat"]
    for run in map(odeum.load, (language, translation)):
        found = run.embed(texts)
        assert found.shape == (3, 8) and torch.equal(found[0], found[2]) and not torch.equal(found[0], found[1])
        torch.testing.assert_close(run.embed(texts[1]), found[1:2])  # neighbours and padding do not matter
    assert odeum.load(images).embed([]).shape == (0, 8)


def test_each_run_has_the_verbs_of_its_target(images: str, language: str, translation: str) -> None:
    lines = ["one 3 and two", "one"]
    assert odeum.load(translation).translate(lines, beam=1) == odeum.load(translation).predict(lines, beam=1)
    for directory, verb, kind in ((images, "generate", "images"), (language, "translate", "language")):
        with pytest.raises(OdeumError, match=f"{verb} is for runs whose target is .*; this {kind} run has predict"):
            getattr(odeum.load(directory), verb)(["a"])


def test_a_live_line_never_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "20")
    line = LiveLine(stream)
    line.write("answered \x1b[31m 100000 of 200000 and more", stay=False)
    line.clear()
    assert stream.getvalue().count("\x1b") == 2 and len(stream.getvalue().split("\x1b[2K")[1].rstrip("\r")) <= 19
