"""The linear form's arithmetic: its features written out in double precision, against drifts and keys of any size."""

from __future__ import annotations

import pytest
import torch
from closeness import close
from torch import Tensor

from odeum.fields import Source
from odeum.fields.cache import Cache
from odeum.fields.transevolve.linear import LinearFeatures, linear_attention
from odeum.models import LanguageModel, build

WIDTH, LENGTH = 8, 150


def written_out(
    random: LinearFeatures, q: Tensor, k: Tensor, b: Tensor, v: Tensor, hidden: Tensor, causal: bool
) -> Tensor:
    """Σ φ(q)·φ(k) e^b v / Σ φ(q)·φ(k) e^b over the keys that a query sees, by logarithms."""
    q, k, b, v, w = (x.double() for x in (q, k, b, v, random.w))
    fq, fk = ((x @ w - x.square().sum(-1, keepdim=True) / 2) for x in (q * WIDTH**-0.25, k * WIDTH**-0.25))
    pairs = torch.logsumexp(fq.unsqueeze(-2) + fk.unsqueeze(-3), dim=-1) + b.unsqueeze(-2)
    pairs = pairs.masked_fill(hidden[:, None, None], -torch.inf)
    if causal:
        pairs = pairs.masked_fill(torch.ones(pairs.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    return pairs.softmax(dim=-1) @ v


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("gap", [0.0, 60.0, 95.0, 200.0, 1e4])
def test_a_steep_drift_of_what_a_query_does_not_see_changes_nothing(gap: float, causal: bool) -> None:
    """The last key is hidden, or in the future of all queries but one, and its drift would swamp the others'."""
    torch.manual_seed(0)
    random = LinearFeatures(WIDTH, 16)
    q, k, v = (torch.randn(2, 3, LENGTH, WIDTH, requires_grad=True) for _ in range(3))
    b = torch.randn(2, 3, LENGTH)
    b[..., -1] = gap
    b.requires_grad_()
    hidden = torch.zeros(2, LENGTH, dtype=torch.bool)
    hidden[:, -1] = not causal
    source = Source(causal=causal, mask=None if causal else ~hidden[:, None, None])
    out = linear_attention(random(q, k, source), b, v, causal)
    close(out, written_out(random, q, k, b, v, hidden, causal), 1e-4)
    gradients = torch.autograd.grad(out.square().sum(), (q, k, b, v))
    assert all(bool(g.isfinite().all()) for g in gradients)


@pytest.mark.parametrize("causal", [False, True])
def test_keys_of_very_different_lengths(causal: bool) -> None:
    """A long key's features underflow beside a short one's; its level says how much it weighs."""
    torch.manual_seed(0)
    random = LinearFeatures(WIDTH, 16)
    q, v, b = torch.randn(1, 2, 40, WIDTH), torch.randn(1, 2, 40, WIDTH), torch.zeros(1, 2, 40)
    k = torch.randn(1, 2, 40, WIDTH) * torch.linspace(20.0, 0.1, 40).unsqueeze(-1)
    hidden = torch.zeros(1, 40, dtype=torch.bool)
    out = linear_attention(random(q, k, Source(causal=causal)), b, v, causal)
    right = written_out(random, q, k, b, v, hidden, causal)
    close(out, right, 1e-3)


@pytest.mark.parametrize("size", [1.0, 4.0])
def test_cached_prefixed_and_whole_sentences_agree(size: float) -> None:
    torch.manual_seed(1)
    words = {"width": 16, "heads": 2, "hidden": 32, "depth": 2, "vocabulary": 20, "length": 300}
    model = build("transevolve:attention=linear", "language_small", **words).eval()
    assert isinstance(model, LanguageModel)
    ids, cache = torch.randint(0, 20, (2, 290)), Cache()
    with torch.no_grad():
        for weight in model.embedding.parameters():
            weight.copy_(size * torch.randn(weight.shape))
        whole = model(ids).logits
        parts = [model(ids[:, a:b], cache=cache).logits for a, b in ((0, 140), (140, 141), (141, 142), (142, 290))]
        close(torch.cat(parts, dim=1), whole, 1e-4)
        close(model(ids[:, :3]).logits, whole[:, :3], 1e-4)


@pytest.mark.parametrize("causal", [False, True])
def test_the_gradient_is_the_slope(causal: bool) -> None:
    """What is added to every feature is relative to the largest of its row, which moves too."""
    torch.manual_seed(0)
    random = LinearFeatures(WIDTH, 16).double()
    q, k, v = (torch.randn(1, 1, 3, WIDTH, dtype=torch.double, requires_grad=True) for _ in range(3))
    b = torch.randn(1, 1, 3, dtype=torch.double)

    def act(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return linear_attention(random(q, k, Source(causal=causal)), b, v, causal)

    assert torch.autograd.gradcheck(act, (q, k, v), atol=1e-8, rtol=1e-7)
