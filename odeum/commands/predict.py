"""`odeum predict RUN INPUT …`: classes of images or texts, continuations of prompts, translations of lines."""

from __future__ import annotations

import itertools
import sys
from typing import TYPE_CHECKING, Any

from odeum.commands.options import Parser
from odeum.data.inputs import PredictInput, decoded, image_paths, predict_inputs
from odeum.distributed.ranks import complain
from odeum.errors import OdeumError, choose
from odeum.kinds import KINDS, Kind, PredictOption
from odeum.terminal import to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from odeum.tasks import Task

SOLVING = ("solver", "steps", "repeats", "exit")
LINES_AT_ONCE = 256  # lines answered at once, so that a pipe sees answers early


def run(argv: list[str]) -> int:
    parser = Parser(
        "predict",
        "Classes with probabilities for image files or texts, generated text for language runs, translations line by "
        "line. Inputs are images or folders of them; for text, tables like those of the training (an answer a row), "
        "plain text (an answer a line) or lines of standard input; --text gives a text itself.",
    )
    parser.add_argument("run", type=str, help="run directory")
    parser.add_argument("inputs", nargs="*", type=str, help="files (none: lines of standard input)")
    parser.add_argument("--column", type=str, default=None, help="of a table: where the text is (none: as in training)")
    parser.add_argument("--text", type=str, action="append", help="a text or prompt, instead of files; may be repeated")
    parser.add_argument("--format", type=str, default="text", help="text or json (a line an answer)")
    parser.add_argument("--solver", type=str, default=None, help="another method than it was trained with")
    parser.add_argument("--steps", type=float, default=None, help="another number of steps a layer")
    parser.add_argument("--repeats", type=int, default=None, help="another number of repeats of a looped model's core")
    parser.add_argument("--exit", type=float, default=None, help="end repeats where the state moves by a smaller share")
    for option in _predict_options():
        parser.add_argument(f"--{option.name}", type=option.type, default=None, help=option.about)
    given = parser.read(argv)
    form = choose(given.get("format", "text"), ("text", "json"), "format")
    if given.get("text") is not None and given.get("inputs"):
        raise OdeumError("give either --text or files, not both")

    from odeum.tasks.run import load

    model = load(given["run"]).solve_by(**{name: given.get(name) for name in SOLVING})
    kind = KINDS[model.task.kind]
    own = {option.name: option.default for option in kind.predict_options}
    for name in (option.name for option in _predict_options()):
        if given.get(name) is not None and name not in own:
            known = f"it knows {', '.join(f'--{other}' for other in own)}" if own else "it has no such options"
            raise OdeumError(f"--{name} does nothing for a {kind.name} run; {known}")
    options = {name: given.get(name, default) for name, default in own.items()}
    options = {name: value for name, value in options.items() if value is not None}
    answered = failed = 0
    for some in _batches(_inputs(model.task, kind, given)):
        ready = {}
        for place, item in enumerate(some):
            try:
                ready[place] = model.task.prepare(item.text)
            except OdeumError as error:  # one that cannot be read does not take the others with it
                complain(error)
                failed += 1
        answers = model.predict(list(ready.values()), **options) if ready else []
        for place, answer in zip(ready, answers, strict=True):
            print(_shown(model.task, some[place], answer, form), flush=True)
        answered += len(ready)
    return 0 if not failed else 1 if answered else 2


def _predict_options() -> list[PredictOption]:
    """The options of all kinds; those of one name are one."""
    return list({option.name: option for kind in KINDS.values() for option in kind.predict_options}.values())


def _inputs(task: Task, kind: Kind, given: dict[str, Any]) -> Iterator[PredictInput]:
    """Image files; rows of tables and lines of plain text; or lines of standard input."""
    files = list(given.get("inputs") or [])
    if kind.input == "image":
        if not files or given.get("text") is not None or given.get("column") is not None:
            raise OdeumError("this run knows pictures; give image files, such as `odeum predict RUN picture.png`")
        yield from map(PredictInput, image_paths(files))
        return
    if given.get("column") is not None and not files:
        raise OdeumError("--column is for tables; give one, such as `odeum predict RUN rows.csv --column NAME`")
    if given.get("text") is not None:
        yield from map(PredictInput, given["text"])
    elif files:
        for name in files:
            yield from predict_inputs(name, task.columns, given.get("column"))
    else:
        if sys.stdin.isatty():
            print("type a line and press Enter; Ctrl-D ends", file=sys.stderr)
        for number, raw in enumerate(sys.stdin.buffer, 1):
            yield PredictInput(decoded(raw, f"line {number} of standard input"))


def _batches(inputs: Iterable[PredictInput]) -> Iterator[list[PredictInput]]:
    remaining = iter(inputs)
    while some := list(itertools.islice(remaining, LINES_AT_ONCE)):
        yield some


def _shown(task: Task, item: PredictInput, answer: Any, form: str) -> str:
    if form == "text":
        return task.shown(item.text, answer)
    where = {} if item.row is None else {"file": item.file, "row": item.row}
    return to_json({**where, "input": item.text, "output": task.plain(answer)})
