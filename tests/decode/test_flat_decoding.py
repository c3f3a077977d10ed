"""The short way through a layer gives what the layer gives, and is left where somebody listens."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from odeum.decode import beam_search, generate, stream
from odeum.decode.flat import FlatField, FlatStack
from odeum.fields import Cache, Context, Field, Source
from odeum.fields.attention import SelfAttention
from odeum.fields.base import Rotary
from odeum.models import LanguageModel, TranslationModel, build
from odeum.registry.names import ARCHITECTURES

SIZES = {"vocabulary": 23, "width": 16, "heads": 2, "depth": 2, "hidden": 32, "length": 32}
FIXED = [
    *(name for name in ARCHITECTURES if name != "continuous"),
    "sequential:norm=peri",
    "sequential:norm=post",
    "parallel:norm=post-sum",
    "parallel:norm=shared",
    "parallel:weights=adaln",
    "parallel:weights=knots,knots=2",
    "parallel+rk4",
    "rk4:gradient=checkpointed,steps=2",
    "ode-transformer:coefficients=learned,method=rk4",
    "looped:prelude=1,coda=0,repeats=3,inject=stable",
    "looped:repeats=4,inject=add,exit=0.3",
    "looped:prelude=0,coda=0,repeats=2,inject=none,method=adams-bashforth",
    "transevolve:random-2",
    "transevolve:attention=linear",
    "transevolve:method=rk4",
]


def language(architecture: str, **changes: object) -> LanguageModel:
    model = build(architecture, "language_small", **SIZES | changes).eval()
    assert isinstance(model, LanguageModel)
    return model


def passes(model: LanguageModel, ids: Tensor, mask: Tensor | None, flat: Callable[[int], bool]) -> Tensor:
    """The states of a prompt of 4 and of the tokens after it, one by one."""
    cache, run, out = Cache(room=ids.shape[1]), FlatStack(model.stack), []
    for i, piece in enumerate(ids.split([4, *[1] * (ids.shape[1] - 4)], dim=1)):
        seen = None if mask is None else mask[:, : 4 + i]
        out.append(model.hidden(piece, seen, cache, run if flat(i) else None))
    return torch.cat(out, dim=1)


@torch.inference_mode()
@pytest.mark.parametrize("architecture", FIXED)
def test_states_are_those_of_the_layers_themselves(architecture: str, float64: None) -> None:
    ids = torch.randint(0, 23, (3, 9))
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    for positions, keep in (("sinusoidal", None), ("rotary", mask)):
        model = language(architecture, positions=positions)
        if not isinstance(model.stack.norm, nn.Identity):
            assert FlatStack(model.stack).run is not None
        own = passes(model, ids, keep, lambda i: False)
        torch.testing.assert_close(passes(model, ids, keep, lambda i: True), own, rtol=0, atol=1e-10)
        torch.testing.assert_close(passes(model, ids, keep, lambda i: i % 2 == 1), own, rtol=0, atol=1e-10)


@torch.inference_mode()
@pytest.mark.parametrize("architecture", ["sequential", "parallel:norm=post-sum", "rk4", "transevolve", "hyper"])
def test_a_decoders_states_are_those_of_its_layers(architecture: str, float64: None) -> None:
    model = build(architecture, "translation_small", **SIZES).eval()
    assert isinstance(model, TranslationModel)
    sources, ids = torch.randint(3, 23, (3, 5)), torch.randint(3, 23, (3, 6))
    mask = torch.ones_like(sources)
    mask[2, 2:] = 0
    memory, run, out = model.encode(sources, mask), FlatStack(model.decoder), []
    caches = (Cache(), Cache())
    assert run.run is not None
    out = [model.decode(piece, memory, mask, caches, run) for piece in ids.split(1, dim=1)]
    torch.testing.assert_close(torch.cat(out, dim=1), model.decode(ids, memory, mask), rtol=0, atol=1e-10)


@pytest.mark.parametrize("norm_kind", ["layer", "rms"])
@pytest.mark.parametrize("activation", ["gelu", "relu", "swiglu"])
@torch.inference_mode()
def test_every_activation_and_norm(norm_kind: str, activation: str, float64: None) -> None:
    model = language("parallel", norm_kind=norm_kind, activation=activation, bias=False)
    ids = torch.randint(0, 23, (2, 7))
    own = passes(model, ids, None, lambda i: False)
    torch.testing.assert_close(passes(model, ids, None, lambda i: True), own, rtol=0, atol=1e-10)


@torch.inference_mode()
def test_fewer_keys_than_queries_and_norms_of_heads(float64: None) -> None:
    field = SelfAttention(16, 4, key_value_heads=2, head_width=6, head_norm=nn.RMSNorm)
    flat = FlatField(field)
    caches = (Cache(), Cache())
    for x in torch.randn(5, 3, 1, 16):
        out = []
        for cache, evaluate in zip(caches, (field, flat), strict=True):
            cache.begin()
            context = Context(
                own=Source(causal=True, cache=cache, rotary=Rotary(torch.tensor([cache.length]), width=4))
            )
            out.append(evaluate(0.0, x, context))
            cache.advance(1)
        torch.testing.assert_close(*out, rtol=0, atol=1e-12)
    assert [x.shape for x in caches[0].slots[0]] == [x.shape for x in caches[1].slots[0]]


def test_weights_that_are_replaced_act_from_the_next_token_on() -> None:
    model = language("sequential")
    ids = torch.randint(0, 23, (1, 4))
    tokens = stream(model, ids, max_new_tokens=3, temperature=0)
    next(tokens)
    model.stack.flows[0].field.fields["feedforward"].field.down.weight = nn.Parameter(torch.full((16, 32), torch.nan))
    with torch.inference_mode():
        flat = FlatStack(model.stack)
        cache = Cache()
        model.hidden(ids, None, cache, flat)
        assert model.hidden(ids[:, :1], None, cache, flat).isnan().all()
    assert int(next(tokens)) == 0  # nothing is the largest of nothing but NaN


class Doubled(nn.Linear):
    """Somebody's own map."""

    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


