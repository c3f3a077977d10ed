"""Flow: a field, a solver and an interval make a layer. Stack: a sequence of layers with a schedule."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from odeum.errors import OdeumError
from odeum.fields.base import Carry, Context, Field, supports_cache
from odeum.fields.roles import find
from odeum.integrators import capabilities
from odeum.integrators.base import Method, Solver
from odeum.integrators.fixed import FixedSteps
from odeum.integrators.gradients import GradientSolver
from odeum.integrators.reversing import Reversible, solve_reversibly, uses_reversible_gradient
from odeum.integrators.splitting import Splitting


class Layer(Protocol):
    """An element of a stack: a flow, or a block that contains flows."""

    @property
    def duration(self) -> float:
        """Time that passes from the input of the layer to its output."""
        ...

    def __call__(self, x: Tensor, context: Context, t0: float) -> Tensor:
        """Returns the state at t0 + duration."""
        ...


class Flow(nn.Module):
    """Maps x(t0) to x(t1) under dx/dt = field, computed by the solver."""

    def __init__(self, field: Field, solver: Solver, t0: float = 0.0, t1: float = 1.0, layer: float = 1.0) -> None:
        super().__init__()
        solver.check(field)
        self.field = field
        self.solver = solver
        self.t0 = t0
        self.t1 = t1
        self.layer = layer
        """one unit of time, or the layer's `interval`. Fractional lengths are for flows over many layers (weights that
        depend on time): with steps = 0.5, 12 layers become 6 steps."""

    @property
    def duration(self) -> float:
        return self.t1 - self.t0

    @property
    def stateful_method(self) -> Method | None:
        """The method whose history passes from layer to layer, or None."""
        return self.solver.stateful_method

    def forward(self, x: Tensor, context: Context | None = None, t0: float | None = None) -> Tensor:
        return self.integrate(self.field, x, context or Context(), self.t0 if t0 is None else t0)

    def integrate(self, field: Field, x: Tensor, context: Context, start: float) -> Tensor:
        """Returns the state at `start` + duration; `field` is the flow's field or an equivalent implementation."""
        solver, end = self.solver, start + self.duration
        for source in (context.own, context.other):
            if source.cache is not None:
                if not source.cache.length and not supports_cache(self.field):
                    raise OdeumError(
                        f"{self.field.formula('x')} does not declare that computing only the new positions is "
                        "enough; decode without a cache, or set cached = True in the field's class"
                    )
                source.cache.enter(solver)
        method = solver.stateful_method
        alone = context.carry is None or (context.carry.opens and context.carry.closes)
        if alone and uses_reversible_gradient(solver, x, context):
            return solve_reversibly([(self, start)], x, context)
        if method is None:
            return solver(field, start, end, x, context if context.carry is None else context._replace(carry=None))
        given = context.carry or Carry()  # a flow outside a stack has a history of its own
        inner = Carry(given.state)
        context = context._replace(carry=inner)
        if given.opens:
            x = method.begin(x, context)
        x = solver(field, start, end, x, context)
        if sharded(self) and not given.closes:
            x, inner.state = _join(x, inner.state)
        given.handed = inner.state
        return method.finish(x, context) if given.closes else x

    def extra_repr(self) -> str:
        return f"dx/dt = {self.field.formula('x')}, t from {self.t0:g} to {self.t1:g}"


def sharded(layer: nn.Module) -> bool:
    """Returns whether `torch.distributed.fsdp.fully_shard` was applied to this layer."""
    return hasattr(type(layer), "set_reshard_after_backward")


def _join(x: Tensor, state: Any) -> tuple[Tensor, Any]:
    """Makes the gradient of the state depend on that of x, before which FSDP gathers the weights of the layer."""
    leaves, spec = pytree.tree_flatten(state)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    x, *tensors = _JointIdentity.apply(x, *(leaves[i] for i in places))
    for i, tensor in zip(places, tensors, strict=True):
        leaves[i] = tensor
    return x, pytree.tree_unflatten(leaves, spec)


