"""How the gradient passes through a solve: solvers that wrap solvers.

Backpropagation through the steps is the default and exact. `Checkpointed` is exact too and recomputes each
evaluation instead of keeping it. `Adjoint` solves backwards in time with constant memory; its gradient is that of
the continuous problem, so it agrees with backpropagation only as far as both solves are accurate.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from odeum.errors import OdeumError
from odeum.fields.algebra import randomness
from odeum.fields.base import Context, Field
from odeum.integrators.base import Solver
from odeum.integrators.fixed import FixedSteps
from odeum.integrators.splitting import Splitting


class _View:
    """A field seen through something, without becoming a module of its own (no parameters to register)."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self.training = field.training
        self.projects = field.projects
        self.project = field.project
        self.observe = field.observe
        self.formula = field.formula


class _Recomputed(_View):
    """A field whose activations are recomputed in the backward pass, evaluation by evaluation."""

    @property
    def terms(self) -> tuple[_Recomputed, ...]:
        terms = self.field.terms
        return (self,) if len(terms) == 1 else tuple(_Recomputed(term) for term in terms)

    def __call__(self, t: float, x: Tensor, context: Context) -> Tensor:
        noise = context.noise
        start = noise.cursor if noise is not None else 0

        def evaluate(x: Tensor) -> Tensor:
            if noise is not None:
                noise.cursor = start  # the same masks again when recomputed
            return self.field(t, x, context)

        return checkpoint(evaluate, x, use_reentrant=False)


class Checkpointed(Solver):
    """Keep only the state at each evaluation; recompute the rest when the gradient passes."""

    def __init__(self, solver: Solver) -> None:
        super().__init__()
        self.solver = solver

    def check(self, field: Field) -> None:
        self.solver.check(field)

    def forward(self, field: Field, t0: float, t1: float, x: Tensor, context: Context) -> Tensor:
        if not torch.is_grad_enabled() or context.own.cache is not None:
            return self.solver(field, t0, t1, x, context)
        return self.solver(_Recomputed(field), t0, t1, x, context)


class Adjoint(Solver):
    """Forget the forward solve; solve the adjoint equation backwards for the gradient of state, weights and context."""

    def __init__(self, solver: Solver) -> None:
        super().__init__()
        self.solver = solver

    def check(self, field: Field) -> None:
        self.solver.check(field)
        if isinstance(self.solver, FixedSteps) and isinstance(self.solver.method, Splitting):
            raise OdeumError("the adjoint integrates the whole field backwards, a splitting does not; use gradient=checkpointed")
        if field.projects:
            raise OdeumError("the adjoint cannot pass through a norm after the steps; use norm=pre or gradient=checkpointed")
        if noisy := randomness(field):
            raise OdeumError(f"the adjoint needs the same field backwards, but there is {noisy}; use gradient=checkpointed")

    def forward(self, field: Field, t0: float, t1: float, x: Tensor, context: Context) -> Tensor:
        if not torch.is_grad_enabled() or context.own.cache is not None:
            return self.solver(field, t0, t1, x, context)
        leaves, spec = pytree.tree_flatten(context)
        weights = [p for p in field.parameters() if p.requires_grad]
        return _AdjointSolve.apply(self.solver, field, t0, t1, spec, len(leaves), weights, x, *leaves, *weights)


class _AdjointSolve(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, solver: Solver, field: Field, t0: float, t1: float, spec: Any, count: int, weights: list[Tensor], x: Tensor,
        *rest: Any,
    ) -> Tensor:  # fmt: skip
        leaves = rest[:count]
        with torch.no_grad():
            out = solver(field, t0, t1, x, pytree.tree_unflatten(leaves, spec))
        ctx.problem = (solver, field, t0, t1, spec, weights)
        ctx.plain = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        ctx.is_tensor = [isinstance(leaf, Tensor) for leaf in leaves]
        ctx.save_for_backward(out, *(leaf for leaf in leaves if isinstance(leaf, Tensor)))
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        solver, field, t0, t1, spec, weights = ctx.problem
        out, *tensors = ctx.saved_tensors
        stream = iter(tensors)
        leaves = [next(stream) if is_tensor else plain for is_tensor, plain in zip(ctx.is_tensor, ctx.plain, strict=True)]
        live = [
            i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.is_floating_point() and ctx.needs_input_grad[8 + i]
        ]
        augmented = _Augmented(field, leaves, live, spec, weights, out.shape)
        start = augmented.pack([out, grads[0], *(torch.zeros_like(w) for w in augmented.inputs)])
        with torch.no_grad():
            end = solver(augmented, t1, t0, start, Context())
        _, a, *gradients = augmented.unpack(end)
        for_leaves: list[Tensor | None] = [None] * len(leaves)
        for i, gradient in zip(live, gradients, strict=False):
            for_leaves[i] = gradient
        return (*[None] * 7, a, *for_leaves, *gradients[len(live) :])


class _Augmented:
    """(x, a, ∂θ): the state, its adjoint a, and the gradients gathered on the way, as one vector.

    Solved from t1 back to t0:  dx/dt = f,  da/dt = −aᵀ ∂f/∂x,  dg/dt = −aᵀ ∂f/∂θ.
    """

    projects = False
    training = False

    def __init__(self, field: Field, leaves: list[Any], live: list[int], spec: Any, weights: list[Tensor], shape: torch.Size) -> None:
        self.field, self.leaves, self.live, self.spec = field, leaves, live, spec
        self.inputs = [leaves[i] for i in live] + weights
        self.shapes = [shape, shape, *(w.shape for w in self.inputs)]
        self.weights = weights

    @property
    def terms(self) -> tuple[_Augmented, ...]:
        return (self,)

    def pack(self, parts: list[Tensor]) -> Tensor:
        return torch.cat([part.reshape(-1) for part in parts])

    def unpack(self, state: Tensor) -> list[Tensor]:
        sizes = [shape.numel() for shape in self.shapes]
        return [part.view(shape) for part, shape in zip(state.split(sizes), self.shapes, strict=True)]

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
            f = self.field(t, x, pytree.tree_unflatten(leaves, self.spec))
            gradients = torch.autograd.grad(f, [x, *fresh, *self.weights], -a, allow_unused=True)
        filled = [torch.zeros_like(i) if g is None else g for g, i in zip(gradients, [x, *self.inputs], strict=True)]
        return self.pack([f.detach(), *filled])
