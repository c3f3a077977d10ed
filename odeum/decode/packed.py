"""Linear maps and output matrices of a model with packed weights (`kernels/packed_linear.py`), for one text.

Only for a caller that holds the model unchanged until its last token: a packed copy does not follow its weight. The
copies take as much memory as the layers, and live as long as the call that decodes.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from odeum.decode.flat import Map, flat_map
from odeum.kernels.packed_linear import PackedLinear, worth_packing
from odeum.models.embedding import OutputMatrix, TiedEmbedding


class PackedMaps:
    """Flat maps for so many passes: linear layers with packed weights where that pays, each packed once."""

    def __init__(self, passes: int) -> None:
        self.passes = passes
        self.packed: dict[nn.Module, Map] = {}

    def __call__(self, module: nn.Module) -> Map:
        if type(module) is not nn.Linear or not worth_packing(module.weight, self.passes):
            return flat_map(module)
        if module not in self.packed:
            self.packed[module] = PackedLinear(module.weight, module.bias, flat_map(module))
        return self.packed[module]


def output_map(part: object, plain: Callable[[Tensor], Tensor], passes: int) -> Callable[[Tensor], Tensor]:
    """Return `plain`, the logits by this output matrix, with the matrix packed where that pays."""
    if type(part) not in (TiedEmbedding, OutputMatrix):
        return plain
    weight, bias = part.weight, getattr(part, "bias", None)  # ty: ignore[missing-attribute]
    if not worth_packing(weight, passes):
        return plain
    return PackedLinear(weight, bias, plain)
