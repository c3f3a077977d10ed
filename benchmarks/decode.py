"""Cached greedy decoding, batch 1, one thread, beside Hugging Face `generate` of a same-sized GPT-NeoX.

    python benchmarks/decode.py            # about a minute; writes benchmarks/results/decode.json

All models decode the same number of tokens in turn, several rounds; the time is this process's CPU time, the ratio
the median over the rounds of (GPT-NeoX time / our time). RK4 evaluates each layer four times, so a quarter of
GPT-NeoX's speed would be fair to it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from odeum.decode import beam_search, generate
from odeum.models import build

RESULT = Path(__file__).parent / "results" / "decode.json"
ARCHITECTURES = ("sequential", "parallel", "rk4", "transevolve", "transevolve:random-1")
SIZE = {"vocabulary": 10_000, "width": 128, "heads": 2, "depth": 6, "hidden": 512, "length": 512}


def neox() -> torch.nn.Module:
    """GPT-NeoX with the parallel residual: x + attention(norm x) + feed-forward(norm x), as our parallel layer."""
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    config = GPTNeoXConfig(
        vocab_size=SIZE["vocabulary"],
        hidden_size=SIZE["width"],
        num_attention_heads=SIZE["heads"],
        num_hidden_layers=SIZE["depth"],
        intermediate_size=SIZE["hidden"],
        max_position_embeddings=SIZE["length"],
        hidden_act="relu",
        use_parallel_residual=True,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    return GPTNeoXForCausalLM(config).eval()


def rivals(prompt: Tensor, tokens: int) -> dict[str, Callable[[], Tensor]]:
    hugging = neox()

    def theirs() -> Tensor:
        mask = torch.ones_like(prompt)
        words = {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": False, "use_cache": True}
        return hugging.generate(prompt, attention_mask=mask, **words)  # ty: ignore[call-non-callable]

    def ours(architecture: str) -> Callable[[], Tensor]:
        model = build(architecture, "language_small", **SIZE).eval()
        return lambda: generate(model, prompt, max_new_tokens=tokens, temperature=0.0)  # ty: ignore[invalid-argument-type]

    return {"gpt-neox": theirs, **{name: ours(name) for name in ARCHITECTURES}}


def cached_against_uncached(seed: int) -> dict[str, float]:
    """How much the cache wins in beam search: 8 sources of 24 tokens, beam 4, 48 tokens."""
    torch.manual_seed(seed)
    model = build("parallel", "translation_small").eval()
    sources = torch.randint(3, 10_000, (8, 24))
    seconds = {}
    for use_cache in (True, False):
        start = time.process_time()
        beam_search(model, sources, max_length=48, end=9_999, use_cache=use_cache)  # ty: ignore[invalid-argument-type]
        seconds["cached" if use_cache else "uncached"] = time.process_time() - start
    return {**seconds, "ratio": seconds["uncached"] / seconds["cached"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    prompt = torch.randint(0, SIZE["vocabulary"], (1, 32))
    runs = rivals(prompt, options.tokens)
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for round_number in range(options.rounds + 1):
        for name, run in runs.items():
            start = time.process_time()
            produced = run().shape[1] - prompt.shape[1]
            if produced != options.tokens:
                raise SystemExit(f"{name} produced {produced} tokens, not {options.tokens}")
            if round_number:  # the first round warms up
                seconds[name].append(time.process_time() - start)
    rows = {
        name: {
            "milliseconds_a_token": 1e3 * statistics.median(times) / options.tokens,
            "ratio": statistics.median(a / b for a, b in zip(seconds["gpt-neox"], times, strict=True)),
        }
        for name, times in seconds.items()
    }
    for name, row in rows.items():
        print(f"{name:24} {row['milliseconds_a_token']:7.3f} ms a token   {row['ratio']:5.2f} × GPT-NeoX generate")
    search = cached_against_uncached(options.seed)
    print(f"beam search: the cache is {search['ratio']:.1f} × as fast as none")
    import transformers

    record = {
        "rows": rows,
        "beam_search": search,
        "size": SIZE,
        "prompt": prompt.shape[1],
        "tokens": options.tokens,
        "rounds": options.rounds,
        "seed": options.seed,
        "threads": 1,
        "versions": {
            "python": sys.version.split()[0],
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["python", "benchmarks/decode.py", *sys.argv[1:]]),
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
