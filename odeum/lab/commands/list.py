"""`odeum list`: registered architectures, methods, fields, models and data."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from dataclasses import asdict, fields
from typing import Any

from odeum.errors import choose
from odeum.lab.commands.options import Parser
from odeum.lab.tasks import DATA_SETS, KINDS
from odeum.lab.terminal import terminal_width
from odeum.models.settings import PRESETS, Model
from odeum.registry.names import ARCHITECTURES, FIELDS, METHODS, Registry

MIXED = "parallel*6+rk4*2"
"""an example of several architectures in one stack"""


def run(argv: list[str]) -> int:
    parser = Parser("list", "Architectures, models and data sets by name.")
    parser.option("format", "text, md or json", default="text")
    form = choose(parser.read(argv).get("format", "text"), ("text", "md", "json"), "format")
    if form == "json":
        content = {
            "architectures": {name: asdict(settings) for name, settings in ARCHITECTURES.items()},
            "groups": ARCHITECTURES.groups(),
            "variants": {
                name: list(settings.variants) for name, settings in ARCHITECTURES.items() if settings.variants
            },
            "methods": _about(METHODS),
            "fields": _about(FIELDS),
            "models": {name: {"kind": type(m).__name__.lower(), **asdict(m)} for name, m in PRESETS.items()},
            "kinds": {
                kind.name: {"about": kind.about, "input": kind.input, "target": kind.target} for kind in KINDS.values()
            },
            "data": DATA_SETS,
        }
        print(json.dumps(content, indent=1))
        return 0
    about = _about(ARCHITECTURES)
    for group, names in ARCHITECTURES.groups().items():
        _print(f"architectures: {group or 'others'}", [(name, about[name]) for name in names], form)
    _print(
        "architectures: mixed",
        [(MIXED, "layers of several architectures in sequence; their number is the depth")],
        form,
    )
    kinds = _by_kind()
    print("## architectures: options\n" if form == "md" else "architectures: options")
    for kind, names in kinds.items():
        options = ", ".join(_options(kind, kinds)) or "none"
        variants = "".join(f"; {name}:{' '.join(v)}" for name in names if (v := ARCHITECTURES[name].variants))
        line = f"{', '.join(names)}: {options}{variants}"
        print(f"- {line}" if form == "md" else _wrapped("  ", line, 4))
    print()
    _print("methods", list(_about(METHODS).items()), form)
    _print("fields", list(_about(FIELDS).items()), form)
    _print("models", [(name, _size(model)) for name, model in PRESETS.items()], form)
    _print("kinds of data", [(kind.name, kind.about) for kind in KINDS.values()], form)
    _print("data sets", list(DATA_SETS.items()), form)
    return 0


def _about(registry: Registry[Any]) -> dict[str, str]:
    """Returns one line per name, with its reference."""
    lines = {name: f"{e.about} ({e.reference})" if e.reference else e.about for name, e in registry.entries.items()}
    return {name: (line[:1].upper() + line[1:]).strip() for name, line in lines.items()}


def _size(model: Model) -> str:
    kind = re.sub(r"(?<!^)(?=[A-Z])", " ", type(model).__name__).lower()
    return f"{kind}, width {model.width}, heads {model.heads}, depth {model.depth}"


def _by_kind() -> dict[type, list[str]]:
    out: dict[type, list[str]] = {}
    for name, settings in ARCHITECTURES.items():
        out.setdefault(type(settings), []).append(name)
    return out


def _options(kind: type, kinds: dict[type, list[str]]) -> list[str]:
    """Option names of an architecture, without those of its base class."""
    base = next((other for other in kind.__mro__[1:] if other in kinds), None)
    options = [field.name for field in fields(ARCHITECTURES[kinds[kind][0]])]
    if base is None:
        return options
    shared = {field.name for field in fields(ARCHITECTURES[kinds[base][0]])}
    return [f"those of {kinds[base][0]}", *(name for name in options if name not in shared)]


def _print(title: str, rows: list[tuple[str, str]], form: str) -> None:
    if form == "md":
        print(f"| {title} | |\n|---|---|")
        print("\n".join(f"| `{name}` | {what} |" for name, what in rows) + "\n")
        return
    print(title)
    for name, what in rows:
        print(_wrapped(f"  {name:22}", what, 24))
    print()


def _wrapped(begin: str, text: str, indent: int) -> str:
    """Wrap text to the width of the terminal."""
    width = max(40, terminal_width(sys.stdout))
    return textwrap.fill(
        text,
        width,
        initial_indent=begin,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
