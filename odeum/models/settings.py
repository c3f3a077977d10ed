"""Settings of models: the shape of a stack and, for each kind of model, what surrounds it; nothing here imports torch.

A kind of model is a dataclass of settings, the class that they build and named presets. The model class is in a file of
its own, which also names the class of `odeum.hf` that wraps it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from importlib import import_module
from typing import Annotated, Any, Literal

from odeum.errors import OdeumError, choose
from odeum.models.pretrained import Pretrained, details
from odeum.registry.names import REGISTRIES, Registry
from odeum.registry.options import COUNT, FRACTION, NOT_NEGATIVE, check_options

Reference = str | type
"""a class, or "module:name" of a class that is imported on first use"""


@dataclass(frozen=True)
class Shape:
    """The size of a stack of layers and the parts of its fields."""

    width: Annotated[int, COUNT] = 192
    """width of the residual stream"""
    heads: Annotated[int, COUNT] = 3
    """number of attention heads"""
    depth: Annotated[int, COUNT] = 12
    """number of layers; for continuous depth the length of the time interval"""
    hidden: Annotated[int | None, COUNT] = None
    """width of the feed-forward (default: 4 × width)"""
    activation: Literal["gelu", "relu", "swiglu"] = "gelu"
    """activation of the feed-forward"""
    norm_kind: Literal["layer", "rms"] = "layer"
    """LayerNorm or RMSNorm"""
    norm_eps: Annotated[float, NOT_NEGATIVE] = 1e-6
    """epsilon of the norms"""
    bias: bool = True
    """use biases in linear maps"""
    dropout: Annotated[float, FRACTION] = 0.0
    """dropout on the output of attention and feed-forward"""
    stochastic_depth: Annotated[float, FRACTION] = 0.0
    """probability of dropping a branch in the last layer, per sample; grows linearly with depth"""


@dataclass(frozen=True)
class Segment(Shape):
    """The shape of consecutive layers of a deeper stack, between two fractions of its depth."""

    begin: float = 0.0
    """fraction of the depth at the first layer (0: the first of the stack)"""
    end: float = 1.0
    """fraction of the depth at the last layer (1: the last of the stack)"""


@dataclass(frozen=True)
class Model(Shape):
    """Base of the settings of whole models: a shape, and what an imported model has besides."""

    pretrained: Pretrained | None = None
    """features that only imported models have (default: not imported)"""


def check_settings(settings: Shape) -> None:
    """Raises `OdeumError` if no stack, or no model, can have these settings."""
    check_options(settings)
    if settings.width % settings.heads and details(settings).attention.head_width is None:
        raise OdeumError(f"heads={settings.heads} must divide width={settings.width}; {_divisors(settings)}")
    if getattr(settings, "positions", None) == "rotary" and settings.width // settings.heads < 2:
        raise OdeumError(
            f"rotary positions rotate pairs of features, but each of the {settings.heads} heads has only one; "
            "use fewer heads or another kind of positions"
        )


def check_changes(settings: type[Shape], changes: Mapping[str, Any]) -> None:
    """Raises `OdeumError` if no settings of this class can have these values, whatever the others are."""
    heads = changes.get("heads", 1)
    width = changes.get("width", 2 * heads)  # a value that is not given may suit those that are
    check_settings(replace(settings(), **{"heads": heads, "width": width, **changes}))


def _divisors(settings: Shape) -> str:
    """The nearest numbers of heads that would do."""
    fits = [heads for heads in range(1, min(settings.width, 4096) + 1) if settings.width % heads == 0]
    low = max((heads for heads in fits if heads < settings.heads), default=None)
    high = min((heads for heads in fits if heads > settings.heads), default=None)
    return "use " + " or ".join(str(heads) for heads in (low, high) if heads is not None)


@dataclass(frozen=True)
class ModelKind:
    """A kind of model: settings, the class that they build, and named presets."""

    name: str
    """name of the kind, lower case"""
    settings: type[Model]
    """dataclass of the options `--model.…`"""
    model: Reference
    """the class that the settings build, an OdeumModel"""
    presets: Mapping[str, Model] = field(default_factory=dict)
    """settings by name, as in `odeum.build("rk4", "deit_tiny")`"""

    @property
    def model_class(self) -> type[Any]:  # no type of torch in this file: jsonargparse runs blocks for type checkers
        """The class that the settings build, an OdeumModel; imports torch."""
        return resolve(self.model)


def resolve(reference: Any) -> Any:
    """Import what a reference "module:name" names; anything else is returned as it is."""
    if not isinstance(reference, str):
        return reference
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


MODEL_KINDS: Registry[ModelKind] = Registry("kind of model")
"""every kind of model, by name"""
PRESETS: dict[str, Model] = {}
"""every named preset"""
REGISTRIES.append(MODEL_KINDS)


def add_model_kind(kind: ModelKind) -> ModelKind:
    """Register a kind of model and its presets; raises OdeumError, before anything is added, if a name is taken."""
    if not (isinstance(kind.settings, type) and is_dataclass(kind.settings) and issubclass(kind.settings, Model)):
        raise OdeumError(
            f"the model settings of the kind '{kind.name}' must be a dataclass that extends "
            f"odeum.models.settings.Model, not {kind.settings!r}"
        )
    MODEL_KINDS.check(kind.name, kind)
    for other in MODEL_KINDS.values():
        if other.name == kind.name:
            continue
        if taken := {name for name, preset in kind.presets.items() if other.presets.get(name, preset) != preset}:
            raise OdeumError(
                f"the model '{min(taken)}' of the kind '{kind.name}' is already registered for the kind '{other.name}'"
            )
        if kind.settings.__name__ == other.settings.__name__:  # config.json names them so
            raise OdeumError(
                f"'{kind.settings.__name__}' of the kind '{kind.name}' is already used by the kind '{other.name}'"
            )
    MODEL_KINDS.add(kind.name, kind, module=kind.settings.__module__)
    PRESETS.update(kind.presets)
    return kind


def kind_of_settings(settings: type | str) -> ModelKind | None:
    """The kind of model with these settings, given as a class or as its name; None if there is none."""
    return next((kind for kind in MODEL_KINDS.values() if settings in (kind.settings, kind.settings.__name__)), None)


def find_preset(name: str) -> Model:
    """The preset of that name; raises OdeumError with the known names if there is none."""
    return PRESETS[choose(name, PRESETS, "model")]


@dataclass(frozen=True)
class ImageInput(Model):
    """Settings of models that read images."""

    image_size: Annotated[int, COUNT] = 224
    """height and width of the images"""
    patch_size: Annotated[int, COUNT] = 16
    """height and width of a patch"""
    channels: Annotated[int, COUNT] = 3
    """channels of the images"""
    pooling: Literal["token", "mean"] = "token"
    """input of the head: class token, or mean over the patches"""
    stem: Literal["patch", "convolution"] = "patch"
    """embedding of patches: one linear map, or small convolutions (Xiao et al. 2021), which train faster"""


@dataclass(frozen=True)
class Vision(ImageInput):
    """A vision transformer (DeiT)."""

    classes: Annotated[int, COUNT] = 1000
    """number of classes"""


VISION = add_model_kind(
    ModelKind(
        "vision",
        Vision,
        "odeum.models.vision:VisionModel",
        presets={
            "deit_tiny": Vision(width=192, heads=3),
            "deit_small": Vision(width=384, heads=6),
            "deit_base": Vision(width=768, heads=12),
            "vit_32": Vision(
                width=96, heads=3, depth=6, image_size=32, patch_size=4, classes=100, pooling="mean", stem="convolution"
            ),
            "vit_8": Vision(
                width=64, heads=4, depth=2, image_size=8, patch_size=2, channels=1, classes=10, pooling="mean"
            ),
        },
    )
)


@dataclass(frozen=True)
class Language(Model):
    """A causal language model."""

    vocabulary: Annotated[int, COUNT] = 10_000
    """number of tokens"""
    length: Annotated[int, COUNT] = 256
    """largest number of tokens in the context"""
    positions: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal"
    """encoding of positions (the presets, and so the default models of `odeum train`, have rotary ones)"""
    embedding: Literal["tied", "adaptive"] = "tied"
    """one matrix for input and output, or adaptive input and softmax (Baevski & Auli 2019)"""
    cutoffs: tuple[int, ...] = ()
    """ends of the frequency bands of the adaptive embedding (empty: chosen from the vocabulary)"""


LANGUAGE = add_model_kind(
    ModelKind(
        "language",
        Language,
        "odeum.models.language:LanguageModel",
        presets={
            "language_small": Language(
                width=128, heads=2, depth=6, hidden=512, activation="relu", length=512, positions="rotary"
            ),
            "language_base": Language(
                width=512, heads=8, depth=6, hidden=2048, activation="relu", length=512, positions="rotary"
            ),
        },
    )
)


@dataclass(frozen=True)
class MaskedLanguage(Model):
    """A bidirectional model that predicts masked tokens."""

    vocabulary: Annotated[int, COUNT] = 10_000
    """number of tokens"""
    length: Annotated[int, COUNT] = 256
    """longest sequence"""
    positions: Literal["sinusoidal", "learned", "rotary"] = "learned"
    """encoding of positions"""


MASKED = add_model_kind(
    ModelKind(
        "masked",
        MaskedLanguage,
        "odeum.models.masked:MaskedLanguageModel",
        presets={
            "masked_small": MaskedLanguage(width=128, heads=4, depth=4),
        },
    )
)


@dataclass(frozen=True)
class TextInput(Model):
    """Settings of models that read a whole text."""

    vocabulary: Annotated[int, COUNT] = 20_000
    """number of tokens"""
    length: Annotated[int, COUNT] = 512
    """longest sequence"""
    positions: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal"
    """encoding of positions"""
    pooling: Literal["mean", "token"] = "mean"
    """input of the head: mean over the unpadded positions, or class token"""


@dataclass(frozen=True)
class Classification(TextInput):
    """A sequence classifier."""

    classes: Annotated[int, COUNT] = 2
    """number of classes"""


CLASSIFICATION = add_model_kind(
    ModelKind(
        "classification",
        Classification,
        "odeum.models.classification:ClassificationModel",
        presets={
            "classification_small": Classification(width=64, heads=4, depth=4, activation="relu"),
            "classification_base": Classification(width=256, heads=8, depth=6, activation="relu", dropout=0.1),
        },
    )
)


@dataclass(frozen=True)
class Translation(Model):
    """An encoder–decoder with one tied embedding."""

    vocabulary: Annotated[int, COUNT] = 10_000
    """tokens of the joint vocabulary"""
    length: Annotated[int, COUNT] = 256
    """longest source or target"""
    positions: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal"
    """encoding of positions"""
    decoder: str | None = None
    """architecture of the decoder (default: that of the encoder)"""
    decoder_depth: Annotated[int | None, COUNT] = None
    """layers of the decoder (default: as many as the encoder's)"""


TRANSLATION = add_model_kind(
    ModelKind(
        "translation",
        Translation,
        "odeum.models.translation:TranslationModel",
        presets={
            "translation_small": Translation(width=128, heads=2, depth=6, hidden=512, activation="relu"),
            "translation_base": Translation(width=512, heads=8, depth=6, hidden=2048, activation="relu"),
        },
    )
)


@dataclass(frozen=True)
class Regression(TextInput):
    """A sequence regressor: one number per text."""


REGRESSION = add_model_kind(
    ModelKind(
        "regression",
        Regression,
        "odeum.models.regression:RegressionModel",
        presets={"regression_small": Regression(width=64, heads=4, depth=4, activation="relu")},
    )
)


@dataclass(frozen=True)
class ImageRegression(ImageInput):
    """An image regressor: one number per image."""


IMAGE_REGRESSION = add_model_kind(
    ModelKind(
        "image-regression",
        ImageRegression,
        "odeum.models.regression:ImageRegressionModel",
        presets={
            "image_regression_32": ImageRegression(
                width=96, heads=3, depth=6, image_size=32, patch_size=4, pooling="mean", stem="convolution"
            ),
            "image_regression_8": ImageRegression(
                width=64, heads=4, depth=2, image_size=8, patch_size=2, channels=1, pooling="mean"
            ),
        },
    )
)
