"""`odeum predict RUN INPUT …`: classes of images or texts, continuations of prompts, translations of lines."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odeum.commands.options import Parser
from odeum.errors import OdeumError, choose
from odeum.kinds import KINDS, Answer, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from odeum.tasks import Task

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
    for answer in _answers():
        parser.add_argument(f"--{answer.name}", type=answer.type, default=None, help=answer.about)
    said = parser.read(argv)
    form = choose(said.get("format", "text"), ("text", "json"), "format")
    if said.get("text") is not None and said.get("inputs"):
        raise OdeumError("give either --text or files, not both")

    from odeum.tasks.run import load

    model = load(said["run"]).solve_by(said.get("solver"), said.get("steps"))
    kind = KINDS[model.task.kind]
    own = {answer.name: answer.default for answer in kind.answers}
    for name in (answer.name for answer in _answers()):
        if said.get(name) is not None and name not in own:
            known = f"it knows {', '.join(f'--{other}' for other in own)}" if own else "it has no such options"
            raise OdeumError(f"--{name} does nothing for a {kind.name} run; {known}")
    options = {name: said.get(name, default) for name, default in own.items()}
    options = {name: value for name, value in options.items() if value is not None}
    for parts in _inputs(kind, said):
        for name, answer in zip(parts, model.predict(parts, **options), strict=True):
            print(_shown(model.task, name, answer, form), flush=True)
    return 0


def _answers() -> list[Answer]:
    """The options of all kinds; those of one name are one."""
    return list({answer.name: answer for kind in KINDS.values() for answer in kind.answers}.values())


def _inputs(kind: Kind, said: dict[str, Any]) -> Iterator[list[str]]:
    """Image files as they are; for text the lines of the files, or of standard input."""
    files = list(said.get("inputs") or [])
    if kind.input == "image" and (not files or said.get("text") is not None):
        raise OdeumError("this run knows pictures; give image files, such as `odeum predict RUN picture.png`")
    if said.get("text") is not None:
        yield said["text"]
        return
    if kind.input == "image":
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


def _shown(task: Task, question: str, answer: Any, form: str) -> str:
    if form == "json":
        return json.dumps({"input": question, "output": task.plain(answer)}, ensure_ascii=False)
    return task.shown(question, answer)
