"""CompleteP: learning rates that transfer to other widths and depths (Dey et al. 2025, arXiv 2505.01618).

Depth is time, so a layer of a deeper model is a shorter step: `interval` = m_L^−α with m_L = depth / base depth. The
rest is their Table 1, with the ε of their equation 40 and code, and with m_N = width / base width, relative to the
recipe's learning rate η, weight decay λ and Adam's ε:

    weights of the layers           η m_N^−1 m_L^(α−1)    λ m_N    ε m_N^−1 m_L^−α
    norms and biases of the layers  η m_L^(α−1)           no decay ε m_N^−1 m_L^−α
    embeddings, final norm          η                     λ        ε m_N^−1
    output matrix                   η                     λ        ε m_N^−1, its logits times m_N^−1

α = 1 is CompleteP, α = ½ is depth-μP. Our models have no multipliers in the forward pass, so a matrix that Table 1
multiplies by c is initialised as c times that of the base width and trained with c η, λ / c and ε / c, which is the
same function of time under Adam; a bias of the output has a gradient that no width scales. Embeddings that the model
multiplies by √width are such matrices with c = m_N^−½. If input and output share one matrix, the final norm takes the
rest of the factor m_N^−1. Attention scores stay divided by √(head width): scale the width at a constant head width.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from odeum.architectures import make_stack
from odeum.errors import OdeumError
from odeum.fields.algebra import Highway
from odeum.flow import Stack
from odeum.integrators import Dense
from odeum.integrators.attention_residuals import AttentionResiduals
from odeum.kernels.adamw import EPSILON
from odeum.lab.train.settings import Training
from odeum.models import OdeumModel
from odeum.models.classification import TextModel
from odeum.models.embedding import TiedEmbedding
from odeum.models.language import LanguageModel
from odeum.models.masked import BidirectionalModel, MaskedLanguageModel
from odeum.models.settings import Shape
from odeum.models.translation import TranslationModel
from odeum.models.vision import ImageModel
from odeum.registry.names import Architecture
from odeum.registry.spelling import label, parse, spell


class Scale(NamedTuple):
    """Factors of one parameter group, relative to the recipe, and of its initial values."""

    rate: float = 1.0
    decay: float = 1.0
    epsilon: float = 1.0
    start: float = 1.0

    @classmethod
    def folded(cls, factor: float, width: float, start: float | None = None) -> Scale:
        """A matrix that the paper multiplies by `factor`, with the factor in its values."""
        return cls(factor, 1.0 / factor, 1.0 / (width * factor), factor if start is None else start)


def transferred(architecture: Architecture, settings: Any, training: Training) -> tuple[Architecture, Any]:
    """Returns the architecture, and the settings with their decoder, with layers as long as the depth requires.

    Raises `OdeumError` for architectures that have no transfer rule.
    """
    if training.parametrization == "standard":
        return architecture, settings
    decoder, decoder_depth = getattr(settings, "decoder", None), getattr(settings, "decoder_depth", None)
    if decoder_depth not in (None, settings.depth):
        raise OdeumError(
            f"no transfer rule: the decoder has {decoder_depth} layers and the encoder {settings.depth}; make them "
            "equal, or use --train.parametrization standard"
        )
    if getattr(settings, "pretrained", None) is not None:
        raise OdeumError(
            "no transfer rule: the weights of an imported model are not drawn; use --train.parametrization standard"
        )
    length = (training.base_depth / settings.depth) ** training.depth_exponent
    if decoder is not None:
        settings = replace(settings, decoder=spell(_shortened(parse(decoder), length, settings)))
    return _shortened(architecture, length, settings), settings


UNMEASURED = ("residual-scalars", "lagged-attention", "two-lanes", "depth-memory", "mudd", "sphere")
"""histories of methods whose updates over depth were not measured"""


def _shortened(architecture: Architecture, length: float, shape: Shape) -> Architecture:
    """The architecture with layers `length` times as long."""
    remedy = "use --train.parametrization standard"
    if not hasattr(architecture, "interval"):
        raise OdeumError(f"no transfer rule: {label(architecture)} has no interval, the length of a layer; {remedy}")
    untyped: Any = architecture
    shortened = replace(untyped, interval=untyped.interval * length)
    small = Shape(width=shape.heads * 2, heads=shape.heads, depth=shape.depth)
    try:
        with torch.random.fork_rng(devices=()):
            stack = make_stack(shortened, small)
    except OdeumError as error:
        raise OdeumError(f"no transfer rule: {error} ({label(architecture)}); {remedy}") from None
    if any(isinstance(part, Dense | AttentionResiduals) for part in stack.modules()):
        raise OdeumError(
            f"no transfer rule: the state of {label(architecture)} is a mean of earlier layers, not a sum of steps; "
            f"{remedy}"
        )
    if any(getattr(part, "history", None) in UNMEASURED or isinstance(part, Highway) for part in stack.modules()):
        raise OdeumError(f"no transfer rule: updates of {label(architecture)} over depth were not measured; {remedy}")
    return shortened


def scales(model: nn.Module, training: Training) -> dict[str, Scale]:
    """Returns the factors of each weight by its name."""
    if not isinstance(model, OdeumModel) or not isinstance(model, SUPPORTED_MODELS):
        raise OdeumError(
            f"no transfer rule: {type(model).__name__} does not say which of its weights are inputs and outputs; use "
            "--train.parametrization standard"
        )
    width, depth = model.settings.width / training.base_width, model.settings.depth / training.base_depth
    alpha = training.depth_exponent
    epsilon = 1.0 / (width * depth**alpha)
    matrix = Scale(depth ** (alpha - 1.0) / width, width, epsilon)
    vector = Scale(depth ** (alpha - 1.0), 1.0, epsilon)
    stacks = [name for name, part in model.named_children() if isinstance(part, Stack)]
    out = {}
    for name, weight in model.named_parameters():
        first, _, rest = name.partition(".")
        if first in stacks and not rest.startswith("norm."):
            out[name] = matrix if weight.dim() > 1 else vector
        else:
            out[name] = _outer_scale(model, name, weight, width, training.base_width)
    return out


def _outer_scale(model: OdeumModel, name: str, weight: Tensor, width: float, base_width: int) -> Scale:
    part = name.rpartition(".")[0]
    module = model.get_submodule(part)
    tied = isinstance(model, TranslationModel | LanguageModel | MaskedLanguageModel) and (
        getattr(model, "output", None) is None
    )
    if name in ("bias", "embedding.bias", "head.bias", "output.bias"):
        return Scale()
    if isinstance(module, TiedEmbedding) and module.scale != 1.0:
        return Scale.folded(width**-0.5, width, 1.0)
    if part == "embedding" and isinstance(model, TextModel):
        return Scale.folded(width**-0.5, width, 1.0)
    if part in ("stack.norm", "decoder.norm") and tied and not isinstance(model, BidirectionalModel):
        left = width**-0.5 if getattr(model.get_submodule("embedding"), "scale", 1.0) != 1.0 else 1.0 / width
        return Scale.folded(left, width)
    if part == "transform_norm" and tied:
        return Scale.folded(1.0 / width, width)
    if part in ("head", "output") and weight.dim() > 1:
        outputs, inputs = weight.shape
        start = math.sqrt((inputs + outputs) / (base_width + outputs)) / width
        return Scale.folded(1.0 / width, width, start)
    if part == "patch" and weight.dim() > 1:  # Glorot counts the outputs too, of which there are more
        inputs = weight[0].numel()
        start = math.sqrt((inputs + weight.shape[0]) / (inputs + base_width))
        return Scale(epsilon=1.0 / width, start=start)
    if part == "transform" and weight.dim() > 1:
        return Scale(1.0 / width, width, 1.0 / width)
    if part.startswith("patch.") and weight.dim() > 1 and not part.endswith(".0"):  # of a stem of convolutions
        return Scale(1.0 / width, width, 1.0 / width)
    return Scale(epsilon=1.0 / width)


SUPPORTED_MODELS = (ImageModel, TextModel, BidirectionalModel, LanguageModel, TranslationModel)


@torch.no_grad()
def scale_initial_weights(model: nn.Module, training: Training) -> None:
    """Scale new initial weights as the rule requires for their width."""
    if training.parametrization == "standard":
        return
    factors = scales(model, training)
    for name, weight in model.named_parameters():
        weight.mul_(factors[name].start)


def grouped(model: nn.Module, training: Training, undecayed: set[str]) -> list[dict[str, Any]]:
    """The optimizer's groups: weights with the same factors; those in `undecayed` do not decay."""
    groups: dict[tuple[float, float, float], list[Tensor]] = {}
    factors = scales(model, training)
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            factor = factors[name]
            decay = 0.0 if name in undecayed else training.weight_decay * factor.decay
            groups.setdefault((factor.rate, decay, EPSILON * factor.epsilon), []).append(weight)
    return [
        {"params": weights, "scale": rate, "weight_decay": decay, "eps": epsilon}
        for (rate, decay, epsilon), weights in groups.items()
    ]
