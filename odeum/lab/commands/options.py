"""Command-line options, generated from dataclasses.

Only options that were given are returned, so that each data set can supply its own defaults.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
from argparse import SUPPRESS, Action
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentParser, DefaultHelpFormatter, set_parsing_settings

from odeum.errors import OdeumError, notice
from odeum.models.pretrained import NOT_OFFERED
from odeum.models.settings import PRESETS, Model, find_preset
from odeum.registry.names import ARCHITECTURES

OPTION_ALIASES = {
    "lr": "train.learning_rate",
    "bs": "train.batch_size",
    "wd": "train.weight_decay",
    "batch": "train.batch_size",
    "epoch": "train.epochs",
    "time": "train.budget",
    "hidden_size": "model.width",
    "d_model": "model.width",
    "n_layers": "model.depth",
    "num_layers": "model.depth",
    "layers": "model.depth",
    "n_heads": "model.heads",
    "num_heads": "model.heads",
    "patch": "model.patch_size",
    "image_size": "data.size",
    "seq_len": "data.length",
    "max_length": "data.length",
    "text": "data.text_column",
    "label": "data.label_column",
    "output": "out",
    "output_dir": "out",
    "arch": "architecture",
    "archs": "architectures",
    "device": "train.device",
    "num_seeds": "seeds",
}
"""names of options in other tools"""
SECTIONS = ("train", "model", "data")
"""sections that may be omitted: --epochs for --train.epochs"""
SHARED: dict[str, tuple[str, Any, Any]] = {
    "format": ("table format: text, md, csv or json", str, "text"),
    "jobs": ("parallel runs: a number, or auto for all cores or GPUs", int | str, "auto"),
    "on": ("launcher: ray[:address] or slurm[:partition] (default: this machine)", str, None),
    "quiet": ("print no progress", bool, None),
    "track": ("log to tensorboard, trackio, wandb or mlflow; a comparison is a group of runs", str, None),
    "dry-run": ("print how the data is read and the cost estimated from a few steps; write nothing", bool, None),
    "print-config": ("print the whole configuration and exit", bool, None),
}
"""options that several verbs have: help text, type and default"""
ARCHITECTURE_ALIASES = dict.fromkeys(("transformer", "vanilla", "standard", "vit", "bert", "gpt", "gpt2"), "sequential")
"""other names of the standard transformer"""
MODEL_ALIASES = ("vit", "transformer", "default", "auto")
"""names of the default model of the data"""
TYPE_NAMES = {"int": "an integer", "float": "a number", "bool": "true or false", "str": "text"}


class Help(DefaultHelpFormatter):
    """Help texts with defaults, except those that the data or the model decides."""

    def _format_usage(self, usage: str | None, actions: Iterable[Action], *rest: Any, **more: Any) -> str:
        arguments = [
            f"{a.metavar or a.dest.upper()}{' …' if a.nargs in ('*', '+') else ''}" for a in actions if _is_word(a)
        ]
        return " ".join(["usage:", self._prog, *arguments, "[--option value …]"]) + "\n\n"

    def _get_help_string(self, action: Action) -> str:
        settled = not (_is_word(action) or action.nargs == 0 or action.dest.startswith(("model.", "train.")))
        known = settled and action.default not in (None, SUPPRESS)
        return f"{action.help or ''} (default: {action.default})" if known else action.help or ""


def _is_word(action: Action) -> bool:
    return not action.option_strings


class Parser(ArgumentParser):
    """The parser of a verb: its own options, and sections generated from dataclasses."""

    def __init__(self, verb: str, description: str) -> None:
        super().__init__(
            prog=f"odeum {verb}",
            description=description,
            formatter_class=Help,
            exit_on_error=False,
            allow_abbrev=False,
            print_config=None,
        )
        self.sections: dict[str, type] = {}
        self.add_argument(  # loaded before the verb is parsed, because other options use its names
            "--plugin", type=str, metavar="FILE", help="Python file or module to load; may be repeated"
        )

    def option(self, name: str, about: str, type: Any = str, default: Any = None, **more: Any) -> None:
        """Add `--name`, which may be typed with hyphens or underscores; the type `bool` makes it a flag."""
        names = dict.fromkeys((f"--{name.replace('-', '_')}", f"--{name}"))
        more |= {"action": "store_true"} if type is bool else {"type": type, "default": default}
        self.add_argument(*names, help=about, **more)

    def shared(self, *names: str) -> None:
        """Add options that several verbs have."""
        for name in names:
            self.option(name, *SHARED[name])

    def section(self, name: str, settings: Any, argv: list[str], without: Iterable[str] = ()) -> None:
        """Add options `--name.field` for the fields of a dataclass, except those in `without`."""
        # Help texts are docstrings in the source, which is slow to parse: only for --help.
        set_parsing_settings(docstring_parse_attribute_docstrings=asks_for_help(argv))
        skip = {field.name for field in fields(settings)} & {*without, *NOT_OFFERED}
        self.add_class_arguments(settings, name, skip=skip)
        whole = self._option_string_actions[f"--{name}"]
        whole.metavar, whole.help = "NAME", "name of a model" if name == "model" else SUPPRESS
        self.sections[name] = settings

    def read(self, argv: list[str]) -> dict[str, Any]:
        """Parse the arguments to a nested dictionary of given options; raises `OdeumError`."""
        try:
            return self.parse_args(self._in_order(self._full_names(argv)), defaults=False).as_dict()
        except argparse.ArgumentError as error:
            raise OdeumError(self._sentence(str(error))) from None

    def _full_names(self, argv: list[str]) -> list[str]:
        """Replace hyphens, omitted sections and names of other tools by the full option names."""
        end = argv.index("--") if "--" in argv else len(argv)
        return [*(self._full_name(word) for word in argv[:end]), *argv[end:]]

    def _full_name(self, word: str) -> str:
        head, equals, value = word.partition("=")
        if not head.startswith("--") or head in self._option_string_actions:
            return word
        name = head[2:].replace("-", "_")
        sections = [section for section in SECTIONS if f"--{section}.{name}" in self._option_string_actions]
        candidates = [name, OPTION_ALIASES.get(name.lower(), ""), name.lower()]
        candidates += [f"{sections[0]}.{name}"] if len(sections) == 1 else []
        full = next((c for c in candidates if c and f"--{c}" in self._option_string_actions), None)
        return word if full is None else f"--{full}{equals}{value}"

    def positionals(self, argv: list[str]) -> list[str]:
        """The positional arguments."""
        return self._parted(argv)[0]

    def _in_order(self, argv: list[str]) -> list[str]:
        """Move positional arguments to the front, because argparse accepts several only in one place."""
        arguments, options = self._parted(argv)
        return argv if "--" in argv else [*arguments, *options]

    def _parted(self, argv: list[str]) -> tuple[list[str], list[str]]:
        flags = {word for word, action in self._option_string_actions.items() if action.nargs == 0}
        arguments: list[str] = []
        options: list[str] = []
        value = False
        for place, word in enumerate(argv):
            if word == "--" and not value:  # everything after it is positional
                return [*arguments, *argv[place + 1 :]], options
            is_option = word.startswith("--") or word in flags
            if not value and not is_option and re.match("-.", word):
                raise OdeumError(f"unknown option {word}; for a file of this name write ./{word}")
            (options if value or is_option else arguments).append(word)
            value = is_option and "=" not in word and word not in flags
        return arguments, options

    def check(self, given: dict[str, Any], where: str) -> dict[str, Any]:
        """Check the options of a configuration file."""
        for name, action in self._option_string_actions.items():
            value = given.get(name.removeprefix("--"))
            if action.nargs == 0 and value is not None and not isinstance(value, bool):
                raise OdeumError(f"{where}: {name.removeprefix('--')} is {value!r} but must be true or false")
        try:
            return self.parse_object(given, defaults=False).as_dict()
        except (argparse.ArgumentError, TypeError, KeyError) as error:
            raise OdeumError(f"{where}: {self._sentence(str(error))}") from None

    def _sentence(self, message: str) -> str:
        known = [o for o in self._option_string_actions if not o.endswith("+") and o[2:] not in self.sections]
        if match := re.match(r"argument (\S+): expected one argument", message):
            return f"{match[1]} needs a value; write {match[1]}=VALUE if it begins with -"
        if match := re.match(r"argument (\S+): ignored explicit argument (.+)", message):
            return f"{match[1].rpartition('/')[2]} takes no value, got {match[2]}"
        if match := re.match(r"unrecognized arguments: (\S+)", message):
            word = match[1].partition("=")[0]
            if not word.startswith("-"):
                return f"unexpected argument '{word}'; see `{self.prog} --help`"
            guess = _guess(word, known)
            return f"unknown option {word}; " + (f"{guess} See" if guess else "see") + f" `{self.prog} --help`"
        if match := re.match(r"the following arguments are required: (.*)", message):
            return f"missing: {match[1].partition(',')[0]}; see `{self.prog} --help`"
        if match := re.search(r'key "([^"]+)":?\s*(.*)', message, re.DOTALL):
            reason = " ".join(match[2].split())
            reason = re.sub(r"<class '(\w+)'>", r"\1", reason).replace("typing.", "")
            if literal := re.search(r"Expected a Literal\[(.*?)\]\. Got value: (\S*)", reason):
                reason = f"is '{literal[2]}' but must be one of {literal[1].replace(chr(39), '')}"
            elif union := re.search(r"Subtypes: \[(\w+), NoneType\].* Given value: (.*)", reason):
                reason = f"is '{union[2]}' but must be {TYPE_NAMES.get(union[1], union[1])}, or null"
            elif simple := re.search(r"Expected a (\w+)\. Got value: (.*)", reason):
                reason = f"is '{simple[2]}' but must be {TYPE_NAMES.get(simple[1], simple[1])}"
            return f"--{match[1]} {reason}"
        return " ".join(message.split())


LIKE = 0.7
"""similarity above which a name is suggested"""
SHARED_LETTERS = 4
"""length of a common prefix above which a name is suggested: --archs, --architectures"""


def _guess(word: str, known: list[str]) -> str:
    """The most similar option in the given section or, without one, in any; options of no section come first."""
    section, dot, name = word.lstrip("-").rpartition(".")
    near = [option for option in known if option.startswith(f"--{section}{dot}")]

    def likeness(option: str) -> tuple[float, bool]:
        other = option.lstrip("-").rpartition(".")[2]
        initials = len(name) > 1 and "".join(part[:1] for part in other.split("_")) == name
        letters = min(SHARED_LETTERS, len(name), len(other))
        begins = name[:letters] == other[:letters]
        ratio = difflib.SequenceMatcher(None, name, other).ratio()
        return max(ratio, 1.0 if initials else 0.0) + (0.5 if begins else 0.0), "." not in option

    best = max(near, key=likeness, default=None)
    return f"did you mean {best}?" if best is not None and likeness(best)[0] >= LIKE else ""


def asks_for_help(argv: list[str]) -> bool:
    """Whether --help is among the arguments."""
    return "-h" in argv or "--help" in argv


def take(argv: list[str], option: str) -> tuple[str | None, list[str]]:
    """Remove `--option VALUE` from the arguments, for options that decide which others exist."""
    rest, value = [], None
    arguments = iter(argv)
    for word in arguments:
        if word == option:
            value = next(arguments, None)
            if value is None or value.startswith("--"):
                raise OdeumError(f"{option} needs a value")
        elif word.startswith(option + "="):
            value = word.partition("=")[2]
        else:
            rest.append(word)
    return value, rest


def preset(argv: list[str]) -> tuple[Model | None, list[str]]:
    """Remove `--model NAME` from the arguments."""
    name, rest = take(argv, "--model")
    return (None if name is None else named_model(name)), rest


def named_model(name: str) -> Model | None:
    """A model by name, ignoring case and with - for _; None for a name of the data's default model."""
    if name in PRESETS:
        return find_preset(name)
    plain = name.lower().replace("-", "_")
    if plain in MODEL_ALIASES and plain not in PRESETS:
        notice(f"--model {name} is read as the default model of the data; named models: {model_names()}")
        return None
    return find_preset(plain if plain in PRESETS else name)


