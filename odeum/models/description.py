"""Equation, scheme and cost of an architecture, counted while an example passes through the built model.

The example is one of the meta device, which has shapes and no numbers, so that the largest model can be described. That
device loads torch's compiler, however, which takes as long as torch itself: a small model is built and run instead.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from odeum.draws import shapes_only
from odeum.errors import OdeumError
from odeum.fields.base import Field, foreign_modules
from odeum.fields.bases import Basis
from odeum.fields.transevolve.measure import Measure
from odeum.flow import Flow, Stack
from odeum.hooks import in_this_thread
from odeum.integrators import Adaptive, AdaptivePerSample, FixedSteps, Solver
from odeum.looping import Looped, phases, set_progress
from odeum.models.base import OdeumModel
from odeum.models.factory import assemble
from odeum.models.operations import OperationCounter
from odeum.models.settings import Model, Shape
from odeum.registry.names import Architecture
from odeum.registry.spelling import label, parse

SMALL = 2e9
"""parameters times particles of a model that is run on a CPU sooner than the meta device is ready"""
SHORT = 1024
"""particles up to which that is so: attention grows with their square"""


def describe(architecture: str | Architecture, settings: Model, detail: bool = True) -> dict[str, Any]:
    """Equation, scheme, order, evaluations, parameters, multiply–adds and activation memory of one example."""
    parsed = parse(architecture)
    with shapes_only():
        model = whole_model(parsed, settings)
    flows = [module for module in model.modules() if isinstance(module, Flow)]
    adaptive = [flow for flow in flows if isinstance(inner_solver(flow.solver), Adaptive)]
    out: dict[str, Any] = {
        "architecture": label(parsed),
        "equation": " ; ".join(dict.fromkeys(map(_equation, flows))),
        "scheme": list(dict.fromkeys("; ".join(scheme(flow)) for flow in flows)),
        "order": min((order(flow.solver) for flow in flows), key=lambda o: o or 0),
        "layers": layers(model),
        **_loops(model),
        "parameters": sum(p.numel() for p in model.parameters()),
    }
    if dead := sum(getattr(module, "dead_parameters", 0) for module in model.modules()):
        out["parameters_published"] = out["parameters"] + dead
    memory = None
    with _fresh(parsed, settings) if adaptive or _is_cheap_to_run(model) else nullcontext(model) as counted:
        out |= _cost(counted)
        if len(parts := phases(counted)) > 1:
            out["macs_in_training"] = round(sum(share * _macs_at(counted, begin) for begin, share in parts))
        if detail and not adaptive:
            memory = activation_memory(counted)
    if adaptive:
        out["evaluations_note"] = "depends on the data; measured on one random example with fresh weights"
    if known := {text for flow in flows if (text := _stability(flow.solver))}:
        out["stability"] = " ; ".join(sorted(known))
    if over := {module.formula() for module in model.modules() if isinstance(module, Basis)}:
        out["weights"] = " ; ".join(sorted(over))
    if forms := {m.form_at(model.particles) for m in model.modules() if isinstance(m, Measure)}:
        out["attention"] = f"{', '.join(sorted(forms))} form on this device for one example of this length"
    if detail:
        out["activation_memory"] = memory
        out["model"] = {"kind": type(settings).__name__.lower(), **asdict(settings)}
    return out


def whole_model(architecture: Architecture, settings: Shape) -> OdeumModel:
    """The model of these settings; a bare stack has no input whose cost could be counted."""
    model = assemble(architecture, settings)
    if not isinstance(model, OdeumModel):
        raise OdeumError(
            f"{type(settings).__name__} is not a whole model, so its cost cannot be counted; use Vision, Language, …"
        )
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


def _equation(flow: Flow) -> str:
    method = getattr(inner_solver(flow.solver), "method", None)
    return f"dx/dt = {flow.field.formula('x')}" if method is None else method.equation(flow.field)


def _stability(solver: Solver) -> str | None:
    return getattr(getattr(inner_solver(solver), "method", None), "stability", None)


def scheme(flow: Flow) -> list[str]:
    solver = inner_solver(flow.solver)
    if isinstance(solver, Adaptive):
        each = " for each sample" if isinstance(solver, AdaptivePerSample) else ""
        name = f"{solver.tableau.name}{each}, rtol {solver.rtol:g}, atol {solver.atol:g}"
        return [f"x({flow.t1:g}) = x({flow.t0:g}) + ∫ dx/dt dt, steps chosen by {name}"]
    assert isinstance(solver, FixedSteps)
    dt = solver.divided(flow.t0, flow.t1)[0].length
    lines = solver.method.scheme(flow.field)
    if not any(re.search(r"\bdt\b", line) for line in lines):  # which is written for a whole step
        lines = solver.method.scheme(flow.field, dt)
    if isinstance(solver.steps, float):
        return [*lines, f"steps of dt = {dt:g}"]
    return lines if solver.steps == 1 else [*lines, f"{solver.steps} steps a layer, dt = 1/{solver.steps}"]


def layers(model: nn.Module) -> str:
    """The schedules of the stacks inside: which weights act when."""
    return " | ".join(" ".join(map(str, m.schedule)) for m in model.modules() if isinstance(m, Stack))


def _loops(model: nn.Module) -> dict[str, Any]:
    """How the stacks inside that repeat do so."""
    loops = dict.fromkeys("; ".join(m.scheme()) for m in model.modules() if isinstance(m, Looped))
    return {"loop": list(loops)} if loops else {}


def _count_calls(model: nn.Module, calls: Counter[str]) -> list[Any]:
    """Count each evaluation of attention (G, C) and feed-forward (F) under its symbol."""
    leaves = [m for m in model.modules() if isinstance(m, Field) and hasattr(m, "symbol")]
    return [
        leaf.register_forward_hook(in_this_thread(lambda module, *_: calls.update([module.symbol]))) for leaf in leaves
    ]


def _is_cheap_to_run(model: OdeumModel) -> bool:
    """Whether one example passes in less time than the meta device takes to load, and costs what any example costs."""
    if model.particles > SHORT or model.particles * sum(p.numel() for p in model.parameters()) > SMALL:
        return False
    chance = any(isinstance(part, Looped) and (part.exit or part.random) for part in model.modules())
    return not chance and not foreign_modules(model)


@contextmanager
def _fresh(parsed: Architecture, settings: Model) -> Generator[OdeumModel]:
    """The model with weights, on a CPU; the counter does not know the fused kernel of a CPU, so it is not used."""
    with torch.random.fork_rng(devices=()), torch.device("cpu"), sdpa_kernel(SDPBackend.MATH):
        torch.manual_seed(0)
        yield whole_model(parsed, settings)


def _device(model: nn.Module) -> str:
    return next(model.parameters()).device.type


def _cost(model: OdeumModel) -> dict[str, Any]:
    """Evaluations and multiply–adds of one example."""
    calls: Counter[str] = Counter()
    hooks = _count_calls(model, calls)
    try:
        with torch.no_grad(), OperationCounter() as counter:
            model.eval()(**model.example(_device(model)))
    finally:
        for hook in hooks:
            hook.remove()
    return {"evaluations": calls["G"], "evaluations_of": dict(calls), "macs": counter.flops // 2}


def _macs_at(model: OdeumModel, progress: float) -> int:
    """Multiply–adds of one example at this share of training."""
    set_progress(model, progress)
    try:
        return _cost(model)["macs"]
    finally:
        set_progress(model, 1.0)


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
    parameter_storages = {p.untyped_storage()._cdata for p in [*model.parameters(), *model.buffers()]}
    saved: dict[int, int] = {}

    def pack(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage._cdata not in parameter_storages:
            saved[storage._cdata] = storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x), _Fused():
        output = model.train()(**model.example(_device(model)))
    del output
    return sum(saved.values())
