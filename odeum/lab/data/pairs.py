"""Pairs of sentences: two line-aligned files, a TSV, or a named set in its published layout."""

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
"""the share of pairs that may say the same on both sides, as names and numbers do, before it is remarked"""
MULTI30K_TESTS = ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")


def named_pairs(name: str, test: str | None) -> tuple[dict[str, Pairs], tuple[str, str]]:
    """`multi30k-en-de` and the like: its parts, and the two languages."""
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
    found = {}
    for part, stems in patterns[family].items():
        there = [h / family / s for h in homes() for s in stems if _both(h / family / s, source, target)]
        found[part] = there[0] if there else None
    if missing := [patterns[family][part][0] for part, stem in found.items() if stem is None]:
        folder = locate(f"{family}-{pair}", family, [f"{s}.{side}" for s in missing for side in (source, target)])
        found = {part: stem or folder / patterns[family][part][0] for part, stem in found.items()}
    parts = {part: read_pair(_side(stem, source), _side(stem, target)) for part, stem in found.items() if stem}
    return parts, (source, target)


def _side(stem: Path, language: str) -> Path:
    return stem.with_name(f"{stem.name}.{language}")


def _both(stem: Path, *languages: str) -> bool:
    return all(_side(stem, language).exists() for language in languages)


def read_pair(source: Path, target: Path) -> Pairs:
    """Two files of as many lines; a file whose name says .tok is put back into plain text."""
    sides = [read_lines(path) for path in (source, target)]
    if len(sides[0]) != len(sides[1]):
        raise OdeumError(
            f"'{source}' has {len(sides[0])} lines and '{target}' has {len(sides[1])}; line n of one should translate "
            "line n of the other"
        )
    if ".tok." in source.name:
        sides = [[detokenised(line) for line in side] for side in sides]
    return without_empty(sides[0], sides[1], f"'{source}' and '{target}'")


def without_empty(sources: list[str], targets: list[str], where: str) -> Pairs:
    kept = [(s, t) for s, t in zip(sources, targets, strict=True) if s.strip() and t.strip()]
    if not kept:
        raise OdeumError(f"{where} hold no pair of sentences")
    if lost := len(sources) - len(kept):
        notice(f"pairs of {where} with an empty side were left out: {lost}")
    same = sum(s.strip() == t.strip() for s, t in kept)
    if same == len(kept):
        raise OdeumError(f"{where}: the two sides are the same texts, so there is nothing to translate")
    if same > len(kept) * MOST_SAME:
        notice(f"pairs of {where} whose two sides are the same text: {same} of {len(kept)}")
    return [s for s, _ in kept], [t for _, t in kept]


def read_tsv(path: Path) -> Pairs:
    """Source and target in the first two columns."""
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
    """A user's files; beside train.* the files valid.* (val, dev) and test.* are used if they are there.

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
        raise OdeumError(f"a translation needs two files, source and target, or one TSV, not {len(paths)} files")
    parts = {"train": read(*paths)}
    origins["train"] = " and ".join(f"'{path}'" for path in paths)
    if all(split_name(p.name) == "train" for p in paths):
        for part in SPLITS[1:]:
            if there := beside(paths, part):
                parts[part] = read(*there)
                origins[part] = " and ".join(f"'{path}'" for path in there)
                _refuse_repetition(parts[part], parts["train"], str(there[0]))
    languages = (paths[0].suffix[1:], paths[1].suffix[1:]) if len(paths) == 2 else ("source", "target")
    where = " ".join(map(str, paths))
    return hold_out(parts, lambda train, count: _cut(train, count, where, fold), fold), languages


def _inside(folder: Path) -> list[Path]:
    """The two sides of the training part, or the one table, in a folder."""
    found = [p for p in entries(folder) if p.is_file()]
    train = [p for p in found if split_name(p.name) == "train"]
    sides = [p for p in train if p.suffix.lower() not in TABLE_SUFFIXES | TEXT_SUFFIXES]
    return sides or [p for p in train or found if p.suffix.lower() == ".tsv"]


def _cut(train: Pairs, count: int, where: str, fold: int) -> list[Pairs]:
    kept = random_rows(len(train[0]), count, where, fold=fold)
    return [([train[0][i] for i in rows], [train[1][i] for i in rows]) for rows in kept]


def _refuse_repetition(held: Pairs, train: Pairs, where: str) -> None:
    if set(zip(*held, strict=True)) <= set(zip(*train, strict=True)):
        raise OdeumError(f"all pairs of '{where}' are in the training part too, so they can test nothing")


def detokenised(line: str) -> str:
    """Moses-tokenised text roughly as people write it; for sets that are published only in that form."""
    text = html.unescape(line).replace(" @-@ ", "-").replace(" - - ", " – ")
    text = re.sub(r" ([.,;:!?%)\]}…]|'\w{1,2}\b|n't\b)", r"\1", text)
    text = re.sub(r"([(\[{]) ", r"\1", text)
    return re.sub(r'" ([^"]*?) "', r'"\1"', text)
