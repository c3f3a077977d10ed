"""Build the stack of layers of an architecture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odeum.errors import OdeumError
from odeum.models.settings import Shape, check_settings
from odeum.registry.names import Architecture, Mixed
from odeum.registry.spelling import parse

if TYPE_CHECKING:
    from torch import nn


def stack(architecture: str | Architecture, shape: Shape, cross: bool = False) -> nn.Module:
    """Builds the stack of layers of an architecture; `cross` adds attention to an encoder's memory."""
    return make_stack(parse(architecture), shape, cross)


def make_stack(architecture: Architecture, shape: Shape, cross: bool = False) -> nn.Module:
    """Builds the stack of an architecture whose options have been checked."""
    from torch import nn

    from odeum.draws import drawing_stack

    check_settings(shape)
    with drawing_stack():
        if isinstance(architecture, Mixed):
            from odeum.architectures.mixed import mixed_stack

            return mixed_stack(architecture, shape, cross)
        result = architecture.stack(shape, cross)
    if not isinstance(result, nn.Module):
        raise OdeumError(
            f"{type(architecture).__name__}.stack should return an odeum.Stack, not {type(result).__name__}"
        )
    return result
