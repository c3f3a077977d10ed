"""How: a method makes one step, a solver crosses an interval."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from odeum.draws import Keyed
from odeum.errors import OdeumError
from odeum.fields.algebra import refuse_new_draws
from odeum.fields.base import Carry, Context, Field, foreign_modules, projects_anywhere
from odeum.fields.noise import DrawWatch, Noise


class Method(Keyed, nn.Module):
    """One step. A Module because the mix of stages may be learned."""

    order: int | None = 1
    """the error of a step is O(dt^(order + 1)); None where learned coefficients decide"""
    history: str | None = None
    """what the method remembers from layer to layer, in `context.carry`; neighbours that name the same one share it"""
    cached: bool = False
    """as of a field: whether it steps the newest positions alone as it steps all of them; asked of methods from outside
    Odeum"""
    stability: str | None = None
    """what a reader of `describe` should know of steps as long as a layer"""
    splits: bool = True
    """whether a splitting may step single terms by it: not if it remembers values of the field, as terms differ"""

    splitting: bool = False
    """whether it moves the terms of a field one after the other, each as if it were the whole field"""
    divides: bool = True
    """whether a trained layer may be given more or fewer steps: not if it has coefficients for each of them"""

    def check(self, field: Field) -> None:
        """Refuse, in words, a field that this method would silently turn into something else.

        Unless a method says otherwise its step is one sum, after which norms of single terms would be lost.
        """
        refuse_projecting_terms(field, self.history or type(self).__name__, self.splits)

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        raise TypeError(f"{type(self).__name__} must define step(field, t, dt, x, context)")

    @property
    def reversible(self) -> bool:
        """Whether `back` undoes a step, but for rounding."""
        return False

    def back(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        """The state before the step that began at t and led to x; what is remembered goes back too."""
        raise TypeError(f"{type(self).__name__} must define back(field, t, dt, x, context)")

    def kept(self, state: Any) -> Tensor | None:
        """The tensor that is to be known of what is remembered, so that steps can be undone."""
        return state

    def restored(self, kept: Tensor | None) -> Any:
        """What is remembered, as far as the step after needs it, by that tensor."""
        return kept

    def begin(self, x: Tensor, context: Context) -> Tensor:
        """The state that the first of the layers with this history starts from: n streams, if the method has them."""
        return x

    def finish(self, x: Tensor, context: Context) -> Tensor:
        """What the last of them hands on: one stream again. It changes nothing, so that one may look on the way."""
        return x

    def equation(self, field: Field, turns: int = 1) -> str:
        """What ever smaller steps would follow; `turns`: how many terms a splitting moves one after the other."""
        return f"dx/dt = {field.formula('x')}"

    def scheme(self, field: Field, share: float = 1.0) -> list[str]:
        """The step, or a share of it, as lines of an equation."""
        return [f"x ← x + ∫ {field.formula('x')} dt"]


class Solver(nn.Module):
    """An interval."""

    fixed: bool = False
    """whether the number of steps is given, by a `method` that makes them"""
    shares_steps: bool = True
    """whether all samples of a batch have the same steps"""
    keeps_states: bool = True
    """whether the backward pass has the states of the forward pass"""
    moved: list[Tensor] | None = None
    """where steps of a pass leave what they moved, |x₁ − x₀|² / dt, while `kinetic_energy` measures"""

    @property
    def remembering(self) -> Method | None:
        """The method inside that keeps a history from layer to layer, if this solver can keep it for it."""
        return None

    def check(self, field: Field) -> None:
        """Refuse, in words, a field that this solver cannot cross an interval with."""

    def forward(self, field: Field, t0: float, t1: float, x: Tensor, context: Context) -> Tensor:
        raise TypeError(f"{type(self).__name__} must define forward(field, t0, t1, x, context)")


def energy_of_step(x: Tensor, y: Tensor, dt: float | Tensor, context: Context) -> Tensor:
    """|y − x|² / dt, a mean over all numbers of the state but those of padding, in single precision at least."""
    way = y - x
    way = way.float() if way.dtype.itemsize < 4 else way
    energy = way.pow(2) / abs(dt)
    seen = seen_positions(x, context)
    if seen is None:
        return energy.mean()
    return energy.mean(2).masked_fill(~seen, 0.0).sum() / seen.sum().clamp_min(1)


def seen_positions(x: Tensor, context: Context) -> Tensor | None:
    """[batch, length]: the positions of each sample that a mask of keys alone leaves to be seen."""
    mask = context.own.mask
    if mask is None or mask.dtype != torch.bool or mask.dim() != 4 or mask.shape[1:3] != (1, 1):
        return None
    return mask[:, 0, 0, :].expand(x.shape[0], -1) if x.dim() == 3 and mask.shape[-1] == x.shape[1] else None


def share_of_step(share: float) -> str:
    """A factor before what a step adds, as people write it; none for a whole step."""
    return {1.0: "", 0.5: "½ ", 0.25: "¼ "}.get(share, f"{share:.3g} ")


def refuse_projecting_terms(field: Field, who: str, splits: bool = True) -> None:
    """Post-norm summands under an unsplit method would lose their norms without a word."""
    if not field.projects and projects_anywhere(field):
        other = "a splitting (method=lie-trotter)" if splits else "norm=pre"
        raise OdeumError(
            f"{who} adds all terms in one step and would drop the norm after each of them; "
            f"use one norm after the sum (norm=post-sum) or {other}"
        )


def refuse_projections(field: Field, why: str) -> None:
    """A method that leaves no place for a norm after the step, neither of a term nor of the sum."""
    if projects_anywhere(field):
        raise OdeumError(f"{why}; use norm=pre")


def remembered(context: Context, who: str) -> Carry:
    """The history of this pass, or a sentence: without one a method would begin anew at each step."""
    if context.carry is None:
        raise OdeumError(f"{who} remembers earlier steps, and a Flow or a Stack keeps them: call it inside of one")
    return context.carry


def within_step(field: Field, context: Context, *, repeats: bool) -> Context:
    """The context of one step; its dropout masks are kept if the step `repeats` what it evaluates.

    A step inside a step (a whole layer as a field) keeps them in any case: the outer one may repeat it.
    """
    if context.noise is not None:
        return context._replace(noise=context.noise.step(field))
    if not repeats or not field.training:
        return context
    noise = Noise()
    if not torch.compiler.is_compiling():
        refuse_new_draws(field)
        if foreign_modules(field):  # ours draw through the noise; what others do is seen when they have done it
            noise.watch = DrawWatch(field, "a step of several stages evaluates one field")
    return context._replace(noise=noise)


@contextmanager
def drawing_nothing(field: Field, who: str) -> Generator[None]:
    """Refuse a field that draws random numbers by itself, as it would draw others when it is evaluated again."""
    if torch.compiler.is_compiling() or not hasattr(field, "named_modules") or not foreign_modules(field):
        yield
        return
    watch = DrawWatch(field, f"{who} needs the same field at each evaluation")
    watch.note()
    yield
    watch.look()


def within_evaluation(field: Field, context: Context) -> Context:
    """The context of an evaluation of the field in a step: each one finds the dropout masks of the first again."""
    return context if context.noise is None else context._replace(noise=context.noise.evaluation(field))
