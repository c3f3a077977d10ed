"""Every architecture under what libraries put around a model: gradient checkpointing, saved-tensor hooks, threads."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from torch.utils.checkpoint import checkpoint

import odeum
from odeum.errors import OdeumError
from odeum.registry.names import ARCHITECTURES

EXTRA = [
    *("looped:inject=stable,exit=0.1", "looped:inject=concat,through=2", "looped:random=true"),
    *("parallel*2+mhc*1+rk4*1", "sequential:schedule=0-1/0-1", "mhc:mixing=permutations", "adams-bashforth:steps=2"),
    *("parallel:weights=knots,knots=3", "rk4:weights=hyper", "sequential:weights=adaln", "continuous:adapt=sample"),
    *("momentum:gamma=0.9,gradient=reversible", "leapfrog:gradient=reversible", "reversible:scheme=heun"),
    *("rk4:gradient=adjoint", "continuous:gradient=adjoint", "sequential:gradient=checkpointed"),
    *("adams-bashforth:gradient=checkpointed", "momentum:gradient=checkpointed"),
]
SPELLINGS = [*ARCHITECTURES, *EXTRA]


def perturbed(model: nn.Module) -> nn.Module:
    """The model with weights beside their initial values, at which parts of some architectures have no effect."""
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.02 * torch.randn_like(weight)
    return model


def decoder(spelling: str) -> tuple[nn.Module, list[Tensor]]:
    """A small decoder and its two inputs, which want gradients."""
    torch.manual_seed(0)
    model = perturbed(odeum.Decoder(8, 2, 4, spelling).double())
    return model, [torch.randn(2, 3, 8, dtype=torch.float64, requires_grad=True) for _ in range(2)]


def gradients(model: nn.Module, inputs: list[Tensor], call: Callable[..., Tensor] | None = None) -> dict[str, Any]:
    """By `backward`, which is all that reentrant checkpointing knows."""
    named = {**dict(model.named_parameters()), "input": inputs[0], "memory": inputs[1]}
    for tensor in named.values():
        tensor.grad = None
    torch.manual_seed(1)
    (call or model)(*inputs).pow(2).sum().backward()
    return {name: None if tensor.grad is None else tensor.grad.clone() for name, tensor in named.items()}


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, gradient in expected.items():
        if gradient is None:
            assert found[name] is None or not found[name].any(), name
        else:
            torch.testing.assert_close(found[name], gradient, rtol=1e-9, atol=1e-10, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_layers_may_be_recomputed(spelling: str) -> None:
    """Through `Stack.recompute`, reentrant or not: what a method hands on and what layers read keep their gradients."""
    model, inputs = decoder(spelling)
    expected = gradients(model, inputs)
    for reentrant in (True, False):
        model.stack.recompute = partial(checkpoint, use_reentrant=reentrant)  # ty: ignore[unresolved-attribute]
        assert_same(gradients(model, inputs), expected)


AROUND: dict[str, Callable[[nn.Module], Callable[..., Any]]] = {
    "checkpoint": lambda model: partial(checkpoint, model, use_reentrant=False),
    "reentrant checkpoint": lambda model: partial(checkpoint, model, use_reentrant=True),
    "hooks": lambda model: under(lambda: saved_tensors_hooks(Tensor.clone, lambda x: x), model),
    "offloading": lambda model: under(save_on_cpu, model),
}


def under(manager: Callable[[], contextlib.AbstractContextManager[Any]], model: nn.Module) -> Callable[..., Any]:
    def call(*inputs: Tensor) -> Tensor:
        with manager():
            return model(*inputs)

    return call


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_saved_tensors_may_be_copies(spelling: str) -> None:
    """Checkpointing around the model, saved-tensor hooks and offloading hand back copies of what autograd saved."""
    model, inputs = decoder(spelling)
    expected = gradients(model, inputs)
    for around in AROUND.values():
        assert_same(gradients(model, inputs, around(model)), expected)


@pytest.mark.parametrize("name", ["momentum", "pcformer", "attention-residuals", "adams-moulton"])
def test_wrapped_layers_keep_the_gradient_of_the_history_or_are_refused(name: str) -> None:
    """torch's activation checkpointing of single layers sees the state alone among their arguments."""
    model, inputs = decoder(name)
    expected, flows = gradients(model, inputs), list(model.stack.flows)  # ty: ignore[unresolved-attribute]

    def wrap(impl: CheckpointImpl) -> None:
        wrapped = (checkpoint_wrapper(flow, checkpoint_impl=impl) for flow in flows)
        model.stack.flows = nn.ModuleList(wrapped)  # ty: ignore[unresolved-attribute]

    wrap(CheckpointImpl.NO_REENTRANT)
    found = gradients(model, inputs)
    assert_same({name.replace("_checkpoint_wrapped_module.", ""): g for name, g in found.items()}, expected)
    wrap(CheckpointImpl.REENTRANT)
    with pytest.raises(OdeumError, match="CheckpointWrapper around a layer passes no gradient to the state"):
        gradients(model, inputs)


