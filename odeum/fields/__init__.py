"""Fields, the right-hand sides of the ODE: dx/dt = f(t, x; context)."""

from odeum.fields.algebra import Increment, PeriNorm, PostNorm, PreNorm, Scaled, StochasticDepth, Sum
from odeum.fields.attention import CrossAttention, SelfAttention
from odeum.fields.base import Carry, Context, Field, Rotary, Source
from odeum.fields.cache import Cache
from odeum.fields.feedforward import FeedForward
from odeum.fields.noise import Dropout, Noise

__all__ = [
    "Cache",
    "Carry",
    "Context",
    "CrossAttention",
    "Dropout",
    "FeedForward",
    "Field",
    "Increment",
    "Noise",
    "PeriNorm",
    "PostNorm",
    "PreNorm",
    "Rotary",
    "Scaled",
    "SelfAttention",
    "Source",
    "StochasticDepth",
    "Sum",
]
