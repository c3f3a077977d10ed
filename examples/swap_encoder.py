"""One line swaps the encoder of an existing PyTorch model: `python examples/swap_encoder.py rk4`."""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn

import odeum


class Tagger(nn.Module):
    """Somebody's model: tokens in, a tag a token out."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.encoder = encoder
        self.tags = nn.Linear(32, 2)

    def forward(self, ids: Tensor) -> Tensor:
        return self.tags(self.encoder(self.embedding(ids)))


def main(architecture: str = "parallel", steps: int = 200) -> float:
    """Train it to say whether a token occurred before; the share of right answers."""
    torch.manual_seed(0)
    # before: encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2)
    encoder = odeum.Encoder(width=32, heads=4, depth=2, hidden=64, architecture=architecture)
    model = Tagger(encoder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    right = 0.0
    for _ in range(steps):
        ids = torch.randint(50, (64, 12))
        same = (ids[:, :, None] == ids[:, None, :]).sum(dim=2) > 1
        logits = model(ids)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), same.long().flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right = float((logits.argmax(-1) == same).float().mean())
    return right


if __name__ == "__main__":
    print(f"right: {main(*sys.argv[1:2]):.3f}")
