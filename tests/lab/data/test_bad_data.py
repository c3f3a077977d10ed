"""Data that cannot be what was meant: each mistake is one sentence, at once, and nothing is left behind."""

from __future__ import annotations

import gzip
import io
import os
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from odeum.lab.cli import main
from odeum.lab.data.sniffing import recognise
from odeum.lab.data.split_names import split_name, whole_name
from odeum.lab.tasks import KINDS, open_task
from odeum.lab.tasks.classification.task import split

PROSE = "the cat sat on the mat and looked at the dog\n" * 60
PAIRS = "".join(f"one {i} and two\teins {i} und zwei\n" for i in range(40))
ROWS = "text,label\n" + "".join(f"film number {i},{'pn'[i % 2]}\n" for i in range(60))


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("data.bin", PROSE)
    return buffer.getvalue()


def numpy_file() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    return buffer.getvalue()


FILES: dict[str, bytes] = {
    "mid.txt": PROSE.encode(),
    "other.txt": PROSE.replace("cat", "cow").encode(),
    "rows.tsv": "".join(f"film number {i}\t{'pn'[i % 2]}\n" for i in range(60)).encode(),
    "rows.csv": ROWS.encode(),
    "pairs.tsv": PAIRS.encode(),
    "numbers.csv": b"text,price\n" + b"".join(b"thing %d,%f\n" % (i, i * 0.37) for i in range(90)),
    "p.en": PROSE.encode(),
    "p.de": PROSE.encode(),
    "p.fr": PROSE.encode(),
    "train.txt": PROSE.encode(),
    "test.txt": (PROSE[: len(PROSE) // 2]).encode(),
    "valid.txt": PROSE.replace("cat", "cow").encode(),
    "train.csv": ROWS.encode(),
    "test.csv": ROWS.encode(),
    "a.gz": gzip.compress(PROSE.encode()),
    "a.zip": zipped(),
    "a.npz": zipped(),
    "a.xlsx": zipped(),
    "a.npy": numpy_file(),
    "a.parquet": b"PAR1" + bytes(range(256)),
    "a.pdf": b"%PDF-1.7\n%\xe2\xe3\n",
    "a.db": b"SQLite format 3\0",
    "a.txt": bytes(range(256)) * 4,
    "late.txt": PROSE.encode() * 40 + b"\0",
    "latin.txt": b"caf\x81\n" * 100,
    "photo.dat": b"\x89PNG\r\n\x1a\n" + b"\0" * 30,
    "many.csv": b"text,label\n" + b"".join(b"t %d,label %d\n" % (i, i) for i in range(300)),
    "odd.csv": b"alpha,beta\n1,2\n3,4\n",
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    (folder / "link.en").symlink_to("p.en")
    os.link(folder / "mid.txt", folder / "hard.txt")
    (folder / "gone.txt").symlink_to("nowhere")
    os.mkfifo(folder / "pipe.txt")
    for name in ("a", "b"):
        (folder / "loop" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(folder / "loop" / name / "x.png")
    (folder / "loop" / "a" / "back").symlink_to("..")
    (folder / "round" / "a").mkdir(parents=True)
    (folder / "round" / "b").mkdir()
    (folder / "round" / "a" / "to").symlink_to("../b")
    (folder / "round" / "b" / "to").symlink_to("../a")
    (folder / "empty").mkdir()
    return folder


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("rows.tsv mid.txt", "'rows.tsv' is a table and 'mid.txt' is not; give files of one kind"),
        ("rows.csv p.en", "'rows.csv' is a table and 'p.en' is not"),
        (
            "p.en p.de p.en",
            "'p.en' is given twice; give each file once, so that test data is not training data",
        ),
        ("p.en ./p.en", "'p.en' is given twice"),
        ("p.en link.en", "'link.en' is the same file as 'p.en'"),
        ("mid.txt hard.txt", "'hard.txt' is the same file as 'mid.txt'"),
        ("p.en p.de p.fr", "'p.en', 'p.de', 'p.fr' do not belong together"),
        ("mid.txt p.de", "'mid.txt' and 'p.de' are of two kinds"),
        ("train.txt test.txt", "all of 'test.txt' is in the training text too"),
        ("valid.txt test.txt", "none of valid.txt, test.txt is named as the training part"),
        ("train.csv test.csv", "has the same rows as its training part"),
        ("--kind language p.en p.en", "'p.en' is given twice"),
        ("--kind language a.parquet", "'a.parquet' is a truncated Parquet table"),
        ("a.gz", "'a.gz' is compressed by gzip, not plain text; unpack it first"),
        ("a.zip", "'a.zip' is a ZIP archive, not plain text; unpack it first"),
        ("a.npz", "'a.npz' is a file of NumPy arrays, not plain text; give images as files"),
        ("a.npy", "'a.npy' is a NumPy array"),
        ("a.xlsx", "'a.xlsx' is an Excel workbook, not plain text; save it as .csv"),
        ("a.pdf", "'a.pdf' is a PDF, not plain text; save its text as .txt"),
        ("a.db", "'a.db' is an SQLite database"),
        ("a.txt", "'a.txt' is a binary file"),
        ("late.txt", "'late.txt' is not plain text: it has a zero byte at offset 108000"),
        ("latin.txt", "'latin.txt' is not UTF-8: byte 0x81 at offset 3"),
        ("photo.dat", "'photo.dat' is an image"),
        ("pipe.txt", "'pipe.txt' is a pipe, not a regular file; save its output to a file first"),
        ("/dev/zero", "'/dev/zero' is a device, not a regular file"),
        ("gone.txt", "'gone.txt' is a link to 'nowhere', which is not there"),
        ("loop", "'loop/a/back' is a link to"),
        ("round", "which contains it; remove the link"),
        ("empty", "'empty' has no recognised images, tables or texts (nothing)"),
        ("empty rows.csv", "'empty' is a folder; give one folder, or several files"),
        ("--kind classification empty", "'empty' has no tables"),
        ("many.csv", "does not look like classes, so name another with --data.label_column"),
        ("odd.csv", "name them with --data.text_column and --data.label_column"),
        ("x" * 300 + ".csv", "there is no file or folder"),
        ("mid.txt --data.length 3", "length of the data must be an integer of at least 8, got 3"),
        ("mid.txt --data.context 300", "context=300 must be below length=256"),
        (
            "mid.txt --data.tokens bpe --data.vocabulary 20",
            "vocabulary of bpe must be an integer of at least 256, got 20",
        ),
        ("pairs.tsv --data.vocabulary 20", "vocabulary of the data must be an integer of at least 260, got 20"),
        ("rows.csv --data.vocabulary 2", "vocabulary of auto must be an integer of at least 4, got 2"),
        ("rows.csv --model.classes 2", "--model.classes is decided by the data and cannot be set"),
        ("mid.txt --model.length 32", "--model.length is decided by the data and cannot be set; --data.length may"),
        ("mid.txt --model.width 10 --model.heads 3", "heads=3 must divide width=10; use 2 or 5"),
    ],
)
def test_a_mistake_is_one_sentence(
    words: str, sentence: str, here: Path, complaint: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(here)
    before = set(here.iterdir())
    assert main(["train", *words.split(), "--train.steps", "1"]) == 2
    assert sentence in complaint() and set(here.iterdir()) == before


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
