"""The reversible gradient: states between layers are not stored, because the backward pass inverts the steps.

`Reversible` marks the solver of a flow. `Stack` hands all neighbouring flows of one history to `solve_reversibly`, so
that memory does not grow with their number; a flow outside a stack does so by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils import _pytree as pytree

from odeum.errors import Diverged, OdeumError
from odeum.fields.algebra import randomness, torch_randomness
from odeum.fields.base import Carry, Context, Field, Step, projects_anywhere
from odeum.fields.noise import Noise, ReplayedNoise
from odeum.integrators import capabilities
from odeum.integrators.base import Method, Solver, forbid_draws
from odeum.integrators.diagnostics import Diagnostic
from odeum.integrators.frozen_parameters import Autocast, FrozenParameters, check_extra, refuse_other_tensors
from odeum.integrators.gradients import GradientSolver
from odeum.integrators.multistep import Leapfrog
from odeum.kernels.autograd import needs_plain_gradients, plain_autograd, readable

WHO = "the reversible gradient"
MAX_DRIFT = 1e-2
"""largest relative error of the reconstructed first state; beyond it gradients are refused"""


class Reversible(GradientSolver):
    """Stores the last state only and inverts the steps in the backward pass: exact up to rounding.

    `drift` is the relative error of the first state of a row of layers as reconstructed by the last backward pass.
    """

    keeps_states = False
    drift = Diagnostic[float | None](None)

    @property
    def stateful_method(self) -> Method | None:
        return self.solver.stateful_method

    def check(self, field: Field) -> None:
        use = "use gradient=checkpointed"
        if projects_anywhere(field) and not field.projects:  # one norm after the sum would be no way out
            raise OdeumError(f"{WHO} cannot undo a norm after the steps; use norm=pre")
        self.solver.check(field)
        capabilities.check("gradient=reversible", self.solver)
        if projects_anywhere(field):
            raise OdeumError(f"{WHO} cannot undo a norm after the steps; use norm=pre, or {use}")
        if noisy := torch_randomness(field):
            raise OdeumError(
                f"{WHO} evaluates a field again, but {noisy} would draw a new mask; use odeum.fields.Dropout(rate), "
                "called as "
                "dropout(x, context.noise)"
            )

    def forward(self, field: Field, t0: float, t1: float, x: Tensor, context: Context) -> Tensor:
        return self.solver(field, t0, t1, x, context)


def reconstruction_drift(model: nn.Module) -> float | None:
    """Returns the largest relative error of reconstructed first states in the last backward pass.

    None if no layer was inverted.
    """
    drifts = (part.drift for part in model.modules() if isinstance(part, Reversible))
    return max((drift for drift in drifts if drift is not None), default=None)


def uses_reversible_gradient(solver: Solver | None, x: Tensor, context: Context) -> bool:
    """Returns whether a backward pass will invert the steps; not under tracers, caches and torch.func."""
    return (
        isinstance(solver, Reversible)
        and torch.is_grad_enabled()
        and plain_autograd()
        and context.own.cache is None
        and context.noise is None
        and x.numel() > 0
    )


def solve_reversibly(layers: Sequence[tuple[Any, float]], x: Tensor, context: Context) -> Tensor:
    """Returns the state after these layers, which are all layers of one history."""
    if x.dtype.itemsize < 4:
        raise OdeumError(f"{WHO} needs a state of single precision at least, not {x.dtype}; use autocast instead")
    check_extra(context.extra, WHO)
    if any(hasattr(type(flow), "set_reshard_after_backward") for flow, _ in layers):
        raise OdeumError(
            f"{WHO} recomputes layers outside of their forward calls, where FSDP does not gather the "
            "weights of single layers; "
            "apply fully_shard to the whole model alone, or use gradient=checkpointed"
        )
    context = context._replace(carry=None, noise=None, step=None)
    method: Method = layers[0][0].stateful_method
    carry = Carry()
    x = method.begin(x, context._replace(carry=carry))
    leaves, spec = pytree.tree_flatten(context)
    seed = 0
    if any(flow.training and randomness(flow.field) for flow, _ in layers):
        drawn = torch.randint(2**62, (), device="cpu")
        seed = int(drawn) if readable(drawn) else 0  # a fake tensor has no number
    held = {id(flow.field): FrozenParameters(flow.field) for flow, _ in layers}
    row = _Row(
        [_Layer(flow, t0, held[id(flow.field)], number) for number, (flow, t0) in enumerate(layers)],
        method,
        seed,
        spec,
        len(leaves),
    )
    if isinstance(method, Leapfrog) and len({round(s.length, 9) for layer in row.layers for s in layer.steps()}) > 1:
        raise OdeumError(f"{WHO} of leapfrog needs layers and steps of one length; use gradient=checkpointed")
    out, final = _Reversed.apply(row, x, method.history_tensor(carry.state), *leaves, *row.weights())
    return method.finish(out, context._replace(carry=Carry(method.history_from_tensor(final))))


class _Layer(NamedTuple):
    flow: Any
    t0: float
    held: FrozenParameters
    number: int

    def steps(self) -> list[Step]:
        return self.flow.solver.solver.divided(self.t0, self.t0 + self.flow.duration)

    def noise(self, seed: int, turn: int = 0) -> Noise | None:
        field = self.flow.field
        if not self.flow.training or not randomness(field):
            return None
        return ReplayedNoise(
            (seed, self.number), {module: i for i, module in enumerate(field.modules())}, {field: turn}
        )


class _Row(NamedTuple):
    """The layers of one reversible solve, without the tensors that may need gradients."""

    layers: list[_Layer]
    method: Method
    seed: int
    spec: Any
    leaves: int

    def weights(self) -> list[Tensor]:
        """Returns the weights of all layers, each once."""
        return list({id(w): w for layer in self.layers for w in layer.held.wanted.values()}.values())


class _Move(nn.Module):
    """One step, forward or back, as a function of a field's weights."""

    def __init__(self, field: Field, method: Method) -> None:
        super().__init__()
        self.field = field
        self.method = method

    def forward(self, back: bool, step: Step, x: Tensor, state: Any, context: Context) -> tuple[Tensor, Any]:
        carry = Carry(state)
        move = self.method.step_back if back else self.method.step
        x = move(self.field, *step, x, context._replace(carry=carry, step=step))
        return x, carry.state


