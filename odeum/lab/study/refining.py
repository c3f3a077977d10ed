"""One trained model under other solvers and numbers of steps: what refinement gives, and what coarsening costs."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from odeum.architectures.layered import Layered
from odeum.architectures.parts import make_method
from odeum.architectures.stepped import Stepped
from odeum.errors import OdeumError
from odeum.flow import Flow, Stack, set_solver
from odeum.integrators import FixedSteps
from odeum.lab.study.statistics import Difference, paired_mean
from odeum.lab.tasks import Task
from odeum.models.base import OdeumModel
from odeum.models.settings import Model
from odeum.registry.names import Architecture

METHOD_NAMES = ("lie-trotter", "strang", "strang-midpoint", "euler", "midpoint", "heun", "rk4")
"""what is tried, beside the model's own"""
STEPS = (1, 2)
"""steps for each unit of time"""


@dataclass(frozen=True)
class Variant:
    """A way to cross the depth."""

    method: str
    steps: int
    """over the whole interval"""
    end: float
    """of the interval, which begins at 0, in layers"""
    saved: tuple[Architecture, Model] | None = None
    """what a run of it is built from, if that has a name"""

    @property
    def label(self) -> str:
        return f"{self.method}, {self.steps} steps over [0, {self.end:g}]"


@dataclass(frozen=True)
class Refined:
    """A variant, what it costs and what it gives."""

    variant: Variant
    evaluations: int
    """of attention in one pass"""
    scores: dict[str, float]
    change: Difference | None = None
    """of the loss against the model as it was trained, paired by example"""

    @property
    def verdict(self) -> str:
        """What the interval can tell."""
        if self.change is None or self.change.low is None or self.change.high is None:
            return ""
        low, high = self.change.low, self.change.high
        return "hurts" if low > 0 else "helps" if high < 0 else "not told apart"


class Sweep:
    """The variants that a model admits, and their evaluation on one part of the data."""

    def __init__(self, model: OdeumModel, task: Task, split: str = "test") -> None:
        stacks = [part for part in model.children() if isinstance(part, Stack)]
        if len(stacks) != 1 or not all(isinstance(flow, Flow) for flow in stacks[0].flows):
            raise OdeumError(f"a {type(model).__name__} of {model.architecture} has no one row of layers to refine")
        if not isinstance(model.architecture, Stepped):
            raise OdeumError(f"{type(model.architecture).__name__} chooses its steps itself; there are none to refine")
        self.model, self.task, self.split = model, task, split
        self.stack, self.depth = stacks[0], len(stacks[0].schedule)
        self.refused: dict[str, str] = {}
        self.own = model.architecture.method

    def variants(self) -> list[Variant]:
        """The model as it is; then solvers and steps; then, where one layer acts at every depth, other intervals."""
        architecture, settings = self.model.architecture, self.model.settings
        assert isinstance(architecture, Stepped)
        first = Variant(self.own, architecture.steps * self.depth, self.depth, (architecture, settings))
        out = [first]
        for method in dict.fromkeys((self.own, *METHOD_NAMES)):
            if reason := self._refusal(method):
                self.refused[method] = reason
                continue
            for steps in STEPS:
                named = replace(architecture, method=method, steps=steps)
                out.append(Variant(method, steps * self.depth, self.depth, (named, settings)))
        if len(self.stack.flows) == 1:
            out += self._other_intervals(architecture, settings)
        unique: dict[str, Variant] = {}
        for variant in out:
            unique.setdefault(variant.label, variant)
        return list(unique.values())

    def _other_intervals(self, architecture: Stepped, settings: Model) -> list[Variant]:
        ends = [max(1, self.depth * k // 6) for k in (2, 3, 4, 5, 6, 8, 12)]
        unit = replace(architecture, steps=1)
        out = [Variant(self.own, end, end, (unit, replace(settings, depth=end))) for end in ends]
        counts = [self.depth * k // 6 for k in (3, 4, 5, 6, 8, 12)]
        return out + [self._other_steps(architecture, settings, count) for count in counts if count]

    def _other_steps(self, architecture: Stepped, settings: Model, count: int) -> Variant:
        """So many steps over the same interval: as a run, so many layers of another length."""
        saved = None
        if isinstance(architecture, Layered):
            longer = replace(architecture, steps=1, interval=architecture.interval * self.depth / count)
            saved = (longer, replace(settings, depth=count))
        return Variant(self.own, count, self.depth, saved)

    def _refusal(self, method: str) -> str | None:
        try:
            set_solver(copy.deepcopy(self.model), FixedSteps(make_method(method)), keep_gradient=False)
        except OdeumError as error:
            return str(error)
        return None

    def built(self, variant: Variant) -> OdeumModel:
        """The model with its weights under that variant."""
        model = copy.deepcopy(self.model)
        stack: Any = next(part for part in model.children() if isinstance(part, Stack))
        if variant.method != self.own:
            set_solver(model, FixedSteps(make_method(variant.method)), keep_gradient=False)
        rate = variant.steps / variant.end  # steps a layer
        for flow in stack.flows:
            length = flow.t1 - flow.t0
            for part in flow.modules():
                if isinstance(part, FixedSteps):
                    part.steps = rate / length
            if len(stack.flows) == 1:  # one layer: the depth is one interval
                flow.t1, stack.schedule = flow.t0 + variant.end * length, (0,)
        return model

    def measured(self, variant: Variant, first: torch.Tensor | None = None) -> tuple[Refined, torch.Tensor | None]:
        """Scores and, beside the losses of the model as it was trained, the change."""
        model = self.built(variant)
        scores, evidence = self.task.examine(model, self.split)
        losses = None if evidence is None else evidence.losses.double()
        change = None
        if first is not None and losses is not None and len(first) > 1:
            change = paired_mean((losses - first).tolist())
        return Refined(variant, count_evaluations(model), scores, change), losses

    def run(self) -> list[Refined]:
        """All variants; the model as it was trained first."""
        first, *others = self.variants()
        start, losses = self.measured(first)
        return [start, *(self.measured(variant, losses)[0] for variant in others)]


def count_evaluations(model: OdeumModel) -> int:
    """How often attention is evaluated in one pass."""
    calls: list[int] = []
    hooks = [
        part.register_forward_pre_hook(lambda *_: calls.append(1))
        for part in model.modules()
        if getattr(part, "role", None) == "attention" and isinstance(part, nn.Module)
    ]
    example = {name: x[:, :2] if x.dim() == 2 else x for name, x in model.example("cpu").items()}
    with torch.no_grad():
        model(**example)
    for hook in hooks:
        hook.remove()
    return len(calls)


def cheapest(found: list[Refined], metric: str, higher: bool) -> Refined:
    """The fewest evaluations among those that are not shown to lose anything; of equals, the best."""
    sign = -1 if higher else 1
    first = found[0]
    fine = [row for row in found if row.verdict in ("helps", "not told apart")]
    fine += [r for r in found if r.change is None and sign * r.scores[metric] <= sign * first.scores[metric]]
    return min([*fine, first], key=lambda row: (row.evaluations, sign * row.scores[metric]))
