"""Odeum's vision models for timm: `import odeum.interop.timm`, then timm.create_model("odeum_deit_tiny_parallel").

There is a name for each size (tiny, small, base) and each architecture with fixed steps; `architecture=` gives options,
as in create_model("odeum_deit_tiny_parallel", architecture="parallel:independent=6").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from odeum.errors import OdeumError, choose
from odeum.flow import Flow
from odeum.integrators import Checkpointed
from odeum.models.settings import PRESETS, Vision
from odeum.models.vision import VisionModel
from odeum.registry.names import ARCHITECTURES
from odeum.registry.spelling import parse

try:  # by name, since this module has the same
    _library: Any = import_module("timm")
    _layers: Any = import_module("timm.layers")
    _models: Any = import_module("timm.models")
except ImportError:
    raise OdeumError("odeum.interop.timm needs timm; `pip install odeum[timm]`") from None
except RuntimeError as error:  # torchvision, which timm needs, is of another build than torch
    raise OdeumError(
        f"timm is installed, but its torchvision does not load with torch {torch.__version__} ({error}); install the "
        "torchvision that was built for this torch"
    ) from None

SIZES_OF_DEIT = ("tiny", "small", "base")
POOLS = {"token": "token", "avg": "mean", "": "token"}
"""timm's words for what is read off, and ours"""
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


class TimmVision(VisionModel):
    """A vision model as timm's users know one: logits out, features, intermediates, a head that can be replaced."""

    def __init__(
        self,
        architecture: str,
        preset: str,
        img_size: int | tuple[int, int] = 224,
        patch_size: int | None = None,
        in_chans: int = 3,
        num_classes: int = 1000,
        global_pool: str = "token",
        drop_rate: float = 0.0,
        proj_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
    ) -> None:
        base = PRESETS[preset]
        assert isinstance(base, Vision)
        changes: dict[str, Any] = {"image_size": _side(img_size), "channels": in_chans, "classes": max(1, num_classes)}
        changes |= {"pooling": POOLS[choose(global_pool, POOLS, "global_pool")], "dropout": proj_drop_rate}
        changes |= {"stochastic_depth": drop_path_rate, "patch_size": patch_size or base.patch_size}
        super().__init__(replace(base, **changes), parse(architecture))
        self.num_features = self.head_hidden_size = self.embed_dim = base.width
        self.num_prefix_tokens = int(self.token is not None)
        self.global_pool = global_pool
        self.head_drop = nn.Dropout(drop_rate)
        size = self.settings.patch_size
        self.feature_info = [
            {"module": f"stack.flows.{i}", "num_chs": base.width, "reduction": size} for i in self._schedule()
        ]
        self.reset_classifier(num_classes)

    def _schedule(self) -> tuple[int, ...]:
        stack: Any = self.stack
        return stack.schedule

    # what timm's loops ask of a model

    def no_weight_decay(self) -> set[str]:
        """Weights that are no maps."""
        return {"position", "token"}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Which weights stand at which depth, for rates that fall with it; layers that share weights are one."""
        return {
            "stem": r"^token|^position|^patch",
            "blocks": [(r"^stack\.flows\.(\d+)", None), (r"^stack\.norm", (99999,))],
        }

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute each evaluation when the gradient passes."""
        for flow in [part for part in self.modules() if isinstance(part, Flow)]:
            if enable and not isinstance(flow.solver, Checkpointed):
                flow.solver = Checkpointed(flow.solver)
                flow.solver.check(flow.field)
            elif not enable and isinstance(flow.solver, Checkpointed):
                flow.solver = flow.solver.solver

    def get_classifier(self) -> nn.Module:
        """The head."""
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Another number of classes; 0 gives what the head would read."""
        if global_pool is not None:
            if POOLS[choose(global_pool, POOLS, "global_pool")] == "token" and global_pool and self.token is None:
                raise OdeumError("global_pool='token' needs a model that was made with a class token")
            self.global_pool = global_pool
        self.num_classes = num_classes
        like = self.position
        head = nn.Linear(self.embed_dim, num_classes) if num_classes else nn.Identity()
        self.head = head.to(device=like.device, dtype=like.dtype)
        if isinstance(self.head, nn.Linear):
            nn.init.xavier_uniform_(self.head.weight)
            nn.init.zeros_(self.head.bias)

    def set_input_size(self, img_size: int | tuple[int, int] | None = None, patch_size: int | None = None) -> None:
        """Images of another size: positions are interpolated; patches keep their size."""
        if patch_size is not None and _side(patch_size) != self.settings.patch_size:
            raise OdeumError(
                f"patch_size is {self.settings.patch_size} and cannot be changed: create a new model with another one"
            )
        size, patch = self.settings.image_size if img_size is None else _side(img_size), self.settings.patch_size
        if size % patch:
            raise OdeumError(f"patch_size ({patch}) must divide img_size ({size})")
        old, new = ([side // patch] * 2 for side in (self.settings.image_size, size))
        self.position = nn.Parameter(
            _layers.resample_abs_pos_embed(self.position, new, old, num_prefix_tokens=self.num_prefix_tokens)
        )
        self.settings = replace(self.settings, image_size=size)

    # passes

    def forward_features(self, x: Tensor) -> Tensor:
        """The last states of all particles, normed: [batch, tokens, width]."""
        return self.stack(self.embed(x))

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Pools the last states for the head."""
        if self.global_pool == "token":
            x = x[:, 0]
        elif self.global_pool == "avg":
            x = x[:, self.num_prefix_tokens :].mean(dim=1)
        x = self.head_drop(x)
        return x if pre_logits else self.head(x)

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | Sequence[int] | None = None,
        return_prefix_tokens: bool = False,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> Any:
        """The last states, and those after the layers of these indices (the last so many of them; none: all)."""
        shape = choose(str(getattr(output_fmt, "value", output_fmt)), ("NCHW", "NLC"), "output_fmt")
        stack: Any = self.stack
        taken, last = _models._features.feature_take_indices(len(stack.schedule), indices)
        out: list[Any] = []
        final = stack.norm or nn.Identity()
        side = self.settings.image_size // self.settings.patch_size
        state = x
        for i, state in enumerate(stack.trajectory(self.embed(x)), -1):  # the first is what the first layer takes
            if i in taken:
                seen = final(state) if norm else state
                tokens, prefix = seen[:, self.num_prefix_tokens :], seen[:, : self.num_prefix_tokens]
                if shape == "NCHW":
                    tokens = tokens.transpose(1, 2).unflatten(2, (side, side)).contiguous()
                out.append((tokens, prefix) if return_prefix_tokens else tokens)
            if stop_early and intermediates_only and i == last:
                break
        return out if intermediates_only else (final(state), out)

    def forward(self, images: Tensor) -> Tensor:  # ty: ignore[incompatible-method-override]
        """The logits."""
        return self.forward_head(self.forward_features(images))


