"""timm's users find what they know: create_model, features, intermediates, another head or size, a training loop."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import pytest
import torch
from scripts import load_script
from timm_import import timm_or_skip

from odeum.errors import OdeumError

timm = timm_or_skip()
importlib.import_module("odeum.interop.timm")

SMALL = {"img_size": 32, "patch_size": 8, "num_classes": 5}


def make(name: str = "odeum_deit_tiny_parallel", **options: Any) -> Any:
    return timm.create_model(name, **{**SMALL, **options}).eval()


def test_every_size_and_fixed_step_architecture_has_a_name() -> None:
    names = timm.list_models("odeum_*")
    assert {"odeum_deit_tiny_parallel", "odeum_deit_small_rk4", "odeum_deit_base_strang_midpoint"} <= set(names)
    assert not any("continuous" in name for name in names)


@pytest.mark.parametrize("name", ["parallel", "transevolve", "hyper"])
def test_features_head_and_intermediates_fit_each_other(name: str) -> None:
    model, x = make(f"odeum_deit_tiny_{name}"), torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        features = model.forward_features(x)
        assert features.shape == (2, 17, 192)
        logits = model(x)
        assert torch.equal(model.forward_head(features), logits) and logits.shape == (2, 5)
        assert torch.equal(model.head(model.forward_head(features, pre_logits=True)), logits)
        last, seen = model.forward_intermediates(x, indices=1, norm=True, return_prefix_tokens=True)
        torch.testing.assert_close(last, features)
        tokens, prefix = seen[-1]
        assert tokens.shape == (2, 192, 4, 4) and prefix.shape == (2, 1, 192)
        torch.testing.assert_close(tokens.flatten(2).transpose(1, 2), features[:, 1:])
        [only] = model.forward_intermediates(x, [0], output_fmt="NLC", intermediates_only=True, stop_early=True)
        assert only.shape == (2, 16, 192)


def test_features_only() -> None:
    model, x = make(features_only=True, out_indices=(1, 3)), torch.randn(1, 3, 32, 32)
    first, second = model(x)
    assert first.shape == second.shape == (1, 192, 4, 4) and not torch.equal(first, second)
    assert model.feature_info.channels() == [192, 192] and model.feature_info.reduction() == [8, 8]


def test_another_head_another_size_and_what_is_refused() -> None:
    model = make()
    model.reset_classifier(7)
    assert model(torch.randn(1, 3, 32, 32)).shape == (1, 7)
    model.set_input_size(48)
    assert model(torch.randn(1, 3, 48, 48)).shape == (1, 7)
    model.reset_classifier(0, "avg")
    assert model(torch.randn(1, 3, 48, 48)).shape == (1, 192)
    with pytest.raises(OdeumError, match=r"must be square, not \(48, 32\)"):
        model.set_input_size((48, 32))
    with pytest.raises(OdeumError, match="there are no trained weights"):
        make(pretrained=True)
    with pytest.raises(OdeumError, match="needs a model that was made with a class token"):
        make(global_pool="avg").reset_classifier(3, "token")


def test_checkpointing_changes_nothing_but_memory() -> None:
    x, found = torch.randn(2, 3, 32, 32), []
    model = make("odeum_deit_tiny_rk4", architecture="rk4:independent=2")
    for enable in (False, True, False):
        model.set_grad_checkpointing(enable)
        found.append(torch.autograd.grad(model(x).square().sum(), list(model.parameters())))
    assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(*found, strict=True))


def test_rates_fall_with_depth_and_positions_do_not_decay() -> None:
    from timm.optim import param_groups_layer_decay

    groups = param_groups_layer_decay(make(), weight_decay=0.05, no_weight_decay_list=make().no_weight_decay())
    scales = {group["lr_scale"] for group in groups}
    assert len(scales) >= 13 and max(scales) == 1.0
    assert sum(p.numel() for g in groups for p in g["params"]) == sum(p.numel() for p in make().parameters())


def test_a_training_loop_learns() -> None:
    losses = load_script("examples/timm_loop.py").main(steps=12)
    assert sum(losses[-3:]) < 0.7 * sum(losses[:3])


def test_a_missing_extra_is_a_sentence() -> None:
    code = "import sys; sys.modules['timm'] = None\nimport odeum.interop.timm"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "OdeumError: odeum.interop.timm needs timm; `pip install odeum[timm]`" in found.stderr