def test_one_tensor_at_two_places_of_the_context_gets_its_gradient_once_from_each() -> None:
    """The reversible gradient gathers by place, as tensors may come back as one object or as two."""
    expected, found = (twice_given(gradient) for gradient in ("backprop", "reversible"))
    torch.testing.assert_close(found, expected)


def twice_given(gradient: str) -> Tensor:
    from odeum.fields import Context, Field, Source
    from odeum.flow import Flow, Stack
    from odeum.integrators import FixedSteps, Momentum
    from odeum.integrators.reversing import Reversible

    class Pushed(Field):
        def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
            return torch.tanh(x + context.extra["a"]) * context.extra["b"]

    method = FixedSteps(Momentum(0.9))
    model = Stack([Flow(Pushed(), Reversible(method) if gradient == "reversible" else method)])
    push = torch.linspace(-1, 1, 8, dtype=torch.float64, requires_grad=True)
    x = torch.ones(1, 2, 8, dtype=torch.float64)
    model(x, Context(own=Source(), extra={"a": push, "b": push})).pow(2).sum().backward()
    assert push.grad is not None
    return push.grad


def test_a_state_without_visible_tensors_is_refused() -> None:
    from odeum.fields import Context, FeedForward, Field
    from odeum.flow import Flow, Stack
    from odeum.integrators import FixedSteps, Method
    from odeum.integrators.base import remembered

    class Hidden:
        def __init__(self, x: Tensor) -> None:
            self.x = x

    class Remembers(Method):
        history = "hidden"

        def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
            remembered(context, "hidden").state = Hidden(x)
            return x + dt * field(t, x, context)

    model = Stack([Flow(FeedForward(8), FixedSteps(Remembers())) for _ in range(2)])
    model(torch.ones(1, 2, 8))
    model.recompute = partial(checkpoint, use_reentrant=False)
    with pytest.raises(OdeumError, match=r"cannot find the tensors in the Hidden .* keep them in tuples"):
        model(torch.ones(1, 2, 8))


@pytest.mark.parametrize("name", ["adams-bashforth", "yurii", "leapfrog", "dense"])
def test_reentrant_checkpointing_of_transformers(name: str) -> None:
    pytest.importorskip("transformers")
    from odeum.hf import OdeumConfig, OdeumForCausalLM

    torch.manual_seed(0)
    sizes = {"width": 8, "heads": 2, "depth": 3, "vocabulary": 11, "length": 8}
    config = OdeumConfig(architecture=name, settings=sizes)
    model = perturbed(OdeumForCausalLM(config).double().train())
    ids = torch.arange(10).view(2, 5)

    def gradient() -> list[Tensor]:
        model.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    expected = gradient()
    model.gradient_checkpointing_enable({"use_reentrant": True})  # ty: ignore[call-non-callable]
    torch.testing.assert_close(gradient(), expected)
