"""`odeum describe ARCHITECTURE`: its equation, scheme and costs."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from odeum.errors import OdeumError, choose
from odeum.lab.commands.options import (
    Parser,
    architecture_names,
    expand_shorthands,
    known_architectures,
    model_names,
    preset,
)
from odeum.lab.terminal import beneath, readable, to_json
from odeum.models.settings import Model, find_preset
from odeum.registry.names import Architecture
from odeum.registry.spelling import label, parse

DESCRIPTION_FORMATS = ("text", "md", "json")


def run(argv: list[str]) -> int:
    settings, argv = preset(argv)
    settings = settings or find_preset("language_small" if "--transfer" in argv else "deit_tiny")
    parser = Parser(
        "describe", f"An architecture's equation, scheme and costs. --model NAME is one of: {model_names()}."
    )
    parser.add_argument(
        "architecture", type=str, help=f"such as rk4:steps=2 or transevolve:full-1; known: {architecture_names()}"
    )
    parser.option("format", "text, md or json", default="text")
    parser.option("transfer", "activation and update sizes over width and depth (takes a minute)", bool)
    parser.section("model", type(settings), argv)
    given = parser.read(expand_shorthands(argv, type(settings), {"format", "transfer"}))
    form = choose(given.get("format", "text"), DESCRIPTION_FORMATS, "format")
    architecture = parse(known_architectures(given["architecture"]))
    model = replace(settings, **given.get("model", {}))
    if given.get("transfer"):
        return _transfer(architecture, model, form)

    from odeum.models.description import describe

    facts = describe(architecture, model)
    if form == "json":
        print(to_json(facts, indent=1))
    else:
        _print_table(facts, form)
    return 0


def _transfer(architecture: Architecture, model: Model, form: str) -> int:
    """Print the sizes under each parametrization that the architecture has."""
    from odeum.lab.train.coordinate_check import check_transfer

    checks: dict[str, Any] = {"standard": check_transfer(architecture, model, "standard")}
    note = None
    try:
        checks["completep"] = check_transfer(architecture, model, "completep")
    except OdeumError as error:
        note = str(error)
    if form == "json":
        sizes = {
            name: {
                "widths": [size._asdict() for size in check.widths],
                "depths": [size._asdict() for size in check.depths],
                "slopes": check.slopes,
            }
            for name, check in checks.items()
        }
        print(to_json({"architecture": label(architecture), **sizes, **({"note": note} if note else {})}, indent=1))
        return 0
    columns = ["size", *(f"{what}, {name}" for name in checks for what in ("activation", "update"))]
    rows = [
        [title(sizes[0]), *(f"{getattr(size, what):.3g}" for size in sizes for what in ("activation", "update"))]
        for group, title in (("widths", lambda s: f"width {s.width}"), ("depths", lambda s: f"depth {s.depth}"))
        for sizes in zip(*(getattr(check, group) for check in checks.values()), strict=True)
    ]
    for over in ("width", "depth"):
        slopes = [check.slopes[f"{what} over {over}"] for check in checks.values() for what in ("activation", "update")]
        rows.append([f"slope over log {over}", *(f"{slope:+.2f}" for slope in slopes)])
    if form == "md":
        print("\n".join(f"| {' | '.join(row)} |" for row in [columns, ["---"] * len(columns), *rows]))
    else:
        widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
        for row in [columns, *rows]:
            first, *rest = (cell.rjust(n) for cell, n in zip(row, widths, strict=True))
            print("  ".join([first.strip().ljust(widths[0]), *rest]))
    if note:
        print(note)
    return 0


def _print_table(facts: dict[str, Any], form: str) -> None:
    rows = [
        ("equation", facts["equation"]),
        *(("one step" if i == 0 else "elsewhere", line.replace("; ", "\n")) for i, line in enumerate(facts["scheme"])),
        *(("loop", line.replace("; ", "\n")) for line in facts.get("loop", ())),
        ("order", "not fixed: the coefficients are learned" if facts["order"] is None else str(facts["order"])),
        ("layers", facts["layers"]),
        ("evaluations", _evaluations(facts)),
        ("parameters", _count(facts["parameters"])),
        ("forward MACs", f"{_count(facts['macs'])} per example"),
        ("activations", _bytes(facts["activation_memory"])),
    ]
    if "macs_in_training" in facts:
        row = ("in training", f"{_count(facts['macs_in_training'])} for one example, forward, the mean over training")
        rows.insert([name for name, _ in rows].index("multiply–adds") + 1, row)
    if "parameters_published" in facts:
        rows.insert(
            [name for name, _ in rows].index("parameters") + 1,
            ("as published", f"{_count(facts['parameters_published'])}, including weights without effect"),
        )
    if "stability" in facts:
        rows.insert([name for name, _ in rows].index("order") + 1, ("stability", facts["stability"]))
    if "weights" in facts:
        rows.insert(1, ("weights", facts["weights"]))
    if "attention" in facts:
        rows.append(("attention", facts["attention"]))
    if form == "md":
        cells = [(name, value.replace("|", "\\|").replace("\n", "<br>")) for name, value in rows]
        body = "\n".join(f"| {name} | {value} |" for name, value in cells)
        print(f"| {facts['architecture']} | {facts['model']['kind']} |\n|---|---|\n{body}")
    else:
        print(_rich(facts, rows), file=beneath(sys.stdout))  # rich may print bold text


def _rich(facts: dict[str, Any], rows: list[tuple[str, str]]) -> str:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    model = facts["model"]

    def text(content: str, style: str = "") -> Text:
        return Text(readable(content, sys.stdout), style)

    title = text(f"{facts['architecture']}  ({model['kind']}, width {model['width']})", "table.title")
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, show_header=False)
    for name, value in rows:
        table.add_row(text(name, "bold"), text(value))
    console = Console(highlight=False, file=beneath(sys.stdout))
    with console.capture() as capture:
        console.print(table)
    return capture.get().rstrip()


def _evaluations(facts: dict[str, Any]) -> str:
    names = {"G": "attention", "C": "cross-attention", "F": "feed-forward"}
    counts = ", ".join(f"{n} of {names.get(symbol, symbol)}" for symbol, n in facts["evaluations_of"].items())
    note = facts.get("evaluations_note")
    return f"{counts} ({note})" if note else counts


def _count(number: int) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3f} {unit}"
    return str(number)


def _bytes(number: int | None) -> str:
    if number is None:
        return "depends on the data"
    size = f"{number / 2**20:.1f} MiB" if number >= 2**20 / 10 else f"{number / 2**10:.1f} KiB"
    return f"{size} per example, stored for the gradient"
