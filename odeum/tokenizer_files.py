"""tokenizer.json files of the `tokenizers` library, checked before they are used: a file from elsewhere can be a bomb.

Padding to 10⁹ tokens, chains of replacements, slow regular expressions and broken tables end in an exhausted memory, a
panic of the library or an abort. What can be read off the file is limited here; what cannot (a regular expression) is
tried in a process of its own with little time and memory.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from odeum.errors import OdeumError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LARGEST_FILE = 128 * 2**20
"""bytes; the largest vocabularies in use take 33 MB"""
LARGEST_ID = 10_000_000
MAX_PARTS = 200
"""normalizers, splits and decoders of one tokenizer"""
LONGEST_PATTERN = 4_000
"""characters of a regular expression, or of a text that is put in"""
MAX_GROWTH = 64.0
"""how many times longer all replacements together may make a text"""
LONGEST_REPLACEMENT = 256
"""bytes that one character may become in a table of characters"""
PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
TRIAL_SECONDS, TRIAL_MEMORY = 20, 3 * 2**30
TRIAL_TEXTS = ("a", " ", "\n", "0", "x ", "'", "é", "字", "- ", "A1 ", "\t\n ", ".")

MODELS = ("BPE", "WordPiece", "WordLevel")
USUAL_PARTS = frozenset(
    {
        *("BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Prepend", "Replace", "Strip", "StripAccents"),
        *("BertPreTokenizer", "ByteLevel", "Digits", "Metaspace", "Punctuation", "Split", "Whitespace"),
        *("WhitespaceSplit", "BertProcessing", "RobertaProcessing", "TemplateProcessing"),
        *("ByteFallback", "Fuse", "Sequence", "WordPiece"),
    }
)
"""parts that need no trial, except regular expressions"""
KNOWN_PATTERNS = frozenset(
    {
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",  # GPT-2
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+",  # Llama 3
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+",  # Qwen 2
        " {2,}",
    }
)
"""regular expressions of widely used tokenizers, which need no trial"""


class TokenizerFile(NamedTuple):
    """A tokenizer that may be used, and how many ids it may give."""

    tokenizer: Tokenizer
    size: int


class _InvalidTokenizer(ValueError):
    """A tokenizer that is not used, and why."""


def read_tokenizer(text: str, path: Path) -> TokenizerFile:
    """The tokenizer in a tokenizer.json; raises `OdeumError` where it cannot be used within limits.

    Padding, truncation and BPE dropout are removed: a text is always encoded whole, and always the same.
    """
    from tokenizers import Tokenizer

    try:
        if len(text) > LARGEST_FILE:
            raise _InvalidTokenizer(f"it is larger than {LARGEST_FILE >> 20} MiB")
        content = json.loads(text)
        if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
            raise _InvalidTokenizer("it describes no model of tokens")
        content |= {"padding": None, "truncation": None}
        if "dropout" in content["model"]:
            content["model"]["dropout"] = None
        if not content["model"].get("max_input_chars_per_word", 0) <= LONGEST_PATTERN:
            raise _InvalidTokenizer("it takes words of any length, for a time that grows with its square")
        size = _size(content)
        patterns = _check_parts(content)
        plain = json.dumps(content, ensure_ascii=False)
        if any(pattern not in KNOWN_PATTERNS for pattern in patterns) or _unusual(content):
            _try(plain, patterns)
        with library_errors():
            return TokenizerFile(Tokenizer.from_str(plain), size)
    except RecursionError:
        reason: object = "it is nested too deeply"
    except Exception as error:  # whatever the library makes of it: it raises nothing more exact
        reason = error
    raise OdeumError(f"'{path}' cannot be used as a tokenizer: {' '.join(str(reason).split())}")


@contextlib.contextmanager
def library_errors(what: str = "the tokenizer fails on this text") -> Generator[None]:
    """Raise `OdeumError` where the library fails, also by a panic, which is no `Exception` to Python."""
    try:
        yield
    except OdeumError:
        raise
    except BaseException as error:
        if type(error).__name__ != "PanicException" and type(error) not in (Exception, TypeError, OverflowError):
            raise
        raise OdeumError(f"{what}: {' '.join(str(error).split())[:200]}") from None


def check_ids(vocabulary: Any, path: Path) -> int:
    """One more than the largest id of a vocabulary; raises `OdeumError` where ids are no numbers of a table."""
    if not isinstance(vocabulary, dict):
        raise OdeumError(f"'{path}' is not a vocabulary: it must map texts to numbers")
    try:
        return _size({"model": {"vocab": vocabulary}})
    except _InvalidTokenizer as error:
        raise OdeumError(f"'{path}' is not a vocabulary: {error}") from None


def _size(content: dict[str, Any]) -> int:
    """One more than the largest id; raises where ids are no numbers, or numbers of no table."""
    vocabulary = content["model"].get("vocab")
    if isinstance(vocabulary, dict):
        ids = list(vocabulary.values())
    elif isinstance(vocabulary, list):
        ids = [len(vocabulary) - 1]
    else:
        raise _InvalidTokenizer("it has no vocabulary")
    added = content.get("added_tokens") or []
    if not isinstance(added, list) or not all(isinstance(token, dict) for token in added):
        raise _InvalidTokenizer("its added tokens are not a list of tokens")
    ids += [token.get("id") for token in added]
    for number in ids:
        if not isinstance(number, int) or isinstance(number, bool) or not -1 <= number < LARGEST_ID:
            raise _InvalidTokenizer(f"{str(number)[:40]!r} is not a token id; ids are integers below {LARGEST_ID:,}")
    return max(ids, default=-1) + 1


def _walk(part: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
    """A part and those inside of it: sequences hold others."""
    if isinstance(part, list):
        for each in part:
            yield from _walk(each, depth)
    elif isinstance(part, dict):
        if depth > 16:
            raise _InvalidTokenizer("its parts are nested too deeply")
        yield part
        for key in ("normalizers", "pretokenizers", "processors", "decoders"):
            yield from _walk(part.get(key) or [], depth + 1)


def _check_parts(content: dict[str, Any]) -> list[str]:
    """Check what can be read off the parts; return the regular expressions."""
    patterns: list[str] = []
    count = 0
    for name in PARTS:
        growth = 1.0
        for part in _walk(content.get(name)):
            count += 1
            if count > MAX_PARTS:
                raise _InvalidTokenizer(f"it has over {MAX_PARTS} normalizers, splits and decoders")
            pattern, kind = part.get("pattern"), part.get("type")
            regex = pattern.get("Regex") if isinstance(pattern, dict) else None
            patterns += [regex] if isinstance(regex, str) else []
            for text in (regex, part.get("content"), part.get("prepend"), part.get("replacement")):
                if isinstance(text, str) and len(text) > LONGEST_PATTERN:
                    raise _InvalidTokenizer(f"its {kind} holds a text of {len(text):,} characters")
            if kind == "Replace" and isinstance(put := part.get("content"), str):
                literal = pattern.get("String") if isinstance(pattern, dict) else None
                taken = len(literal) if isinstance(literal, str) and literal else 1
                growth *= max(1.0, len(put) / taken)
            elif kind == "Precompiled":
                _check_table(part.get("precompiled_charsmap"))
            elif kind == "TemplateProcessing":
                _check_template(part)
        if not growth <= MAX_GROWTH:
            raise _InvalidTokenizer(f"its replacements make a text up to {growth:,.0f} times longer")
    return patterns


def _check_table(table: Any) -> None:
    """A table of characters (SentencePiece): a trie, then the texts that characters become, with zeros between."""
    try:
        raw = base64.b64decode(table, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise _InvalidTokenizer("its table of characters is not base64") from None
    trie = int.from_bytes(raw[:4], "little")
    if len(raw) < 8 or trie % 4 or trie > len(raw) - 4:
        raise _InvalidTokenizer("its table of characters is cut short")
    if max(map(len, raw[4 + trie :].split(b"\0"))) > LONGEST_REPLACEMENT:
        raise _InvalidTokenizer(f"its table of characters makes one character over {LONGEST_REPLACEMENT} bytes")


def _check_template(part: dict[str, Any]) -> None:
    for key in ("single", "pair"):
        pieces = part.get(key) or []
        texts = [piece for piece in pieces if isinstance(piece, dict) and "Sequence" in piece]
        if len(pieces) > 64 or len(texts) > 2:
            raise _InvalidTokenizer(f"its template repeats a text {len(texts)} times among {len(pieces)} pieces")
    special = part.get("special_tokens") or {}
    ids = sum(len(token.get("ids") or []) for token in special.values() if isinstance(token, dict))
    if ids > 10_000:
        raise _InvalidTokenizer(f"its template puts {ids:,} tokens around a text")


def _unusual(content: dict[str, Any]) -> bool:
    """Whether a part is of a kind that may fail on some text although its description looks sound."""
    kinds = {part.get("type") for name in PARTS for part in _walk(content.get(name))}
    return content["model"].get("type", "BPE") not in MODELS or bool(kinds - USUAL_PARTS)


_TRIAL = """
import contextlib, json, sys
given = json.load(sys.stdin)
with contextlib.suppress(ImportError):
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (given["memory"],) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (given["seconds"],) * 2)
from tokenizers import Tokenizer
answer = None
try:
    tokenizer = Tokenizer.from_str(given["tokenizer"])
    for text in given["texts"]:
        with contextlib.suppress(Exception):  # a text that it has no tokens for
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            if len(ids) > given["most"] * len(text):
                answer = f"a text of {len(text)} characters becomes {len(ids)} tokens"
                break
            tokenizer.decode(ids[:1000])
