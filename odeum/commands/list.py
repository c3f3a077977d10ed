"""`odeum list`: everything that has a name."""

from __future__ import annotations

import json
from dataclasses import asdict, fields

from odeum.commands.options import Parser
from odeum.errors import choose
from odeum.settings.architecture import ARCHITECTURES, VARIANTS
from odeum.settings.data import NAMED
from odeum.settings.model import MODELS, Model

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
    _print("architecture", [(name, ABOUT[name]) for name in ARCHITECTURES], form)
    for names in _by_kind().values():
        options = ", ".join(field.name for field in fields(ARCHITECTURES[names[0]]))
        variants = "".join(f"; {name}:{' '.join(VARIANTS[name])}" for name in names if name in VARIANTS)
        print(f"{'- ' if form == 'md' else '  '}options of {', '.join(names)}: {options}{variants}")
    print()
    sizes = {
        name: f"{type(m).__name__.lower()}, width {m.width}, heads {m.heads}, depth {m.depth}"
        for name, m in MODELS.items()
    }
    _print("model", list(sizes.items()), form)
    _print("data", list(NAMED.items()), form)
    return 0


def _size(model: Model) -> str:
    return f"{type(model).__name__.lower()}, width {model.width}, heads {model.heads}, depth {model.depth}"


def _by_kind() -> dict[type, list[str]]:
    out: dict[type, list[str]] = {}
    for name, words in ARCHITECTURES.items():
        out.setdefault(type(words), []).append(name)
    return out


def _print(title: str, rows: list[tuple[str, str]], form: str) -> None:
    if form == "md":
        print(f"| {title} | |\n|---|---|")
        print("\n".join(f"| `{name}` | {what} |" for name, what in rows) + "\n")
        return
    print(title)
    for name, what in rows:
        print(f"  {name:22}{what}")
    print()
