"""Imported models under transformers' interface, with more tokens than they came with."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from test_pretrained import BOTH_SIDES, CAUSAL, scrambled

from odeum.hf.configuration import class_of
from odeum.interop import load

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.mark.parametrize("name", ["llama", "gptj", "bert", "bert-untied", "albert", "bert-classes"])
def test_the_vocabulary_of_what_was_imported_grows(name: str, tmp_path: Path) -> None:
    """Under transformers' interface, with an output matrix that is the embedding's, its own, or has a bias."""
    model = load(scrambled({**CAUSAL, **BOTH_SIDES}[name]))
    kind = type(model.settings).__name__
    wrapped = class_of(kind).wrap(model)
    ids = torch.randint(29, (2, 9))
    with torch.no_grad():
        before = wrapped(ids).logits
        wrapped.resize_token_embeddings(33, mean_resizing=False)
        after = wrapped(ids).logits
        assert torch.equal(after[..., : before.shape[-1]], before)
        assert after.shape[-1] == (before.shape[-1] if kind == "Classification" else 33)
        wrapped.save_pretrained(tmp_path)
        assert torch.equal(type(wrapped).from_pretrained(tmp_path)(ids + 4).logits, wrapped(ids + 4).logits)
