"""Eight-bit weights of an exported run, by onnxruntime: `odeum export RUN out/`, then `python examples/int8.py out/`.

Needs the extra `export`. Writes out/model.int8.onnx and says how much smaller it is and how often its class is equal.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import QuantType, quantize_dynamic


def main(folder: Path) -> float:
    """Quantise, run both on the same inputs, and return the part of equal answers."""
    source, target = folder / "model.onnx", folder / "model.int8.onnx"
    model = onnx.load(source)
    del model.graph.value_info[:]  # shapes of weights that the quantiser turns; it infers them anew
    quantize_dynamic(model, target, weight_type=QuantType.QInt8)
    inputs = made_up(json.loads((folder / "export.json").read_text())["inputs"])
    answers = []
    for path in (source, target):
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        answers.append(session.run(None, inputs)[0].argmax(-1))
    same = float((answers[0] == answers[1]).mean())
    print(f"{source.stat().st_size:,} → {target.stat().st_size:,} bytes; the same answer for {same:.0%} of the inputs")
    return same


def made_up(shapes: dict[str, list[str | int]]) -> dict[str, np.ndarray]:
    """Inputs of the right shape; your own examples tell more."""
    random, sizes = np.random.default_rng(0), {"batch": 64, "length": 16}
    out = {}
    for name, shape in shapes.items():
        whole = tuple(sizes[side] if isinstance(side, str) else side for side in shape)
        if name == "images":
            out[name] = random.standard_normal(whole, dtype=np.float32)
        else:
            out[name] = np.ones(whole, np.int64) if name == "attention_mask" else random.integers(0, 4, whole)
    return out


if __name__ == "__main__":
    main(Path(sys.argv[1]))