def known_architectures(spelling: str) -> str:
    """The spelling with registered names: in lower case, and `sequential` for `transformer`."""

    def known(match: re.Match[str]) -> str:
        name = match[2]
        plain = name.lower().replace("_", "-")
        if name in ARCHITECTURES or (plain not in ARCHITECTURES and plain not in ARCHITECTURE_ALIASES):
            return match[0]
        if plain not in ARCHITECTURES:
            notice(f"'{name}' is read as the architecture {ARCHITECTURE_ALIASES[plain]}")
        return match[1] + (plain if plain in ARCHITECTURES else ARCHITECTURE_ALIASES[plain])

    return re.sub(r"(^\s*|[,+]\s*)([A-Za-z][\w-]*)(?![\w=-])", known, spelling)


def expand_shorthands(argv: list[str], kind: Any, taken: set[str]) -> list[str]:
    """Expand `--classes 100` to `--model.classes 100` if the verb has no such option."""
    names = {f"--{f.name}" for f in fields(kind) if f.name not in NOT_OFFERED} - {f"--{name}" for name in taken}
    out = []
    for word in argv:
        head, equals, tail = word.partition("=")
        out.append(f"--model.{head[2:]}{equals}{tail}" if head in names else word)
    return out


def read_config(path: str, what: str = "configuration") -> dict[str, Any]:
    """Read a YAML file of options."""
    try:
        if os.path.lexists(path) and not Path(path).is_file():  # a device or pipe may be endless
            raise OdeumError(f"cannot read the {what} '{path}': not a regular file")
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise OdeumError(f"there is no {what} file '{path}'") from None
    except RecursionError:
        raise OdeumError(f"cannot read the {what} '{path}': it is nested too deeply") from None
    except (yaml.YAMLError, ValueError, OSError) as error:
        if isinstance(error, OdeumError):
            raise
        reason = " ".join(str(error).replace('in "<unicode string>", ', "at ").split())
        raise OdeumError(f"cannot read the {what} '{path}': {reason}") from None
    if not isinstance(content, dict):
        raise OdeumError(f"the {what} '{path}' must be a mapping of options")
    return content


def merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Merge `changes` into `base`, section by section."""
    out = dict(base)
    for key, value in changes.items():
        out[key] = merge(out[key], value) if isinstance(value, dict) and isinstance(out.get(key), dict) else value
    return out


def model_names() -> str:
    return ", ".join(PRESETS)


def architecture_names() -> str:
    """The registered architectures by group, for help texts."""
    groups = ARCHITECTURES.groups().items()
    return "; ".join(f"{group or 'others'}: {', '.join(names)}" for group, names in groups)
