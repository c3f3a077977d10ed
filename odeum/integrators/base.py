"""Base classes: a method makes one step, a solver integrates over an interval."""

from __future__ import annotations

from collections.abc import Generator, Mapping
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
    """the local error is O(dt^(order + 1)); None if it depends on learned coefficients"""
    history: str | None = None
    """name of the history that passes from layer to layer in `context.carry`; neighbours with the same name share it"""
    cached: bool = False
    """whether stepping the newest positions alone equals stepping all of them, as for a field; read for methods of
    plugins"""
    stability: str | None = None
    """note on stability for `describe`"""
    splits: bool = True
    """whether a splitting may step single terms by it: not if its history holds values of the whole field"""

    splitting: bool = False
    """whether it moves the terms of a field one after the other, each as if it were the whole field"""
    divides: bool = True
    """whether a trained layer may be given another number of steps: not if each step has coefficients"""

    def check(self, field: Field) -> None:
        """Raises `OdeumError` for a field that this method would silently change.

        Unless a method says otherwise its step is one sum, after which norms of single terms would be lost.
        """
        refuse_projecting_terms(field, self.history or type(self).__name__, self.splits)

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        raise TypeError(f"{type(self).__name__} must define step(field, t, dt, x, context)")

    @property
    def reversible(self) -> bool:
        """Whether `step_back` undoes a step up to rounding."""
        return False

    def step_back(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        """Returns the state before the step that began at t and led to x; the history goes back too."""
        raise TypeError(f"{type(self).__name__} must define step_back(field, t, dt, x, context)")

    def history_tensor(self, state: Any) -> Tensor | None:
        """Returns the tensor of the history that is needed to undo steps."""
        return state

    def history_from_tensor(self, tensor: Tensor | None) -> Any:
        """Returns the history that the next step needs, from that tensor."""
        return tensor

    def begin(self, x: Tensor, context: Context) -> Tensor:
        """Returns the initial state of the first layer with this history: n streams for a multi-stream method."""
        return x

    def finish(self, x: Tensor, context: Context) -> Tensor:
        """Returns the output of the last layer with this history: one stream; without side effects."""
        return x

    def equation(self, field: Field, turns: int = 1) -> str:
        """Returns the equation in the limit of small steps; `turns`: number of terms that a splitting steps in turn."""
        return f"dx/dt = {field.formula('x')}"

    def scheme(self, field: Field, share: float = 1.0) -> list[str]:
        """Returns the step, or a share of it, as lines of an equation."""
        return [f"x ← x + ∫ {field.formula('x')} dt"]


class Solver(nn.Module):
    """Integrates a field over an interval."""

    fixed: bool = False
    """whether the number of steps is given, by a `method` that makes them"""
    shares_steps: bool = True
    """whether all samples of a batch have the same steps"""
    keeps_states: bool = True
    """whether the backward pass has the states of the forward pass"""
    moved: list[Tensor] | None = None
    """|x₁ − x₀|² / dt of each step of a pass, while `kinetic_energy` measures"""

    @property
    def stateful_method(self) -> Method | None:
        """The method inside with a history that passes from layer to layer, if there is one."""
        return None

    def check(self, field: Field) -> None:
        """Raises `OdeumError` for a field that this solver cannot integrate."""

    def forward(self, field: Field, t0: float, t1: float, x: Tensor, context: Context) -> Tensor:
        raise TypeError(f"{type(self).__name__} must define forward(field, t0, t1, x, context)")


def energy_of_step(x: Tensor, y: Tensor, dt: float | Tensor, context: Context) -> Tensor:
    """Returns |y − x|² / dt as a mean over all entries except padding, in single precision at least."""
    change = y - x
    change = change.float() if change.dtype.itemsize < 4 else change
    energy = change.pow(2) / abs(dt)
    seen = unmasked_positions(x, context)
    if seen is None:
        return energy.mean()
    return energy.mean(2).masked_fill(~seen, 0.0).sum() / seen.sum().clamp_min(1)


def unmasked_positions(x: Tensor, context: Context) -> Tensor | None:
    """Returns the positions that a mask of keys leaves visible, [batch, length]; None for other masks."""
    mask = context.own.mask
    if mask is None or mask.dtype != torch.bool or mask.dim() != 4 or mask.shape[1:3] != (1, 1):
        return None
    return mask[:, 0, 0, :].expand(x.shape[0], -1) if x.dim() == 3 and mask.shape[-1] == x.shape[1] else None


def share_of_step(share: float) -> str:
    """Returns a factor as text; empty for a whole step."""
    return {1.0: "", 0.5: "½ ", 0.25: "¼ "}.get(share, f"{share:.3g} ")


def refuse_projecting_terms(field: Field, who: str, splits: bool = True) -> None:
    """Raises `OdeumError` for post-norm terms under an unsplit method, which would drop their norms."""
    if not field.projects and projects_anywhere(field):
        other = "a splitting (method=lie-trotter)" if splits else "norm=pre"
        raise OdeumError(
            f"{who} adds all terms in one step and would drop the norm after each of them; "
            f"use one norm after the sum (norm=post-sum) or {other}"
        )


def refuse_projections(field: Field, why: str) -> None:
    """Raises `OdeumError` for any norm after the step, of a term or of the sum."""
    if projects_anywhere(field):
        raise OdeumError(f"{why}; use norm=pre")


def get_carry(context: Context, who: str) -> Carry:
    """Returns the history of this pass; raises `OdeumError` outside of a flow, where steps share no history."""
    if context.carry is None:
        raise OdeumError(f"{who} remembers earlier steps, and a Flow or a Stack keeps them: call it inside of one")
    return context.carry


def within_step(field: Field, context: Context, *, repeats: bool) -> Context:
    """Returns the context of one step; dropout masks are stored if the step `repeats` evaluations.

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
def forbid_draws(field: Field, who: str) -> Generator[None]:
    """Raises `OdeumError` for a field that draws random numbers itself: a second evaluation would draw others."""
    if torch.compiler.is_compiling() or not hasattr(field, "named_modules") or not foreign_modules(field):
        yield
        return
    watch = DrawWatch(field, f"{who} needs the same field at each evaluation")
    watch.note()
    yield
    watch.look()


def within_evaluation(field: Field, context: Context) -> Context:
    """Returns the context of one evaluation in a step, with the dropout masks of the first evaluation."""
    return context if context.noise is None else context._replace(noise=context.noise.evaluation(field))


def move_terms(
    field: Field, t: float, dt: float, x: Tensor, context: Context, reads: Mapping[int, Tensor], *, together: bool
) -> Tensor:
    """Returns the state after Euler's step of each term in turn, or of their sum; term i is evaluated at `reads[i]`.

    Terms that are not in `reads` are evaluated at the state: the current one, or the first if all move `together`.
    """
    y = x
    for index, term in enumerate(field.terms):
        here = reads.get(index, x if together else y)
        y = y + dt * term(t, here, within_evaluation(term, context))
    return y
