"""`odeum list`: everything that has a name."""

from __future__ import annotations

import json
from dataclasses import asdict

from odeum.errors import choose
from odeum.options import Parser
from odeum.settings.architecture import ARCHITECTURES, VARIANTS
from odeum.settings.data import NAMED
from odeum.settings.model import MODELS

ABOUT = {
    "sequential": "pre-norm transformer, ViT, DeiT: Lie–Trotter splitting",
    "post-norm": "the original transformer (Vaswani 2017)",
    "parallel": "attention and feed-forward side by side: Euler (Zhong 2022)",
    "midpoint": "parallel field, midpoint step",
    "rk2": "parallel field, Heun step",
    "rk4": "parallel field, classical Runge–Kutta step (Zhong 2022)",
    "rk4-38": "parallel field, Runge–Kutta 3/8 rule (torchdiffeq's rk4)",
    "macaron": "½ feed-forward, attention, ½ feed-forward (Lu 2019)",
    "strang": "macaron with one feed-forward: Strang splitting",
    "strang-midpoint": "Strang splitting of true second order",
    "sandwich": "attentions first, feed-forwards last (Press 2020)",
    "ode-transformer": "a Runge–Kutta step of whole layers, gated (Li 2022)",
    "continuous": "one layer integrated over depth by an adaptive solver",
    "transevolve": "attention measured once a block and evolved (Dutta 2021)",
}


def run(argv: list[str]) -> int:
    parser = Parser("list", "Architectures, models and data sets by name.")
    parser.add_argument("--format", type=str, default="text", help="text, md or json")
    form = choose(parser.read(argv).get("format", "text"), ("text", "md", "json"), "format")
    if form == "json":
        content = {
            "architectures": {name: asdict(words) for name, words in ARCHITECTURES.items()},
            "variants": {name: list(variants) for name, variants in VARIANTS.items()},
            "models": {name: {"kind": type(m).__name__.lower(), **asdict(m)} for name, m in MODELS.items()},
            "data": NAMED,
        }
        print(json.dumps(content, indent=1))
        return 0
    sections = {
        "architecture": [(name, ABOUT[name], ", ".join(asdict(words))) for name, words in ARCHITECTURES.items()],
        "model": [
            (name, type(m).__name__.lower(), f"width {m.width}, heads {m.heads}, depth {m.depth}") for name, m in MODELS.items()
        ],
        "data": [(name, kind, "") for name, kind in NAMED.items()],
    }
    for title, rows in sections.items():
        _print(title, rows, form)
    return 0


def _print(title: str, rows: list[tuple[str, str, str]], form: str) -> None:
    last = {"architecture": "options (name:option=value,…)", "model": "size", "data": ""}[title]
    if form == "md":
        print(f"| {title} | what | {last} |\n|---|---|---|")
        print("\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n")
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(title, "what", last, box=SIMPLE_HEAD)
    for row in rows:
        table.add_row(*row)
    Console(highlight=False).print(table)
