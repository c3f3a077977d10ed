"""Running text for language models: WikiText, a user's files, and the text that comes with Python."""

from __future__ import annotations

import importlib
import sysconfig
from pathlib import Path

from odeum.errors import OdeumError
from odeum.lab.data.documents import holds_documents, read_documents
from odeum.lab.data.files import TABLE_SUFFIXES, TEXT_SUFFIXES, entries, files_below, read_text
from odeum.lab.data.homes import locate
from odeum.lab.data.split_names import SPLITS, split_name
from odeum.lab.data.splits import consecutive, hold_out
from odeum.lab.data.understanding import Origins

Corpus = dict[str, list[str]]  # part -> texts


def named_corpus(name: str, megabytes: float) -> Corpus:
    """WikiText in its published layout, or the text that comes with Python."""
    if name == "python":
        return python(megabytes)
    folder = {"wikitext2": "wikitext-2", "wikitext103": "wikitext-103"}[name]
    files = {part: f"wiki.{part}.tokens" for part in ("train", "valid", "test")}
    home = locate(name, folder, list(files.values()))
    return {part: [read_text(home / file)] for part, file in files.items()}


def python(megabytes: float) -> Corpus:
    """The language reference and standard library of this installation; every 20th piece is held out for each part."""
    topics = importlib.import_module("pydoc_data.topics").topics
    pieces = [f"{name}\n\n{topics[name]}\n" for name in sorted(topics)]
    remaining = megabytes * 1e6 - sum(map(len, pieces))  # the reference is used in full
    library = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(p for p in library.rglob("*.py") if _is_library(p.relative_to(library))):
        text = path.read_text(encoding="utf-8", errors="ignore")
        if remaining <= 0:
            break
        if 2000 < len(text) <= remaining + 2000:
            pieces.append(text)
            remaining -= len(text)
    held = {7: "valid", 13: "test"}
    corpus: Corpus = {"train": [], "valid": [], "test": []}
    for i, piece in enumerate(pieces):
        corpus[held.get(i % 20, "train")].append(piece)
    return corpus


def _is_library(path: Path) -> bool:
    skipped = {"test", "tests", "idle_test", "site-packages", "lib2to3", "pydoc_data", "encodings", "__pycache__"}
    return not skipped & set(path.parts)


def read_corpus(paths: list[Path], fold: int = 0, origins: Origins | None = None) -> Corpus:
    """A user's texts, in parts by file name (train, valid, test); without such names, 90/5/5 % of each file.

    `origins` is filled with the files of each part.
    """
    files_given = [p for path in paths for p in (_inside(path) if path.is_dir() else [path])]
    parts = {p: split_name(p.name) if len(files_given) > 1 else None for p in files_given}
    origins = {} if origins is None else origins
    for part in SPLITS:
        files = [p for p, named in parts.items() if (named or "train") == part]
        origins |= {part: f"'{files[0]}'" + (f" and {len(files) - 1} more" if files[1:] else "")} if files else {}
    if set(parts.values()) == {None}:
        pieces = [consecutive(_text_of(path), fold=fold) for path in files_given]
        return {part: [p[i] for p in pieces] for i, part in enumerate(SPLITS)}
    texts: Corpus = {}
    for path, part in parts.items():
        texts.setdefault(part or "train", []).append(_text_of(path))
    if "train" not in texts:
        raise OdeumError(
            f"none of {', '.join(map(str, files_given[:6]))} is named as the training part; add 'train' to a file name"
        )
    for path, part in parts.items():
        if part in ("valid", "test"):
            _refuse_repetition(path, texts)
    corpus = hold_out(texts, lambda train, count: _cut(train, count, fold), fold)
    return {part: corpus[part] for part in SPLITS}


def _text_of(path: Path) -> str:
    """The content of a text file, or the running text of a table."""
    return read_documents(path) if path.suffix.lower() in TABLE_SUFFIXES else read_text(path)


def _refuse_repetition(path: Path, texts: Corpus) -> None:
    """Raise `OdeumError` if all of a held-out file is in the training text."""
    text = _text_of(path).strip()
    if any(text in other for other in texts["train"]):
        raise OdeumError(f"all of '{path}' is also in the training text; use another text for testing")


def _cut(texts: list[str], count: int, fold: int) -> list[list[str]]:
    pieces = [consecutive(text, fold=fold) for text in texts]
    return [[piece[i] for piece in pieces] for i in range(count + 1)]


def _inside(folder: Path) -> list[Path]:
    files = sorted(p for p in files_below(folder) if p.suffix.lower() in TEXT_SUFFIXES)
    if any(p.suffix == ".tokens" for p in files):  # WikiText's folder may hold .raw twins
        files = [p for p in files if p.suffix == ".tokens"]
    if not files:
        files = [p for p in entries(folder) if p.suffix.lower() in TABLE_SUFFIXES and holds_documents(p)]
    if not files:
        raise OdeumError(
            f"'{folder}' has no text files ({', '.join(sorted(TEXT_SUFFIXES))}), only {len(entries(folder))} others"
        )
    return files


def is_tokenised(paths: list[Path]) -> bool:
    """Whether words and punctuation are separated by blanks already, as in WikiText's .tokens files."""
    return any(p.suffix == ".tokens" for path in paths for p in ([path] if path.is_file() else path.rglob("*")))
