"""The table of docs/ecosystem.md says which run can be written for which library."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import odeum
from odeum.errors import OdeumError
from odeum.interop.ctranslate2 import write_ctranslate2
from odeum.interop.gguf import ARCHITECTURES
from odeum.interop.native import to_native
from odeum.models.settings import Classification, Language, Translation, Vision

PAGE = Path(__file__).parents[2] / "docs" / "ecosystem.md"
TEXT = {"width": 16, "heads": 2, "depth": 2, "length": 16, "vocabulary": 11}
ROTARY = Language(**TEXT, positions="rotary")
GATED: dict[str, Any] = {"norm_kind": "rms", "activation": "swiglu"}
IMAGE = Vision(width=16, heads=2, depth=2, image_size=8, patch_size=4, classes=3)
ROWS: list[tuple[str, str, Any]] = [
    ("language, `parallel`, rotary positions", "parallel", ROTARY),
    ("language, `parallel:norm=shared`, rotary positions", "parallel:norm=shared", ROTARY),
    ("language, `sequential`, rotary positions", "sequential", ROTARY),
    (
        "… with `norm_kind=rms`, `activation=swiglu`",
        "sequential",
        replace(ROTARY, norm_kind="rms", activation="swiglu"),
    ),
    ("language, `sequential`, learned or sinusoidal positions", "sequential", Language(**TEXT)),
    ("language, `parallel`, learned or sinusoidal positions", "parallel", Language(**TEXT)),
    ("images, `sequential`, `pooling=token`, `stem=patch`", "sequential", IMAGE),
    ("images, `sequential`, `pooling=mean`, `stem=patch`", "sequential", replace(IMAGE, pooling="mean")),
    ("texts, `sequential`, `pooling=token`", "sequential", Classification(**TEXT, pooling="token")),
    ("texts, `sequential`, `pooling=mean`", "sequential", Classification(**TEXT)),
    ("translation, `sequential`", "sequential", Translation(**TEXT)),
    ("language, `rk4`, and every other architecture with fixed steps", "rk4", ROTARY),
]


def row(architecture: str, settings: Any, place: Path) -> list[str]:
    """The class of transformers, the class of CTranslate2 and the architecture of llama.cpp, or no."""
    model: Any = odeum.build(architecture, settings)
    try:
        native = to_native(model).name
    except OdeumError as error:
        assert "--to onnx" in str(error)
        native = "no"
    engine = "?"
    if find_spec("ctranslate2") is not None:
        names = [str(i) for i in range(getattr(settings, "vocabulary", 0))]
        try:
            write_ctranslate2(model, place, names, unknown="0", start="1", end="2")
            engine = "Translator" if isinstance(settings, Translation) else "Generator"
        except OdeumError:
            engine = "no"
    shown = re.sub(r"For\w+|LMHeadModel", "", native)
    return [shown, engine, ARCHITECTURES.get(native, "no")]


def test_the_page_has_this_table(tmp_path: Path) -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("| model and architecture"))
    written = {cells[0]: cells[1:4] for line in lines[begin + 2 :] if len(cells := line.strip("| ").split(" | ")) == 5}
    assert list(written) == [name for name, *_ in ROWS]
    for number, (name, architecture, settings) in enumerate(ROWS):
        (place := tmp_path / str(number)).mkdir()
        for said, true in zip(written[name], row(architecture, settings, place), strict=True):
            assert true in ("?", said), name