def _side(size: int | Sequence[int]) -> int:
    """Images and patches are square."""
    sides = [size, size] if isinstance(size, int) else list(size)
    if len(sides) != 2 or sides[0] != sides[1]:
        raise OdeumError(f"images and patches must be square, not {tuple(sides)}")
    return int(sides[0])


def _names() -> dict[str, tuple[str, str]]:
    """Every name: its preset and its architecture."""
    fixed = [
        name for name in ARCHITECTURES if name != "continuous"
    ]  # it takes no rate of dropped paths, no checkpoints
    return {
        f"odeum_deit_{size}_{name.replace('-', '_')}": (f"deit_{size}", name)
        for size in SIZES_OF_DEIT
        for name in fixed
    }


def _entry(name: str, preset: str, architecture: str) -> Callable[..., nn.Module]:
    def make(pretrained: bool = False, **options: Any) -> nn.Module:
        if pretrained:
            raise OdeumError(f"there are no trained weights of {name}; give checkpoint_path, or see `odeum import`")
        options = {"architecture": architecture, "preset": preset, **options}
        if options.get("features_only"):
            options |= {"num_classes": 0}
        features = {"out_indices": 3, "feature_cls": "getter"}
        return _models.build_model_with_cfg(TimmVision, name, False, feature_cfg=features, **options)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"{preset} with the architecture {architecture}."
    return make


default_cfgs = _models.generate_default_cfgs(
    {
        name: {
            **{"url": "", "input_size": (3, 224, 224), "num_classes": 1000, "pool_size": None, "crop_pct": 0.9},
            **{"interpolation": "bicubic", "first_conv": "patch", "classifier": "head", **IMAGENET},
        }
        for name in _names()
    }
)
"""timm's table of defaults per model; timm requires this name"""

for _name, (_preset, _own) in _names().items():
    _models.register_model(_entry(_name, _preset, _own))
assert _library.is_model("odeum_deit_tiny_parallel")