class Marked(Tensor):
    """Somebody's own kind of tensor."""


class Still(Field):
    """Somebody's own field."""

    cached = True

    def forward(self, t: float, x: Tensor, context: object) -> Tensor:
        return 0 * x


def attention(model: LanguageModel) -> SelfAttention:
    found = next(part for part in model.stack.modules() if isinstance(part, SelfAttention))
    return found


def foreign_map(model: LanguageModel) -> None:
    attention(model).out = Doubled(16, 16)


def foreign_field(model: LanguageModel) -> None:
    model.stack.flows[0].field.fields["attention"] = Still()


def foreign_tensor(model: LanguageModel) -> None:
    weight = attention(model).out.weight.data.as_subclass(Marked)
    attention(model).out.weight = nn.Parameter(weight)


def patched(model: LanguageModel) -> None:
    own = attention(model).forward
    attention(model).forward = lambda *given: 2 * own(*given)


@pytest.mark.parametrize("change", [foreign_map, foreign_field, foreign_tensor, patched])
def test_what_is_not_as_it_was_made_runs_as_it_is(change: Callable[[LanguageModel], None]) -> None:
    model = language("sequential")
    assert FlatStack(model.stack).run is not None
    change(model)
    assert FlatStack(model.stack).run is None
    ids = torch.randint(0, 23, (2, 4))
    cached, whole = (generate(model, ids, max_new_tokens=5, temperature=0, use_cache=c) for c in (True, False))
    assert torch.equal(cached, whole)


def test_a_compiled_part_is_called() -> None:
    model = language("sequential")
    attention(model)._compiled_call_impl = attention(model).forward  # as nn.Module.compile does, without a compiler
    assert FlatStack(model.stack).run is None


def test_hooks_are_called_for_every_token_from_the_next_one_on() -> None:
    model = language("parallel")
    ids = torch.randint(0, 23, (2, 4))
    for register in (attention(model).out.register_forward_hook, nn.modules.module.register_module_forward_hook):
        calls: list[int] = []
        tokens = stream(model, ids, max_new_tokens=6, temperature=0)
        next(tokens)
        next(tokens)
        hook = register(lambda *_, calls=calls: calls.append(1))
        next(tokens)
        next(tokens)
        hook.remove()
        assert len(calls) >= 2
        seen = len(calls)
        next(tokens)
        assert len(calls) == seen


def test_a_gradient_is_that_of_the_layers() -> None:
    model = language("parallel")
    cache, run = Cache(), FlatStack(model.stack)
    ids = torch.randint(0, 23, (1, 3))
    model.hidden(ids, None, cache, run)
    model.hidden(ids[:, :1], None, cache, run).sum().backward()
    assert attention(model).qkv.weight.grad is not None
    model.train()
    with torch.no_grad():
        assert not run.has_no_hooks()
    model.eval()
    with torch.no_grad():
        assert run.has_no_hooks()


def test_beams_are_those_of_the_layers() -> None:
    model = build("sequential", "translation_small", **SIZES).eval()
    ids = torch.randint(3, 23, (3, 5))
    short = beam_search(model, ids, beam=3, max_length=8)  # ty: ignore[invalid-argument-type]
    hook = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert beam_search(model, ids, beam=3, max_length=8) == short  # ty: ignore[invalid-argument-type]
    finally:
        hook.remove()


def test_a_hook_that_sets_another_one_is_heard_in_mid_text() -> None:
    """In one call too, where otherwise a first look at the parts is enough."""
    model, heard = language("parallel"), []
    part = attention(model)

    def listen(*_: object) -> None:
        if len(heard) == 0 and not part._forward_hooks:
            part.register_forward_hook(lambda *_: heard.append("attention"))

    model.embedding.register_forward_hook(listen)
    generate(model, torch.randint(0, 23, (1, 4)), max_new_tokens=4, temperature=0)
    assert len(heard) == 4


@pytest.mark.parametrize("batch", [2, 6])
def test_texts_by_a_packed_output_matrix_are_the_same(batch: int) -> None:
    model = build("parallel", "language_small", **SIZES | {"vocabulary": 33_000, "length": 64}).eval()
    ids = torch.randint(0, 33_000, (batch, 3))
    made = generate(model, ids, max_new_tokens=20, temperature=0)
    assert torch.equal(
        made, torch.cat((ids, torch.stack(list(stream(model, ids, max_new_tokens=20, temperature=0)), 1)), 1)
    )
