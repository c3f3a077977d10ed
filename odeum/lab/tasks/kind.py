"""Kinds of task: options, model, task class and recognition of files in one declaration. Does not import torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import Field, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

from odeum.errors import OdeumError, choose
from odeum.lab.train.rates import RateRule
from odeum.models.settings import MODEL_KINDS, Model, ModelKind, Reference, add_model_kind, resolve
from odeum.registry.names import REGISTRIES, Registry, caller
from odeum.registry.options import Range

if TYPE_CHECKING:
    from odeum.lab.data.sniffing import Sniffed
    from odeum.lab.tasks.base import Task
    from odeum.models.base import OdeumModel


class Data(Protocol):
    """Data options of a kind: any frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    """present on every dataclass"""


SHORTEST_WINDOW = 8
"""fewest tokens in a window"""
BYTES = 256
"""tokens that every byte-level BPE has"""


FOLD = Range(0, 2**31 - 1)
"""range of fold numbers"""
OF_DATA = " of the data"
"""follows the name of a data option in messages"""


def check_vocabulary(least: int, vocabulary: int | None, tokens: str) -> None:
    """Raises `OdeumError` if the vocabulary is too small for this kind of tokens."""
    if vocabulary is not None:
        Range(least).check(vocabulary, f"vocabulary of {tokens}")


class PredictOption(NamedTuple):
    """An option of `odeum predict`."""

    name: str
    type: type
    about: str
    default: Any = None
    """default on the command line; None: that of the task"""
    repeated: bool = False
    """whether it may be given several times, for a list"""


TOP = PredictOption("top", int, "number of classes shown (default: 3)", 3)


@dataclass(frozen=True)
class Kind:
    """A kind of task: an input with a target. Declared without torch; classes are imported when a task is opened."""

    name: str
    """value of `--kind`"""
    about: str
    """one line for `odeum list`"""
    input: Literal["image", "text", "pair of texts"]
    """type of an example; `predict` reads image files or lines of text accordingly"""
    target: Literal["class", "number", "next token", "hidden token", "translation"]
    """type of the prediction"""
    options: type[Data]
    """dataclass of the options `--data.*`"""
    model: ModelKind
    """kind of model: settings, class and presets"""
    task: Reference
    """the class that opens, batches, evaluates and predicts, a Task"""
    decided: tuple[str, ...] = ()
    """model settings that the data decides (`Task.facts`); they are not command-line options"""
    sets: tuple[str, ...] = ()
    """names of data sets"""
    predict_options: tuple[PredictOption, ...] = ()
    """options of `odeum predict`"""
    rates: RateRule | None = None
    """the default learning rate for a width (none: the constant in the task's recipe)"""
    recognises: Callable[[Sniffed], bool] | str | None = None
    """function that recognises files of this kind; None: only by --kind or the name of a data set. The kind that was
    registered last is asked first"""

    @property
    def settings(self) -> type[Model]:
        """Dataclass of the options `--model.*`."""
        return self.model.settings

    @property
    def model_class(self) -> type[OdeumModel]:
        return self.model.model_class

    @property
    def task_class(self) -> type[Task]:
        return resolve(self.task)

    def is_task(self, task: type) -> bool:
        """Whether the class is this kind's task class; a class that is not imported yet is compared by name."""
        return self.task in (task, f"{task.__module__}:{task.__qualname__}")

    def claims(self, sniffed: Sniffed) -> bool:
        """Whether the files at a path are of this kind."""
        return self.recognises is not None and resolve(self.recognises)(sniffed)


KINDS: Registry[Kind] = Registry("kind of data")
REGISTRIES.append(KINDS)
DATA_SETS: dict[str, str] = {}
"""every named data set and its kind"""


def add_kind(kind: Kind) -> Kind:
    """Register a kind with its model and data sets; raises OdeumError, before anything is added, if a name is taken."""
    if not (isinstance(kind.options, type) and dataclasses.is_dataclass(kind.options)):
        raise OdeumError(f"the data options of the kind '{kind.name}' must be a dataclass, not {kind.options!r}")
    for other in KINDS.values():
        if other.name == kind.name:
            continue
        if taken := set(kind.sets) & set(other.sets):
            raise OdeumError(
                f"the data set '{min(taken)}' of the kind '{kind.name}' is already registered for the kind "
                f"'{other.name}'"
            )
        if kind.options is not other.options and kind.options.__name__ == other.options.__name__:  # task.json names it
            raise OdeumError(
                f"'{kind.options.__name__}' of the kind '{kind.name}' is already used by the kind '{other.name}'"
            )
    KINDS.check(kind.name, kind)
    if MODEL_KINDS.get(kind.model.name) != kind.model:
        add_model_kind(kind.model)
    KINDS.add(kind.name, kind, about=kind.about, module=caller(__name__))
    DATA_SETS.update(dict.fromkeys(kind.sets, kind.name))
    return kind


def like(kind: Kind, name: str, /, **changes: Any) -> Kind:
    """A copy of a kind with another name and other fields, without its data sets and recogniser.

    Arguments: the original kind, the new name, changed fields of `Kind`.
    """
    known = [field.name for field in dataclasses.fields(Kind)]
    for key in changes:
        choose(key, known, f"part of the kind '{name}'")
    return dataclasses.replace(kind, name=name, **{"sets": (), "recognises": None, **changes})


def kind_of_task(task: type) -> Kind:
    """The kind of a task class or of its nearest registered base class."""
    for cls in task.__mro__:
        for kind in KINDS.values():
            if kind.is_task(cls):
                return kind
    raise OdeumError(f"{task.__name__} has no registered kind; register one with odeum.register.kind")
