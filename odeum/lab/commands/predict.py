"""`odeum predict RUN INPUT …`: classes of images or texts, continuations of prompts, translations of lines."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sized
from contextlib import closing
from typing import TYPE_CHECKING, Any

from odeum.errors import OdeumError, choose
from odeum.lab.commands.answers import ProgressLine, answers_are_seen, open_answers
from odeum.lab.commands.options import Parser
from odeum.lab.data.inputs import PredictInput, image_inputs, line_inputs, text_inputs, whole_file
from odeum.lab.tasks import KINDS, Kind, PredictOption
from odeum.lab.train.distributed.ranks import print_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from odeum.lab.tasks.run import Run

SOLVING = ("solver", "steps", "repeats", "exit")
LINES_AT_ONCE = 256  # lines answered at once, so that a pipe sees answers early


def run(argv: list[str]) -> int:
    parser = Parser(
        "predict",
        "Print classes with probabilities, numbers, generated text or translations. Inputs are images, folders of "
        "images or lists of paths; for text, tables like those of the training (one answer per row) or text files (one "
        "answer per line); - is standard input. --text gives a text itself, --text-file a file with one text, such as "
        "a long prompt.",
    )
    parser.add_argument("run", type=str, help="run directory")
    parser.add_argument("inputs", nargs="*", type=str, help="files, or - for standard input (default for text: -)")
    parser.option("column", "text column of a table (default: as in training)")
    parser.option("text", "a text or prompt instead of files; may be repeated", action="append")
    parser.option("text-file", "a file with one text; may be repeated", action="append")
    parser.option("format", "output format: text or json, one line per answer")
    parser.option("out", "write answers to a .csv or .jsonl file")
    parser.option("overwrite", "replace an existing --out file", bool)
    parser.option("solver", "integration method, instead of that of training")
    parser.option("steps", "steps per layer, instead of those of training", float)
    parser.option("repeats", "repeats of a looped core, instead of those of training", int)
    parser.option("exit", "stop repeating below this relative state change", float)
    parser.option("engine", "ctranslate2 instead of torch, for text on a CPU")
    for option in _predict_options():
        more: dict[str, Any] = {"action": "append"} if option.repeated else {}
        parser.option(option.name, option.about, option.type, **more)
    given = parser.read(argv)
    form = choose(given.get("format") or "text", ("text", "json"), "format")
    out, names = given.get("out"), given.get("inputs") or []
    if out and given.get("format"):
        raise OdeumError("--format applies to standard output; the extension of --out defines its format")
    if (given.get("text") or given.get("text_file")) and names:
        raise OdeumError(f"give either {'--text' if given.get('text') else '--text-file'} or files, not both")

    from odeum.lab.tasks.run import load

    model = load(given["run"]).solve_by(**{name: given.get(name) for name in SOLVING})
    if engine := given.get("engine"):
        if changed := next((name for name in SOLVING if given.get(name) is not None), None):
            raise OdeumError(f"--engine {engine} computes the run as it was trained; leave out --{changed}")
        model = model.computed_by(engine)
    kind = KINDS[model.task.kind]
    options = _options(kind, given)
    inputs = given_inputs("predict", model, kind, given)
    target = open_answers(model.task, form, out, bool(given.get("overwrite")), names)
    counted = ProgressLine(answers_are_seen(out), len(inputs) if isinstance(inputs, Sized) else None)
    streams = kind.target == "next token" and out is None and form == "text"
    samples = options.get("samples")
    done = failed = 0
    with target as answers, closing(counted):
        for some in _batches(inputs, 1 if kind.target == "next token" else LINES_AT_ONCE):
            ready = _ready(model, some)
            good = [item for item in ready if not isinstance(item, OdeumError)]
            if kind.target == "next token":
                options["first"] = done
            if streams and good:
                _stream(model, some[0].text, options)
                predictions: Iterator[Any] = iter([None] * (samples or 1))
            else:
                predictions = iter(model.predict(good, **options) if good else [])
            for asked, item in zip(some, ready, strict=True):
                wrong = isinstance(item, OdeumError)
                for sample in range(1 if wrong else samples or 1):
                    answer = item if wrong else next(predictions)
                    if answer is not None or not streams:
                        answers.add(asked, answer, sample if samples else None)
                failed += wrong
            done += len(some)
            counted.add(len(some))
    return 0 if not failed else 1 if done > failed else 2


def _ready(model: Run, items: list[PredictInput]) -> list[Any]:
    """Prepared inputs; one that cannot be read becomes an error, which is printed, and the others continue."""
    out: list[Any] = []
    for item in items:
        try:
            if item.error is not None:
                raise item.error
            out.append(model.task.prepare(item.text))
        except OdeumError as error:
            print_error(error)
            out.append(error)
    return out


def _stream(model: Run, prompt: str, options: dict[str, Any]) -> None:
    """Print the prompt and its continuations while they are generated."""
    sampling = {name: value for name, value in options.items() if name != "samples"}
    model.task.predict(model.model, [], **options)  # raises for invalid options before anything is printed
    for sample in range(options.get("samples", 1)):
        pieces = model.stream(prompt, sample=sample, **sampling)
        print(prompt + next(pieces, ""), end="", flush=True)  # an error of the first piece comes before the prompt
        for piece in pieces:
            print(piece, end="", flush=True)
        print(flush=True)


def _predict_options() -> list[PredictOption]:
    """The options of all kinds, without duplicates."""
    return list({option.name: option for kind in KINDS.values() for option in kind.predict_options}.values())


def _options(kind: Kind, given: dict[str, Any]) -> dict[str, Any]:
    """Options of the kind with defaults; raises `OdeumError` for those of other kinds."""
    defaults = {option.name: option.default for option in kind.predict_options}
    for name in (option.name for option in _predict_options()):
        if given.get(name) is not None and name not in defaults:
            known = f"it has {', '.join(f'--{other}' for other in defaults)}" if defaults else "it has no such options"
            raise OdeumError(f"--{name} has no effect on a run of the kind {kind.name}; {known}")
    options = {name: given.get(name, default) for name, default in defaults.items()}
    return {name: value for name, value in options.items() if value is not None}


def given_inputs(verb: str, model: Run, kind: Kind, given: dict[str, Any]) -> Iterable[PredictInput]:
    """Inputs from images, tables, text files, whole texts or standard input; a list unless it is a stream."""
    files, column = list(given.get("inputs") or []), given.get("column")
    texts, whole = given.get("text") or [], given.get("text_file") or []
    if kind.input == "image":
        if not files or texts or whole:
            raise OdeumError(f"this run reads images; give image files, such as `odeum {verb} RUN picture.png`")
        return _with_lines(files, lambda some: image_inputs(some, column))
    if column is not None and not files:
        raise OdeumError(f"--column is for tables; give one, such as `odeum {verb} RUN rows.csv --column NAME`")
    if texts or whole:
        return [*map(PredictInput, texts), *map(whole_file, whole)]
    return _with_lines(files or ["-"], lambda some: text_inputs(some, model.task.columns, column))


def _with_lines(files: list[str], read: Any) -> Iterable[PredictInput]:
    """Inputs from the files, with the lines of standard input in the place of -."""
    if "-" not in files:
        return read(files)
    if sys.stdin is None:
        raise OdeumError("standard input is closed; give files, or texts with --text")
    if sys.stdin.isatty():
        print("type a line and press Enter; Ctrl-D ends", file=sys.stderr)
    parts = (line_inputs(sys.stdin.buffer) if name == "-" else read([name]) for name in files)
    return itertools.chain.from_iterable(parts)


def _batches(inputs: Iterable[PredictInput], count: int) -> Iterator[list[PredictInput]]:
    remaining = iter(inputs)
    while some := list(itertools.islice(remaining, count)):
        yield some
