"""What an architecture is and what it costs, read off the built model: counted on the meta device, not estimated."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from odeum.errors import OdeumError
from odeum.fields.base import Field
from odeum.fields.bases import Basis
from odeum.fields.transevolve.measure import Measure
from odeum.flow import Flow, Stack
from odeum.integrators import Adaptive, AdaptivePerSample, FixedSteps, Solver
from odeum.looping import Looped
from odeum.models import OdeumModel, assemble
from odeum.settings.architecture import Architecture
from odeum.settings.model import Model, Shape
from odeum.settings.spelling import label, parse


def describe(architecture: str | Architecture, settings: Model, detail: bool = True) -> dict[str, Any]:
    """Equation, scheme, order, evaluations, parameters, multiply–adds and activation memory of one example."""
    parsed = parse(architecture)
    with torch.device("meta"):
        model = whole_model(parsed, settings)
    flows = [module for module in model.modules() if isinstance(module, Flow)]
    adaptive = [flow for flow in flows if isinstance(inner_solver(flow.solver), Adaptive)]
    out: dict[str, Any] = {
        "architecture": label(parsed),
        "equation": " ; ".join(dict.fromkeys(f"dx/dt = {flow.field.formula('x')}" for flow in flows)),
        "scheme": list(dict.fromkeys("; ".join(scheme(flow)) for flow in flows)),
        "order": min((order(flow.solver) for flow in flows), key=lambda o: o or 0),
        "layers": layers(model),
        **_loops(model),
        "parameters": sum(p.numel() for p in model.parameters()),
    }
    if dead := sum(getattr(module, "dead_parameters", 0) for module in model.modules()):
        out["parameters_published"] = out["parameters"] + dead
    out |= _adaptive_cost(parsed, settings) if adaptive else _cost(model)
    if known := {text for flow in flows if (text := _stability(flow.solver))}:
        out["stability"] = " ; ".join(sorted(known))
    if over := {module.formula() for module in model.modules() if isinstance(module, Basis)}:
        out["weights"] = " ; ".join(sorted(over))
    if forms := {m.form_at(model.particles) for m in model.modules() if isinstance(m, Measure)}:
        out["attention"] = f"{', '.join(sorted(forms))} form on this device for one example of this length"
    if detail:
        out["activation_memory"] = None if adaptive else activation_memory(model)
        out["model"] = {"kind": type(settings).__name__.lower(), **asdict(settings)}
    return out


def whole_model(architecture: Architecture, settings: Shape) -> OdeumModel:
    """The model of these settings; a bare stack has no input whose cost could be counted."""
    model = assemble(architecture, settings)
    if not isinstance(model, OdeumModel):
        raise OdeumError(f"{type(settings).__name__} is no whole model: it has no input whose cost could be counted")
    return model


def inner_solver(solver: Solver) -> Solver:
    """The solver inside the wrappers that say how gradients pass."""
    while isinstance(inner := getattr(solver, "solver", None), Solver):
        solver = inner
    return solver


def order(solver: Solver) -> int | None:
    """The order of the scheme, None where its coefficients are learned."""
    solver = inner_solver(solver)
    if isinstance(solver, Adaptive):
        return solver.tableau.order
    assert isinstance(solver, FixedSteps)
    return solver.method.order


def _stability(solver: Solver) -> str | None:
    return getattr(getattr(inner_solver(solver), "method", None), "stability", None)


def scheme(flow: Flow) -> list[str]:
    solver = inner_solver(flow.solver)
    if isinstance(solver, Adaptive):
        each = " for each sample" if isinstance(solver, AdaptivePerSample) else ""
        name = f"{solver.tableau.name}{each}, rtol {solver.rtol:g}, atol {solver.atol:g}"
        return [f"x({flow.t1:g}) = x({flow.t0:g}) + ∫ dx/dt dt, steps chosen by {name}"]
    assert isinstance(solver, FixedSteps)
    lines = solver.method.scheme(flow.field)
    if isinstance(solver.steps, float):
        return [*lines, f"steps of dt = {solver.divided(flow.t0, flow.t1)[0].length:g}"]
    return lines if solver.steps == 1 else [*lines, f"{solver.steps} steps a layer, dt = 1/{solver.steps}"]


def layers(model: nn.Module) -> str:
    """The schedules of the stacks inside: which weights act when."""
    return " | ".join(" ".join(map(str, m.schedule)) for m in model.modules() if isinstance(m, Stack))


def _loops(model: nn.Module) -> dict[str, Any]:
    """How the stacks inside that repeat do so."""
    found = dict.fromkeys("; ".join(m.scheme()) for m in model.modules() if isinstance(m, Looped))
    return {"loop": list(found)} if found else {}


def _count_calls(model: nn.Module, calls: Counter[str]) -> list[Any]:
    """Count each evaluation of attention (G, C) and feed-forward (F) under its symbol."""
    leaves = [m for m in model.modules() if isinstance(m, Field) and hasattr(m, "symbol")]
    return [leaf.register_forward_hook(lambda module, *_: calls.update([module.symbol])) for leaf in leaves]


def _cost(model: OdeumModel, device: str = "meta") -> dict[str, Any]:
    calls: Counter[str] = Counter()
    hooks = _count_calls(model, calls)
    try:
        model.requires_grad_(False)  # the counter's own hooks trip over weights handed on as they are
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            model.eval()(**model.example(device))
    finally:
        model.requires_grad_(True)
        for hook in hooks:
            hook.remove()
    return {
        "evaluations": calls["G"],
        "evaluations_of": dict(calls),
        "macs": counter.get_total_flops() // 2,
    }


def _adaptive_cost(parsed: Architecture, settings: Model) -> dict[str, Any]:
    """An adaptive solver's cost depends on the data: measured on one random example with fresh weights."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = whole_model(parsed, settings)
        with sdpa_kernel(SDPBackend.MATH):  # the counter does not know the fused kernel of a CPU
            cost = _cost(model, "cpu")
    return {**cost, "evaluations_note": "depends on the data; measured on one random example with fresh weights"}


class _FusedAttention(torch.autograd.Function):
    """Keeps what the fused kernel keeps, and computes nothing: on the meta device PyTorch would unfold it."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = q.new_empty(q.shape[0], q.shape[2], q.shape[1], v.shape[-1]).transpose(1, 2)  # as the kernel lays it out
        ctx.save_for_backward(q, k, v, out, q.new_empty(q.shape[:-1]))
        return out


class _Fused(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is nn.functional.scaled_dot_product_attention:
            return _FusedAttention.apply(*args[:3])
        return func(*args, **(kwargs or {}))


def activation_memory(model: OdeumModel) -> int:
    """Bytes that one example keeps for the backward pass, parameters not counted."""
    own = {p.untyped_storage()._cdata for p in [*model.parameters(), *model.buffers()]}
    kept: dict[int, int] = {}

    def pack(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x), _Fused():
        output = model.train()(**model.example("meta"))
    del output
    return sum(kept.values())
