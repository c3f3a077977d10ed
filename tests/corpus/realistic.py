"""Data sets in the formats that people have, each with what must happen to it: read as meant, or refused by name."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

SUBJECTS = ("film", "book", "phone", "hotel", "song", "game", "train", "garden", "lamp", "coffee")
GOOD, BAD = ("wonderful", "great", "lovely", "superb"), ("awful", "boring", "poor", "broken")


class RealisticSet(NamedTuple):
    """Files as somebody has them, the words for the command line, and the outcome."""

    title: str
    write: Callable[[Path], object]
    words: tuple[str, ...]
    outcome: str
    """kind, or `refused`"""
    fact: str
    """what the summary, a note or the refusal must say"""


def reviews(count: int = 120) -> list[tuple[str, str]]:
    """Texts with the labels pos and neg."""
    draw = random.Random(0)
    out = []
    for i in range(count):
        word = draw.choice(GOOD if i % 2 else BAD)
        out.append((f"the {draw.choice(SUBJECTS)} number {i} was {word}, I think", "pos" if i % 2 else "neg"))
    return out


def table(rows: list[tuple], head: tuple[str, ...] = (), delimiter: str = ",") -> str:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    writer.writerows([head, *rows] if head else rows)
    return out.getvalue()


def lines(rows: list[dict]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def text(name: str, content: str | bytes, encoding: str = "utf-8") -> Callable[[Path], object]:
    """One file."""

    def write(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))

    return write


def together(*writers: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda folder: [write(folder) for write in writers]


def pictures(*folders: str, count: int = 30, start: int = 0, suffix: str = ".png") -> Callable[[Path], object]:
    """Small images in each folder, all different."""

    def write(folder: Path) -> None:
        for place, name in enumerate(folders):
            (folder / name).mkdir(parents=True, exist_ok=True)
            for i in range(count):
                noise = np.random.default_rng(1000 * (start + place) + i).integers(0, 255, (16, 16, 3), dtype=np.uint8)
                Image.fromarray(noise).save(folder / name / f"{start + i:04d}{suffix}")

    return write


ROWS = reviews()
PROSE = "".join(
    f"On day {i} the {SUBJECTS[i % 10]} was {GOOD[i % 4]} and the weather {BAD[i % 3]}.\n" for i in range(300)
)
ENGLISH = [f"the {SUBJECTS[i % 10]} number {i} is {GOOD[i % 4]}" for i in range(200)]
GERMAN = [f"das Ding {SUBJECTS[i % 10]} Nummer {i} ist {BAD[i % 4]}" for i in range(200)]
SPAM = "".join(
    f"{'spam' if i % 5 == 0 else 'ham'}\tmessage number {i} about a {SUBJECTS[i % 10]}\n" for i in range(150)
)
TOPICS = ("sci", "pol", "art", "eco")


def sentences(rows: list[tuple[str, str]], name: str = "label") -> list[dict]:
    return [{"text": words, name: label} for words, label in rows]


def classified() -> Iterator[RealisticSet]:
    yield RealisticSet(
        "Kaggle CSV `text,label`",
        text("d.csv", table(ROWS, ("text", "label"))),
        ("d.csv",),
        "classification",
        "2 classes",
    )
    yield RealisticSet(
        "IMDB on Kaggle `review,sentiment`",
        text("IMDB Dataset.csv", table(ROWS, ("review", "sentiment"))),
        ("IMDB Dataset.csv",),
        "classification",
        "text = review, label = sentiment",
    )
    sms = [("ham" if i % 4 else "spam", words, "", "", "") for i, (words, _) in enumerate(ROWS)]
    yield RealisticSet(
        "Kaggle spam.csv `v1,v2,,,` in cp1252",
        text("spam.csv", table([(a, b + " £5", *c) for a, b, *c in sms], ("v1", "v2", "", "", "")), "cp1252"),
        ("spam.csv",),
        "refused",
        "no recognised text and label column",
    )
    yield RealisticSet(
        "the same with the columns named",
        text("spam.csv", table([(a, b + " £5", *c) for a, b, *c in sms], ("v1", "v2", "", "", "")), "cp1252"),
        ("spam.csv", "--text_column=v2", "--label_column=v1"),
        "classification",
        "text = v2, label = v1",
    )
    yield RealisticSet(
        "UCI SMSSpamCollection, no suffix, `ham<TAB>text`",
        text("SMSSpamCollection", SPAM),
        ("SMSSpamCollection",),
        "classification",
        "2 classes",
    )
    yield RealisticSet("the same as .txt", text("spam.txt", SPAM), ("spam.txt",), "classification", "2 classes")
    yield RealisticSet("TSV without a header", text("d.tsv", SPAM), ("d.tsv",), "classification", "2 classes")
    yield RealisticSet(
        "SST-2 of GLUE: train.tsv and dev.tsv",
        together(
            text("sst/train.tsv", table(ROWS, ("sentence", "label"), "\t")),
            text("sst/dev.tsv", table(reviews(180)[120:], ("sentence", "label"), "\t")),
        ),
        ("sst",),
        "classification",
        "validation from 'sst/dev.tsv'",
    )
    yield RealisticSet(
        "train.csv and test.csv in a folder",
        together(
            text("d/train.csv", table(ROWS, ("text", "label"))),
            text("d/test.csv", table(reviews(240)[120:], ("text", "label"))),
        ),
        ("d",),
        "classification",
        "test from 'd/test.csv'",
    )
    yield RealisticSet(
        "two files, train and test",
        together(
            text("a.csv", table(ROWS, ("text", "label"))), text("b.csv", table(reviews(240)[120:], ("text", "label")))
        ),
        ("a.csv", "b.csv"),
        "classification",
        "test from 'b.csv'",
    )
    yield RealisticSet(
        "Hugging Face JSONL `text,label`",
        text("d.jsonl", lines(sentences(ROWS))),
        ("d.jsonl",),
        "classification",
        "2 classes",
    )
    yield RealisticSet(
        "a JSON list of objects",
        text("d.json", json.dumps(sentences(ROWS))),
        ("d.json",),
        "classification",
        "2 classes",
    )
    yield RealisticSet(
        "nested JSON `review.body`",
        text("d.jsonl", lines([{"review": {"body": a, "by": "x"}, "label": b} for a, b in ROWS])),
        ("d.jsonl",),
        "classification",
        "text = review.body",
    )
    yield RealisticSet(
        "Amazon reviews `overall,reviewText`",
        text("d.json", lines([{"reviewText": a, "overall": float(i % 5 + 1)} for i, (a, _) in enumerate(ROWS)])),
        ("d.json",),
        "refused",
        "no recognised text and label column",
    )
    yield RealisticSet(
        "Amazon reviews with the columns named",
        text("d.json", lines([{"reviewText": a, "overall": float(i % 5 + 1)} for i, (a, _) in enumerate(ROWS)])),
        ("d.json", "--text_column=reviewText", "--label_column=overall"),
        "classification",
        "5 classes",
    )
    yield RealisticSet(
        "Excel saved as CSV with semicolons",
        text("d.csv", table(ROWS, ("text", "label"), ";")),
        ("d.csv",),
        "classification",
        "2 classes",
    )
    yield RealisticSet(
        "CSV with a byte-order mark",
        text("d.csv", "\ufeff" + table(ROWS, ("text", "label"))),
        ("d.csv",),
        "classification",
        "2 classes",
    )
    yield RealisticSet(
        "CSV in UTF-16 (Excel's Unicode text)",
        text("d.tsv", table(ROWS, ("text", "label"), "\t"), "utf-16"),
        ("d.tsv",),
        "classification",
        "2 classes",
    )
    yield RealisticSet(
        "CSV in cp1252 (Windows)",
        text("d.csv", table([(f"{a} – café", b) for a, b in ROWS], ("text", "label")), "cp1252"),
        ("d.csv",),
        "classification",
        "is read as cp1252",
    )
    yield RealisticSet(
        "CSV with Windows line ends",
        text("d.csv", table(ROWS, ("text", "label")).replace("\n", "\r\n")),
        ("d.csv",),
        "classification",
        "2 classes",
    )
    yield RealisticSet(
        "pandas export with an index column",
        text("d.csv", table([(i, *row) for i, row in enumerate(ROWS)], ("", "text", "label"))),
        ("d.csv",),
        "classification",
        "2 classes",
    )
    yield RealisticSet(
        "CSV in gzip",
        text("d.csv.gz", gzip.compress(table(ROWS, ("text", "label")).encode(), mtime=0)),
        ("d.csv.gz",),
        "classification",
        "2 classes",
    )
    yield RealisticSet(
        "CSV in a ZIP archive",
        lambda folder: zipfile.ZipFile(folder / "d.zip", "w").writestr("d/train.csv", table(ROWS, ("text", "label"))),
        ("d.zip",),
        "classification",
        "2 classes",
    )
    yield RealisticSet(
        "aclImdb folders train/pos, train/neg",
        together(
            *(
                text(f"aclImdb/{part}/{side}/{i}.txt", f"{words} {part}")
                for part in ("train", "test")
                for i, (words, side) in enumerate(ROWS)
            )
        ),
        ("aclImdb",),
        "classification",
        "2 classes",
    )
    yield RealisticSet(
        "AG News without a header: class, title, text",
        text("train.csv", table([(i % 4 + 1, f"title {i}", words) for i, (words, _) in enumerate(ROWS)])),
        ("train.csv",),
        "refused",
        "no recognised text and label column",
    )
    yield RealisticSet(
        "20 × 6 duplicated rows",
        text("d.csv", table(reviews(20) * 6, ("text", "label"))),
        ("d.csv",),
        "classification",
        "are in the training part too",
    )
    yield RealisticSet(
        "a class with 3 examples",
        text("d.csv", table([*ROWS, *[(f"rare case {i}", "rare") for i in range(3)]], ("text", "label"))),
        ("d.csv",),
        "classification",
        "fewer than 10 training examples",
    )
    yield RealisticSet(
        "a test part of one class",
        together(
            text("d/train.csv", table(ROWS, ("text", "label"))),
            text("d/test.csv", table([(f"a new text {i}", "pos") for i in range(120)], ("text", "label"))),
        ),
        ("d",),
        "classification",
        "the test part has only one class",
    )
    yield RealisticSet(
        "multi-label `sci|pol`",
        text(
            "d.csv",
            table(
                [(words, "|".join(sorted({TOPICS[i % 4], TOPICS[i % 3]}))) for i, (words, _) in enumerate(ROWS)],
                ("text", "label"),
            ),
        ),
        ("d.csv",),
        "refused",
        "multi-label data",
    )
    yield RealisticSet(
        "multi-label as JSON lists",
        text(
            "d.jsonl",
            lines([{"text": words, "labels": [TOPICS[i % 4], TOPICS[i % 3]]} for i, (words, _) in enumerate(ROWS)]),
        ),
        ("d.jsonl",),
        "refused",
        "multi-label data",
    )
    yield RealisticSet(
        "Jigsaw: six columns of 0 and 1",
        text(
            "d.csv",
            table(
                [(i, words, *((i + k) % 2 for k in range(6))) for i, (words, _) in enumerate(ROWS)],
                ("id", "comment_text", "toxic", "severe", "obscene", "threat", "insult", "hate"),
            ),
        ),
        ("d.csv",),
        "refused",
        "multi-label data",
    )
    yield RealisticSet(
        "LRA ListOps TSV `Source,Target`",
        text(
            "basic_train.tsv",
            table(
                [(f"[MAX {i % 10} {i % 7} [MIN 3 {i % 5} ] ]", i % 10) for i in range(300)], ("Source", "Target"), "\t"
            ),
        ),
        ("basic_train.tsv",),
        "refused",
        "Source",
    )
    yield RealisticSet(
        "ListOps with the columns named",
        text(
            "basic_train.tsv",
            table(
                [(f"[MAX {i % 10} {i % 7} [MIN 3 {i % 5} ] ]", i % 10) for i in range(300)], ("Source", "Target"), "\t"
            ),
        ),
        ("basic_train.tsv", "--kind=classification", "--text_column=Source", "--label_column=Target"),
        "classification",
        "10 classes",
    )


def numbers() -> Iterator[RealisticSet]:
    prices = [(f"a {SUBJECTS[i % 10]} of size {i}", i * 1.5 + 0.25) for i in range(150)]
    yield RealisticSet(
        "CSV `text,price`", text("d.csv", table(prices, ("text", "price"))), ("d.csv",), "regression", "a number each"
    )
    commas = [(words, f"{x:.2f}".replace(".", ",")) for words, x in prices]
    yield RealisticSet(
        "German Excel: semicolons and decimal commas",
        text("d.csv", table(commas, ("text", "price"), ";")),
        ("d.csv",),
        "regression",
        "a number each",
    )
    yield RealisticSet(
        "numbers with thousands separators",
        text(
            "d.csv",
            table([(words, f"{i + 1},{i % 900 + 100}") for i, (words, _) in enumerate(prices)], ("text", "price")),
        ),
        ("d.csv", "--kind=regression"),
        "refused",
        "which is not a finite number",
    )
    yield RealisticSet(
        "stars from 1 to 5",
        text("d.csv", table([(words, i % 5 + 1) for i, (words, _) in enumerate(ROWS)], ("text", "rating"))),
        ("d.csv", "--label_column=rating"),
        "classification",
        "5 classes",
    )
    iris = [
        (f"{5 + i % 9 / 10}", f"{3 + i % 5 / 10}", f"{1 + i % 7 / 10}", "0.2", ("setosa", "versicolor")[i % 2])
        for i in range(120)
    ]
    yield RealisticSet(
        "scikit-learn export: iris",
        text("iris.csv", table(iris, ("sepal_length", "sepal_width", "petal_length", "petal_width", "species"))),
        ("iris.csv",),
        "refused",
        "tabular data",
    )
    titanic = [
        (i, i % 2, i % 3 + 1, f"Mr. Number {i}", ("male", "female")[i % 2], 20 + i % 50, 7.25) for i in range(120)
    ]
    yield RealisticSet(
        "Titanic",
        text("titanic.csv", table(titanic, ("PassengerId", "Survived", "Pclass", "Name", "Sex", "Age", "Fare"))),
        ("titanic.csv",),
        "refused",
        "tabular data",
    )
    series = [(f"2024-01-{i % 28 + 1:02d}", 20 + i % 7, 1000 + i) for i in range(120)]
    yield RealisticSet(
        "a time series `date,temperature,load`",
        text("series.csv", table(series, ("date", "temperature", "load"))),
        ("series.csv",),
        "refused",
        "time series",
    )


def running() -> Iterator[RealisticSet]:
    yield RealisticSet("a book as .txt", text("book.txt", PROSE), ("book.txt",), "language", "tokens")
    yield RealisticSet(
        "a folder of .md notes",
        together(*(text(f"notes/{i}.md", PROSE[i * 900 : (i + 1) * 900]) for i in range(10))),
        ("notes",),
        "language",
        "tokens",
    )
    yield RealisticSet(
        "WikiText folder",
        together(*(text(f"wikitext/wiki.{part}.tokens", PROSE + part * 50) for part in ("train", "valid", "test"))),
        ("wikitext",),
        "language",
        "test from 'wikitext/wiki.test.tokens'",
    )
    yield RealisticSet("text in UTF-16", text("book.txt", PROSE, "utf-16"), ("book.txt",), "language", "tokens")
    yield RealisticSet(
        "Hugging Face JSONL of texts only",
        text("c4.jsonl", lines([{"text": words, "url": "http://x"} for words in PROSE.splitlines()])),
        ("c4.jsonl",),
        "language",
        "its column 'text' is read as running text",
    )
    yield RealisticSet(
        "labelled JSONL with `--kind language`",
        text("d.jsonl", lines(sentences(ROWS))),
        ("d.jsonl", "--kind=language"),
        "language",
        "its column 'text' is read as running text",
    )
    chats = [
        {"messages": [{"role": "user", "content": f"Is {i} even?"}, {"role": "assistant", "content": str(i % 2 == 0)}]}
        for i in range(200)
    ]
    yield RealisticSet(
        "chat JSONL (OpenAI messages)",
        text("chat.jsonl", lines(chats)),
        ("chat.jsonl",),
        "language",
        "contains chats: read as running text",
    )
    shared = [
        {"id": i, "conversations": [{"from": "human", "value": f"hello {i}"}, {"from": "gpt", "value": f"hi {i}"}]}
        for i in range(200)
    ]
    yield RealisticSet(
        "ShareGPT JSON",
        text("sharegpt.json", json.dumps(shared)),
        ("sharegpt.json",),
        "language",
        "contains chats: read as running text",
    )
    alpaca = [{"instruction": f"Add {i} and 1", "input": "", "output": str(i + 1)} for i in range(200)]
    yield RealisticSet(
        "Alpaca JSON (instruction, input, output)",
        text("alpaca.json", json.dumps(alpaca)),
        ("alpaca.json",),
        "language",
        "contains chats: read as running text",
    )
    yield RealisticSet(
        "JSONL without text, `--kind language`",
        text("d.jsonl", lines([{"id": i, "n": i} for i in range(200)])),
        ("d.jsonl", "--kind=language"),
        "refused",
        "has no column of text",
    )
    yield RealisticSet(
        "a PDF", text("paper.pdf", b"%PDF-1.7\n" + PROSE.encode()), ("paper.pdf",), "refused", "is a PDF"
    )


def paired() -> Iterator[RealisticSet]:
    both = together(text("train.en", "\n".join(ENGLISH)), text("train.de", "\n".join(GERMAN)))
    yield RealisticSet("parallel corpus train.en, train.de", both, ("train.en", "train.de"), "translation", "en → de")
    tests = together(
        text("test.en", "\n".join(f"new {s}" for s in ENGLISH)), text("test.de", "\n".join(f"neu {s}" for s in GERMAN))
    )
    yield RealisticSet(
        "the same with test.en, test.de beside it",
        together(both, tests),
        ("train.en", "train.de"),
        "translation",
        "test from 'test.en' and 'test.de'",
    )
    pairs = list(zip(ENGLISH, GERMAN, strict=True))
    yield RealisticSet(
        "Tatoeba TSV of two columns",
        text("pairs.tsv", table(pairs, (), "\t")),
        ("pairs.tsv",),
        "translation",
        "source → target",
    )
    yield RealisticSet(
        "the same as .txt with tabs",
        text("deu.txt", table(pairs, (), "\t")),
        ("deu.txt",),
        "translation",
        "source → target",
    )
    yield RealisticSet(
        "sides of unequal length",
        together(text("train.en", "\n".join(ENGLISH)), text("train.de", "\n".join(GERMAN[:-1]))),
        ("train.en", "train.de"),
        "refused",
        "has 200 lines and",
    )


def seen() -> Iterator[RealisticSet]:
    yield RealisticSet(
        "ImageFolder: one sub-folder per class",
        pictures("pets/cat", "pets/dog", count=60),
        ("pets",),
        "images",
        "2 classes",
    )
    parts = together(
        pictures("f/train/cat", "f/train/dog", count=60), pictures("f/val/cat", "f/val/dog", count=60, start=100)
    )
    yield RealisticSet("ImageFolder with train/ and val/", parts, ("f",), "images", "test from 'f/val'")
    yield RealisticSet(
        "ImageFolder with train/, val/ and test/",
        together(parts, pictures("f/test/cat", "f/test/dog", count=60, start=300)),
        ("f",),
        "images",
        "validation from 'f/val'; test from 'f/test'",
    )
    labels = "".join(f"{i:04d}.png,{('cat', 'dog')[i % 2]}\n" for i in range(120))
    yield RealisticSet(
        "flat folder with labels.csv",
        together(pictures("scans", count=120), text("scans/labels.csv", f"file,label\n{labels}")),
        ("scans",),
        "images",
        "2 classes",
    )
    ages = "".join(f"{i:04d}.png,{i * 0.5}\n" for i in range(120))
    yield RealisticSet(
        "flat folder with numbers in labels.csv",
        together(pictures("faces", count=120), text("faces/labels.csv", f"file,age\n{ages}")),
        ("faces",),
        "image-regression",
        "a number each",
    )
    yield RealisticSet(
        "segmentation: images/ and masks/",
        pictures("seg/images", "seg/masks"),
        ("seg",),
        "refused",
        "segmentation or detection data",
    )
    yield RealisticSet(
        "Pascal VOC: JPEGImages/, SegmentationClass/",
        pictures("voc/JPEGImages", "voc/SegmentationClass"),
        ("voc",),
        "refused",
        "segmentation or detection data",
    )
    coco = together(pictures("coco/train2017", "coco/val2017"), text("coco/annotations/instances_train2017.json", "{}"))
    yield RealisticSet("COCO: train2017/, val2017/, annotations/", coco, ("coco",), "refused", "are parts of the data")
    boxes = together(*(text(f"yolo/labels/train/{i:04d}.txt", "0 0.5 0.5 0.1 0.1\n") for i in range(30)))
    yield RealisticSet(
        "YOLO: images/train, labels/train/*.txt",
        together(pictures("yolo/images/train"), boxes),
        ("yolo",),
        "refused",
        "detection, segmentation or captioning data",
    )
    yield RealisticSet(
        "Dogs vs. Cats: classes in file names",
        pictures("dogs/train", "dogs/test1"),
        ("dogs",),
        "refused",
        "are parts of the data",
    )
    yield RealisticSet("images without labels", pictures("flat"), ("flat",), "refused", "no sub-folders with images")
    yield RealisticSet(
        "images, tables and texts mixed",
        together(pictures("mix/a", "mix/b"), *(text(f"mix/t/{i}.txt", PROSE) for i in range(90))),
        ("mix",),
        "refused",
        "images and 90 tables or texts",
    )
    yield RealisticSet(
        "images with a few notes beside",
        together(pictures("mix/a", "mix/b", count=60), text("mix/notes.txt", PROSE), text("mix/README.md", "x")),
        ("mix",),
        "images",
        "1 tables and texts in it were left out",
    )
    yield RealisticSet(
        "duplicated images across classes' parts",
        together(
            pictures("dup/train/a", "dup/train/b", count=60),
            pictures("dup/test/a", count=60),
            pictures("dup/test/b", count=60, start=77),
        ),
        ("dup",),
        "images",
        "are in the training part too",
    )
    yield RealisticSet(
        "audio: .wav files in folders",
        together(*(text(f"sound/{name}/{i}.wav", b"RIFF" + bytes(40)) for name in ("a", "b") for i in range(5))),
        ("sound",),
        "refused",
        "is audio",
    )
    yield RealisticSet(
        "Common Voice: clips and a TSV",
        together(
            text("cv/clips/1.mp3", b"ID3" + bytes(40)), text("cv/train.tsv", table(ROWS, ("sentence", "accent"), "\t"))
        ),
        ("cv",),
        "refused",
        "is audio",
    )
    yield RealisticSet("video clips", text("clips/1.mp4", bytes(40)), ("clips",), "refused", "is video")
    yield RealisticSet(
        "MNIST as .npz",
        lambda folder: np.savez(
            folder / "mnist.npz",
            x_train=np.random.default_rng(0).integers(0, 255, (200, 8, 8), dtype=np.uint8),
            y_train=np.arange(200) % 10,
        ),
        ("mnist.npz",),
        "images",
        "10 classes",
    )


def otherwise_laid_out() -> Iterator[RealisticSet]:
    """Layouts that look like another kind of data."""
    yield RealisticSet(
        "columns separated by |",
        text("d.csv", table(ROWS, ("text", "label"), "|")),
        ("d.csv",),
        "classification",
        "text = text",
    )
    yield RealisticSet(
        "CSV with old Macintosh line ends",
        text("d.csv", table(ROWS, ("text", "label")).replace("\n", "\r")),
        ("d.csv",),
        "classification",
        "2 classes",
    )
    yield RealisticSet(
        "two CSV files joined, with both headers",
        text("d.csv", table(ROWS[:60], ("text", "label")) + table(ROWS[60:], ("text", "label"))),
        ("d.csv",),
        "classification",
        "repeats the header",
    )
    yield RealisticSet(
        "a table saved as .txt",
        text("d.txt", table(ROWS, ("text", "label"))),
        ("d.txt",),
        "refused",
        "a table with a header",
    )
    yield RealisticSet(
        "JSON lines as .ndjson", text("d.ndjson", lines(sentences(ROWS))), ("d.ndjson",), "refused", "name it .jsonl"
    )
    yield RealisticSet(
        "fastText: __label__pos text",
        text("train.txt", "".join(f"__label__{label} {words}\n" for words, label in ROWS)),
        ("train.txt",),
        "refused",
        "fastText's format",
    )
    tokens = "\n\n".join(
        "\n".join(f"{word} NN {'B-PER' if i % 3 == 0 else 'O'}" for i, word in enumerate(words.split()))
        for words, _ in ROWS
    )
    yield RealisticSet(
        "CoNLL: a token and its tag per line",
        text("train.txt", tokens),
        ("train.txt",),
        "refused",
        "token classification",
    )
    numbers_only = "".join(
        f"{5 + i % 9 / 10},{3 + i % 5 / 10},{1 + i % 7 / 10},Iris-{'ab'[i % 2]}\n" for i in range(150)
    )
    yield RealisticSet(
        "UCI iris.data without a header", text("iris.data", numbers_only), ("iris.data",), "refused", "rows of numbers"
    )
    halves = {name: "".join(f"{words}\n" for words, label in ROWS if label == name) for name in ("pos", "neg")}
    yield RealisticSet(
        "Movie Review: rt-polarity.pos, rt-polarity.neg",
        together(*(text(f"rt-polarity.{name}", half) for name, half in halves.items())),
        ("rt-polarity.pos", "rt-polarity.neg"),
        "refused",
        "are classes (neg and pos)",
    )
    yield RealisticSet(
        "texts of two classes in folders pos/ and neg/",
        together(*(text(f"d/{label}/{i}.txt", words) for i, (words, label) in enumerate(ROWS))),
        ("d",),
        "refused",
        "are classes (neg and pos)",
    )
    yield RealisticSet(
        "text.txt and labels.txt, line by line",
        together(
            text("text.txt", "".join(f"{words}\n" for words, _ in ROWS)),
            text("labels.txt", "".join(f"{label}\n" for _, label in ROWS)),
        ),
        ("text.txt", "labels.txt"),
        "refused",
        "holds the labels of other files",
    )
    yield RealisticSet(
        "texts of topics in sub-folders",
        together(
            *(text(f"notes/{'work' if i % 2 else 'home'}/{i}.txt", PROSE[i * 900 : (i + 1) * 900]) for i in range(10))
        ),
        ("notes",),
        "language",
        "are read as one corpus",
    )
    yield RealisticSet(
        "Kaggle: train.csv, test.csv without labels, sample_submission.csv",
        together(
            text("k/train.csv", table([(i, *row) for i, row in enumerate(ROWS)], ("id", "text", "target"))),
            text("k/test.csv", table([(i, row[0]) for i, row in enumerate(reviews(60))], ("id", "text"))),
            text("k/sample_submission.csv", table([(i, "pos") for i in range(60)], ("id", "target"))),
        ),
        ("k",),
        "classification",
        "so it was not used as the test part",
    )
    yield RealisticSet(
        "GLUE: a test part with the label -1",
        together(
            text("g/train.csv", table([(words, int(label == "pos")) for words, label in ROWS], ("sentence", "label"))),
            text("g/test.csv", table([(f"{words}!", -1) for words, _ in ROWS], ("sentence", "label"))),
        ),
        ("g",),
        "refused",
        "leave that part out",
    )
    pairs = [(i, f"who made the {SUBJECTS[i % 10]}?", words, ("yes", "no")[i % 2]) for i, (words, _) in enumerate(ROWS)]
    yield RealisticSet(
        "QNLI: a question and a sentence",
        text("train.tsv", table(pairs, ("index", "question", "sentence", "label"), "\t")),
        ("train.tsv",),
        "classification",
        "--data.text_column question+sentence joins the columns",
    )
    yield RealisticSet(
        "labels in two spellings",
        text(
            "d.csv",
            table(
                [(words, label.title() if i % 3 else label) for i, (words, label) in enumerate(ROWS)], ("text", "label")
            ),
        ),
        ("d.csv",),
        "classification",
        "are two classes; use one name",
    )
    yield RealisticSet(
        "missing labels as nan",
        text(
            "d.csv",
            table([(words, label if i % 4 else "nan") for i, (words, label) in enumerate(ROWS)], ("text", "label")),
        ),
        ("d.csv",),
        "classification",
        "is read as a class",
    )
    yield RealisticSet(
        "multi-label as Python lists in a CSV",
        text(
            "d.csv",
            table([(words, str(list(TOPICS[: i % 3 + 1]))) for i, (words, _) in enumerate(ROWS)], ("text", "labels")),
        ),
        ("d.csv",),
        "refused",
        "multi-label data",
    )
    yield RealisticSet(
        "GoEmotions: class numbers with blanks between",
        text(
            "d.csv",
            table(
                [(words, " ".join(map(str, range(i % 3 + 1)))) for i, (words, _) in enumerate(ROWS)], ("text", "label")
            ),
        ),
        ("d.csv",),
        "refused",
        "multi-label data",
    )
    yield RealisticSet(
        "images in folds: fold0/cat, fold1/cat",
        pictures("p/fold0/cat", "p/fold0/dog", "p/fold1/cat", "p/fold1/dog"),
        ("p",),
        "refused",
        "not clear which are the classes",
    )
    yield RealisticSet(
        "an ImageFolder with an empty class",
        together(pictures("p/cat", "p/dog", count=60), lambda folder: (folder / "p" / "bird").mkdir()),
        ("p",),
        "images",
        "is empty and is not counted as a class",
    )
    yield RealisticSet(
        "a run of Odeum", text("run/run.json", "{}"), ("run",), "refused", "is the folder of a run, not data"
    )


SUBTITLES = "".join(
    f"{i}\n00:{i // 60:02d}:{i % 60:02d},000 --> 00:{i // 60:02d}:{i % 60:02d},900\n{ENGLISH[i]}\n\n"
    for i in range(1, 199)
)
MARKUP = "<?xml version='1.0'?><texts>\n" + "".join(f"<t>{line}</t>\n" for line in ENGLISH) + "</texts>\n"


def damaged(folder: Path) -> None:
    """Two classes of images, some as an iPhone stores them."""
    pictures("p/cat", "p/dog", count=60)(folder)
    for i in range(10):
        (folder / "p" / "cat" / f"IMG_{i}.HEIC").write_bytes(b"\0\0\0\x18ftypheic" + bytes(200))


def of_twelve_bits(folder: Path) -> None:
    """Two classes of microscope images: 12 bits in files of 16."""
    for place, name in enumerate(("cell", "empty")):
        (folder / "scans" / name).mkdir(parents=True)
        for i in range(60):
            values = np.random.default_rng(100 * place + i).integers(0, 4095, (16, 16), dtype=np.uint16)
            Image.fromarray(values).save(folder / "scans" / name / f"{i}.png")


def with_sidecars(folder: Path) -> None:
    """Photos as Google Takeout exports them: a JSON file beside each."""
    pictures("takeout/cat", "takeout/dog", count=60, suffix=".jpg")(folder)
    for path in list((folder / "takeout").rglob("*.jpg")):
        path.with_name(f"{path.name}.json").write_text('{"title": "x", "photoTakenTime": {}}')


def from_a_mac(folder: Path) -> None:
    """An archive with the resource files that macOS adds."""
    pictures("p/cat", "p/dog", count=60)(folder)
    with zipfile.ZipFile(folder / "p.zip", "w") as archive:
        for path in sorted((folder / "p").rglob("*.png")):
            archive.write(path, path.relative_to(folder))
            archive.writestr(f"__MACOSX/p/{path.parent.name}/._{path.name}", b"\0\5\x16\7")


def mnist_files(folder: Path) -> None:
    for part in ("train", "t10k"):
        with gzip.open(text_folder(folder / "mnist") / f"{part}-images-idx3-ubyte.gz", "wb") as file:
            file.write(b"\0\0\x08\3" + bytes(1000))


def text_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def exported() -> Iterator[RealisticSet]:
    """What programs, phones and web sites write beside or instead of plain data."""
    subtitles = "looks like subtitles"
    yield RealisticSet("subtitles: .srt", text("film.srt", SUBTITLES), ("film.srt",), "refused", subtitles)
    yield RealisticSet(
        "subtitles in two languages",
        together(text("film.en.srt", SUBTITLES), text("film.de.srt", SUBTITLES.replace("number", "Nummer"))),
        ("film.en.srt", "film.de.srt"),
        "refused",
        subtitles,
    )
    yield RealisticSet("text in XML", text("texts.xml", MARKUP), ("texts.xml",), "refused", "looks like XML or HTML")
    yield RealisticSet(
        "a Jupyter notebook",
        text("work.ipynb", json.dumps({"cells": [{"cell_type": "code", "source": ["x = 1\n"]}] * 99, "nbformat": 4})),
        ("work.ipynb",),
        "refused",
        "looks like a Jupyter notebook",
    )
    arff = "@relation iris\n@attribute a numeric\n@attribute class {p,n}\n@data\n" + "1,p\n2,n\n" * 200
    yield RealisticSet("Weka's .arff", text("iris.arff", arff), ("iris.arff",), "refused", "looks like ARFF")
    yield RealisticSet(
        "a WhatsApp chat",
        text("chat.txt", "".join(f"12/03/2021, 10:{i % 60:02d} - Anna: {ENGLISH[i % 200]}\n" for i in range(300))),
        ("chat.txt",),
        "language",
        "windows of 256",
    )
    messages = [{"id": i, "type": "message", "from": "Anna", "text": ENGLISH[i % 200]} for i in range(300)]
    yield RealisticSet(
        "Telegram's result.json",
        text("result.json", json.dumps({"name": "Anna", "type": "personal_chat", "messages": messages})),
        ("result.json",),
        "language",
        "contains chats",
    )
    yield RealisticSet(
        "manythings.org: two languages and the attribution",
        text(
            "deu.txt",
            "".join(
                f"{a}\t{b}\tCC-BY 2.0 (France) Attribution: tatoeba.org #{i}\n"
                for i, (a, b) in enumerate(zip(ENGLISH, GERMAN, strict=True))
            ),
        ),
        ("deu.txt",),
        "translation",
        "the third column of 'deu.txt' holds attributions and is not read",
    )
    yield RealisticSet(
        "parallel corpus with blank lines on one side",
        together(
            text("train.en", "".join(f"{line if i % 7 else ''}\n" for i, line in enumerate(ENGLISH))),
            text("train.de", "".join(f"{line}\n" for line in GERMAN)),
        ),
        ("train.en", "train.de"),
        "translation",
        "29 pairs of 'train.en' and 'train.de' with an empty side were left out",
    )
    yield RealisticSet(
        "OPUS archive: Europarl.de-en.de, .en, README",
        together(
            text("opus/Europarl.de-en.de", "".join(f"{line}\n" for line in GERMAN)),
            text("opus/Europarl.de-en.en", "".join(f"{line}\n" for line in ENGLISH)),
            text("opus/README", "Corpus Name: Europarl\n"),
        ),
        ("opus",),
        "refused",
        "given as files: 'opus/Europarl.de-en.de' 'opus/Europarl.de-en.en'",
    )
    yield RealisticSet(
        "translations as CSV `id,en,de`",
        text(
            "d.csv",
            table([(i, a, b) for i, (a, b) in enumerate(zip(ENGLISH, GERMAN, strict=True))], ("id", "en", "de")),
        ),
        ("d.csv",),
        "refused",
        "two columns of texts alone, as a .tsv without a header, are read as a translation",
    )
    yield RealisticSet(
        "Excel with a first line `sep=;`",
        text("d.csv", "sep=;\n" + table(ROWS, ("text", "label"), ";")),
        ("d.csv",),
        "classification",
        "2 classes",
    )
    joined = [
        f"caf\xe9 {words}".replace(",", "").encode("utf-8" if i % 2 else "cp1252") for i, (words, _) in enumerate(ROWS)
    ]
    yield RealisticSet(
        "CSV joined from UTF-8 and cp1252",
        text(
            "d.csv",
            b"text,label\n" + b"".join(b"%s,%s\n" % (w, b.encode()) for w, (_, b) in zip(joined, ROWS, strict=True)),
        ),
        ("d.csv",),
        "classification",
        "mixes UTF-8 and cp1252",
    )
    times = [
        (f"2021/03/0{i % 9 + 1} 10:00:00 AM", words, "Yes" if b == "pos" else "No") for i, (words, b) in enumerate(ROWS)
    ]
    yield RealisticSet(
        "Google Forms",
        text("responses.csv", table(times, ("Timestamp", "What did you like?", "Would you recommend us?"))),
        ("responses.csv",),
        "refused",
        "name them with --data.text_column and --data.label_column",
    )
    yield RealisticSet(
        "Yelp: `stars` as 1.0 to 5.0",
        text(
            "yelp.json",
            lines([{"review_id": f"r{i}", "stars": i % 5 + 1.0, "text": w} for i, (w, _) in enumerate(ROWS)]),
        ),
        ("yelp.json",),
        "refused",
        "--data.label_column stars reads 'stars' as classes, and --kind regression as numbers",
    )
    squad = {"context": PROSE[:300], "qas": [{"id": "1", "question": "who?", "answers": [{"text": "a"}]}]}
    yield RealisticSet(
        "SQuAD",
        text("train-v1.1.json", json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": [squad] * 50}]})),
        ("train-v1.1.json",),
        "refused",
        "question answering, which Odeum does not train on",
    )
    yield RealisticSet(
        "MNIST as CSV: 784 columns of pixels",
        text(
            "mnist.csv",
            table([(i % 10, *range(784)) for i in range(50)], ("label", *(f"pixel{j}" for j in range(784)))),
        ),
        ("mnist.csv",),
        "refused",
        "may be pixels",
    )
    yield RealisticSet("MNIST's own files", mnist_files, ("mnist",), "refused", "an .npz with x_train, y_train")
    yield RealisticSet(
        "CIFAR-10 for Python",
        text("cifar-10-batches-py/data_batch_1", b"\x80\4\x95"),
        ("cifar-10-batches-py",),
        "refused",
        "one of CIFAR's pickles",
    )
    yield RealisticSet("iPhone photos among others", damaged, ("p",), "images", "10 images such as 'p/cat/IMG_0.HEIC'")
    yield RealisticSet(
        "DICOM", text("scans/a/1.dcm", bytes(128) + b"DICM"), ("scans",), "refused", "convert them to .jpg or .png"
    )
    yield RealisticSet("microscope images: 12 bits in 16", of_twelve_bits, ("scans",), "images", "almost black")
    yield RealisticSet("Google Takeout: a JSON beside each photo", with_sidecars, ("takeout",), "refused", "120 images")
    yield RealisticSet("a ZIP archive made on a Mac", from_a_mac, ("p.zip",), "images", "2 classes")
    yield RealisticSet(
        "breeds inside classes: dog/poodle, cat/siamese",
        pictures("pets/dog/poodle", "pets/dog/terrier", "pets/cat/siamese", count=40),
        ("pets",),
        "images",
        "are read as of the class above them",
    )
    yield RealisticSet(
        "labels.csv of names without suffix",
        together(
            pictures("k", count=60),
            text("k/labels.csv", table([(f"{i:04d}", "cat" if i % 2 else "dog") for i in range(60)], ("id", "label"))),
        ),
        ("k",),
        "images",
        "2 classes",
    )
    yield RealisticSet(
        "Kaggle: a table of `image_id,label` alone",
        text("train.csv", table([(f"{i}.jpg", i % 3) for i in range(90)], ("image_id", "label"))),
        ("train.csv",),
        "refused",
        "'image_id' names images: put the table beside them as labels.csv",
    )


SETS = [*classified(), *numbers(), *running(), *paired(), *seen(), *otherwise_laid_out(), *exported()]
