"""A training step of a language model beside GPT-NeoX of the same size: 8 × 512 tokens, 10,000 and 32,000 words.

    script/bench language            # three minutes; writes benchmarks/results/language.json

Memory is that of a step with 50,000 words, each model in a process of its own: the largest resident set, and by how
much the step made it grow.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable

import decode
import torch
from turns import DEVICE, compiled, installed, record, rows, show, step, take_turns, with_both_settings

from odeum.models import build

BATCH, ROUNDS, MANY = 8, 5, 50_000
OURS = ("parallel", "sequential", "transevolve")


def contestants(
    words: int, names: tuple[str, ...], width: int = decode.SIZE["width"], batch: int = BATCH
) -> dict[str, Callable[..., None]]:
    """Training steps by name, each with a model of its own."""
    size = decode.SHAPE | {"vocabulary": words, "width": width, "heads": width // 64, "hidden": 4 * width}
    ids = torch.randint(0, words, (batch, decode.SIZE["length"] + 1), device=DEVICE)
    inputs, labels = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    found = {}
    for name in names:
        if name == "gpt-neox":  # which shifts its labels itself
            theirs = decode.neox(words, width).train().to(DEVICE)
            found[name] = step(theirs, lambda m=theirs, x=ids[:, :-1]: m(input_ids=x, labels=x).loss)
            if len(names) > 1 and (fast := compiled(theirs)) is not None:
                found["gpt-neox, compiled"] = step(theirs, lambda m=fast, x=ids[:, :-1]: m(input_ids=x, labels=x).loss)
            continue
        model = build(name, "language_small", **size).train().to(DEVICE)
        found[name] = step(model, lambda m=model, x=inputs, y=labels: m(input_ids=x, labels=y, **m.in_training).loss)
    return found


def peak(name: str) -> dict[str, float]:
    """Megabytes, in this process or on its GPU."""
    torch.set_num_threads(1)
    run = contestants(MANY, (name,))[name]
    if DEVICE.type == "cuda":
        before = torch.cuda.memory_allocated()
        run()
        after = torch.cuda.max_memory_allocated()
        return {"MB of the process": after / (1 << 20), "MB of the step": (after - before) / (1 << 20)}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return {"MB of the process": after / unit, "MB of the step": (after - before) / unit}


def peak_in_process(name: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--peak", name]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ}).stdout)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    peer = installed("transformers")
    reference, names = ("gpt-neox", (*OURS, "gpt-neox")) if peer else ("parallel", OURS)
    memory = {name: peak_in_process(name) for name in names}  # first: a child's largest set starts from its parent's
    tables = {}
    for words in (10_000, 32_000):
        table = rows(take_turns(with_both_settings(contestants(words, names)), ROUNDS), reference)
        show(f"{words} words: a training step, and the ratio to {reference}", table)
        tables[f"{words} words"] = {"reference": reference, "rows": table}
    for name, row in memory.items():
        row["times less than the reference"] = memory[reference]["MB of the process"] / row["MB of the process"]
        print(name, {what: round(value, 1) for what, value in row.items()})
    sizes = {"size": {**decode.SIZE}, "batch": BATCH, "rounds": ROUNDS, "words for memory": MANY, "seed": 0}
    record("language", {"tables": tables, "memory": memory, **sizes})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peak"]:
        print(json.dumps(peak(sys.argv[2])))
    else:
        main()
