"""What a kind of task is: an input with a target, and the settings, model and task that belong to it; no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from odeum.errors import OdeumError, choose
from odeum.registry.names import Registry
from odeum.settings.data import Data
from odeum.settings.model import Model

if TYPE_CHECKING:
    from odeum.lab.data.sniffing import Sniffed
    from odeum.lab.tasks.base import Task
    from odeum.models.base import OdeumModel

Reference = str | type
"""a class, or where it will be found: "odeum.lab.tasks.images:ImageTask" """


class PredictOption(NamedTuple):
    """An option of `odeum predict`."""

    name: str
    type: type
    about: str
    default: Any = None
    """of the command line (none: the task's own)"""
    repeated: bool = False
    """whether it may be given several times, for a list"""


@dataclass(frozen=True)
class Kind:
    """An input with a target. Declared without torch: its classes are loaded when a task is opened."""

    name: str
    """the word of `--kind`"""
    about: str
    """one line for `odeum list`"""
    input: Literal["image", "text", "pair of texts"]
    """what an example is, and with it what `predict` reads: image files, or lines of text"""
    target: Literal["class", "number", "next token", "hidden token", "translation"]
    """what is to be told of an example"""
    options: type[Data]
    """dataclass of the options `--data.…`"""
    settings: type[Model]
    """dataclass of the options `--model.…`"""
    model: Reference
    """the class that these settings build, an OdeumModel"""
    task: Reference
    """the class that opens, batches, evaluates and predicts, a Task"""
    decided: tuple[str, ...] = ()
    """settings of the model that the data decides (`Task.facts`), and no option of a command"""
    presets: Mapping[str, Model] = field(default_factory=dict)
    """models by name"""
    sets: tuple[str, ...] = ()
    """data sets by name"""
    predict_options: tuple[PredictOption, ...] = ()
    """options of `odeum predict`"""
    recognises: Callable[[Sniffed], bool] | str | None = None
    """whether what lies at a path is of this kind (none: only where it is named, by --kind or a set's name); the kind
    that was added last is asked first"""

    @property
    def model_class(self) -> type[OdeumModel]:
        return resolve(self.model)

    @property
    def task_class(self) -> type[Task]:
        return resolve(self.task)

    def is_task(self, task: type) -> bool:
        """Whether the task's class is this kind's own; a class that is not loaded yet is known by its name."""
        return self.task in (task, f"{task.__module__}:{task.__qualname__}")

    def claims(self, found: Sniffed) -> bool:
        """Whether what lies at a path is of this kind."""
        return self.recognises is not None and resolve(self.recognises)(found)


def resolve(reference: Any) -> Any:
    """What a reference such as "module:name" names; anything else is itself."""
    if not isinstance(reference, str):
        return reference
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


KINDS: Registry[Kind] = Registry("kind of data")
NAMED: dict[str, str] = {}
"""every named set and its kind"""
MODELS: dict[str, Model] = {}
"""every named model"""


def add_kind(kind: Kind) -> Kind:
    """Register a kind with its named sets and models; a name that is taken is refused before anything is added."""
    _check(kind)
    KINDS.add(kind.name, kind, about=kind.about)
    NAMED.update(dict.fromkeys(kind.sets, kind.name))
    MODELS.update(kind.presets)
    return kind


def like(model: Kind, name: str, **changes: Any) -> Kind:
    """A kind that is another one but for what is changed; named sets, and what it recognises, are its own.

    Arguments: the kind to start from; the new one's name; fields of `Kind`.
    """
    known = [field.name for field in dataclasses.fields(Kind)]
    for key in changes:
        choose(key, known, f"part of the kind '{name}'")
    return dataclasses.replace(model, name=name, **{"sets": (), "recognises": None, **changes})


def _check(kind: Kind) -> None:
    for what, settings in (("data options", kind.options), ("model settings", kind.settings)):
        if not (isinstance(settings, type) and dataclasses.is_dataclass(settings)):
            raise OdeumError(f"the {what} of the kind '{kind.name}' should be a dataclass, not {settings!r}")
    if not issubclass(kind.settings, Model):
        raise OdeumError(f"the model settings of the kind '{kind.name}' should extend odeum.settings.model.Model")
    for other in KINDS.values():
        if other.name == kind.name:
            continue
        if taken := set(kind.sets) & set(other.sets):
            raise OdeumError(f"the data set '{min(taken)}' of the kind '{kind.name}' is one of {other.name} already")
        if taken := {name for name, model in kind.presets.items() if other.presets.get(name, model) != model}:
            raise OdeumError(f"the model '{min(taken)}' of the kind '{kind.name}' is one of {other.name} already")
        for mine, theirs in ((kind.options, other.options), (kind.settings, other.settings)):
            if mine is not theirs and mine.__name__ == theirs.__name__:  # runs name them so
                raise OdeumError(f"'{mine.__name__}' of the kind '{kind.name}' is a name of {other.name} already")


def kind_of_task(task: type) -> Kind:
    """The kind that a task's class, or one that it extends, belongs to."""
    for cls in task.__mro__:
        for kind in KINDS.values():
            if kind.is_task(cls):
                return kind
    raise OdeumError(f"{task.__name__} belongs to no kind; register one with odeum.register.kind")


def kind_of_settings(settings: type | str) -> Kind | None:
    """A kind whose models have these settings, by class or by the class's name; kinds that share them share a model."""
    return next((kind for kind in KINDS.values() if settings in (kind.settings, kind.settings.__name__)), None)


def kind_of_record(name: str | None, options: str) -> Kind | None:
    """The kind of a run's task.json; where an early run says none, or a broader one, its options tell.

    A name that is not known here is somebody's kind that was not registered: its options may be like another's.
    """
    if name is not None and name not in KINDS:
        return None
    found = [kind for kind in KINDS.values() if kind.options.__name__ == options]
    return next((kind for kind in found if kind.name == name), found[0] if found else None)


def model_named(name: str) -> Model:
    """The preset of that name, or a sentence that lists them."""
    return MODELS[choose(name, MODELS, "model")]
