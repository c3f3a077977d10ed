"""`build`: a model, or a stack of layers, from names or settings."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn

from odeum.architectures import make_stack
from odeum.draws import key_draws
from odeum.errors import OdeumError, choose
from odeum.models.base import OdeumModel
from odeum.models.classification import ClassificationModel
from odeum.models.drop_in import Encoder
from odeum.models.language import LanguageModel
from odeum.models.limits import check_size
from odeum.models.masked import PretrainedClassifier
from odeum.models.settings import (
    Classification,
    Language,
    Shape,
    Translation,
    Vision,
    check_settings,
    find_preset,
    kind_of_settings,
)
from odeum.models.translation import TranslationModel
from odeum.models.vision import VisionModel
from odeum.registry.names import Architecture
from odeum.registry.spelling import parse

VisionName = Literal["deit_tiny", "deit_small", "deit_base", "vit_32", "vit_8"]
LanguageName = Literal["language_small", "language_base"]
ClassificationName = Literal["classification_small", "classification_base"]
TranslationName = Literal["translation_small", "translation_base"]


@overload
def build(
    architecture: str | Architecture, model: VisionName | Vision = "deit_tiny", **changes: Any
) -> VisionModel: ...
@overload
def build(architecture: str | Architecture, model: LanguageName | Language, **changes: Any) -> LanguageModel: ...
@overload
def build(
    architecture: str | Architecture, model: ClassificationName | Classification, **changes: Any
) -> ClassificationModel: ...
@overload
def build(
    architecture: str | Architecture, model: TranslationName | Translation, **changes: Any
) -> TranslationModel: ...
@overload
def build(architecture: str | Architecture, model: str, **changes: Any) -> OdeumModel: ...
@overload
def build(architecture: str | Architecture, model: Shape, **changes: Any) -> nn.Module: ...
def build(architecture: str | Architecture, model: str | Shape = "deit_tiny", **changes: Any) -> nn.Module:
    """A model or, from a bare `Shape`, a stack of layers of that architecture.

    Args:
        architecture: a name such as `"rk4"`, a spelling with options such as `"parallel:independent=6"`, or an
            architecture's dataclass such as `Layered(form="macaron", method="heun")`. `odeum list` shows the names.
        model: a name such as `"deit_tiny"`, or settings: `Vision(…)`, `Language(…)`, `Classification(…)`,
            `Translation(…)` for a whole model, `Shape(…)` for a stack over [batch, length, width].
        **changes: settings that differ from the named model's: width, heads, depth, hidden, activation, norm_kind,
            norm_eps, bias, dropout, stochastic_depth; classes, image_size, patch_size, channels, pooling, stem of
            images; vocabulary, length, positions of texts.

    Returns:
        A VisionModel, LanguageModel, ClassificationModel or TranslationModel, whose output has `logits` and, where
        labels were given, `loss`; or a Stack.

    Examples:
        >>> build("parallel:independent=6", "deit_tiny", classes=100)
        >>> build(Layered(form="macaron", method="heun"), Shape(width=64, heads=4, depth=12, norm_kind="rms"))
    """
    settings = find_preset(model) if isinstance(model, str) else model
    known = [field.name for field in fields(settings)]
    for name in changes:
        choose(name, known, f"setting of {type(settings).__name__}")
    return assemble(parse(architecture), replace(settings, **changes))


def assemble(architecture: Architecture, settings: Shape) -> nn.Module:
    """The same from settings that have been read and checked already."""
    kind = kind_of_settings(type(settings))
    if isinstance(settings, Shape):
        check_settings(settings)
        check_size(settings, architecture)
    if isinstance(settings, Classification) and settings.pretrained is not None:
        make: Any = PretrainedClassifier
    elif kind is not None and isinstance(settings, kind.settings):
        make = kind.model_class
    elif type(settings) is Shape:
        return make_stack(architecture, settings)
    else:
        raise OdeumError(
            f"cannot build from {type(settings).__name__}; give a model's name, a Shape, or one of its kinds"
        )
    with key_draws() as key:
        model = make(settings, architecture)
    model.draw_key = key
    return model


@torch.no_grad()
def redraw(model: OdeumModel | Encoder) -> None:
    """Give a model its initial weights again, in place.

    For a model that was built on the meta device and moved by `to_empty`: it gets the weights that the same build gives
    on a CPU. Weights may be sharded by FSDP2, then each process keeps its part; every process needs memory for one
    whole model meanwhile.
    """
    if model.draw_key is None:
        raise OdeumError(
            f"this {type(model).__name__} was not built by odeum.build, so it has no seed to draw its "
            "weights from again"
        )
    dtypes = {weight.dtype for weight in model.parameters()}
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtypes.pop() if len(dtypes) == 1 else before)
    try:
        with torch.device("cpu"), key_draws(model.draw_key):
            fresh = _rebuild(model)
    finally:
        torch.set_default_dtype(before)
    numbers = {**dict(fresh.named_parameters()), **dict(fresh.named_buffers())}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        tensor.copy_(_shard_like(numbers[name], tensor))


def _rebuild(model: OdeumModel | Encoder) -> nn.Module:
    if isinstance(model, OdeumModel):
        return assemble(model.architecture, model.settings)
    shape = {field.name: getattr(model.shape, field.name) for field in fields(model.shape)}
    return type(model)(architecture=model.architecture, **shape)


def _shard_like(value: Tensor, like: Tensor) -> Tensor:
    if not hasattr(like, "placements"):
        return value
    from torch.distributed.tensor import distribute_tensor

    sharded: Any = like
    return distribute_tensor(value.to(sharded.device), sharded.device_mesh, sharded.placements, src_data_rank=None)
