"""Every architecture under what libraries put around a model: gradient checkpointing, saved-tensor hooks, threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial, update_wrapper
from typing import Any

import pytest
import torch
from devices import NoWaiting
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

import odeum
from odeum import build
from odeum.decode import generate, stream
from odeum.decode.flat import FlatStack
from odeum.errors import OdeumError
from odeum.fields import Cache
from odeum.models.settings import Classification, Language, MaskedLanguage, Translation, Vision
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


def half_by_weights(part: nn.Linear) -> None:
    for weight in part.parameters():
        weight.data.mul_(0.5)


def half_by_hook(part: nn.Linear) -> None:
    part.register_forward_hook(lambda module, inputs, out: 0.5 * out)


def half_by_forward(part: nn.Linear) -> None:
    """As `accelerate.hooks.add_hook_to_module` replaces the forward of an instance."""
    forward = part.forward
    part.forward = update_wrapper(partial(lambda module, x: 0.5 * forward(x), part), forward)  # ty: ignore


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_hooks_and_replaced_forwards_of_maps_count(spelling: str) -> None:
    """No layer reads the weights of a linear map past its hooks or its replaced `forward`."""
    model, inputs = decoder(spelling)

    def halved(half: Callable[[nn.Linear], None]) -> Tensor:
        changed = deepcopy(model).eval()
        for part in changed.modules():
            if isinstance(part, nn.Linear):
                half(part)
        return changed(*inputs)

    hooked = halved(half_by_hook)
    if spelling != "ngpt":  # whose weights are normalized before use
        torch.testing.assert_close(hooked, halved(half_by_weights))
    if "weights=knots" in spelling or "weights=hyper" in spelling:
        with pytest.raises(OdeumError, match=r"the forward of 'field.qkv' \(Linear\) has been replaced"):
            halved(half_by_forward)
    else:
        torch.testing.assert_close(halved(half_by_forward), hooked)


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
    from odeum.integrators.base import get_carry

    class Hidden:
        def __init__(self, x: Tensor) -> None:
            self.x = x

    class Remembers(Method):
        history = "hidden"

        def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
            get_carry(context, "hidden").state = Hidden(x)
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


# ---------------------------------------------------------------------------------------------- devices and tracers

WAITS = {"continuous", "continuous:adapt=sample", "continuous:gradient=adjoint"}
"""architectures whose steps depend on the data, so that each of them waits for the device"""


def slow(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


def small(spelling: str) -> odeum.Encoder:
    random = "continuous" not in spelling and "adjoint" not in spelling
    return odeum.Encoder(8, 2, 4, spelling, activation="relu", dropout=0.1 if random else 0.0)


@pytest.mark.parametrize("spelling", [name for name in SPELLINGS if name not in WAITS])
def test_a_training_step_does_not_wait_for_the_device(spelling: str) -> None:
    with torch.device("meta"):
        model, x = small(spelling), torch.randn(2, 3, 8, requires_grad=True)
    with NoWaiting():
        model(x).sum().backward()
    assert x.grad is not None


def test_waiting_is_seen() -> None:
    x = torch.ones(2, device="meta")
    with NoWaiting(), pytest.raises(RuntimeError, match="meta"):
        bool(x.any())
    with NoWaiting(), pytest.raises(AssertionError, match="float64"):
        x.double()
    with NoWaiting(), pytest.raises((AssertionError, NotImplementedError)):
        x.cpu()


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_fake_tensors_pass_or_are_refused(spelling: str) -> None:
    with FakeTensorMode():
        model, x = small(spelling), torch.randn(2, 3, 8, requires_grad=True)
        if spelling in WAITS:
            with pytest.raises(OdeumError, match=r"steps depend on the data, which vmap, make_fx, .* fake and meta"):
                model(x)
        else:
            model(x).sum().backward()
            assert x.grad is not None and x.grad.shape == x.shape


@pytest.mark.parametrize("kind", [Language, Vision, Translation, Classification, MaskedLanguage])
def test_fake_tensors_pass_whole_models_and_their_losses(kind: Any) -> None:
    """Initial weights and checks of labels read no numbers of a fake tensor."""
    sizes = {"image_size": 8, "patch_size": 4} if kind is Vision else {"vocabulary": 13, "length": 8}
    with FakeTensorMode():
        model: Any = build("sequential", kind(width=8, heads=2, depth=2, **sizes))
        batch = model.example("cpu", 2)
        labels = torch.zeros(2, dtype=torch.long) if kind in (Vision, Classification) else batch["input_ids"]
        loss = model(**batch, labels=labels).loss
        loss.backward()
    assert loss.shape == () and all(weight.grad is not None for weight in model.parameters())


@pytest.mark.parametrize(
    ("part", "spelling"),
    [
        *(
            ("forward", name)
            for name in ("sequential", "implicit-midpoint", "adams-bashforth", "reversible", "continuous")
        ),
        *(slow(part, name) for part in ("forward", "gradient") for name in SPELLINGS),
    ],
)
def test_make_fx_traces_a_relu_model_or_is_refused(part: str, spelling: str) -> None:
    model, x = small(spelling).eval(), torch.randn(2, 3, 8)

    def gradient(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(model(x).pow(2).sum(), x)[0]

    function = model if part == "forward" else gradient
    if spelling in WAITS:
        with pytest.raises(OdeumError, match="make_fx"):
            make_fx(function)(x)
    else:
        torch.testing.assert_close(make_fx(function)(x)(x), function(x), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("spelling", ["continuous", "continuous:adapt=sample"])
def test_one_graph_of_adaptive_steps_is_refused(spelling: str) -> None:
    model, x = small(spelling), torch.randn(2, 3, 8)
    with pytest.raises(Exception, match=r"Message: an adaptive solver's steps depend on the data.* without fullgraph"):
        torch.compile(model, fullgraph=True, backend="eager")(x)
    with pytest.raises(OdeumError, match=r"torch\.export"):
        torch.export.export(model, (x,))


# ------------------------------------------------------------------------------------------- threads and shared models


def attributes(model: nn.Module) -> dict[tuple[str, str], Any]:
    """Every attribute of every module: numbers by value, containers by what they hold, other objects by identity."""

    def known(value: Any) -> Any:
        if isinstance(value, bool | int | float | str | None):
            return value
        if isinstance(value, dict | list | tuple | set | frozenset):
            inside = [*value, *value.values()] if isinstance(value, dict) else value
            return type(value), [item if isinstance(item, str | int | float) else id(item) for item in inside]
        return id(value)

    return {(name, key): known(value) for name, part in model.named_modules() for key, value in vars(part).items()}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_pass_changes_an_attribute(spelling: str) -> None:
    model, x = small(spelling), torch.randn(2, 3, 8)
    for mode in (True, False):
        model.train(mode)
        before = attributes(model)
        model(x).sum().backward()
        with torch.no_grad():
            model(x)
        assert attributes(model) == before


def language(spelling: str) -> Any:
    torch.manual_seed(0)
    random = "continuous" not in spelling and "adjoint" not in spelling
    settings = Language(vocabulary=13, length=12, width=8, heads=2, depth=4, dropout=0.3 if random else 0.0)
    return build(spelling, settings)


ROTATING = ["transevolve:random-1"]
SOME = {"sequential", "rk4", "momentum", "reversible", "looped", "rk4:weights=hyper", *ROTATING}


@pytest.mark.parametrize("spelling", [n if n in SOME else slow(n) for n in [*SPELLINGS, *ROTATING]])
def test_training_generating_and_saving_at_the_same_time(spelling: str) -> None:
    """One thread trains, one generates, one reads the state: each sees what it would see alone."""
    model, ids = language(spelling), torch.arange(12).view(2, 6)
    expected = generate(model.eval(), ids, max_new_tokens=4, temperature=0)
    model.train()
    before, stored = attributes(model), {name: value.clone() for name, value in model.state_dict().items()}
    found: dict[str, list[Any]] = {"generated": [], "errors": [], "modes": []}

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                for _ in range(3):
                    work()
            except BaseException as error:
                found["errors"].append(error)

        return run

    def train() -> None:
        model(ids, labels=ids).loss.backward()
        found["modes"].append(all(part.training for part in model.modules()))

    def write() -> None:
        found["generated"].append(generate(model, ids, max_new_tokens=4, temperature=0))
        tokens = list(stream(model, ids, max_new_tokens=4, temperature=0))
        found["generated"].append(torch.cat((ids, torch.stack(tokens, dim=1)), dim=1))

    threads = [threading.Thread(target=guarded(work)) for work in (train, write)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert all(torch.equal(value, stored[name]) for name, value in model.state_dict().items())
        assert all(part.training for part in model.modules())
    for thread in threads:
        thread.join()
    assert not found["errors"] and found["modes"] == [True] * 3
    assert len(found["generated"]) == 6 and all(torch.equal(out, expected) for out in found["generated"])
    assert attributes(model) == before


@pytest.mark.parametrize("spelling", ["sequential", "rk4", "continuous", "hyper", "sequential*2+continuous*2"])
def test_measuring_does_not_see_or_change_other_threads(spelling: str) -> None:
    """`inspect` and `output_attentions` measure with hooks on the shared model; others run it meanwhile."""
    model: Any = perturbed(language(spelling)).eval()
    asked, other = torch.arange(16).view(2, 8) % 11, torch.arange(10).view(2, 5) % 11
    with torch.no_grad():
        right = model(other).logits
    alone = repr(odeum.inspect(model, asked).layers)
    problems: list[Any] = []
    done = threading.Event()

    def run() -> None:
        while not done.is_set():
            with torch.no_grad():
                if not torch.equal(model(other).logits, right):
                    return problems.append("another result")

    def measure() -> None:
        for _ in range(3):
            if repr(odeum.inspect(model, asked).layers) != alone:
                problems.append("another measurement")

    running = threading.Thread(target=reporting(run, problems))
    measuring = [threading.Thread(target=reporting(measure, problems)) for _ in range(2)]
    for thread in (running, *measuring):
        thread.start()
    for thread in measuring:
        thread.join()
    done.set()
    running.join()
    assert problems == []
    assert not any("forward" in part.__dict__ or part._forward_hooks for part in model.modules())


def reporting(work: Callable[[], None], problems: list[Any]) -> Callable[[], None]:
    def call() -> None:
        try:
            work()
        except Exception as error:
            problems.append(error)

    return call


def test_a_stream_goes_on_with_a_module_that_was_replaced() -> None:
    """From the next token on; a layer with another solver needs a new cache, and says so."""
    model, other, ids = language("sequential").eval(), language("sequential").eval(), torch.arange(6).view(1, 6)
    with torch.no_grad():
        for weight in other.parameters():
            weight.normal_()
        caches, flat = [Cache(), Cache()], FlatStack(model.stack)
        before = [model.hidden(ids, None, cache, flat) for cache in caches]
        model.stack.flows[0].field = other.stack.flows[0].field
        found = [model.hidden(ids[:, :1], None, cache, run) for cache, run in zip(caches, (flat, None), strict=True)]
    assert torch.equal(*before)
    torch.testing.assert_close(*found)
    tokens = stream(model, ids, max_new_tokens=3, temperature=0)
    next(tokens)
    model.stack.flows[1] = other.stack.flows[1]
    with pytest.raises(OdeumError, match="layer 2 has a different solver from the one that filled its cache"):
        next(tokens)


def test_a_replaced_forward_in_training_mode_is_refused() -> None:
    model, ids = language("sequential").train(), torch.arange(6).view(1, 6)
    model.stack.forward = lambda x, context=None: x
    with pytest.raises(OdeumError, match=r"the forward of a Stack has been replaced.* call model.eval\(\)"):
        generate(model, ids, max_new_tokens=1)
    assert generate(model.eval(), ids, max_new_tokens=1).shape == (1, 7)


# --------------------------------------------------------------------------------------- loading, precision, sharding

DRAWN = [*SPELLINGS, "transevolve:random-1", "transevolve:attention=linear", "transevolve:linear-1"]


def known(spelling: str) -> bool:
    try:
        odeum.Encoder(8, 2, 4, spelling)
    except OdeumError:
        return False
    return True


@pytest.mark.parametrize("spelling", [name for name in DRAWN if name in SPELLINGS or known(name)])
def test_meta_to_empty_and_load_is_the_model(spelling: str) -> None:
    """No tensor that a model computes with is left uninitialised, or made in another precision."""
    torch.manual_seed(0)
    model, x = odeum.Encoder(8, 2, 4, spelling).eval(), torch.randn(2, 3, 8)
    with torch.device("meta"):
        empty = odeum.Encoder(8, 2, 4, spelling).eval()
    empty = empty.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in [*empty.parameters(), *empty.buffers()]:
            tensor.fill_(0 if not tensor.is_floating_point() else torch.nan)
    empty.load_state_dict(model.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(empty(x), model(x), rtol=0, atol=0)


@pytest.mark.parametrize("spelling", [name for name in DRAWN if name in SPELLINGS or known(name)])
def test_a_double_model_has_double_buffers(spelling: str) -> None:
    model = odeum.Encoder(8, 2, 4, spelling)
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        exact = odeum.Encoder(8, 2, 4, spelling)
    finally:
        torch.set_default_dtype(before)
    exact.load_state_dict(model.state_dict())
    for (name, one), (_, other) in zip(model.double().named_buffers(), exact.named_buffers(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, msg=name)


@pytest.fixture
def one_process() -> Iterator[None]:
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


SHARDED = ["sequential", "attention-residuals", "pcformer", "dense", "momentum", "mhc", "sequential:pace=learned"]


@pytest.mark.parametrize("spelling", [*SHARDED, *(slow(n) for n in SPELLINGS if n not in SHARDED)])
def test_fsdp_by_layers(spelling: str, one_process: None) -> None:
    from torch.distributed.fsdp import fully_shard

    model, inputs = decoder(spelling)
    model.float()
    inputs = [x.detach().float().requires_grad_() for x in inputs]
    expected = gradients(model, inputs)
    if "reversible" in spelling:
        fully_shard(model)
    else:
        for flow in model.stack.flows:  # ty: ignore[unresolved-attribute]
            fully_shard(flow)
        fully_shard(model)
    found = gradients(model, inputs)
    for name, gradient in expected.items():
        if gradient is not None:
            whole = found[name].full_tensor() if hasattr(found[name], "full_tensor") else found[name]
            torch.testing.assert_close(whole, gradient, rtol=1e-3, atol=1e-4, msg=lambda m, n=name: f"{n}: {m}")


def test_fsdp_by_layers_of_the_reversible_gradient_is_refused(one_process: None) -> None:
    from torch.distributed.fsdp import fully_shard

    model = odeum.Encoder(8, 2, 2, "reversible")
    for flow in model.stack.flows:
        fully_shard(flow)
    with pytest.raises(OdeumError, match=r"apply fully_shard to the whole model alone, or use gradient=checkpointed"):
        model(torch.randn(2, 3, 8))


# ---------------------------------------------------------------------------------- what nn.TransformerEncoder takes


def test_one_sequence_and_nested_sequences() -> None:
    encoder, decoder_ = odeum.Encoder(8, 2, 2), odeum.Decoder(8, 2, 2)
    rows, memories = ([torch.randn(n, 8, requires_grad=True) for n in lengths] for lengths in ((3, 5, 1), (4, 2, 6)))
    hidden = torch.tensor([False, True, False])
    torch.testing.assert_close(
        encoder(rows[0], src_key_padding_mask=hidden), encoder(rows[0][None], src_key_padding_mask=hidden[None])[0]
    )
    torch.testing.assert_close(decoder_(rows[0], memories[0]), decoder_(rows[0][None], memories[0][None])[0])
    for layout in (torch.strided, torch.jagged):
        src, memory = (torch.nested.as_nested_tensor(x, layout=layout) for x in (rows, memories))
        found = encoder(src, is_causal=True)
        assert found.is_nested and found.layout == layout
        for one, row in zip(found.unbind(), rows, strict=True):
            torch.testing.assert_close(one, encoder(row, is_causal=True))
        for one, row, other in zip(decoder_(src, memory).unbind(), rows, memories, strict=True):
            torch.testing.assert_close(one, decoder_(row, other))
        sum(one.sum() for one in found.unbind()).backward()  # ty: ignore[unresolved-attribute]
        assert all(row.grad is not None for row in rows)
    with pytest.raises(OdeumError, match="src_key_padding_mask beside a nested src, whose lengths are its own"):
        encoder(src, src_key_padding_mask=hidden)
