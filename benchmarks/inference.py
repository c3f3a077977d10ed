"""A forward pass without gradients beside peers: a text classifier's encoder and a vision transformer.

script/bench inference            # a minute; writes benchmarks/results/inference.json
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from turns import installed, record, rows, show, take_turns, with_both_settings

from odeum.models import Encoder, build

WIDTH, HEADS, DEPTH, ROUNDS = 128, 4, 4, 15


def forward(model: Callable[[Tensor], object], x: Tensor) -> Callable[[], None]:
    def run() -> None:
        with torch.inference_mode():
            model(x)

    return run


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x = torch.randn(16, 128, WIDTH)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, batch_first=True, norm_first=True)
    peer = nn.TransformerEncoder(layer, DEPTH, nn.LayerNorm(WIDTH), enable_nested_tensor=False).eval()
    texts = {"nn.TransformerEncoder": forward(peer, x)}
    for name in ("sequential", "parallel", "rk4", "transevolve"):
        texts[name] = forward(Encoder(WIDTH, HEADS, DEPTH, name, activation="relu").eval(), x)
    tables = {
        "encoder, 16 × 128 tokens, relu": rows(take_turns(with_both_settings(texts), ROUNDS), "nn.TransformerEncoder")
    }
    show("encoder, ratio to nn.TransformerEncoder", tables["encoder, 16 × 128 tokens, relu"])

    pictures = torch.randn(4, 3, 224, 224)
    models = {name: build(name, "deit_tiny", classes=10).eval() for name in ("sequential", "parallel")}
    contestants = {name: forward(model, pictures) for name, model in models.items()}
    reference = "sequential"
    if installed("timm"):
        import timm

        reference = "timm deit_tiny"
        contestants[reference] = forward(timm.create_model("deit_tiny_patch16_224", num_classes=10).eval(), pictures)
    tables["pictures of 224, batch 4"] = rows(take_turns(with_both_settings(contestants), 5), reference)
    show(f"pictures, ratio to {reference}", tables["pictures of 224, batch 4"])
    record("inference", {"tables": tables, "width": WIDTH, "heads": HEADS, "depth": DEPTH, "rounds": ROUNDS, "seed": 0})


if __name__ == "__main__":
    main()