except BaseException as error:
    answer = str(error) or type(error).__name__
print(json.dumps(answer))
"""


def _try(tokenizer: str, patterns: list[str]) -> None:
    """Encode texts that are hard to match in a process with little time and memory; raise what goes wrong there."""
    letters = sorted({letter for pattern in patterns for letter in pattern if letter.isalnum()})[:64]
    texts = [(text * (1500 // len(text)))[:1500] + "!" for text in (*TRIAL_TEXTS, *letters)]
    memory = TRIAL_MEMORY + 40 * len(tokenizer)
    limits = {"memory": memory, "seconds": TRIAL_SECONDS, "most": MAX_GROWTH}
    try:
        run = subprocess.run(
            [sys.executable, "-P", "-c", _TRIAL],
            input=json.dumps({"tokenizer": tokenizer, "texts": texts, **limits}),
            capture_output=True,
            text=True,
            timeout=6 * TRIAL_SECONDS,
            check=False,
        )
        answer = json.loads(run.stdout)
    except subprocess.TimeoutExpired:
        answer = f"a text of 1,500 characters takes over {TRIAL_SECONDS} seconds"
    except ValueError:  # killed by the system
        answer = f"a text of 1,500 characters takes over {TRIAL_SECONDS} seconds or {TRIAL_MEMORY >> 30} GiB"
    if answer is not None:
        raise _InvalidTokenizer(answer)