class _JointIdentity(torch.autograd.Function):
    """Identity of several tensors as one autograd node, so hooks on one output run before any gradient passes."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return grads


class Stack(nn.Module):
    """Layers in the order of the schedule; time continues through depth. A layer that acts twice is stored once.

    Neighbouring layers whose methods have the same history share it through the context. The history starts empty in
    each forward pass, after layers with another history, in a nested stack, and at the depths in `cuts`.
    """

    def __init__(
        self,
        flows: Sequence[Layer],
        schedule: Sequence[int] | None = None,
        norm: nn.Module | None = None,
        *,
        cuts: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.flows = nn.ModuleList(flows)  # ty: ignore[invalid-argument-type]
        self.schedule = tuple(range(len(flows)) if schedule is None else schedule)
        if set(self.schedule) != set(range(len(flows))):
            raise OdeumError(f"the schedule {self.schedule} must use each of the {len(flows)} flows and no other")
        self.norm = norm
        self.cuts = frozenset(cuts)
        self.recompute: Callable[..., tuple[Any, ...]] | None = None
        """function that calls a function of tensors so that it is recomputed in the backward pass, such as
        `torch.utils.checkpoint.checkpoint`, reentrant or not (None: a plain call); for libraries that switch gradient
        checkpointing on and off, such as transformers"""

    def check(self) -> None:
        """Raises `OdeumError` if this stack cannot use the solvers of its layers."""

    def timed(self, schedule: Sequence[int] | None = None) -> Iterator[tuple[Any, float]]:
        """Yields the layers in the order of the schedule (default: the stack's) and the time at which each starts."""
        time = 0.0
        for index in self.schedule if schedule is None else schedule:
            flow: Any = self.flows[index]
            yield flow, time
            time += flow.duration

    def forward(self, x: Tensor, context: Context | None = None) -> Tensor:
        row: list[tuple[Any, float]] = []  # consecutive layers of one reversible backward pass
        irreversible = self._irreversible_histories()
        for flow, time, here in self._carrying(context or Context()):
            solver = getattr(flow, "solver", None)
            if uses_reversible_gradient(solver, x, here) and flow.stateful_method.history not in irreversible:
                row.append((flow, time))
                if here.carry is not None and here.carry.closes:
                    x, row = solve_reversibly(row, x, here), []
            else:
                x = self._call(flow, x, here, time)
        return x if self.norm is None else self.norm(x)

    def _call(self, flow: Any, x: Tensor, context: Context, time: float) -> Tensor:
        if self.recompute is not None:
            return recomputed(self.recompute, flow, x, context, time)
        out = flow(x, context, time)
        if not isinstance(flow, Flow):
            _refuse_detached_state(flow, x, out, context.carry)
        return out

    def _irreversible_histories(self) -> set[str | None]:
        """Returns the histories shared by layers of which at least one is not reversible."""
        flows: list[Any] = list(self.flows)
        return {
            flow.stateful_method.history
            for flow in flows
            if getattr(flow, "stateful_method", None) is not None and not isinstance(flow.solver, Reversible)
        }

    def trajectory(self, x: Tensor, context: Context | None = None) -> Iterator[Tensor]:
        """Yields the state before the first layer and after each layer, without the final norm."""
        yield x
        for flow, time, here in self._carrying(context or Context()):
            x = self._call(flow, x, here, time)
            yield finished(x, flow, here)

    def _carrying(
        self, context: Context, schedule: Sequence[int] | None = None
    ) -> Iterator[tuple[Any, float, Context]]:
        """Yields the layers, their start times, and the context with the history handed on by the layer before."""
        # A block is not a flow: it contains a stack, which has a history of its own.
        methods = [getattr(flow, "stateful_method", None) for flow, _ in self.timed(schedule)]
        names = [None, *(method and method.history for method in methods), None]
        state: Any = None
        for i, (flow, time) in enumerate(self.timed(schedule), 1):
            before, here, after = names[i - 1 : i + 2]
            first, last = here != before or i - 1 in self.cuts, here != after or i in self.cuts
            carry = None if here is None else Carry(None if first else state, opens=first, closes=last)
            yield flow, time, context._replace(carry=carry)
            state = None if carry is None else carry.handed

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        """Finds weights by their roles, so that a state_dict of another architecture loads."""
        names = {name.removeprefix(prefix): name for name in state_dict if name.startswith(prefix)}
        for name, path in find(self, names).items():
            if name != path:
                state_dict[prefix + path] = state_dict.pop(names[name])
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def extra_repr(self) -> str:
        return f"schedule={self.schedule}"


def recomputed(
    recompute: Callable[..., tuple[Any, ...]], layer: Layer, x: Tensor, context: Context, time: float
) -> Tensor:
    """Calls a layer through `recompute` as a function of tensors alone.

    Reentrant checkpointing passes gradients only to tensors among its arguments. So every tensor that the layer reads
    from the context is an argument, and every tensor that it puts into the carry is a result.
    """
    carry = context.carry
    leaves, spec = pytree.tree_flatten((context._replace(carry=None), None if carry is None else carry.state))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def run(x: Tensor, *tensors: Tensor) -> tuple[Any, ...]:
        given = list(leaves)
        for i, tensor in zip(places, tensors, strict=True):
            given[i] = tensor
        inner, state = pytree.tree_unflatten(given, spec)
        here = None if carry is None else Carry(state, opens=carry.opens, closes=carry.closes)
        out = layer(x, inner._replace(carry=here), time)
        if here is None or here.closes:
            return (out,)
        after, structure = pytree.tree_flatten(here.handed)
        for leaf in after:
            if leaf is not None and not isinstance(leaf, Tensor | nn.Module | bool | int | float | str):
                raise OdeumError(
                    f"gradient checkpointing cannot find the tensors in the {type(leaf).__name__} that a method keeps "
                    "in context.carry.state; keep them in tuples, lists, mappings or NamedTuples"
                )
        return out, *after, structure

    out, *after = recompute(run, x, *(leaves[i] for i in places))
    if carry is not None and after:
        *after, structure = after
        carry.handed = pytree.tree_unflatten(after, structure)
    return out


def _refuse_detached_state(layer: nn.Module, x: Tensor, out: Tensor, carry: Carry | None) -> None:
    """Raises `OdeumError` if a wrapper detaches the state of a method, as reentrant checkpointing does."""
    if carry is None or carry.closes or not (x.requires_grad and out.requires_grad) or torch.compiler.is_compiling():
        return
    known = {id(leaf) for leaf in (x, *pytree.tree_leaves(carry.state))}
    new = [leaf for leaf in pytree.tree_leaves(carry.handed) if isinstance(leaf, Tensor) and id(leaf) not in known]
    if any(leaf.is_floating_point() and not leaf.requires_grad for leaf in new):
        raise OdeumError(
            f"{type(layer).__name__} around a layer passes no gradient to the state that its method hands to the next "
            "layer; use non-reentrant checkpointing (use_reentrant=False), or Stack.recompute"
        )


def finished(x: Tensor, flow: Any, context: Context) -> Tensor:
    """Returns the state after a layer as if its method's history ended there: a single stream."""
    carry = context.carry
    if carry is None or carry.closes:
        return x
    return flow.stateful_method.finish(x, context._replace(carry=Carry(carry.handed)))


def set_solver(model: nn.Module, solver: Solver, *, keep_gradient: bool = True) -> None:
    """Replaces the solver of a trained model. Raises `OdeumError`, and changes nothing, if the model cannot use it.

    Every flow gets its own copy, so that learned coefficients of a solver are per flow. The kind of gradient is kept
    (`Checkpointed`, `Adjoint`) unless the solver brings one or `keep_gradient` is false, as for a model that is only
    evaluated. A splitting orders attention and feed-forward as the layer of its name does.
    """
    if not isinstance(solver, Solver):
        raise OdeumError(f"a solver must be an object such as FixedSteps(RungeKutta(RK4)), not {solver!r}")
    flows = [module for module in model.modules() if isinstance(module, Flow)]
    if not flows:
        raise OdeumError(f"{type(model).__name__} has no flows whose solver could be set")
    before = [flow.solver for flow in flows]
    solvers = [_solver_for(flow, solver, keep_gradient) for flow in flows]
    try:
        for flow, new in zip(flows, solvers, strict=True):
            flow.solver = new
        for module in model.modules():
            if isinstance(module, Stack):
                module.check()
    except OdeumError:
        for flow, new in zip(flows, before, strict=True):
            flow.solver = new
        raise


def _solver_for(flow: Flow, solver: Solver, keep_gradient: bool) -> Solver:
    if coefficients := sum(parameter.numel() for parameter in flow.solver.parameters()):
        raise OdeumError(
            f"the solver of this model has {coefficients} learned coefficients per layer, which another solver would "
            "drop; set flow.solver of each layer yourself if they are not needed"
        )
    new = copy.deepcopy(solver)
    for part in new.modules():
        if isinstance(part, Splitting):
            part.arrange(flow.field)
    if keep_gradient and isinstance(flow.solver, GradientSolver) and not isinstance(new, GradientSolver):
        new = type(flow.solver)(new)
    new.check(flow.field)
    return new.train(flow.training)


def set_steps(model: nn.Module, steps: float) -> None:
    """Sets the number of steps per layer of a trained model.

    Each layer is one unit of time, or as long as its `interval`. Fractions are for flows over many layers (weights that
    depend on time): with steps = 0.5, 12 layers become 6 steps.
    """
    wrong = f"steps per layer must be a positive integer, got {steps!r}"
    if isinstance(steps, bool) or not isinstance(steps, int | float) or not 0.0 < steps < math.inf:
        raise OdeumError(wrong)
    flows = [module for module in model.modules() if isinstance(module, Flow)]
    for layers in {flow.duration / flow.layer for flow in flows}:
        count = layers * steps
        if count < 0.5 or abs(count - round(count)) > 1e-6:
            total = f"{steps:g} steps per layer make {count:g} steps in an interval of {layers:g}"
            raise OdeumError(wrong if layers == 1.0 else f"{total}; their number must be a positive integer")
    solvers = [(flow, part) for flow in flows for part in flow.solver.modules() if isinstance(part, FixedSteps)]
    if not solvers:
        raise OdeumError("this model uses adaptive steps; set a fixed-step solver first (solver=rk4)")
    for flow, solver in solvers:
        if steps / flow.layer != solver.steps:
            capabilities.check("another number of steps", solver, detail=f"{solver.steps * flow.layer:g} per layer")
    for flow, solver in solvers:
        rate = steps if flow.layer == 1.0 else steps / flow.layer
        solver.steps = int(rate) if rate == int(rate) else rate
