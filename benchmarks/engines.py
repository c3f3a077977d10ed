"""Greedy decoding of one exported model by every engine that takes it: Odeum, transformers, CTranslate2, llama.cpp.

    PYTHONPATH=. python benchmarks/engines.py     # needs ctranslate2, gguf and llama-cpp-python beside transformers

One sequence, one thread, float32; engines take turns, and the ratio is the median over the rounds of (Odeum's CPU
time / theirs). All continue one prompt of a language model with random weights; the number of tokens that they share
with Odeum is recorded.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from turns import installed, record, rows, show, take_turns

from odeum.decode import generate
from odeum.decode.choice import Choice
from odeum.interop.ctranslate2 import CTranslate2
from odeum.interop.gguf import write_gguf
from odeum.interop.native import write_native
from odeum.models import build

SIZE = {"vocabulary": 10_000, "width": 128, "heads": 2, "depth": 6, "hidden": 512, "length": 512, "positions": "rotary"}
PROMPT, TOKENS, ROUNDS = 32, 64, 7


def contestants(prompt: list[int], place: Path) -> dict[str, Callable[[], list[int]]]:
    """Each gives the tokens that follow the prompt."""
    model = build("parallel", "language_small", **SIZE).eval()
    ids = torch.tensor([prompt])
    found: dict[str, Callable[[], list[int]]] = {
        "odeum": lambda: generate(model, ids, max_new_tokens=TOKENS, temperature=0.0)[0, PROMPT:].tolist()
    }
    if installed("transformers"):
        (folder := place / "transformers").mkdir()
        theirs, _ = write_native(model, folder)
        asked = {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS, "do_sample": False, "pad_token_id": 0}
        found["transformers"] = lambda: theirs.generate(ids, attention_mask=ids * 0 + 1, **asked)[0, PROMPT:].tolist()
    if installed("ctranslate2"):
        engine = CTranslate2(model)
        found["ctranslate2"] = lambda: list(engine.stream(prompt, TOKENS, Choice(0.0), 0))
    if installed("gguf") and installed("llama_cpp"):
        import llama_cpp

        write_gguf(model, place / "model.gguf", "engines", None)
        options = {"n_ctx": SIZE["length"], "n_threads": 1, "n_threads_batch": 1, "type_k": 0, "type_v": 0}
        llama = llama_cpp.Llama(str(place / "model.gguf"), verbose=False, **options)

        def by_llama() -> list[int]:
            llama.reset()
            return list(itertools.islice(llama.generate(prompt, temp=0.0), TOKENS))

        found["llama.cpp"] = by_llama
    return found


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    prompt = torch.randint(0, SIZE["vocabulary"], (PROMPT,)).tolist()
    with tempfile.TemporaryDirectory() as place:
        runs = contestants(prompt, Path(place))
        ours = runs["odeum"]()
        same = {}
        for name, run in runs.items():
            made = run()
            same[name] = next((i for i, pair in enumerate(zip(made, ours, strict=True)) if len(set(pair)) > 1), TOKENS)
        table = rows(take_turns(runs, ROUNDS), "odeum", 1 / TOKENS)
    show("one sequence, per token", table)
    print("tokens shared with Odeum:", same)
    record("engines", {"size": SIZE, "prompt": PROMPT, "tokens": TOKENS, "rows": table, "same_tokens": same})


if __name__ == "__main__":
    main()
