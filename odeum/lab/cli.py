"""The command line: dispatches to the verbs. torch is imported by the verbs, not here."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from odeum.errors import Notice, OdeumError, choose
from odeum.lab.terminal import beneath, guarded, held_lines, mute, print_held_lines
from odeum.lab.train.distributed.ranks import exit_code, is_main, print_error
from odeum.lab.train.interrupt import Interrupted, requeue, signals_raise
from odeum.registry.plugins import fault, load_installed, load_named

VERBS = {
    "compare": (
        "odeum.lab.commands.compare",
        "train architectures under one recipe and report which is better",
    ),
    "train": ("odeum.lab.commands.train", "train one model"),
    "evaluate": ("odeum.lab.commands.evaluate", "evaluate a run, also with another solver or number of steps"),
    "predict": ("odeum.lab.commands.predict", "print classes, numbers, generated text or translations"),
    "inspect": ("odeum.lab.commands.inspect", "measure how tokens move through the layers of a run"),
    "table": (
        "odeum.lab.commands.table",
        "print a table of a paper beside our results, or train missing runs",
    ),
    "league": (
        "odeum.lab.commands.league",
        "rank architectures over tasks and sizes: screened, then confirmed",
    ),
    "import": ("odeum.lab.commands.import_run", "read a pretrained model of another library as a run"),
    "convert": ("odeum.lab.commands.convert", "load the weights of a run into another architecture"),
    "surgery": (
        "odeum.lab.commands.surgery",
        "edit the layers of a model, confirmed on held-out examples",
    ),
    "export": ("odeum.lab.commands.export", "write a run for ONNX, torch.export, transformers or CTranslate2"),
    "report": ("odeum.lab.commands.report", "write tables and page of a comparison from its runs"),
    "describe": ("odeum.lab.commands.describe", "print equation, scheme and costs of an architecture"),
    "list": ("odeum.lab.commands.list", "list architectures, models and data sets"),
}

CONTINUED = ("train", "compare", "table", "league", "surgery")
"""verbs that resume when they are repeated"""

VERSIONED = (
    *("torch", "numpy", "tokenizers", "sacrebleu", "transformers", "timm", "onnxruntime", "ctranslate2", "gguf"),
    *("ray", "submitit"),
)
"""packages whose versions `odeum --version` prints, if they are installed"""

HELP = """usage: odeum VERB [...] [--plugin FILE] [--debug]

A transformer layer is one step of a numerical integrator: architecture = field × integrator × schedule.

{verbs}

`odeum VERB --help` lists a verb's options; `--debug` shows the traceback of an error;
`--plugin my_ideas.py` (a file or module; may be repeated) loads the names that it registers.
examples:
  odeum compare digits
  odeum describe parallel:independent=6 --model deit_tiny --classes 100
  odeum train wikitext2 --architecture rk4 --train.budget 20m
"""


def _remark(message: Warning | str, category: type[Warning], *where: Any) -> None:
    """Print notices of Odeum as lines; warnings of libraries are shown with --debug only.

    Lines are held back until other output, so that an error message stands alone.
    """
    if issubclass(category, Notice) and is_main():
        held_lines.append(f"odeum: {message}")


def main(argv: Sequence[str] | None = None) -> int:
    # Python's own handler is on only while its KeyboardInterrupt is caught here: not while odeum/__init__.py imports
    # the command line, and not while the interpreter ends.
    here = threading.current_thread() is threading.main_thread()
    default = here and signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    try:
        if default:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return _main(argv)
    except KeyboardInterrupt as stop:  # also one during start-up
        sentence, code = (str(stop), stop.code) if isinstance(stop, Interrupted) else ("interrupted", 130)
        print(f"\nodeum: {sentence}", file=sys.stderr)
        return code
    finally:
        if default:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _main(argv: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    with warnings.catch_warnings(), guarded(), signals_raise():
        warnings.simplefilter("always", Notice)
        if not debug:
            warnings.showwarning = _remark  # ty: ignore[invalid-assignment]
        words = [word for word in arguments if word != "--debug"]
        code = _run(words, debug)
        if words[:1] and words[0] in CONTINUED and is_main() and requeue(code):
            print("odeum: Slurm will start this job again, and the same command continues", file=sys.stderr)
        return code


def _run(arguments: list[str], debug: bool) -> int:
    try:
        code = _act(arguments)
        print_held_lines()
        sys.stdout.flush()
        return code
    except OdeumError as error:
        if debug:
            raise
        held_lines.clear()
        print_error(error)
        return exit_code(2)
    except BrokenPipeError:  # the reader has closed the pipe
        mute(beneath(sys.stdout))
        return 0
    except OSError as error:  # not handled elsewhere: a failing disk, a name that is too long
        if debug:
            raise
        held_lines.clear()
        print_error(OdeumError(_of_system(error)))
        return exit_code(2)
    except MemoryError:
        if debug:
            raise
        held_lines.clear()
        print_error(OdeumError(NO_MEMORY))
        return exit_code(2)
    except Exception as error:
        sentence = None if debug else NO_MEMORY if _out_of_memory(error) else fault(error)
        if sentence is None:
            raise
        held_lines.clear()
        print_error(OdeumError(sentence))
        return exit_code(2)


NO_MEMORY = "out of memory; use less data, a smaller model or batch size, or raise ulimit"
_MEMORY_SIGNS = ("failed to map segment", "cannot allocate memory", "can't allocate memory", "can't start new thread")
"""parts of out-of-memory messages of libraries, torch and Python"""


def _out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or one of its causes, is about memory."""
    while error is not None:
        text = str(error).lower()
        if isinstance(error, MemoryError) or any(sign in text for sign in _MEMORY_SIGNS):
            return True
        error = error.__cause__ or error.__context__
    return False


def _of_system(error: OSError) -> str:
    """The message of a system error, with its file."""
    name = "" if error.filename is None else str(error.filename)
    short = name if len(name) < 100 else f"{name[:80]}… ({len(name)} characters)"
    return f"cannot use '{short}': {error.strerror}" if name else f"system error: {error.strerror or error}"


def _act(arguments: list[str]) -> int:
    if arguments[:1] == ["help"] and len(arguments) > 1:
        arguments = [arguments[1], "--help"]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        verbs = "\n".join(f"  {verb:10}{what}" for verb, (_, what) in VERBS.items())
        print(HELP.format(verbs=verbs))
        return 0
    if arguments[0] == "--version":
        print(_versions())
        return 0
    plugins, arguments = _take_plugins(arguments)
    module, _ = VERBS[choose(arguments[0] if arguments else "", VERBS, "verb")]
    load_installed()
    load_named(plugins)
    run: Callable[[list[str]], int] = import_module(module).run
    return run(arguments[1:])


def _versions() -> str:
    """Odeum's version, and those that results and bridges depend on; nothing is imported for it."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from odeum import __version__

    versions = [f"python {platform.python_version()}"]
    for name in VERSIONED:
        with contextlib.suppress(PackageNotFoundError):
            versions.append(f"{name} {version(name)}")
    return f"odeum {__version__}\n{', '.join(versions)}"


def _take_plugins(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The values of `--plugin`, and the other arguments."""
    plugins, rest = [], []
    left = iter(arguments)
    for word in left:
        if word == "--plugin" or word.startswith("--plugin="):
            plugin = word.partition("=")[2] if "=" in word else next(left, "")
            if not plugin or plugin.startswith("--"):
                raise OdeumError("--plugin needs a value: a file such as my_ideas.py, or the name of a module")
            plugins.append(plugin)
        else:
            rest.append(word)
    return plugins, rest


if __name__ == "__main__":
    sys.exit(main())
