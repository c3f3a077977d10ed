"""Changes of a tokenizer.json that would exhaust memory or time, or panic, and why each is refused."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any


def replace(content: str, **pattern: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def table(*texts: bytes) -> dict[str, Any]:
    raw = (4).to_bytes(4, "little") + bytes(4) + b"\0".join(texts)
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(raw).decode()}


def sequence(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": list(parts)}


def nested(depth: int) -> dict[str, Any]:
    return sequence(nested(depth - 1)) if depth else {"type": "Lowercase"}


def token(number: Any) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": "zz", "special": True, **flags}


Change = Callable[[dict[str, Any]], object]
BOMBS: dict[str, tuple[Change, str]] = {
    "replacements": (lambda c: c.update(normalizer=sequence(*[replace("a" * 10, String="a")] * 9)), "times longer"),
    "regex replacements": (lambda c: c.update(normalizer=sequence(*[replace("ab", Regex=".")] * 30)), "times longer"),
    "many parts": (lambda c: c.update(normalizer=sequence(*[{"type": "Lowercase"}] * 300)), "over 200"),
    "deep parts": (lambda c: c.update(normalizer=nested(50)), "nested too deeply"),
    "long text": (lambda c: c.update(normalizer={"type": "Prepend", "prepend": "a" * 10**6}), "1,000,000 characters"),
    "slow split": (lambda c: c.update(pre_tokenizer=split("(a+)+$")), "retry-limit|seconds"),
    "slow replacement": (lambda c: c.update(normalizer=replace("", Regex="(x+x+)+y")), "retry-limit|seconds"),
    "long pattern": (lambda c: c.update(pre_tokenizer=split("(" * 9000 + ")" * 9000)), "18,000 characters"),
    "no pattern": (lambda c: c.update(pre_tokenizer=split("(")), "unmatched parenthesis"),
    "cut table": (lambda c: c.update(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}), "cut short"),
    "no table": (lambda c: c.update(normalizer={"type": "Precompiled", "precompiled_charsmap": "?"}), "not base64"),
    "growing table": (lambda c: c.update(normalizer=table(b"x" * 1000)), "over 256 bytes"),
    "huge id": (lambda c: c["model"]["vocab"].update(a=2**32 - 1), "is not a token id"),
    "text as id": (lambda c: c["model"]["vocab"].update(a="1"), "is not a token id"),
    "huge added id": (lambda c: c.update(added_tokens=[token(2**32 - 1)]), "is not a token id"),
    "added nothing": (lambda c: c.update(added_tokens=[3]), "not a list of tokens"),
    "no vocabulary": (lambda c: c["model"].update(vocab=3), "no vocabulary"),
    "no model": (lambda c: c.update(model=[]), "no model"),
    "long words": (
        lambda c: c.update(model={"type": "WordPiece", "vocab": {"a": 0}, "max_input_chars_per_word": 10**15}),
        "words of any length",
    ),
    "template": (
        lambda c: c.update(
            post_processor={
                "type": "TemplateProcessing",
                "single": [{"Sequence": {"id": "A", "type_id": 0}}] * 10**5,
                "pair": [],
                "special_tokens": {},
            }
        ),
        "repeats a text",
    ),
}
