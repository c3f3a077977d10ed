"""Data sets of the Hugging Face hub: named ones in their published layout, others as tables or image folders."""

from __future__ import annotations

import csv
import importlib
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from odeum.errors import OdeumError
from odeum.lab.data.files import DATA_SUFFIXES
from odeum.lab.data.homes import cache, write_atomically
from odeum.storage import slug


def fetch(name: str, folder: Path) -> str | None:
    """Download a named set into `folder`; returns the reason if that is not possible."""
    writer = WRITERS.get(name)
    if writer is None:
        return "it has no download location"
    try:
        load_dataset = importlib.import_module("datasets").load_dataset
    except ImportError:
        return "downloading it needs a network and `pip install odeum[data]`"
    try:
        writer(load_dataset, folder)
    except Exception as error:  # the hub's libraries raise all kinds of errors without a network
        return f"the download failed: {type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
    return None


HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(:[\w.-]+)?")
"""owner/name, or owner/name:configuration"""
USED_SPLITS = {"train": "train", "validation": "valid", "valid": "valid", "dev": "valid", "test": "test"}
"""splits of the hub and our names of them; others, such as unsupervised, are left out"""


def is_hub_name(word: str) -> bool:
    """Whether a word looks like a data set of the hub and neither it nor its parent exists as a path."""
    path = Path(word)
    known = path.suffix.lower() in DATA_SUFFIXES or path.exists() or path.parent.exists()
    return HUB_NAME.fullmatch(word) is not None and not known


