"""Decoding by matrices in the order in which oneDNN reads them: the same texts."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from onednn import EVERYWHERE, without
from torch import Tensor, nn

from odeum.decode import beam_search, generate
from odeum.decode.ordered import OrderedMaps
from odeum.models import build

pytestmark = EVERYWHERE


@pytest.mark.parametrize(
    "architecture", ["parallel", "rk4:independent=1", "transevolve", "transevolve:random-1", "momentum"]
)
def test_texts_by_matrices_in_order_are_the_same(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odeum.decode.ordered.LEAST_WORK", 1)
    made: list[nn.Module] = []
    make = OrderedMaps.__call__

    def noted(self: OrderedMaps, module: nn.Module) -> Callable[[Tensor], Tensor]:
        made.append(module)
        return make(self, module)

    monkeypatch.setattr(OrderedMaps, "__call__", noted)
    sizes = {"vocabulary": 40, "width": 16, "heads": 2, "depth": 2, "hidden": 32, "length": 64}
    model = build(architecture, "language_small", **sizes).eval()
    ids = torch.randint(0, 40, (5, 3))
    text = generate(model, ids, max_new_tokens=20, temperature=0)
    assert made
    assert torch.equal(text, without(lambda: generate(model, ids, max_new_tokens=20, temperature=0)))  # ty: ignore


def test_translations_by_matrices_in_order_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odeum.decode.ordered.LEAST_WORK", 1)
    sizes = {"vocabulary": 40, "width": 16, "heads": 2, "depth": 2, "hidden": 32, "length": 64}
    model = build("post-norm", "translation_small", **sizes).eval()
    sources = torch.randint(3, 40, (3, 18))
    found = beam_search(model, sources, beam=3, max_length=12)
    assert found == without(lambda: beam_search(model, sources, beam=3, max_length=12))


def test_a_model_that_was_trained_meanwhile_is_decoded_with_its_new_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is put in order lives no longer than the call."""
    monkeypatch.setattr("odeum.decode.ordered.LEAST_WORK", 1)
    sizes = {"vocabulary": 40, "width": 16, "heads": 2, "depth": 2, "hidden": 32, "length": 64}
    model = build("parallel", "language_small", **sizes).eval()
    ids = torch.randint(0, 40, (5, 3))
    generate(model, ids, max_new_tokens=20, temperature=0)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.3 * torch.randn_like(weight)
    fresh = copy.deepcopy(model)
    assert torch.equal(
        generate(model, ids, max_new_tokens=20, temperature=0), generate(fresh, ids, max_new_tokens=20, temperature=0)
    )
