"""Running text for language models: WikiText, a user's own files, and what comes with Python itself."""

from __future__ import annotations

import importlib
import re
import sysconfig
from pathlib import Path

from odeum.data.homes import locate, read_text
from odeum.errors import OdeumError
from odeum.settings.data import TEXTS, entries, files_below

Corpus = dict[str, list[str]]  # part -> texts

_PART = re.compile(r"(?:^|[._-])(train|valid|val|dev|test)(?:ing|ation)?(?:[._-]|$)", re.IGNORECASE)
_NAMES = {"val": "valid", "dev": "valid"}


def named(name: str, megabytes: float) -> Corpus:
    """WikiText in its published layout, or Python's own text."""
    if name == "python":
        return python(megabytes)
    folder = {"wikitext2": "wikitext-2", "wikitext103": "wikitext-103"}[name]
    files = {part: f"wiki.{part}.tokens" for part in ("train", "valid", "test")}
    home = locate(name, folder, list(files.values()))
    return {part: [read_text(home / file)] for part, file in files.items()}


def python(megabytes: float) -> Corpus:
    """The language reference and library of this installation; every 20th piece is held out for each part."""
    topics = importlib.import_module("pydoc_data.topics").topics
    pieces = [f"{name}\n\n{topics[name]}\n" for name in sorted(topics)]
    room = megabytes * 1e6 - sum(map(len, pieces))  # the reference is taken whole
    library = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(p for p in library.rglob("*.py") if _is_library(p.relative_to(library))):
        text = path.read_text(encoding="utf-8", errors="ignore")
        if room <= 0:
            break
        if 2000 < len(text) <= room + 2000:
            pieces.append(text)
            room -= len(text)
    held = {7: "valid", 13: "test"}
    corpus: Corpus = {"train": [], "valid": [], "test": []}
    for i, piece in enumerate(pieces):
        corpus[held.get(i % 20, "train")].append(piece)
    return corpus


def _is_library(path: Path) -> bool:
    skipped = {"test", "tests", "idle_test", "site-packages", "lib2to3", "pydoc_data", "encodings", "__pycache__"}
    return not skipped & set(path.parts)


def files(paths: list[Path]) -> Corpus:
    """A user's texts; parts by file name (train, valid, test) if so named, else 90/5/5 % of each file."""
    found = [p for path in paths for p in (_inside(path) if path.is_dir() else [path])]
    parts = {p: _part(p, len(found)) for p in found}
    if "train" in parts.values() or (None in parts.values() and len(set(parts.values())) > 1):
        corpus: Corpus = {"train": [], "valid": [], "test": []}
        for path, part in parts.items():
            corpus[part or "train"].append(read_text(path))
        return _fill(corpus)
    pieces = [cut(read_text(path)) for path in found]
    return {part: [p[i] for p in pieces if p[i]] for i, part in enumerate(("train", "valid", "test"))}


def _inside(folder: Path) -> list[Path]:
    found = sorted(p for p in files_below(folder) if p.suffix.lower() in TEXTS)
    if any(p.suffix == ".tokens" for p in found):  # WikiText's folder may hold .raw twins
        found = [p for p in found if p.suffix == ".tokens"]
    if not found:
        raise OdeumError(
            f"'{folder}' holds no text files ({', '.join(sorted(TEXTS))}), only {len(entries(folder))} others"
        )
    return found


def _part(path: Path, count: int) -> str | None:
    match = _PART.search(path.name)
    if match is None or count == 1:
        return None
    word = match[1].lower()
    return _NAMES.get(word, word)


def _fill(corpus: Corpus) -> Corpus:
    """Parts that are not given are cut from the training part."""
    missing = [part for part in ("valid", "test") if not corpus[part]]
    if missing:
        pieces = [cut(text) for text in corpus["train"]]
        corpus["train"] = [p[0] for p in pieces]
        for i, part in enumerate(missing, start=1):
            corpus[part] = [p[i] for p in pieces]
    return corpus


def cut(text: str, shares: tuple[float, float] = (0.9, 0.95)) -> tuple[str, str, str]:
    """Three consecutive pieces, cut at line ends where there are any near."""
    places = []
    for share in shares:
        place = int(len(text) * share)
        end = text.find("\n", place, place + max(200, len(text) // 100))
        places.append(end + 1 if end >= 0 else place)
    first, second = places[0], max(places)
    return text[:first], text[first:second], text[second:]


def is_tokenised(paths: list[Path]) -> bool:
    """Whether the words are already set apart by blanks, as in WikiText's .tokens files."""
    return any(p.suffix == ".tokens" for path in paths for p in ([path] if path.is_file() else path.rglob("*")))
