"""How large, and around what: the shape of a stack, and the models that put an embedding and a head around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from odeum.settings.pretrained import Pretrained


@dataclass(frozen=True)
class Shape:
    """The size of a stack and what its fields are made of."""

    width: int = 192
    """width of the residual stream"""
    heads: int = 3
    """attention heads"""
    depth: int = 12
    """layers, or the length of the time interval"""
    hidden: int | None = None
    """width of the feed-forward (none: 4 × width)"""
    activation: Literal["gelu", "relu", "swiglu"] = "gelu"
    """of the feed-forward"""
    norm_kind: Literal["layer", "rms"] = "layer"
    """which norm"""
    norm_eps: float = 1e-6
    """added to the variance in a norm"""
    bias: bool = True
    """biases in the projections"""
    dropout: float = 0.0
    """on the output of attention and feed-forward"""
    stochastic_depth: float = 0.0
    """probability of dropping a branch, for each sample; grows linearly with depth up to this"""


@dataclass(frozen=True)
class Segment(Shape):
    """The shape of some layers of a deeper stack, which begin and end at these shares of its depth."""

    begin: float = 0.0
    """of the first layer: 0 in the first of all"""
    end: float = 1.0
    """of the last layer: 1 in the last of all"""


@dataclass(frozen=True)
class Model(Shape):
    """The settings of a whole model: a shape, and in each kind of model what stands around the stack."""

    pretrained: Pretrained | None = None
    """what an imported model has besides (none: nothing)"""


@dataclass(frozen=True)
class ImageInput(Model):
    """What reads images, whatever is told of them."""

    image_size: int = 224
    """height and width of the images"""
    patch_size: int = 16
    """height and width of a patch"""
    channels: int = 3
    """of the images"""
    pooling: Literal["token", "mean"] = "token"
    """class token, or mean over the patches"""
    stem: Literal["patch", "convolution"] = "patch"
    """how patches become tokens: one linear map, or small convolutions (Xiao et al. 2021), which learn sooner"""


@dataclass(frozen=True)
class Vision(ImageInput):
    """A ViT in the manner of DeiT."""

    classes: int = 1000
    """to tell apart"""


@dataclass(frozen=True)
class Language(Model):
    """A causal language model."""

    vocabulary: int = 10_000
    """number of tokens"""
    length: int = 256
    """longest context"""
    positions: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal"
    """how positions are told"""
    embedding: Literal["tied", "adaptive"] = "tied"
    """one matrix for input and output, or adaptive input and softmax (Baevski & Auli 2019)"""
    cutoffs: tuple[int, ...] = ()
    """ends of the frequency bands of the adaptive embedding (empty: chosen from the vocabulary)"""


@dataclass(frozen=True)
class MaskedLanguage(Model):
    """A model that reads from both sides and tells hidden tokens."""

    vocabulary: int = 10_000
    """number of tokens"""
    length: int = 256
    """longest sequence"""
    positions: Literal["sinusoidal", "learned", "rotary"] = "learned"
    """how positions are told"""


@dataclass(frozen=True)
class TextInput(Model):
    """What reads a whole text, whatever is told of it."""

    vocabulary: int = 20_000
    """number of tokens"""
    length: int = 512
    """longest sequence"""
    positions: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal"
    """how positions are told"""
    pooling: Literal["mean", "token"] = "mean"
    """mean over the unpadded positions, or class token"""


@dataclass(frozen=True)
class Classification(TextInput):
    """A sequence classifier."""

    classes: int = 2
    """to tell apart"""


@dataclass(frozen=True)
class Translation(Model):
    """An encoder–decoder with one tied embedding."""

    vocabulary: int = 10_000
    """tokens of the joint vocabulary"""
    length: int = 256
    """longest source or target"""
    positions: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal"
    """how positions are told"""
    decoder: str | None = None
    """architecture of the decoder (none: that of the encoder)"""
    decoder_depth: int | None = None
    """layers of the decoder (none: as many as the encoder's)"""
