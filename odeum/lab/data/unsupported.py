"""Refuse kinds of data that Odeum does not train on, with a remedy. Does not import torch."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from odeum.errors import OdeumError, notice
from odeum.lab.data.files import DELIMITERS, IMAGE_SUFFIXES, LOOK, TABLE_SUFFIXES, TEXT_SUFFIXES
from odeum.lab.data.split_names import split_name

if TYPE_CHECKING:
    from odeum.lab.data.sniffing import Sniffed

AUDIO_SUFFIXES = {".wav", ".mp3", ".flac", ".ogg", ".m4a", ".aac", ".opus", ".aiff"}
VIDEO_SUFFIXES = {".mp4", ".avi", ".mov", ".mkv", ".webm"}
INPUT_FOLDERS = {"image", "images", "img", "imgs", "jpegimages", "input", "inputs", "photos", "x"}
MASK_FOLDERS = {
    *("mask", "masks", "label", "labels", "annotation", "annotations", "segmentation", "segmentations", "gt"),
    *("segmentationclass", "segmentationobject", "ground_truth", "groundtruth", "labelids", "y"),
}
BESIDE_IMAGES = re.compile(r"readme|licen[cs]e|classes|labels|metadata|annotations|changelog|info|attribution", re.I)
"""usual files beside images that contain no examples"""
UNREAD_IMAGES = {
    *(".heic", ".heif", ".avif", ".jxl", ".jp2", ".svg", ".psd", ".dcm", ".nii"),
    *(".cr2", ".cr3", ".nef", ".arw", ".dng", ".raf", ".orf", ".rw2"),
}
"""images in formats that are not read"""
TIME_NAMES = {"date", "time", "datetime", "timestamp", "day", "month", "year", "hour", "ds"}
SEPARATORS = "|;,"
"""separators of several labels of one example"""
IMAGE_FOLDERS_WANTED = "one sub-folder of images per class"


def refuse_unsupported(sniffed: Sniffed) -> None:
    """Raise `OdeumError` for audio, video, segmentation and detection data, and for folders of mixed kinds."""
    audio = [p for p in sniffed.files if p.suffix.lower() in AUDIO_SUFFIXES]
    video = [p for p in sniffed.files if p.suffix.lower() in VIDEO_SUFFIXES]
    for what, files, remedy in (
        ("audio", audio, "spectrograms saved as images, one sub-folder per class, would work"),
        ("video", video, "single frames saved as images, one sub-folder per class, would work"),
    ):
        if files:
            raise OdeumError(f"'{files[0]}' is {what}, which Odeum does not train on; {remedy}")
    _refuse_unread_images(sniffed)
    if sniffed.folder is not None and sniffed.suffixes & IMAGE_SUFFIXES:
        _refuse_mixed_folder(sniffed, sniffed.folder)
    elif sniffed.folder is None or not (sniffed.folder / "train" / "pos").is_dir():  # the folders of IMDB are read
        _refuse_class_files([p for p in sniffed.files if p.suffix.lower() not in TABLE_SUFFIXES])


def _refuse_unread_images(sniffed: Sniffed) -> None:
    """Raise `OdeumError` for images in formats that are not read; print a notice if there are readable ones too."""
    unread = [p for p in sniffed.files if p.suffix.lower() in UNREAD_IMAGES]
    if unread:
        formats = ", ".join(sorted({p.suffix.lower() for p in unread}))
        remedy = f"a format that is not read ({formats}); convert them to .jpg or .png"
        if not sniffed.suffixes & IMAGE_SUFFIXES:
            raise OdeumError(f"'{unread[0]}' is an image in {remedy}")
        notice(f"{len(unread)} images such as '{unread[0]}' were left out: they have {remedy}")
    for pattern, what, remedy in BINARY_SETS:
        if files := [p for p in sniffed.files if pattern.search(p.name)]:
            raise OdeumError(f"'{files[0]}' is {what}; {remedy}")


def _refuse_class_files(files: Sequence[Path]) -> None:
    """Raise `OdeumError` for texts whose classes are the names of files or folders, or lines of another file."""
    table = "one table of texts and labels (.csv or .tsv) would work"
    labels = [p for p in files if p.stem.lower() in ("label", "labels")]
    if labels and len(files) > 1:
        raise OdeumError(
            f"'{labels[0]}' holds the labels of other files; {table}, or --kind language to read all as text"
        )
    classes = {p: {p.parent.name.lower(), *_WORD.findall(p.name.lower())} & CLASS_WORDS for p in files}
    named = [p for p, words in classes.items() if words]
    if len(named) > len(files) / 2 and len(words := set().union(*classes.values())) > 1:
        raise OdeumError(
            f"the names of files or folders such as '{named[0]}' are classes ({' and '.join(sorted(words))}), which "
            f"are not read; {table}, or --kind language to read all as text"
        )


def _refuse_mixed_folder(sniffed: Sniffed, folder: Path) -> None:
    images = [p for p in sniffed.files if p.suffix.lower() in IMAGE_SUFFIXES]
    others = [
        p
        for p in sniffed.files
        if p.suffix.lower() in TABLE_SUFFIXES | TEXT_SUFFIXES and not BESIDE_IMAGES.search(p.stem)
    ]
    same_name = {p.stem for p in images} & {p.stem for p in others}
    if others and len(same_name) > len(images) / 2:
        raise OdeumError(
            f"'{folder}' has a text or JSON file for each image, such as '{others[0]}': detection, segmentation or "
            f"captioning data, which Odeum does not train on; {IMAGE_FOLDERS_WANTED}, or a labels.csv of file names "
            "and classes, would work"
        )
    if len(others) >= len(images):
        raise OdeumError(
            f"'{folder}' has {len(images)} images and {len(others)} tables or texts, such as '{others[0]}'; move "
            "the data into a folder of its own"
        )
    if others:
        notice(
            f"'{folder}' is read as images; {len(others)} tables and texts in it were left out, such as '{others[0]}'"
        )


def refuse_structured_text(files: Sequence[Path], kind: str = "language") -> None:
    """Raise `OdeumError` for files that a model of text would read raw although they are tables or annotations."""
    instead = "; --kind language reads it as running text" if kind == "language" else ""
    for path in files[:FEW_FILES]:
        with open(path, "rb") as file:
            head = file.read(LOOK).decode(errors="replace").lstrip("\ufeff").strip()
        lines = [line.strip() for line in head.splitlines()[:-1][:LINES] if line.strip()]
        what = _markup(path, head, lines)
        if what is None and kind == "language" and len(lines) >= FEWEST_LINES:
            what = _structure(lines)
        if what is not None:
            raise OdeumError(f"'{path}' looks like {what}{instead}")


def _markup(path: Path, head: str, lines: Sequence[str]) -> str | None:
    """The format of a text with tags or times between its words, and the remedy; None for other texts."""
    if head[:20].lower().startswith(_MARKUP):
        return "XML or HTML; a .txt of the text between its tags would work"
    if head.startswith("{") and (path.suffix.lower() == ".ipynb" or '"nbformat"' in head):
        return "a Jupyter notebook; `jupyter nbconvert --to script` makes a text of it"
    if head[:9].lower() == "@relation":
        return "ARFF: tabular data, which Odeum does not train on"
    if sum(" --> " in line for line in lines) > max(2, len(lines) / 8):
        return "subtitles; a .txt of their texts without numbers and times would work"
    return None


def _structure(lines: Sequence[str]) -> str | None:
    """The format that the lines of a file look like, and the remedy; None if they may be running text."""
    from odeum.lab.data.table_files import looks_like_head

    most = 0.9 * len(lines)
    if sum(line.startswith("__label__") for line in lines) > most:
        return "fastText's format; a .tsv of label and text would work (a tab after the label)"
    if sum(line.startswith("{") and line.rstrip(",").endswith("}") for line in lines) > most:
        return "JSON lines; name it .jsonl"
    if any(len(head := lines[0].split(d)) > 1 and looks_like_head(head) for d in DELIMITERS):
        return "a table with a header; name it .csv"
    rows = [line.split() for line in lines if not line.startswith("-DOCSTART-")]
    if sum(len(row) > 1 and _TAG.fullmatch(row[-1]) is not None for row in rows) > most:
        return "one token and its tag per line: token classification, which Odeum does not train on"
    rows = [[cell for cell in _SEPARATOR.split(line) if cell] for line in lines]
    if sum(len(row) > 1 and sum(map(_is_numeric, row)) >= max(2, len(row) - 1) for row in rows) > most:
        return "rows of numbers: tabular data or a time series, which Odeum does not train on"
    return None


def _is_numeric(cell: str) -> bool:
    index, colon, value = cell.partition(":")  # as in LIBSVM's format
    return _NUMBER.fullmatch(value if colon and index.isdecimal() else cell) is not None


FEW_FILES, LINES, FEWEST_LINES = 5, 300, 20
"""files and lines that are examined, and the fewest lines whose structure is judged"""
CLASS_WORDS = {"pos", "neg", "positive", "negative", "neutral", "spam", "ham"}
"""names of files or folders that are usually classes of the texts inside"""
_MARKUP = ("<?xml", "<!doctype", "<html", "<tmx", "<xliff")
BINARY_SETS = (
    (
        re.compile(r"idx[13][-.]ubyte(\.gz)?$"),
        "one of MNIST's IDX files, which are read for fashion-mnist alone",
        "an .npz with x_train, y_train, x_test and y_test would work",
    ),
    (
        re.compile(r"^data_batch_\d$"),
        "one of CIFAR's pickles, which are not read",
        "put the binary version into $ODEUM_DATA and give the name cifar10",
    ),
)
"""files of well-known data sets in forms that are not read: name, what they are and the remedy"""
_WORD = re.compile(r"[a-z]+")
_TAG = re.compile(r"O|[BIESLU]-\w+")
_SEPARATOR = re.compile(r"[\s,;|]+")


def refuse_strange_classes(path: Path, names: Collection[str]) -> None:
    """Raise `OdeumError` if sub-folders of images are images and masks, or parts of the data, and no classes."""
    lowered = {name.lower() for name in names}
    if len(lowered) > 2:
        lowered -= {"x", "y"}  # letters of an alphabet
    if lowered & INPUT_FOLDERS and lowered & MASK_FOLDERS:
        raise OdeumError(
            f"'{path}' holds {' and '.join(sorted(names))}: segmentation or detection data, which Odeum does not train "
            f"on; {IMAGE_FOLDERS_WANTED} would work"
        )
    parts = [name for name in names if split_name(name) is not None]
    if parts and len(parts) == len(names):
        raise OdeumError(
            f"the sub-folders {', '.join(sorted(parts))} of '{path}' are parts of the data, but hold no sub-folders of "
            f"classes; {IMAGE_FOLDERS_WANTED} inside each, or a labels.csv of file names and classes, would work"
        )


def refuse_several_labels(labels: Iterable[str], where: str) -> None:
    """Raise `OdeumError` if labels such as `sci|pol` are combinations of others: multi-label data."""
    distinct = set(labels)
    lists = all(label.startswith("[") and label.endswith("]") for label in distinct)
    numbers = all(part.isdecimal() for label in distinct for part in label.split())
    for separator in SEPARATORS + " " * numbers:
        combined = [label for label in distinct if separator in label]
        atoms = {part.strip("[] ") for label in distinct for part in label.split(separator)}
        if len(combined) > 1 and (len(atoms) < len(distinct) or lists or numbers):
            raise OdeumError(
                f"the labels of '{where}' are combinations such as '{sorted(combined)[0]}': multi-label data, which "
                f"Odeum does not train on; one label per row would work ({len(atoms)} different ones), or a column of "
                "its own for each label and one run per column"
            )


def table_hint(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A guess at what a table without a text column is, as the end of a message; empty if unclear."""
    columns = [[row[i].strip() for row in rows[:200] if len(row) > i and row[i].strip()] for i in range(len(head))]
    numeric = [bool(cells) and all(_NUMBER.fullmatch(cell) for cell in cells) for cells in columns]
    flags = [bool(cells) and set(cells) <= {"0", "1", "True", "False", "true", "false"} for cells in columns]
    texts = [bool(cells) and sum(len(cell.split()) for cell in cells) > 3 * len(cells) for cells in columns]
    wordy = any(texts)
    names = {name.strip().lower().rpartition(".")[2] for name in head}
    for name, cells in zip(head, columns, strict=True):
        if cells and all(Path(cell).suffix.lower() in IMAGE_SUFFIXES for cell in cells):
            return (
                f"; '{name}' names images: put the table beside them as labels.csv, with their column and that of the "
                "labels, and give the folder"
            )
    if sum(numeric) > 60 and not wordy:
        return "; so many columns of numbers may be pixels: an .npz of images and labels would work"
    if {"question", "context"} <= names or {"version", "data"} == names:
        return "; questions and contexts look like question answering, which Odeum does not train on"
    if sum(texts) == 2 and not any(flags) and not any(map(_is_of_digits, columns)):
        return "; two columns of texts alone, as a .tsv without a header, are read as a translation"
    if sum(flags) > 2 and wordy:
        return f"; {sum(flags)} columns of 0 and 1 look like multi-label data: choose one of them as the label"
    if not wordy and any(name.strip().lower() in TIME_NAMES for name in head) and sum(numeric) >= len(head) / 2:
        return (
            "; a column of times and columns of numbers look like a time series, which Odeum does not train on: "
            "forecasting libraries would work"
        )
    if not wordy:
        return (
            "; columns of numbers and short values look like tabular data, which Odeum does not train on: gradient "
            "boosting would work, or texts made of the columns (--data.text_column a+b+c)"
        )
    return ""


def _is_of_digits(cells: Sequence[str]) -> bool:
    """Whether cells are long but not words: times, addresses, codes."""
    text = "".join(cells)
    return bool(text) and sum(letter.isdigit() for letter in text) > 0.3 * len(text) and len(text) > 8 * len(cells)


_NUMBER = re.compile(r"[+-]?\d*[.,]?\d+([eE][+-]?\d+)?")
