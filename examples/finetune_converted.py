"""Fine-tune a pretrained model under another integrator with the Trainer of transformers.

`python examples/finetune_converted.py openai-community/gpt2 parallel`: GPT-2 by name, from a directory, or (without
arguments) a tiny one with random weights; its layers become parallel ones with the same weights.
"""

from __future__ import annotations

import sys
import tempfile
from typing import Any

import torch
import transformers

import odeum.hf
from odeum.interop import load
from odeum.lab.train.conversion import convert, deviation
from odeum.registry.spelling import parse


def tiny() -> Any:
    """So that the example runs anywhere."""
    config = transformers.GPT2Config(vocab_size=40, n_embd=32, n_layer=2, n_head=2, n_positions=32)
    return transformers.GPT2LMHeadModel(config)


def main(source: Any = None, architecture: str = "parallel", steps: int = 20) -> tuple[float, float]:
    """The loss before and after."""
    torch.manual_seed(0)
    pretrained = load(tiny() if source is None else source)
    converted = convert(pretrained, parse(architecture))
    print(f"kept {len(converted.copied)} weights; logits moved by {deviation(pretrained, converted.model).logits:.2f}")
    model = odeum.hf.OdeumForCausalLM.wrap(converted.model)
    rows = [{"input_ids": row, "labels": row} for row in torch.arange(16).repeat(16, 1) + torch.arange(16)[:, None]]
    batch = torch.stack([row["input_ids"] for row in rows])
    before = model(batch, labels=batch).loss.item()
    with tempfile.TemporaryDirectory() as folder:
        settings = transformers.TrainingArguments(
            output_dir=folder, max_steps=steps, learning_rate=3e-3, report_to=[], save_strategy="no", use_cpu=True
        )
        transformers.Trainer(model=model, args=settings, train_dataset=rows).train()
    return before, model.eval()(batch, labels=batch).loss.item()


if __name__ == "__main__":
    print("loss before and after: {:.3f} {:.3f}".format(*main(*sys.argv[1:3])))