def fetch_any(name: str) -> Path:
    """Folder with the plain files of a data set of the hub, downloaded once; raises `OdeumError` on failure."""
    home = cache() / "hub" / slug(name)
    if home.exists():
        return home
    try:
        datasets: Any = importlib.import_module("datasets")
    except ImportError:
        raise OdeumError(
            f"there is no file or folder '{name}'; to fetch it from the Hugging Face hub, `pip install odeum[data]`"
        ) from None
    path, _, configuration = name.partition(":")
    try:
        splits = datasets.load_dataset(path, configuration or None)
    except Exception as error:  # no network, no such name, several configurations to choose from
        reason = " ".join(str(error).split())[:200]
        raise OdeumError(f"'{name}' is not a path and cannot be downloaded from the Hub: {reason}") from None
    part = home.with_name(f"{home.name}.{os.getpid()}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        for split, rows in splits.items():
            if split in USED_SPLITS:
                _write_split(rows, part, USED_SPLITS[split], name)
        if not home.exists():
            part.rename(home)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return home


def _write_split(rows: Any, folder: Path, part: str, name: str) -> None:
    """Write a split as JSON lines or, if it has images, as one sub-folder of files per class."""
    features = dict(rows.features)
    classes = {column: feature.names for column, feature in features.items() if getattr(feature, "names", None)}
    images = [column for column, feature in features.items() if type(feature).__name__ == "Image"]
    if not images:
        with open(folder / f"{part}.jsonl", "w", encoding="utf-8") as file:
            for row in rows:
                named = {
                    column: names[row[column]] for column, names in classes.items() if 0 <= row[column] < len(names)
                }
                file.write(json.dumps({**row, **named}, ensure_ascii=False, default=str) + "\n")
        return
    if not classes:
        raise OdeumError(f"'{name}' has images but no class column; only images with one class each are supported")
    label, names = next(iter(classes.items()))
    for number, row in enumerate(rows):
        target = folder / part / slug(names[row[label]]) / f"{number:07d}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        row[images[0]].save(target)


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(line.replace("\n", " ").replace("\r", " ") + "\n" for line in lines).encode()


def _cifar(path: str, files: dict[str, str], labels: tuple[str, ...], names: dict[str, str]) -> Callable[..., None]:
    def write(load: Any, folder: Path) -> None:
        import numpy as np

        for split, file in files.items():
            data = load(path, split=split)
            head = np.stack([np.asarray(list(data[label]), dtype=np.uint8) for label in labels], 1)
            body = np.stack([np.asarray(row["img"].convert("RGB")).transpose(2, 0, 1).reshape(-1) for row in data])
            record = np.concatenate([head, body.astype(np.uint8)], 1)
            pieces = np.array_split(record, 5) if "{}" in file else [record]
            for i, piece in enumerate(pieces, start=1):
                write_atomically(folder / file.format(i), piece.tobytes())
            for label, file_of_names in names.items():
                write_atomically(folder / file_of_names, _lines(data.features[label].names))

    return write


def _fashion(load: Any, folder: Path) -> None:
    import gzip

    import numpy as np

    for split, prefix in (("train", "train"), ("test", "t10k")):
        data = load("zalando-datasets/fashion_mnist", split=split)
        images = np.stack([np.asarray(row["image"].convert("L")) for row in data])
        for kind, array in (("images-idx3", images), ("labels-idx1", np.asarray(list(data["label"])))):
            head = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
            content = gzip.compress(head + array.astype(np.uint8).tobytes())
            write_atomically(folder / f"{prefix}-{kind}-ubyte.gz", content)


def _wikitext(version: str) -> Callable[..., None]:
    def write(load: Any, folder: Path) -> None:
        for split, part in (("train", "train"), ("validation", "valid"), ("test", "test")):
            rows = load("Salesforce/wikitext", version, split=split)["text"]
            write_atomically(folder / f"wiki.{part}.tokens", _lines(row.rstrip("\n") for row in rows))

    return write


def _imdb(load: Any, folder: Path) -> None:
    for split in ("train", "test"):
        rows = load("stanfordnlp/imdb", split=split)
        lines = (f"{row['label']}\t\t\t{i}\t{row['text'].replace(chr(9), ' ')}" for i, row in enumerate(rows))
        write_atomically(folder / f"{split}.tsv", _lines(lines))


def _ag_news(load: Any, folder: Path) -> None:
    for split in ("train", "test"):
        out = io.StringIO()
        writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
        for row in load("fancyzhx/ag_news", split=split):
            writer.writerow([row["label"] + 1, "", row["text"]])  # the hub's copy has title and description in one
        write_atomically(folder / f"{split}.csv", out.getvalue().encode())


def _multi30k(load: Any, folder: Path) -> None:
    for split, part in (("train", "train"), ("validation", "val"), ("test", "test_2016_flickr")):
        rows = load("bentrevett/multi30k", split=split)
        for side in ("en", "de"):
            write_atomically(folder / f"{part}.{side}", _lines(rows[side]))


def _wmt14(other: str) -> Callable[..., None]:
    def write(load: Any, folder: Path) -> None:
        for split, part in (("train", "train"), ("validation", "newstest2013"), ("test", "newstest2014")):
            rows = load("wmt/wmt14", f"{other}-en", split=split)
            for side in ("en", other):
                lines = _lines(row["translation"][side] for row in rows)
                write_atomically(folder / f"{part}.en-{other}.{side}", lines)

    return write


WRITERS: dict[str, Callable[..., None]] = {
    "cifar10": _cifar(
        "uoft-cs/cifar10",
        {"train": "data_batch_{}.bin", "test": "test_batch.bin"},
        ("label",),
        {"label": "batches.meta.txt"},
    ),
    "cifar100": _cifar(
        "uoft-cs/cifar100",
        {"train": "train.bin", "test": "test.bin"},
        ("coarse_label", "fine_label"),
        {"coarse_label": "coarse_label_names.txt", "fine_label": "fine_label_names.txt"},
    ),
    "fashion-mnist": _fashion,
    "wikitext2": _wikitext("wikitext-2-v1"),
    "wikitext103": _wikitext("wikitext-103-v1"),
    "imdb": _imdb,
    "ag_news": _ag_news,
    "multi30k-en-de": _multi30k,
    "wmt14-en-de": _wmt14("de"),
    "wmt14-en-fr": _wmt14("fr"),
}
