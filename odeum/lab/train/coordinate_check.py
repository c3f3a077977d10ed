"""Coordinate check of a transfer rule: how activations and their updates scale with width and depth.

Small models of several sizes train for a few steps on random data. *Activation* is the root mean square of the last
state at the positions that the output is computed from, *update* that of its change since the start, on the same
examples. A learning rate transfers if the update does not depend on the size: its slope over log depth, or log width,
is near zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from odeum.errors import OdeumError
from odeum.lab.train.optimization import make_optimizer
from odeum.lab.train.settings import Training
from odeum.lab.train.transfer import scale_initial_weights, transferred
from odeum.models import OdeumModel, build
from odeum.models.classification import TextModel
from odeum.models.vision import ImageModel
from odeum.registry.names import Architecture

WIDTHS = (32, 64, 128)
DEPTHS = (8, 16, 32, 64)
BASE_DEPTH = 2
"""as in the paper: layers are shorter than 1 already at the first depth"""
HEAD_WIDTH = 16
LEARNING_RATE = 4e-3
STEPS, SEEDS, BATCH, LENGTH = 4, 2, 16, 16


class Size(NamedTuple):
    """The measurements at one size."""

    width: int
    depth: int
    activation: float
    update: float


class Check(NamedTuple):
    """The measurements of one parametrization, over widths at the first depth and over depths at the first width."""

    widths: list[Size]
    depths: list[Size]

    @property
    def slopes(self) -> dict[str, float]:
        """Log–log slopes by name, such as `update over depth`; none over what was measured at one size alone."""
        out = {}
        for over, sizes in (("width", self.widths), ("depth", self.depths)):
            if len({*sizes}) < 2:
                continue
            for what in ("activation", "update"):
                pairs = [(math.log(getattr(size, over)), math.log(getattr(size, what))) for size in sizes]
                out[f"{what} over {over}"] = _slope(pairs)
        return out


def _slope(pairs: Sequence[tuple[float, float]]) -> float:
    mean_x, mean_y = (math.fsum(values) / len(pairs) for values in zip(*pairs, strict=True))
    above = math.fsum((x - mean_x) * (y - mean_y) for x, y in pairs)
    return above / math.fsum((x - mean_x) ** 2 for x, _ in pairs)


def check_transfer(
    architecture: Architecture,
    settings: Any,
    parametrization: Literal["standard", "completep"],
    *,
    widths: Iterable[int] = WIDTHS,
    depths: Iterable[int] = DEPTHS,
) -> Check:
    """Train small models of the settings' kind at each size and measure them."""
    widths, depths = list(widths), list(depths)
    training = Training(
        learning_rate=LEARNING_RATE,
        weight_decay=0.0,
        parametrization=parametrization,
        base_width=widths[0],
        base_depth=BASE_DEPTH,
    )

    def at(width: int, depth: int) -> Size:
        with torch.random.fork_rng(devices=()):
            sizes = [_measured(architecture, _small(settings, width, depth), training, seed) for seed in range(SEEDS)]
        activation, update = (math.exp(math.fsum(map(math.log, values)) / SEEDS) for values in zip(*sizes, strict=True))
        return Size(width, depth, activation, update)

    return Check([at(width, depths[0]) for width in widths], [at(widths[0], depth) for depth in depths])


def _small(settings: Any, width: int, depth: int) -> Any:
    """Settings of the same kind with small, short inputs and without dropout."""
    smaller: dict[str, Any] = {"image_size": 16, "patch_size": 4, "length": LENGTH, "vocabulary": 64, "classes": 16}
    if settings.hidden is not None:
        smaller["hidden"] = max(1, settings.hidden * width // settings.width)
    changes = {name: value for name, value in smaller.items() if hasattr(settings, name)}
    sizes = {"width": width, "heads": max(1, width // HEAD_WIDTH), "depth": depth, "decoder_depth": None}
    changes |= {name: value for name, value in sizes.items() if hasattr(settings, name)}
    return replace(settings, **changes, dropout=0.0, stochastic_depth=0.0)


def _measured(architecture: Architecture, settings: Any, training: Training, seed: int) -> tuple[float, float]:
    torch.manual_seed(seed)
    with torch.device("cpu"):
        model: Any = build(*transferred(architecture, settings, training))
        scale_initial_weights(model, training)
        batch = _random_batch(model)
    optimizer = make_optimizer(model, training)
    states: list[Tensor] = []
    stop = _last_state(model, states.append)
    model.train()
    for step in range(STEPS + 1):
        loss = model(**batch, **model.in_training).loss
        if not torch.isfinite(loss):
            raise OdeumError(f"the loss is not finite after {step} steps at learning rate {training.learning_rate:g}")
        if step == STEPS:
            break
        loss.backward()
        for group in optimizer.param_groups:
            group["lr"] = training.learning_rate * group.get("scale", 1.0)
        optimizer.step()
        optimizer.zero_grad()
    stop()
    first, last = (_output_states(model, states[i]) for i in (0, -1))
    return _rms(last), _rms(last - first)


def _output_states(model: OdeumModel, x: Tensor) -> Tensor:
    """The states that the output is computed from."""
    if isinstance(model, ImageModel):
        return x[:, 0] if model.settings.pooling == "token" else x[:, model.tokens :].mean(dim=1)
    if isinstance(model, TextModel):
        return x[:, 0] if model.token is not None else x.mean(dim=1)
    return x


def _rms(x: Tensor) -> float:
    return float(x.detach().double().square().mean().sqrt())


def _last_state(model: OdeumModel, see: Callable[[Tensor], None]) -> Callable[[], None]:
    """Call `see` with the last state of the model, before its final norm where there is one."""
    stack: Any = model.get_submodule("decoder" if hasattr(model, "decoder") else "stack")
    if stack.norm is not None:
        return stack.norm.register_forward_pre_hook(lambda module, given: see(given[0].detach().clone())).remove
    return stack.register_forward_hook(lambda module, given, out: see(out.detach().clone())).remove


def _random_batch(model: OdeumModel) -> dict[str, Tensor]:
    """Random inputs and labels of the right shape."""
    example = model.example("cpu", BATCH)
    vocabulary = getattr(model.settings, "vocabulary", 0)
    batch = {
        name: x if x.is_floating_point() else torch.randint(vocabulary, x.shape, device="cpu")
        for name, x in example.items()
    }
    with torch.no_grad():
        logits = model.eval()(**batch).logits
    if logits.shape[-1] == 1:
        labels = torch.randn(logits.shape[:-1], device="cpu")
    else:
        labels = torch.randint(logits.shape[-1], logits.shape[:-1], device="cpu")
    return {**batch, "labels": labels}
