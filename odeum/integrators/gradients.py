"""Gradients of a solve: solvers that wrap solvers.

Backpropagation through the steps is the default and exact. `Checkpointed` is exact too and recomputes each evaluation
instead of storing it. `Adjoint` solves backwards in time with constant memory; its gradient is that of the continuous
problem, so it agrees with backpropagation as far as both solves are accurate.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from odeum.errors import OdeumError
from odeum.fields.algebra import randomness
from odeum.fields.base import Context, Field
from odeum.fields.noise import Noise
from odeum.integrators import capabilities
from odeum.integrators.base import Method, Solver, forbid_draws
from odeum.integrators.frozen_parameters import Autocast, FrozenParameters, check_extra, refuse_other_tensors
from odeum.kernels.autograd import differentiable_once, is_batched, transformed


class _Recomputed:
    """Wraps a field and recomputes its activations in the backward pass, evaluation by evaluation.

    Not a module: it has no parameters of its own.
    """

    def __init__(self, field: Field) -> None:
        self.field = field
        self.held = FrozenParameters(field)
        self.training = field.training
        self.projects = field.projects
        self.project = field.project
        self.observe = field.observe
        self.formula = field.formula

    @property
    def terms(self) -> tuple[_Recomputed, ...]:
        terms = self.field.terms
        return (self,) if len(terms) == 1 else tuple(_Recomputed(term) for term in terms)

    def named_modules(self) -> Iterator[tuple[str, nn.Module]]:
        return self.field.named_modules()

    def __call__(self, t: float, x: Tensor, context: Context) -> Tensor:
        noise = context.noise

        if noise is None:
            return checkpoint(lambda x: self.held(t, x, context), x, use_reentrant=False)
        masks, checked = noise.known(self), []

        def evaluate(x: Tensor) -> tuple[Tensor, ...]:
            """Has no side effects, so that it may run again: takes known masks and returns new ones."""
            inner = Noise(masks, None if checked else noise.watch)
            if noise.watch is not None:
                checked.append(True)  # nothing is drawn in the backward pass, so it is not checked again
            out = self.held(t, x, context._replace(noise=inner))
            return out, *inner.masks[len(masks) :]

        out, *new = checkpoint(evaluate, x, use_reentrant=False)
        masks += new  # so that the evaluation in the backward pass draws nothing
        for mask in masks:
            noise.draw(self, lambda mask=mask: mask)
        return out


class GradientSolver(Solver):
    """A solver that wraps another one and defines how gradients are computed."""

    def __init__(self, solver: Solver) -> None:
        super().__init__()
        self.solver = solver


class Checkpointed(GradientSolver):
    """Stores only the state at each evaluation and recomputes the rest in the backward pass."""

    @property
    def stateful_method(self) -> Method | None:
        """The method of the inner solver; its history is stored, since evaluations are recomputed, not steps."""
        return self.solver.stateful_method

    def check(self, field: Field) -> None:
        self.solver.check(field)
        capabilities.check("gradient=checkpointed", self.solver)

    def forward(self, field: Field, t0: float, t1: float, x: Tensor, context: Context) -> Tensor:
        # torch.func keeps what it needs in its own way, and refuses the hooks by which a checkpoint forgets.
        if not torch.is_grad_enabled() or context.own.cache is not None or transformed():
            return self.solver(field, t0, t1, x, context)
        return self.solver(_Recomputed(field), t0, t1, x, context)


class Adjoint(GradientSolver):
    """Solves the adjoint equation backwards in time instead of storing the forward solve."""

    keeps_states = False

    def check(self, field: Field) -> None:
        self.solver.check(field)
        use = "use gradient=checkpointed"
        capabilities.check("gradient=adjoint", self.solver)
        if field.projects:
            raise OdeumError(f"the adjoint cannot pass through a norm after the steps; use norm=pre, or {use}")
        if noisy := randomness(field):
            raise OdeumError(f"the adjoint needs the same field in the backward pass, but there is {noisy}; {use}")

    def forward(self, field: Field, t0: float, t1: float, x: Tensor, context: Context) -> Tensor:
        if not torch.is_grad_enabled() or context.own.cache is not None or not x.numel():
            return self.solver(field, t0, t1, x, context)
        if transformed():
            raise OdeumError(
                "the adjoint supports backward() only, not torch.func or forward mode; use gradient=backprop"
            )
        if field.training:
            self.check(field)
        check_extra(context.extra, "the adjoint")
        leaves, spec = pytree.tree_flatten(context)
        held = FrozenParameters(field)
        inputs = (x, *leaves, *held.wanted.values())
        if not any(isinstance(tensor, Tensor) and tensor.requires_grad for tensor in inputs):
            return self.solver(field, t0, t1, x, context)
        return _AdjointSolve.apply(_Problem(self.solver, held, t0, t1, spec, len(leaves)), *inputs)


TWICE = "the adjoint gives a first derivative only; use gradient=backprop or checkpointed to differentiate it again"


class _Problem(NamedTuple):
    """A solve without the tensors that may need gradients."""

    solver: Solver
    field: FrozenParameters
    t0: float
    t1: float
    spec: Any
    leaves: int


class _AdjointSolve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, problem: _Problem, x: Tensor, *rest: Any) -> Tensor:
        leaves = rest[: problem.leaves]
        ctx.problem, ctx.autocast = problem, Autocast.current(x.device.type)
        with torch.no_grad(), ctx.autocast.restored():
            context = pytree.tree_unflatten(leaves, problem.spec)
            with forbid_draws(problem.field.field, "the adjoint"):
                out = problem.solver(problem.field.field, problem.t0, problem.t1, x, context)
        ctx.plain = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        ctx.places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        ctx.save_for_backward(out, *(leaves[i] for i in ctx.places))
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        problem: _Problem = ctx.problem
        if is_batched(grads[0]):
            raise OdeumError("the adjoint solves for one gradient at a time; use gradient=backprop for batches of them")
        out, *tensors = ctx.saved_tensors
        leaves, weights = list(ctx.plain), list(problem.field.wanted.values())
        for i, tensor in zip(ctx.places, tensors, strict=True):
            leaves[i] = tensor
        live = [i for i in ctx.places if ctx.needs_input_grad[2 + i]]
        augmented = _Augmented(problem, leaves, live, weights, out.shape)
        start = augmented.pack([out, grads[0], *(torch.zeros_like(w) for w in augmented.inputs)])
        with torch.no_grad(), ctx.autocast.restored():
            end = problem.solver(augmented, problem.t1, problem.t0, start, Context())
        _, a, *gradients = augmented.unpack(end)
        for_leaves: list[Tensor | None] = [None] * len(leaves)
        for i, gradient in zip(live, gradients, strict=False):
            for_leaves[i] = gradient
        results = [a, *for_leaves, *gradients[len(live) :]]
        return (None, *differentiable_once(TWICE, results, [*grads, out, *tensors, *weights]))


class _Augmented:
    """(x, a, ∂θ): the state, its adjoint a, and the gradients gathered on the way, as one vector.

    Solved from t1 back to t0:  dx/dt = f,  da/dt = −aᵀ ∂f/∂x,  dg/dt = −aᵀ ∂f/∂θ.
    """

    projects = False
    training = False

    def __init__(
        self, problem: _Problem, leaves: list[Any], live: list[int], weights: list[Tensor], shape: torch.Size
    ) -> None:
        self.problem, self.leaves, self.live, self.weights = problem, leaves, live, weights
        self.fresh = problem.field.swapped()
        self.looked = False
        self.inputs: list[Tensor] = [*(leaves[i] for i in live), *weights]
        self.shapes = [shape, shape, *(w.shape for w in self.inputs)]

    @property
    def terms(self) -> tuple[_Augmented, ...]:
        return (self,)

    def pack(self, parts: list[Tensor]) -> Tensor:
        return torch.cat([part.reshape(-1) for part in parts])

    def unpack(self, state: Tensor) -> list[Tensor]:
        sizes = [shape.numel() for shape in self.shapes]
        parts = zip(state.split(sizes), self.shapes, strict=True)
        return [part.view(shape) for part, shape in parts]

    def observe(self, state: Tensor) -> Tensor:
        """The error counts for state and adjoint only: the gathered gradients do not feed back (Kidger et al. 2021)."""
        return state[: 2 * self.shapes[0].numel()]

    def project(self, state: Tensor) -> Tensor:
        return state

    def __call__(self, t: float, state: Tensor, context: Context) -> Tensor:
        x, a, *_ = self.unpack(state)
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            fresh = [self.leaves[i].detach().requires_grad_() for i in self.live]
            leaves = list(self.leaves)
            for i, leaf in zip(self.live, fresh, strict=True):
                leaves[i] = leaf
            # Weights that were handed in for one call may have a history of their own, in which no gradient is asked.
            weights = [w.detach().requires_grad_() for w in self.weights] if self.fresh else self.weights
            others = dict(zip(self.problem.field.wanted, weights, strict=True)) if self.fresh else None
            inner = pytree.tree_unflatten(leaves, self.problem.spec)._replace(step=context.step)
            f = self.problem.field(t, x, inner, others)
            inputs = [x, *fresh, *weights]
            self._look(f, inputs)
            gradients = torch.autograd.grad(f, inputs, -a, allow_unused=True)
        filled = [torch.zeros_like(i) if g is None else g for g, i in zip(gradients, [x, *self.inputs], strict=True)]
        return self.pack([f.detach(), *filled])

    def _look(self, f: Tensor, inputs: list[Tensor]) -> None:
        """Checks once per solve that the field reads no tensor that would silently get no gradient."""
        if self.looked:
            return
        self.looked = True
        refuse_other_tensors("the adjoint", f, inputs)
