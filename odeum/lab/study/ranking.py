"""A ranking without a baseline: rows that share a letter could not be told apart."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from odeum.lab.study.intervals import Name


def letters(ranked: Sequence[Name], apart: Collection[tuple[Name, Name]]) -> dict[Name, str]:
    """The compact letter display of rows, best first, of which some pairs were told apart.

    Two rows share a letter if and only if they were not told apart. Every letter starts as a group of all rows; a pair
    that was told apart splits each group that holds both, and a group inside another one says nothing (Piepho 2004).
    """
    groups = [frozenset(ranked)]
    for first, second in apart:
        split = [group - {gone} for group in groups for gone in (first, second) if {first, second} <= group]
        groups = [group for group in groups if not {first, second} <= group] + split
        groups = [g for i, g in enumerate(groups) if not any(g < other for other in groups) and g not in groups[:i]]
    groups.sort(key=lambda group: [ranked.index(name) for name in sorted(group, key=ranked.index)])
    return {name: "".join(_letter(i) for i, group in enumerate(groups) if name in group) for name in ranked}


def _letter(number: int) -> str:
    """a to z, then a1, b1 …"""
    return chr(ord("a") + number % 26) + (str(number // 26) if number >= 26 else "")


def mean_ranks(tables: Sequence[Mapping[Name, float]], higher_is_better: Sequence[bool]) -> dict[Name, float]:
    """The mean rank over several tables of the rows that all of them have, the best first; ties share their rank."""
    shared = [name for name in tables[0] if all(name in table for table in tables)] if tables else []
    ranks: dict[Name, list[float]] = {name: [] for name in shared}
    for table, higher in zip(tables, higher_is_better, strict=True):
        values = {name: -table[name] if higher else table[name] for name in shared}
        for name, own in values.items():
            below, equal = sum(x < own for x in values.values()), sum(x == own for x in values.values())
            ranks[name].append(below + (equal + 1) / 2)
    means = {name: sum(found) / len(found) for name, found in ranks.items()}
    return dict(sorted(means.items(), key=lambda item: item[1]))
