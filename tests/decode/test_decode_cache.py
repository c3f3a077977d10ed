"""A cache of keys and values: what it holds, and what may not happen to a model while it is in use."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from test_decode import VOCABULARY, lively
from torch import Tensor, nn

from odeum.decode import stream
from odeum.errors import OdeumError
from odeum.fields import Cache, Context, Source
from odeum.flow import set_solver, set_steps
from odeum.integrators import EULER, RK4, RK4_38, FixedSteps, RungeKutta
from odeum.models import TranslationModel, build


def test_a_cache_is_a_concatenation_that_can_be_reordered() -> None:
    cache, past = Cache(), None
    fixed = torch.randn(3, 2)
    for size, rows in itertools.zip_longest([5, 1, 1, 20, 1, 3, 40, 1, 1], [None, [2, 0, 2, 1], None, [1, 3]]):
        keys = torch.randn(3 if past is None else past[0].shape[0], 2, size, 4)
        new = (keys, 2 * keys[..., :1])
        past = new if past is None else tuple(torch.cat(pair, dim=-2) for pair in zip(past, new, strict=True))
        cache.begin()
        assert all(torch.equal(a, b) for a, b in zip(cache.extend(*new), past, strict=True))
        (constant,) = cache.constant(lambda made=fixed: (made,))
        assert torch.equal(constant, fixed)
        cache.advance(size)
        if rows is not None:
            cache.reorder(torch.tensor(rows))
            past, fixed = tuple(x[rows] for x in past), fixed[rows]
    assert cache.length == 73


def test_what_a_cache_gave_is_not_overwritten() -> None:
    cache = Cache()
    prompt = torch.randn(1, 1, 3, 2)
    views, copies = [], []
    for new in (prompt, *torch.randn(5, 1, 1, 1, 2)):
        cache.begin()
        (view,) = cache.extend(new)
        cache.advance(new.shape[-2])
        views.append(view)
        copies.append(view.clone())
    assert all(torch.equal(a, b) for a, b in zip(views, copies, strict=True))
    assert torch.equal(views[0], prompt)


EULER_LAYERS, RK4_LAYERS, RULE_38 = (FixedSteps(RungeKutta(tableau)) for tableau in (EULER, RK4, RK4_38))
CHANGES: dict[str, tuple[str, Callable[[nn.Module], None], str]] = {
    "rk4 to euler": ("rk4", lambda model: set_solver(model, EULER_LAYERS), "layer 1 has a different solver"),
    "euler to rk4": ("parallel", lambda model: set_solver(model, RK4_LAYERS), "layer 1 has a different solver"),
    "as many stages": ("rk4", lambda model: set_solver(model, RULE_38), "layer 1 has a different solver"),
    "more steps": ("rk4", lambda model: set_steps(model, 2), "more than the 16 slots"),
    "fewer steps": ("parallel:steps=2", lambda model: set_steps(model, 1), "visited 4 of the 8 slots"),
    "more steps of a split field": ("sequential", lambda model: set_steps(model, 2), "more than the 4 slots"),
    "steps of a block": (
        "transevolve:method=rk4,steps=2",
        lambda model: set_steps(model, 1),
        "visited 17 of the 33 slots",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_pass_that_goes_another_way_is_refused(name: str) -> None:
    """The past was read by other evaluations: to go on with their keys and values would be wrong without a word."""
    architecture, change, sentence = CHANGES[name]
    model, cache = lively(architecture), Cache()
    ids = torch.randint(0, VOCABULARY, (2, 5))
    model(ids, cache=cache)
    model(ids[:, :1], cache=cache)
    change(model)
    with pytest.raises(OdeumError, match=f"{sentence}.*begin with a new one"):
        model(ids[:, :1], cache=cache)
    with pytest.raises(OdeumError, match="begin with a new one"):  # nor does the next pass find it in order
        model(ids[:, :1], cache=cache)
    assert cache.length == 6
    again = Cache()
    parts = [model(ids[:, :3], cache=again).logits, model(ids[:, 3:], cache=again).logits]
    torch.testing.assert_close(torch.cat(parts, dim=1), model(ids).logits, rtol=0, atol=1e-4)


def test_a_stream_in_which_the_solver_changes_ends_with_a_sentence() -> None:
    model = lively("rk4")
    tokens = stream(model, torch.randint(0, VOCABULARY, (2, 5)), max_new_tokens=4)
    next(tokens)
    set_solver(model, EULER_LAYERS)
    with pytest.raises(OdeumError, match="layer 1 has a different solver"):
        next(tokens)


@pytest.mark.parametrize("name", CHANGES)
def test_a_translation_that_goes_another_way_is_refused(name: str) -> None:
    """Both caches notice for themselves: one that only the cross-attention uses, too."""
    architecture, change, _ = CHANGES[name]
    model = build(
        architecture, "translation_small", vocabulary=VOCABULARY, width=16, heads=2, depth=2, hidden=32
    ).eval()
    assert isinstance(model, TranslationModel)
    memory = model.encode(torch.randint(0, VOCABULARY, (2, 4)))
    ids = torch.randint(0, VOCABULARY, (2, 1))
    both = (Cache(), Cache())
    model.decode(ids, memory, caches=both)
    change(model)
    with pytest.raises(OdeumError, match="begin with a new one"):
        model.decode(ids, memory, caches=both)
    with pytest.raises(OdeumError, match="begin with a new one"):
        model.decode(ids, memory, caches=both)

    set_steps(model, 1)
    other = Cache()

    def cross() -> Tensor:
        other.begin()
        out = model.decoder(torch.ones(2, 1, 16), Context(other=Source(memory=memory, cache=other)))
        other.advance(1)
        return out

    first = cross()
    assert torch.equal(first, cross())
    set_steps(model, 2)
    with pytest.raises(OdeumError, match=r"more than the \d+ slots"):
        cross()


def test_a_pass_that_broke_off_spoils_its_cache() -> None:
    model, cache = lively("sequential"), Cache()
    ids = torch.randint(0, VOCABULARY, (2, 5))
    last = model.stack.norm
    model.stack.norm = nn.Linear(3, 3)  # all slots are filled, but the pass does not come to its end
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        model(ids, cache=cache)
    model.stack.norm = last
    with pytest.raises(OdeumError, match="did not complete"):
        model(ids, cache=cache)


def test_a_gradient_passes_through_the_cache(float64: None) -> None:
    model = lively("parallel")
    ids = torch.randint(0, VOCABULARY, (2, 6))
    whole = torch.autograd.grad(model(ids).logits.square().sum(), list(model.parameters()))
    cache = Cache()
    parts = [model(piece, cache=cache).logits for piece in ids.split([3, 1, 2], dim=1)]
    pieces = torch.autograd.grad(torch.cat(parts, dim=1).square().sum(), list(model.parameters()))
    for a, b in zip(whole, pieces, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)
