"""Cached greedy decoding beside Hugging Face `generate` of a same-sized GPT-NeoX: batch 1, 16 and 64.

    script/bench decode            # a minute or two; writes benchmarks/results/decode.json

All models decode the same number of tokens in turn, several rounds; the ratio is the median over the rounds of
(GPT-NeoX time / our time). RK4 evaluates each layer four times, so a quarter of GPT-NeoX's speed would be fair to it.
`ordinary` is our own decoding without the flat step: a hook that does nothing keeps it from being taken. Where oneDNN
is faster, ours packs its weights for it; `products by MKL` does not, `products by oneDNN` is torch's public setting.
"""

from __future__ import annotations

from collections.abc import Callable

import ct2
import torch
from torch import Tensor, nn
from turns import MKL, installed, record, rows, show, take_turns, unpacked, with_both_settings

from odeum.decode import generate
from odeum.models import build

ARCHITECTURES = ("sequential", "parallel", "rk4", "transevolve", "transevolve:random-1")
SIZE = {"vocabulary": 10_000, "width": 128, "heads": 2, "depth": 6, "hidden": 512, "length": 512}
SHAPE = SIZE | {"positions": "sinusoidal"}
"""of our models: the positions that they were measured with"""
PROMPT, TOKENS, ROUNDS = 32, 64, 5
BATCHES = {1: ARCHITECTURES, 16: ("sequential", "parallel", "transevolve"), 64: ("parallel",)}


def neox(vocabulary: int = 10_000, width: int = SIZE["width"]) -> torch.nn.Module:
    """GPT-NeoX with the parallel residual: x + attention(norm x) + feed-forward(norm x), as our parallel layer."""
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    config = GPTNeoXConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_attention_heads=width // 64,
        num_hidden_layers=SIZE["depth"],
        intermediate_size=4 * width,
        max_position_embeddings=SIZE["length"],
        hidden_act="relu",
        use_parallel_residual=True,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    return GPTNeoXForCausalLM(config).eval()


def contestants(prompt: Tensor, architectures: tuple[str, ...]) -> dict[str, Callable[[], object]]:
    """Each gives the prompt and what follows it."""
    found: dict[str, Callable[[], object]] = {}
    if installed("transformers"):
        hugging, mask = neox(), torch.ones_like(prompt)
        asked = {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS, "do_sample": False, "use_cache": True}
        found["gpt-neox"] = lambda: hugging.generate(prompt, attention_mask=mask, **asked)  # ty: ignore[call-non-callable]
        if (engine := ct2.greedy(hugging, prompt, TOKENS, SIZE["vocabulary"])) is not None:
            found["ctranslate2"] = engine
    for name in architectures:
        model = build(name, "language_small", **SHAPE).eval()
        found[name] = lambda model=model: generate(model, prompt, max_new_tokens=TOKENS, temperature=0.0)
    plain = build("parallel", "language_small", **SHAPE).eval()
    next(part for part in plain.modules() if isinstance(part, nn.Linear)).register_forward_hook(lambda *_: None)
    found["parallel, ordinary"] = lambda: generate(plain, prompt, max_new_tokens=TOKENS, temperature=0.0)  # ty: ignore
    return found


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = {}
    for batch, architectures in BATCHES.items():
        prompt = torch.randint(0, SIZE["vocabulary"] - 1, (batch, PROMPT))
        runs = contestants(prompt, architectures)
        for name, run in runs.items():
            if name != "ctranslate2" and (produced := run().shape[1] - PROMPT) != TOKENS:
                raise SystemExit(f"{name} produced {produced} tokens, not {TOKENS}")
        reference = "gpt-neox" if "gpt-neox" in runs else "parallel, ordinary"
        every = with_both_settings(runs, usual=False) | {"parallel" + MKL: unpacked(runs["parallel"])}
        table = rows(take_turns(every, ROUNDS), reference, share=1 / TOKENS)
        show(f"batch {batch}: a token, and the ratio to {reference}", table)
        found[f"batch {batch}"] = {"reference": reference, "rows": table}
    record("decode", {"tables": found, "size": SIZE, "prompt": PROMPT, "tokens": TOKENS, "rounds": ROUNDS, "seed": 0})


if __name__ == "__main__":
    main()
