"""Read sentence pairs: two line-aligned files, a TSV, or a named set in its published layout."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path

from odeum.errors import OdeumError, choose, notice
from odeum.lab.data.files import TABLE_SUFFIXES, TEXT_SUFFIXES, entries, read_lines
from odeum.lab.data.homes import homes, locate
from odeum.lab.data.split_names import SPLITS, beside, split_name
from odeum.lab.data.splits import hold_out, random_rows
from odeum.lab.data.table_files import PAIR_NAMES
from odeum.lab.data.understanding import Origins

Pairs = tuple[list[str], list[str]]  # sources, targets

MOST_SAME = 0.2
"""share of pairs with equal sides, such as names and numbers, above which a notice is printed"""
MULTI30K_TESTS = ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")


def named_pairs(name: str, test: str | None) -> tuple[dict[str, Pairs], tuple[str, str]]:
    """Parts and languages of a named set such as `multi30k-en-de`."""
    family, source, target = name.split("-")
    pair = "-".join(sorted((source, target), key=lambda side: side != "en"))
    if test is not None:
        choose(test, MULTI30K_TESTS if family == "multi30k" else (), f"test part of {name}")
    patterns: dict[str, dict[str, list[str]]] = {
        "multi30k": {"train": ["train"], "valid": ["val"], "test": [test or MULTI30K_TESTS[0]]},
        "tatoeba": {part: [f"{pair}.{part}"] for part in ("train", "valid", "test")},
        "wmt14": {
            "train": [f"train.{pair}", "train", f"train10k.{pair}.tok"],
            "valid": [f"newstest2013.{pair}", "valid", f"newstest2013.{pair}.tok"],
            "test": [f"newstest2014.{pair}", "test"],
        },
    }
    stem_of = {}
    for part, stems in patterns[family].items():
        existing = [h / family / s for h in homes() for s in stems if _both(h / family / s, source, target)]
        stem_of[part] = existing[0] if existing else None
    if missing := [patterns[family][part][0] for part, stem in stem_of.items() if stem is None]:
        folder = locate(f"{family}-{pair}", family, [f"{s}.{side}" for s in missing for side in (source, target)])
        stem_of = {part: stem or folder / patterns[family][part][0] for part, stem in stem_of.items()}
    parts = {part: read_pair(_side(stem, source), _side(stem, target)) for part, stem in stem_of.items() if stem}
    return parts, (source, target)


def _side(stem: Path, language: str) -> Path:
    return stem.with_name(f"{stem.name}.{language}")


def _both(stem: Path, *languages: str) -> bool:
    return all(_side(stem, language).exists() for language in languages)


def read_pair(source: Path, target: Path) -> Pairs:
    """Pairs from two line-aligned files; files with .tok. in their name are detokenised."""
    sides = [read_lines(path) for path in (source, target)]
    if len(sides[0]) != len(sides[1]):
        raise OdeumError(
            f"'{source}' has {len(sides[0])} lines and '{target}' has {len(sides[1])}; both must have one "
            "sentence per line, in the same order"
        )
    if ".tok." in source.name:
        sides = [[detokenised(line) for line in side] for side in sides]
    return without_empty(sides[0], sides[1], f"'{source}' and '{target}'")


def without_empty(sources: list[str], targets: list[str], where: str) -> Pairs:
    complete = [(s, t) for s, t in zip(sources, targets, strict=True) if s.strip() and t.strip()]
    if not complete:
        raise OdeumError(f"{where} have no sentence pair with text on both sides")
    if lost := len(sources) - len(complete):
        notice(f"{lost} pairs of {where} with an empty side were left out")
    same = sum(s.strip() == t.strip() for s, t in complete)
    if same == len(complete):
        raise OdeumError(f"{where}: source and target are the same texts; give two languages")
    if same > len(complete) * MOST_SAME:
        notice(f"{same} of {len(complete)} pairs of {where} have the same text on both sides")
    return [s for s, _ in complete], [t for _, t in complete]


def read_tsv(path: Path) -> Pairs:
    """Pairs from the first two columns of a TSV."""
    rows = [line.split("\t") for line in read_lines(path)]
    if {word.strip().lower() for word in rows[0][:2]} <= set(PAIR_NAMES.split()):
        rows = rows[1:]
    if bad := [i for i, row in enumerate(rows, 1) if len(row) < 2 and row[0].strip()]:
        raise OdeumError(f"line {bad[0]} of '{path}' has no tab between source and target")
    rows = [row for row in rows if len(row) > 1]
    return without_empty([row[0] for row in rows], [row[1] for row in rows], f"'{path}'")


def read_pairs(
    paths: list[Path], fold: int = 0, origins: Origins | None = None
) -> tuple[dict[str, Pairs], tuple[str, str]]:
    """Pairs from a user's files; beside train.* the files valid.* (val, dev) and test.* are read if they exist.

    `origins` is filled with the files of each part.
    """
    origins = {} if origins is None else origins
    if paths[0].is_dir():
        paths = _inside(paths[0])
    if len(paths) == 1:
        read: Callable[..., Pairs] = read_tsv
    elif len(paths) == 2:
        read = read_pair
    else:
        raise OdeumError(f"translation needs two files (source and target) or one TSV, not {len(paths)} files")
    parts = {"train": read(*paths)}
    origins["train"] = " and ".join(f"'{path}'" for path in paths)
    if all(split_name(p.name) == "train" for p in paths):
        for part in SPLITS[1:]:
            if files := beside(paths, part):
                parts[part] = read(*files)
                origins[part] = " and ".join(f"'{path}'" for path in files)
                _refuse_repetition(parts[part], parts["train"], str(files[0]))
    languages = (paths[0].suffix[1:], paths[1].suffix[1:]) if len(paths) == 2 else ("source", "target")
    where = " ".join(map(str, paths))
    return hold_out(parts, lambda train, count: _cut(train, count, where, fold), fold), languages


def _inside(folder: Path) -> list[Path]:
    """The source and target file of the training part in a folder, or its only table."""
    files = [p for p in entries(folder) if p.is_file()]
    train = [p for p in files if split_name(p.name) == "train"]
    sides = [p for p in train if p.suffix.lower() not in TABLE_SUFFIXES | TEXT_SUFFIXES]
    return sides or [p for p in train or files if p.suffix.lower() == ".tsv"]


def _cut(train: Pairs, count: int, where: str, fold: int) -> list[Pairs]:
    parts = random_rows(len(train[0]), count, where, fold, what="pairs", fewest=20, largest=1000)
    return [([train[0][i] for i in rows], [train[1][i] for i in rows]) for rows in parts]


def _refuse_repetition(held: Pairs, train: Pairs, where: str) -> None:
    if set(zip(*held, strict=True)) <= set(zip(*train, strict=True)):
        raise OdeumError(f"all pairs of '{where}' are also in the training part; use other pairs")


def detokenised(line: str) -> str:
    """Approximately undo Moses tokenisation, for sets that are published only tokenised."""
    text = html.unescape(line).replace(" @-@ ", "-").replace(" - - ", " – ")
    text = re.sub(r" ([.,;:!?%)\]}…]|'\w{1,2}\b|n't\b)", r"\1", text)
    text = re.sub(r"([(\[{]) ", r"\1", text)
    return re.sub(r'" ([^"]*?) "', r'"\1"', text)