class _Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, row: _Row, x: Tensor, history: Any, *rest: Any) -> tuple[Tensor, Tensor]:
        leaves = rest[: row.leaves]
        ctx.row, ctx.autocast = row, Autocast.current(x.device.type)
        start, first = x, history
        with torch.no_grad(), ctx.autocast.restored():
            context = pytree.tree_unflatten(leaves, row.spec)
            state = row.method.history_from_tensor(history)
            for layer in row.layers:
                carry = Carry(state, opens=False, closes=False)
                with forbid_draws(layer.flow.field, WHO):
                    x = layer.flow(x, context._replace(carry=carry, noise=layer.noise(row.seed)), layer.t0)
                state = carry.handed
        history = row.method.history_tensor(state)
        assert history is not None
        ctx.plain = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        ctx.places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        ctx.save_for_backward(x, history, start, first, *(leaves[i] for i in ctx.places))
        return x, history

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        row: _Row = ctx.row
        for layer in row.layers:
            layer.held.refuse_changed()
        x, history, start, first, *tensors = ctx.saved_tensors
        leaves = list(ctx.plain)
        for i, tensor in zip(ctx.places, tensors, strict=True):
            leaves[i] = tensor
        if any(grad is not None and needs_plain_gradients(grad) for grad in grads):
            inputs = [start, first, *leaves, *row.weights()]
            return None, *_gradients_with_stored_states(row, inputs, ctx.needs_input_grad[1:], grads, ctx.autocast)
        live = [i for i in ctx.places if ctx.needs_input_grad[3 + i]]
        way = _BackwardWalk(row, leaves, live, ctx.autocast)
        gx, gk = way.run(x, history, start, first, *grads)
        for_leaves = [way.for_leaves.get(i) for i in range(len(leaves))]
        for_weights = [way.for_weights.get(id(weight)) for weight in row.weights()]
        return None, gx, gk if first is not None else None, *for_leaves, *for_weights


def _gradients_with_stored_states(
    row: _Row, inputs: list[Any], needed: Sequence[bool], grads: Sequence[Any], autocast: Autocast
) -> list[Tensor | None]:
    """Computes gradients with stored states: for higher derivatives and batched gradients."""
    with torch.enable_grad(), autocast.restored():
        fresh = [x.view_as(x) if isinstance(x, Tensor) else x for x in inputs]  # to end here, not in their own history
        x, history, *rest = fresh
        weights = {id(w): fresh_tensor for w, fresh_tensor in zip(row.weights(), rest[row.leaves :], strict=True)}
        context = pytree.tree_unflatten(rest[: row.leaves], row.spec)
        state = row.method.history_from_tensor(history)
        for layer in row.layers:
            carry = Carry(state, opens=False, closes=False)
            named = {f"field.{name}": weights.get(id(w), w) for name, w in layer.held.tensors.items()}
            given = (x, context._replace(carry=carry, noise=layer.noise(row.seed)), layer.t0)
            x = functional_call(layer.flow, named, given)
            state = carry.handed
        outs: list[tuple[Any, Any]] = [
            (o, g) for o, g in zip((x, row.method.history_tensor(state)), grads, strict=True) if g is not None
        ]
    wanted = [fresh_tensor for fresh_tensor, need in zip(fresh, needed, strict=True) if need]
    results = iter(
        torch.autograd.grad(
            [o for o, _ in outs], wanted, [g for _, g in outs], create_graph=torch.is_grad_enabled(), allow_unused=True
        )
    )
    return [next(results) if need else None for need in needed]


