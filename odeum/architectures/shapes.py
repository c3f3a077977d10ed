"""Which sizes can be built."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args, get_type_hints

from odeum.errors import OdeumError
from odeum.models.pretrained import details
from odeum.models.settings import Shape
from odeum.registry.options import check_type


def check_shape(shape: Shape) -> None:
    """Of a stack, or of a whole model: every whole number is a size, of at least one."""
    hints = get_type_hints(type(shape))
    for name, hint in hints.items():
        check_type(getattr(shape, name), hint, name)
    for name, hint in hints.items():
        value = getattr(shape, name)
        if value is not None and int in (hint, *get_args(hint)[:1]) and isinstance(value, int) and value < 1:
            raise OdeumError(f"{name} must be at least 1, not {value}")
    if shape.width % shape.heads and details(shape).attention.head_width is None:
        raise OdeumError(f"heads ({shape.heads}) must divide the width ({shape.width})")
    if getattr(shape, "positions", None) == "rotary" and shape.width // shape.heads < 2:
        raise OdeumError(f"rotary positions turn pairs of features, but each of the {shape.heads} heads has one")
    if not 0.0 <= shape.norm_eps < math.inf:
        raise OdeumError(f"norm_eps must be zero or more, not {shape.norm_eps}")
    for name in ("dropout", "stochastic_depth"):
        if not 0.0 <= getattr(shape, name) < 1.0:
            raise OdeumError(f"{name} is a probability from 0 to below 1, not {getattr(shape, name)}")


def check_changes(settings: type[Shape], changes: Mapping[str, Any]) -> None:
    """Refuse settings that no model has, whatever the others will be."""
    heads = changes.get("heads", 1)
    width = changes.get("width", 2 * heads)  # what is not said yet may suit what is
    check_shape(replace(settings(), **{"heads": heads, "width": width, **changes}))
