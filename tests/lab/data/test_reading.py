"""Data as users have it: sorted, in several files, changed since the training; and what is checked before reading."""

from __future__ import annotations

import json
import os
import time
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
from odeum.lab.data.split_names import split_name, whole_name
from odeum.lab.data.splits import mixed
from odeum.lab.tasks import KINDS, open_task
from odeum.lab.tasks.classification.task import split

PROSE = "the cat sat on the mat and looked at the dog\n" * 60
PAIRS = "".join(f"one {i} and two\teins {i} und zwei\n" for i in range(40))
FILES = {
    "mid.txt": PROSE,
    "rows.csv": "text,label\n" + "".join(f"film number {i},{'pn'[i % 2]}\n" for i in range(60)),
    "pairs.tsv": PAIRS,
    "numbers.csv": "text,price\n" + "".join(f"thing {i},{i * 0.37}\n" for i in range(90)),
}
GOOD, BAD = ["a good film,pos"] * 30, ["a bad film,neg"] * 30


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for name, content in FILES.items():
        (folder / name).write_text(content)
    return folder


def sentences(path: Path, rows: list[str]) -> Path:
    path.write_text("text,label\n" + "".join(f"{row}\n" for row in rows))
    return path


def test_tables_of_one_part_are_read_together(tmp_path: Path) -> None:
    paths = [sentences(tmp_path / f"train{i}.csv", GOOD + BAD) for i in (1, 2)]
    parts = open_task(*paths).parts
    assert sum(len(part[0]) for part in parts.values()) == 120
    unnamed = [sentences(tmp_path / f"x{i}.csv", GOOD + BAD) for i in (1, 2, 3, 4)]
    with pytest.raises(OdeumError, match=r"x4\.csv' is not named as a part"):
        open_task(*unnamed)


def test_a_text_that_is_null_is_empty(tmp_path: Path) -> None:
    rows = [{"text": t, "label": n} for n, t in enumerate(("good", "bad")) for _ in range(30)]
    path = tmp_path / "reviews.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in [*rows, {"text": None, "label": 0}]))
    assert "none" not in open_task(path).tokens.to_json().lower()


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
    with pytest.raises(OdeumError, match=r"the class name .* is not UTF-8; rename the folder"):
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
    assert main(["evaluate", "run"]) == 2 and "no longer exists" in complaint()


@pytest.mark.parametrize(
    "words",
    [
        "--data.length 3",
        "--train.batch_size 0",
        "--model.depth 0",
        "--model.dropout 2",
        "--seed=-1",
        "--model.length 9",
    ],
)
def test_what_the_data_does_not_decide_is_refused_before_it_is_read(
    words: str, here: Path, monkeypatch: pytest.MonkeyPatch, complaint: Callable[[], str]
) -> None:
    def unread(*_: object) -> None:
        raise AssertionError("the data was read")

    monkeypatch.setattr("odeum.lab.data.corpora.read_corpus", unread)
    assert main(["train", str(here / "mid.txt"), *words.split()]) == 2
    complaint()


def test_what_the_data_decides_is_not_offered(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", str(here / "rows.csv"), "--help"])
    out = capsys.readouterr().out
    assert "--model.width" in out and "--data.length" in out
    assert not any(f"--model.{name}" in out for name in ("classes", "vocabulary", "length"))


@pytest.mark.parametrize("name", ["digits", "rows.csv", "numbers.csv", "mid.txt", "pairs.tsv"])
def test_a_kind_names_all_that_its_data_decides(name: str, here: Path) -> None:
    task = open_task(name if name == "digits" else here / name)
    assert set(KINDS[task.kind].decided) == set(task.facts())


def test_a_blank_line_among_pairs_is_no_reason_to_take_them_for_labels(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text(PAIRS[: len(PAIRS) // 2].rpartition("\n")[0] + "\n\n\r\n" + PAIRS)
    assert recognise(path) == "translation"
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "train.tsv").write_text(PAIRS)
    (folder / "test.tsv").write_text(PAIRS.replace("one", "three"))
    assert recognise(folder) == "translation" and len(open_task(folder).texts["test"][0]) == 40  # ty: ignore


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("train.csv", "train"),
        ("reviews_train2.csv", "train"),
        ("wiki.valid.tokens", "valid"),
        ("Testset", "test"),
        ("reviewsTrain.csv", "train"),
        ("dev.en", "valid"),
        ("TEST-3.JSONL", "test"),
        ("latest.csv", None),
        ("testimony.txt", None),
        ("train_test.csv", None),
        ("développeur_val.txt", "valid"),
        ("évaltest.txt", None),
    ],
)
def test_a_name_says_its_part_by_a_whole_word(name: str, part: str | None) -> None:
    assert split_name(name) == part
    assert whole_name(name) == (part if name == "Testset" else None)


def test_files_of_one_name_are_found_beside(tmp_path: Path) -> None:
    for side in ("en", "de"):
        lines = [f"{side} {i}" for i in range(60)]
        (tmp_path / f"corpus.train.{side}").write_text("\n".join(lines))
        (tmp_path / f"corpus.dev.{side}").write_text("\n".join(f"{side} new {i}" for i in range(7)))
    (tmp_path / "corpus.val.en").write_text("only one side\n")
    task = open_task(tmp_path / "corpus.train.en", tmp_path / "corpus.train.de")
    assert len(task.texts["valid"][0]) == 7  # ty: ignore


def test_ten_thousand_classes_are_no_quadratic_search() -> None:
    """Class by class through all rows took minutes."""
    labels = [f"class {i}" for i in range(10_000)]
    rows = [(f"text {i}", labels[i % 10_000]) for i in range(30_000)]
    begin = time.perf_counter()
    parts = split({"train": rows}, labels, "here")
    assert sum(len(part) for part in parts.values()) == 30_000
    assert time.perf_counter() - begin < 10


def test_line_ends_are_no_part_of_a_text(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_bytes("The cat sat.\r\nÜber naïve dogs.\r\n".encode() * 60)
    task = odeum.lab.tasks.open_task(path)
    assert "\r" not in task.tokens.to_json() and r"\r" not in task.tokens.to_json()  # ty: ignore


def test_hidden_folders_are_no_data(tmp_path: Path) -> None:
    from PIL import Image

    for i in range(8):
        for name, folder in (("red", "a"), ("blue", "b"), ("green", "b/.thumbs"), ("green", ".cache")):
            path = tmp_path / folder / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), name).save(path)
    task = odeum.lab.tasks.open_task(tmp_path)
    assert task.classes == ["a", "b"]  # ty: ignore
    assert sum(len(labels) for _, labels in task.parts.values()) == 16  # ty: ignore


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