class _BackwardWalk:
    """Walks from the last state to the first and accumulates gradients."""

    def __init__(self, row: _Row, leaves: list[Any], live: list[int], autocast: Autocast) -> None:
        self.row, self.leaves, self.live, self.autocast = row, leaves, live, autocast
        self.for_leaves: dict[int, Tensor] = {}
        """gradients of the context's tensors by index, since one tensor may appear twice"""
        self.for_weights: dict[int, Tensor] = {}
        """gradients of the weights by identity"""
        self.looked = False

    def run(
        self, x: Tensor, history: Any, start: Tensor, first: Tensor | None, gx: Tensor | None, gk: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Returns the gradients of the first state and its history from those of the last."""
        gx = torch.zeros_like(x) if gx is None else gx
        gk = torch.zeros_like(history) if gk is None else gk
        method = self.row.method
        context = pytree.tree_unflatten(self.leaves, self.row.spec)
        state, last = method.history_from_tensor(history), history
        for layer in reversed(self.row.layers):
            move = _Move(layer.flow.field, layer.flow.stateful_method)
            for turn, step in reversed(list(enumerate(layer.steps()))):
                here = context._replace(noise=layer.noise(self.row.seed, turn))
                if layer.number == turn == 0:
                    x, history = self._arrived(move, layer, step, x, state, last, start, first, here), first
                else:
                    with torch.no_grad(), self.autocast.restored():
                        x, state = self._call(move, layer, {}, True, step, x, state, here)
                    last = history = method.history_tensor(state)
                here = here._replace(noise=layer.noise(self.row.seed, turn))
                gx, gk = self._pull(move, layer, step, x, history, gx, gk, here)
        return gx, gk

    def _call(self, move: _Move, layer: _Layer, others: dict[str, Tensor], *given: Any) -> Any:
        tensors = {**layer.held.tensors, **others} if others or layer.held.swapped() else {}
        named = {f"field.{name}": tensor for name, tensor in tensors.items()}
        return functional_call(move, named, given) if named else move(*given)

    def _arrived(
        self, move: _Move, layer: _Layer, step: Step, x: Tensor, state: Any, last: Any, start: Tensor,
        first: Tensor | None, context: Context,
    ) -> Tensor:  # fmt: skip
        """Returns the stored first state and records the error of its reconstruction."""
        if first is None:  # the first step is not of the kind that is undone: it leads back to what is remembered
            x = last
        else:
            with torch.no_grad(), self.autocast.restored():
                x, _ = self._call(move, layer, {}, True, step, x, state, context)
        with torch.no_grad():
            drift = (x - start).norm() / start.norm().clamp_min(torch.finfo(start.dtype).tiny)
        if type(drift) is Tensor:
            layer.flow.solver.drift = drift
        if not readable(drift):  # a device is not waited for: where the error is too large, gradients are NaN
            return torch.where(drift <= MAX_DRIFT, start, torch.nan)
        if not drift <= MAX_DRIFT:
            raise Diverged(
                f"{WHO} met the first state again with an error of {float(drift):.1%}, at which gradients are wrong; "
                "use gradient=checkpointed, fewer layers, or a scheme that grows less (odeum describe)"
            )
        return start

    def _pull(
        self, move: _Move, layer: _Layer, step: Step, x: Tensor, history: Tensor | None, gx: Tensor, gk: Tensor,
        context: Context,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Repeats one step from its start and backpropagates through it."""
        held = layer.held
        fresh = held.swapped()
        with torch.enable_grad(), self.autocast.restored():
            x = x.detach().requires_grad_()
            history = None if history is None else history.detach().requires_grad_()
            leaves = list(self.leaves)
            for i in self.live:
                leaves[i] = self.leaves[i].detach().requires_grad_()
            given = {name: w.detach().requires_grad_() for name, w in held.wanted.items()} if fresh else held.wanted
            here = pytree.tree_unflatten(leaves, self.row.spec)._replace(noise=context.noise)
            state = move.method.history_from_tensor(history)
            y, after = self._call(move, layer, given if fresh else {}, False, step, x, state, here)
            inputs = [x, *([] if history is None else [history]), *(leaves[i] for i in self.live), *given.values()]
            outs = [
                (o, g)
                for o, g in ((y, gx), (move.method.history_tensor(after), gk))
                if o is not None and o.requires_grad
            ]
            if not self.looked:
                self.looked = True
                refuse_other_tensors(WHO, y, inputs)
            got = list(torch.autograd.grad([o for o, _ in outs], inputs, [g for _, g in outs], allow_unused=True))
        gx = got.pop(0)
        gk = torch.zeros_like(gx) if history is None else got.pop(0)
        places = [(self.for_leaves, i) for i in self.live]
        places += [(self.for_weights, id(weight)) for weight in held.wanted.values()]
        for (gathered, key), gradient in zip(places, got, strict=True):
            if gradient is not None:
                gathered[key] = gathered[key] + gradient if key in gathered else gradient
        return gx, torch.zeros_like(x) if gk is None else gk
