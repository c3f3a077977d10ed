"""The tokens of a run as a tokenizer of transformers, which gives the same numbers for the same text."""

from __future__ import annotations

from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from odeum.errors import OdeumError
from odeum.interop.gguf import byte_letters
from odeum.tokens import END, PAD, PIECES, Bpe, Bytes, Delimited, Framed, Listed, Tokens

FRAME_WORDS = {"first": "cls_token", "last": "sep_token"}
PAD_NAMES = ("<pad>", "[PAD]")
LINE_ENDS = Regex(" ?<eos> ?")


def make_tokenizer(tokens: Tokens, target: str, length: int, special_ids: Any = None) -> PreTrainedTokenizerFast:
    """A fast tokenizer with the special tokens that a model of this target reads.

    `target` is that of the kind of task: "next token", "translation", "hidden token", "class" or "number". A language
    model reads the end of a line before a prompt, as in `odeum predict`; a translation model the end of a sentence
    after it.
    """
    made = _core(tokens)
    special: dict[str, Any] = {}
    if target == "translation":
        special = {"pad_token": "<pad>", "bos_token": "<start>", "eos_token": "<end>", "unk_token": "<unk>"}
        made.post_processor = processors.TemplateProcessing(single="$A <end>", special_tokens=[("<end>", 2)])
        made.decoder = decoders.Sequence([made.decoder, decoders.Strip(" ", 1, 0)])  # as `odeum predict` prints it
    elif target == "next token":
        made.post_processor = _frame(made, tokens.prefix, [])
        special = {"padding_side": "left"}  # without a pad token: every token of the vocabulary means something
        special |= {key: name for key, name in _named_ends(made, tokens).items() if name is not None}
    elif special_ids is not None:  # of a masked model
        names = {key: made.id_to_token(number) for key, number in special_ids._asdict().items() if number is not None}
        special = {"mask_token": names["mask"], "pad_token": names["pad"]}
        ends = {key: [getattr(special_ids, key)] if key in names else [] for key in ("first", "last")}
        special |= {word: names[key] for key, word in FRAME_WORDS.items() if key in names}
        made.post_processor = _frame(made, ends["first"], ends["last"])
    elif isinstance(tokens, Framed):  # of a pretrained classifier
        special = {"cls_token": made.id_to_token(tokens.first), "sep_token": made.id_to_token(tokens.last)}
        padding = next((name for name in PAD_NAMES if made.token_to_id(name) is not None), None)
        special |= {} if padding is None else {"pad_token": padding}
        made.post_processor = _frame(made, [tokens.first], [tokens.last])
    elif made.token_to_id(PAD) == 0:
        special = {"pad_token": PAD}
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        model_max_length=length,
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
        **special,
    )


def put_first(tokenizer: PreTrainedTokenizerFast, name: str) -> None:
    """Add a special token after the vocabulary and put it before each text."""
    tokenizer.add_special_tokens({"cls_token": name})
    number = tokenizer.convert_tokens_to_ids(name)
    assert isinstance(number, int)
    tokenizer.backend_tokenizer.post_processor = _frame(tokenizer.backend_tokenizer, [number], [])


def _frame(made: Tokenizer, first: list[int], last: list[int]) -> processors.TemplateProcessing:
    """Tokens before and after a text."""
    pieces = [{"id": f"at{n}", "ids": [n], "tokens": [made.id_to_token(n)]} for n in dict.fromkeys([*first, *last])]
    parts = [*(f"at{n}" for n in first), "$A", *(f"at{n}" for n in last)]
    return processors.TemplateProcessing(single=parts, special_tokens=pieces)


def _named_ends(made: Tokenizer, tokens: Tokens) -> dict[str, str | None]:
    """Names of the first and the last token of a text, where they mean nothing else: transformers cuts them out."""
    known = {number for number, token in made.get_added_tokens_decoder().items() if token.special}
    numbers = {"bos_token": tokens.start, "eos_token": next(iter(tokens.ends), None)}
    return {key: made.id_to_token(n) if n is not None and n in known else None for key, n in numbers.items()}


def _core(tokens: Tokens) -> Tokenizer:
    if isinstance(tokens, Framed | Delimited):
        return _core(tokens.inner)
    if isinstance(tokens, Bpe):
        return Tokenizer.from_str(tokens.to_json())
    if isinstance(tokens, Bytes):
        return _bytes()
    if isinstance(tokens, Listed):
        return _listed(tokens)
    raise OdeumError(
        f"{type(tokens).__name__} cannot be converted to a tokenizer of transformers; only Odeum's own tokenizers can"
    )


def _bytes() -> Tokenizer:
    """Every byte is a letter of the byte-level alphabet, after the padding; letters are never merged."""
    letters = byte_letters()
    made = Tokenizer(models.BPE(vocab={PAD: 0, **{letter: byte + 1 for byte, letter in letters.items()}}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    return made


def _listed(tokens: Listed) -> Tokenizer:
    unknown = tokens.entries[tokens.unknown]
    made = Tokenizer(models.WordLevel({entry: i for i, entry in enumerate(tokens.entries)}, unk_token=unknown))
    match tokens.kind:
        case "characters":
            made.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
            made.decoder = decoders.Fuse()
        case "pieces":
            made.normalizer = normalizers.Lowercase()
            made.pre_tokenizer = pre_tokenizers.Split(Regex(PIECES), "removed", invert=True)
        case "symbols":
            made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        case "words":
            made.normalizer = normalizers.Replace("\n", f" {END} ")
            made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
            # a blank before each word, all in one, and the ends of lines as such
            made.decoder = decoders.Sequence(
                [
                    decoders.Replace(Regex("^"), " "),
                    decoders.Fuse(),
                    decoders.Replace(LINE_ENDS, "\n"),
                    decoders.Strip(" ", 1, 0),
                ]
            )
    return made
