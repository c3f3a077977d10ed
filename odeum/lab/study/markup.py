"""Pieces of HTML that every page has: escaped words, verdicts as pills, the frame around it all."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from odeum.lab.study.headline import groups
from odeum.lab.study.row import Row
from odeum.lab.study.style import CSS


def document(title: str, parts: Iterable[str]) -> str:
    """A whole page that needs no other file."""
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escaped(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{CSS}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(filter(None, parts))
        + "\n</main>\n</body>\n</html>\n"
    )


def escaped(value: Any) -> str:
    """Words as a page shows them."""
    return escape(str(value))


def breakable(name: str) -> str:
    """A long spelling may break after its : , and =."""
    return re.sub("([:,=])", r"\1<wbr>", escaped(name))


def marked(text: str) -> str:
    """Escape first, then turn `names` bold."""
    return re.sub(r"`([^`]*)`", r"<strong>\1</strong>", escaped(text))


def pill(word: str) -> str:
    """A verdict with its colour and sign."""
    kind = next((kind for kind in ("better", "worse") if word.startswith(kind)), "even")
    sign = {"better": "▲ ", "worse": "▼ "}.get(kind, "")
    text = escaped(word).replace(" seeds)", "&nbsp;seeds)")  # a number and its noun stay together
    return f'<span class="pill {kind}">{sign}{text}</span>'


def verdict_list(rows: Sequence[Row]) -> str:
    """Who is better, equal, open, worse."""
    items = [f"<li>{pill(kind)} {escaped(', '.join(names))}</li>" for kind, names in groups(rows)]
    return f'<ul class="groups">{"".join(items)}</ul>' if items else ""


def warning_box(sentences: Sequence[str]) -> str:
    """What makes a comparison less than it seems; nothing if all is well."""
    told = "".join(f"<p>{marked(sentence)}</p>" for sentence in sentences)
    return f'<div class="warn">{told}</div>' if told else ""
