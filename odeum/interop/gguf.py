"""A trained language model as one GGUF file, which llama.cpp and what is built on it read without Odeum.

The weights are those of `interop.native` under GGUF's names. Two things are changed so that the numbers agree: queries
and keys of Llama turn neighbouring features there, and ReLU, which llama.cpp lacks, is written as GELU of inputs
multiplied by 2¹²: gelu(2¹² h) / 2¹² differs from relu(h) by at most 5e-5.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tokenizers.models import BPE
from torch import Tensor

from odeum.errors import OdeumError
from odeum.interop.native import ELSEWHERE, Native, refuse_imported, to_native
from odeum.models.language import LanguageModel

ARCHITECTURES = {
    "GPTNeoXForCausalLM": "gptneox",
    "PhiForCausalLM": "phi2",
    "LlamaForCausalLM": "llama",
    "GPT2LMHeadModel": "gpt2",
}
"""llama.cpp's name for a class of transformers"""
SHARP = 2.0**12
NORMAL, CONTROL = 1, 3
NEVER = "ÿ þ"
"""a merge of two bytes that no UTF-8 text has; llama.cpp refuses a table without merges"""


@dataclass(frozen=True)
class Vocabulary:
    """Byte-level BPE as GGUF holds it."""

    tokens: Sequence[str]
    types: Sequence[int]
    merges: Sequence[str]

    @property
    def never(self) -> int:
        """A token that no text has: one that stands for no text, else a byte that UTF-8 does not use."""
        return self.types.index(CONTROL) if CONTROL in self.types else self.tokens.index(NEVER[0])


def byte_letters() -> dict[int, str]:
    """The printable letter that stands for each byte in byte-level BPE (GPT-2): itself, or one from U+0100 on."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def bpe_vocabulary(tokenizer: Any, size: int) -> Vocabulary | None:
    """A tokenizer of the `tokenizers` library as `Vocabulary`; None if llama.cpp would split texts otherwise."""
    content = json.loads(tokenizer.to_str())
    splitter = content.get("pre_tokenizer") or {}
    if not isinstance(tokenizer.model, BPE) or splitter.get("type") != "ByteLevel" or content.get("normalizer"):
        return None
    merges = [item if isinstance(item, str) else " ".join(item) for item in content["model"]["merges"]]
    if splitter.get("add_prefix_space") or (merges and not splitter.get("use_regex", True)):
        return None
    names = {number: name for name, number in content["model"]["vocab"].items()}
    special = {token["id"]: token["content"] for token in content.get("added_tokens") or []}
    spelled = {*byte_letters().values(), *(merge.replace(" ", "") for merge in merges)}
    tokens = [special.get(i, names.get(i, f"<unused {i}>")) for i in range(size)]
    types = [CONTROL if i in special or token not in spelled else NORMAL for i, token in enumerate(tokens)]
    return Vocabulary(tokens, types, merges or [NEVER])


def character_vocabulary(entries: Sequence[str]) -> Vocabulary:
    """One token per character: the bytes of each character are merged from the left."""
    letters = byte_letters()
    tokens, types, merges = [], [], dict.fromkeys([NEVER])
    for entry in entries:
        spelled = "".join(letters[byte] for byte in entry.encode())
        tokens.append(spelled if len(entry) == 1 else entry)
        types.append(NORMAL if len(entry) == 1 else CONTROL)
        merges |= {f"{spelled[:n]} {spelled[n]}": None for n in range(1, len(spelled)) if len(entry) == 1}
    return Vocabulary(tokens, types, list(merges))


def write_gguf(
    model: Any, path: Path, name: str, vocabulary: Vocabulary | None, start: int | None = None, end: int | None = None
) -> Native:
    """Write a file that `llama_cpp.Llama` or `llama-cli` loads; returns what was written, in transformers' words.

    Arguments: the model; the file; its name; the vocabulary (None: token numbers only); the token before each text
    (None: no token), and the token that ends one (None: none does).
    """
    if not isinstance(model, LanguageModel):
        raise OdeumError(f"llama.cpp supports language models, not {type(model).__name__}; {ELSEWHERE}")
    refuse_imported(model, "llama.cpp", "its convert_hf_to_gguf.py")
    native = to_native(model)
    try:
        gguf: Any = import_module("gguf")
    except ImportError:
        raise OdeumError("--to gguf needs the package gguf; install it with `pip install odeum[gguf]`") from None
    s, architecture = model.settings, ARCHITECTURES[native.name]
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_name(name)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_context_length(s.length)
    writer.add_embedding_length(s.width)
    writer.add_block_count(s.depth)
    writer.add_feed_forward_length(s.hidden or 4 * s.width)
    writer.add_head_count(s.heads)
    writer.add_head_count_kv(s.heads)
    writer.add_vocab_size(s.vocabulary)
    (writer.add_layer_norm_rms_eps if architecture == "llama" else writer.add_layer_norm_eps)(s.norm_eps)
    if s.positions == "rotary":
        writer.add_rope_dimension_count(s.width // s.heads)
        writer.add_rope_freq_base(native.config["rope_parameters"]["rope_theta"])
    if architecture == "gptneox":
        writer.add_parallel_residual(native.config["use_parallel_residual"])
    _write_vocabulary(writer, vocabulary, start, end)
    names = gguf.get_tensor_name_map(getattr(gguf.MODEL_ARCH, architecture.upper()), s.depth)
    for theirs, tensor in native.weights.items():
        target = names.get_name(theirs, try_suffixes=(".weight", ".bias"))
        assert target is not None, f"gguf has no name for {theirs}"
        fitted = _fitted(tensor.detach().cpu().float(), theirs, target, native.config, s.heads, s.activation == "relu")
        writer.add_tensor(target, fitted.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return native


def _write_vocabulary(writer: Any, vocabulary: Vocabulary | None, start: int | None, end: int | None) -> None:
    if vocabulary is None:
        writer.add_tokenizer_model("none")
        return
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(list(vocabulary.tokens))
    writer.add_token_types(list(vocabulary.types))
    writer.add_token_merges(list(vocabulary.merges))
    writer.add_bos_token_id(vocabulary.never if start is None else start)  # without these, llama.cpp takes token 11
    writer.add_eos_token_id(vocabulary.never if end is None else end)
    writer.add_add_bos_token(start is not None)


def _fitted(tensor: Tensor, theirs: str, target: str, config: dict[str, Any], heads: int, relu: bool) -> Tensor:
    """A tensor in the order and the scale that llama.cpp computes with."""
    if theirs.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
        tensor = tensor.T
    if "query_key_value" in theirs:  # all queries, then all keys, then all values
        tensor = tensor.unflatten(0, (heads, 3, -1)).transpose(0, 1).flatten(0, 2)
    if "rms_norm_eps" in config and ("attn_q." in target or "attn_k." in target):
        tensor = tensor.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)
    if relu and "ffn_up." in target:
        tensor = tensor * SHARP
    if relu and target.endswith("ffn_down.weight"):
        tensor = tensor / SHARP
    return tensor
