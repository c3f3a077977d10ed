"""`odeum.load(RUN)`: a trained model with its task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from inspect import signature
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from odeum.architectures.parts import make_method
from odeum.errors import OdeumError, choose
from odeum.flow import set_solver, set_steps
from odeum.integrators import FixedSteps
from odeum.interop.ctranslate2 import CTranslate2
from odeum.lab.tasks.base import Task
from odeum.lab.tasks.evidence import Evidence
from odeum.lab.tasks.kind import KINDS
from odeum.lab.tasks.opening import load_task, reopen_task
from odeum.looping import set_repeats
from odeum.models.limits import check_steps
from odeum.models.saved import load_model
from odeum.storage import read_json

ENGINES = ("ctranslate2",)


class Run:
    """A finished run: its model and its task, to evaluate and to predict."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self.model: nn.Module = load_model(self.directory)
        self.task: Task = load_task(self.directory)
        self._with_data: Task | None = None
        self._check_task()

    def _check_task(self) -> None:
        """Raise OdeumError if task.json belongs to another model: its numbers of classes or tokens differ."""
        settings = getattr(self.model, "settings", None)
        for name, value in self.task.facts().items():
            if getattr(settings, name, value) != value:
                raise OdeumError(
                    f"'{self.directory / 'task.json'}' does not belong to its model: it has {name} {value}, "
                    f"and config.json says {getattr(settings, name)}"
                )

    def solve_by(
        self,
        solver: str | None = None,
        steps: float | None = None,
        repeats: int | None = None,
        exit: float | None = None,
    ) -> Run:
        """Integrate the trained model by another method, with more or fewer steps per layer, or other repeats.

        A fraction of a step is for weights that depend on time: half as many layers by 0.5.
        """
        if repeats is not None or exit is not None:
            check_steps(repeats or 1, getattr(getattr(self.model, "settings", None), "depth", 1), "repeats")
            set_repeats(self.model, repeats, exit)
        if steps is not None:
            steps = int(steps) if float(steps).is_integer() else steps
            check_steps(steps, getattr(getattr(self.model, "settings", None), "depth", 1))
        if solver is not None:
            set_solver(self.model, FixedSteps(make_method(solver)), keep_gradient=False)  # a run is used, not trained
            steps = 1 if steps is None else steps
        if steps is not None:
            set_steps(self.model, steps)
        return self

    def computed_by(self, engine: str) -> Run:
        """Let another engine (ctranslate2) generate or translate; everything else needs the model itself."""
        choose(engine, ENGINES, "engine")
        if KINDS[self.task.kind].target not in ("next token", "translation"):
            raise OdeumError(f"--engine {engine} generates or translates text; this is a {self.task.kind} run")
        self.model = CTranslate2(self.model)  # ty: ignore[invalid-assignment, invalid-argument-type]
        return self

    def evaluate(self, split: str = "test", **options: Any) -> dict[str, float]:
        """Loss and metrics on a part of the data, which is opened again and must be what it was."""
        task = self._reopened()
        values = task.evaluate(self.model, split, **options)
        self.task.notes = task.notes  # what a reader of the values should know
        return values

    def examine(self, split: str = "test") -> tuple[dict[str, float], Evidence | None]:
        """The same, and the losses of single examples."""
        task = self._reopened()
        result = task.examine(self.model, split)
        self.task.notes = task.notes
        return result

    def _reopened(self) -> Task:
        """The task with its data; opened once."""
        if self._with_data is not None:
            return self._with_data
        task = reopen_task(self.directory)
        trained_on = read_json(self.directory / "run.json").get("fingerprint")
        if task.fingerprint() != trained_on:
            raise OdeumError(
                f"the data of '{self.directory}', {' '.join(task.source)}, has changed since the run was trained, and "
                "with it the meaning of class and token numbers; train again, or use predict on new inputs"
            )
        self._with_data = task
        return task

    def predict(self, inputs: Any, **options: Any) -> list[Any]:
        """Classes with probabilities, numbers, continuations or translations, in the order of the inputs.

        Inputs are texts; or images: paths, Pillow images, arrays, tensors, in a list or a batch of four dimensions.
        """
        if isinstance(inputs, str | Path):
            raise OdeumError(f"predict takes a list of inputs, not the single '{inputs}'")
        self._check_options("predict", options)
        return self.task.predict(self.model, inputs, **options)

    def generate(self, prompts: str | Iterable[str], **options: Any) -> list[str]:
        """Generate `samples` continuations of each prompt; options are those of `LanguageTask.predict`."""
        self._need("generate", "next token")
        return self.predict([prompts] if isinstance(prompts, str) else prompts, **options)

    def stream(self, prompt: str, **options: Any) -> Iterator[str]:
        """Generate the continuation of one prompt piece by piece."""
        self._need("stream", "next token")
        self._check_options("stream", options)
        task: Any = self.task
        return task.stream(self.model, prompt, **options)

    def translate(self, texts: str | Iterable[str], **options: Any) -> list[str]:
        """A translation of each text; options are `beam` and `length_penalty`."""
        self._need("translate", "translation")
        return self.predict([texts] if isinstance(texts, str) else texts, **options)

    def embed(self, inputs: Any) -> Tensor:
        """The pooled state of each input: [inputs, width]; for language and translation the mean over positions."""
        return self.task.embed(self.model, [inputs] if isinstance(inputs, str | Path) else inputs)

    def _need(self, verb: str, target: str) -> None:
        kind = KINDS[self.task.kind]
        if kind.target != target:
            raise OdeumError(f"{verb} is for runs whose target is the {target}; this {kind.name} run has predict")

    def _check_options(self, verb: str, options: dict[str, Any]) -> None:
        """Raise OdeumError for an unknown option."""
        named = list(signature(getattr(self.task, verb)).parameters.values())[2:]
        known = [item.name for item in named if item.kind is not item.VAR_KEYWORD]
        known += [option.name for option in KINDS[self.task.kind].predict_options if option.name not in known]
        for name in options:
            choose(name, known, f"option of {verb} for a {self.task.kind} run")


def load(directory: str | Path) -> Run:
    """The run in a directory."""
    return Run(directory)
