"""Beam search beside Marian of the same size: eight sources of 24 tokens, beam 4, 48 tokens.

    script/bench beam            # a minute; writes benchmarks/results/beam.json

Random weights: the end is made impossible in both, so that both search to the same length. `uncached` is our own search
without kept keys and values.
"""

from __future__ import annotations

from collections.abc import Callable

import ct2
import torch
from turns import MKL, installed, record, rows, show, take_turns, unpacked, with_both_settings

from odeum.decode import beam_search
from odeum.models import build

SIZE = {"vocabulary": 10_000, "width": 256, "heads": 4, "depth": 3, "hidden": 1024, "length": 128}
SOURCES, SOURCE, TOKENS, BEAM, ROUNDS = 8, 24, 48, 4, 5


def marian() -> torch.nn.Module:
    """A Marian model of these sizes: post-norm encoder and decoder, tied embedding, sinusoidal positions."""
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=SIZE["vocabulary"],
        d_model=SIZE["width"],
        encoder_layers=SIZE["depth"],
        decoder_layers=SIZE["depth"],
        encoder_attention_heads=SIZE["heads"],
        decoder_attention_heads=SIZE["heads"],
        encoder_ffn_dim=SIZE["hidden"],
        decoder_ffn_dim=SIZE["hidden"],
        max_position_embeddings=SIZE["length"],
        activation_function="relu",
        pad_token_id=0,
        decoder_start_token_id=1,
        eos_token_id=2,
        forced_eos_token_id=None,
    )
    return MarianMTModel(config).eval()


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sources = torch.randint(3, SIZE["vocabulary"] - 1, (SOURCES, SOURCE))
    found: dict[str, Callable[[], object]] = {}
    if installed("transformers"):
        theirs, mask = marian(), torch.ones_like(sources)
        asked = {"num_beams": BEAM, "max_new_tokens": TOKENS, "min_new_tokens": TOKENS, "length_penalty": 0.6}
        found["marian"] = lambda: theirs.generate(sources, attention_mask=mask, **asked)  # ty: ignore[call-non-callable]
        if (engine := ct2.beams(theirs, sources, BEAM, TOKENS, SIZE["vocabulary"])) is not None:
            found["ctranslate2"] = engine
    for name in ("post-norm", "parallel", "transevolve"):
        model = build(name, "translation_small", **SIZE).eval()
        # An end that is no token cannot be produced.
        asked_ours = {"beam": BEAM, "max_length": TOKENS, "end": SIZE["vocabulary"]}
        found[name] = lambda model=model, asked=asked_ours: beam_search(model, sources, **asked)
        if name == "parallel":
            found["parallel, uncached"] = lambda model=model, asked=asked_ours: beam_search(
                model, sources, use_cache=False, **asked
            )
    reference = "marian" if "marian" in found else "parallel, uncached"
    every = with_both_settings(found, usual=False) | {"post-norm" + MKL: unpacked(found["post-norm"])}
    table = rows(take_turns(every, ROUNDS), reference, share=1 / TOKENS)
    show(f"beam {BEAM}, {SOURCES} sources: a position, and the ratio to {reference}", table)
    sizes = {"sources": SOURCES, "source": SOURCE, "tokens": TOKENS, "beam": BEAM, "rounds": ROUNDS, "seed": 0}
    record("beam", {"reference": reference, "rows": table, "size": SIZE, **sizes})


if __name__ == "__main__":
    main()
