"""`odeum predict RUN INPUT …`: classes of images or texts, continuations of prompts, translations of lines."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odeum.commands.options import Parser
from odeum.errors import OdeumError, choose

if TYPE_CHECKING:
    from collections.abc import Iterator

    from odeum.tasks.run import Run

CHOICES = {
    "images": ("top",),
    "classification": ("top",),
    "language": ("max_new_tokens", "temperature", "top_k", "top_p", "seed"),
    "translation": ("beam", "length_penalty"),
}
"""the options that each kind of run has"""
PART = 256  # lines answered at once, so that a pipe sees answers early


def run(argv: list[str]) -> int:
    parser = Parser(
        "predict",
        "Classes with probabilities for image files or texts, generated text for language runs, translations line by "
        "line. Inputs are image files, text files or, for text, lines of standard input; --text gives a text itself.",
    )
    parser.add_argument("run", type=str, help="run directory")
    parser.add_argument("inputs", nargs="*", type=str, help="files (none: lines of standard input)")
    parser.add_argument("--text", type=str, action="append", help="a text or prompt, instead of files; may be repeated")
    parser.add_argument("--format", type=str, default="text", help="text or json (a line an answer)")
    parser.add_argument("--solver", type=str, default=None, help="another method than it was trained with")
    parser.add_argument("--steps", type=int, default=None, help="another number of steps a layer")
    parser.add_argument("--top", type=int, default=None, help="classes shown (none: 3)")
    parser.add_argument("--max_new_tokens", type=int, default=None, help="of generated text (none: 100)")
    parser.add_argument("--temperature", type=float, default=None, help="of sampling (0: the likeliest; none: 0.8)")
    parser.add_argument("--top_k", type=int, default=None, help="sample among the k likeliest tokens")
    parser.add_argument("--top_p", type=float, default=None, help="sample among tokens of this mass (none: 0.95)")
    parser.add_argument("--seed", type=int, default=None, help="of sampling (none: 0)")
    parser.add_argument("--beam", type=int, default=None, help="width of the search of a translation (none: 4)")
    parser.add_argument("--length_penalty", type=float, default=None, help="of the search of a translation (none: 0.6)")
    said = parser.read(argv)
    form = choose(said.get("format", "text"), ("text", "json"), "format")
    if said.get("text") is not None and said.get("inputs"):
        raise OdeumError("give either --text or files, not both")

    from odeum.tasks.run import load

    model = load(said["run"]).solve_by(said.get("solver"), said.get("steps"))
    mine = CHOICES[model.task.kind]
    for name in dict.fromkeys(name for names in CHOICES.values() for name in names):
        if said.get(name) is not None and name not in mine:
            known = ", ".join(f"--{choice}" for choice in mine)
            raise OdeumError(f"--{name} does nothing for a {model.task.kind} run; it knows {known}")
    options = {name: said[name] for name in mine if said.get(name) is not None}
    if "top" in mine:
        options.setdefault("top", 3)
    for parts in _inputs(model, said):
        for name, answer in zip(parts, model.predict(parts, **options), strict=True):
            print(_shown(name, answer, form, model.task.kind), flush=True)
    return 0


def _inputs(run: Run, said: dict[str, Any]) -> Iterator[list[str]]:
    """Image files as they are; for text the lines of the files, or of standard input."""
    files = list(said.get("inputs") or [])
    if run.task.kind == "images" and (not files or said.get("text") is not None):
        raise OdeumError("this run knows pictures; give image files, such as `odeum predict RUN picture.png`")
    if said.get("text") is not None:
        yield said["text"]
        return
    if run.task.kind == "images":
        for start in range(0, len(files), PART):
            yield files[start : start + PART]
        return
    part: list[str] = []
    for line in _lines(files):
        part.append(line)
        if len(part) == PART:
            yield part
            part = []
    if part:
        yield part


def _lines(files: list[str]) -> Iterator[str]:
    if not files:
        if sys.stdin.isatty():
            print("type a line and press Enter; Ctrl-D ends", file=sys.stderr)
        for number, raw in enumerate(sys.stdin.buffer, 1):
            yield _text(raw, f"line {number} of standard input")
        return
    for name in files:
        if not Path(name).is_file():
            raise OdeumError(f"there is no file '{name}'; to give a text itself use --text")
        with open(name, "rb") as file:
            for number, raw in enumerate(file, 1):
                yield _text(raw, f"line {number} of '{name}'")


def _text(raw: bytes, where: str) -> str:
    try:
        return raw.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise OdeumError(f"{where} is not UTF-8: byte 0x{raw[error.start]:02x} at offset {error.start}") from None


def _shown(name: str, answer: Any, form: str, kind: str) -> str:
    if form == "json":
        if kind in ("images", "classification"):
            answer = {label: round(p, 6) for label, p in answer}
        return json.dumps({"input": name, "output": answer}, ensure_ascii=False)
    if kind in ("images", "classification"):
        shown = "  ".join(f"{label} {p:.1%}" for label, p in answer)
        return f"{name}\t{shown}" if kind == "images" else shown
    return name + answer if kind == "language" else answer
