"""Read vocabularies of other projects, and build tokenizers with the same ids."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from ..errors import UserError

# Spellings of the special tokens in other projects.
SPECIALS = {
    "pad": ("<pad>", "<blank>", "[PAD]", "<PAD>"),
    "unknown": ("<unk>", "[UNK]", "<UNK>"),
    "begin": ("<s>", "<bos>", "<sos>", "[BOS]", "<BOS>", "<SOS>"),
    "end": ("</s>", "<eos>", "[EOS]", "<EOS>"),
}
# The fields of a configuration with the ids of special tokens.
FIELDS = {"pad": "pad_token_id", "begin": "bos_token_id", "end": "eos_token_id"}


def read_vocabulary(path: Path) -> list[str]:
    """Read tokens in the order of their ids: a JSON list or ``{token: id}``, or any other file with one token per line.

    Raises:
        UserError: the file does not exist or is not a vocabulary.
    """
    if not path.is_file():
        raise UserError(f"{path} was not found; give a vocabulary.")
    try:
        text = path.read_bytes().decode("utf-8")
        content = json.loads(text) if path.suffix == ".json" else text.removesuffix("\n").split("\n")
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not a vocabulary ({error}); write JSON, or one token on each line.") from error
    return tokens_of(content, str(path))


def tokens_of(content: Any, where: str) -> list[str]:
    """Return tokens in the order of their ids, from a sequence, ``{token: id}`` or ``{id: token}``.

    Args:
        content: content of the file.
        where: name of the file, for messages.

    Raises:
        UserError: the tokens are not strings, an id is missing, or a token occurs twice.
    """
    if isinstance(content, dict):
        pairs = [(b, a) if isinstance(b, int) else (a, b) for a, b in content.items()]
        by_id = dict(pairs)
        if set(by_id) != set(range(len(pairs))):
            raise UserError(f"The ids of {where} do not run from 0 to {len(pairs) - 1}; write a list of its tokens.")
        content = [by_id[number] for number in range(len(pairs))]
    if not isinstance(content, list | tuple | str) or not all(isinstance(token, str) for token in content):
        raise UserError(f"{where} is not a vocabulary; write a JSON list of its tokens in the order of their ids.")
    tokens = list(content)
    if broken := [token for token in tokens if re.search("[\ud800-\udfff]", token)]:
        raise UserError(f"{where} has {broken[0]!r}, which is not a text; write each token as UTF-8.")
    if twice := [token for token, count in Counter(tokens).items() if count > 1]:
        raise UserError(f"{where} has {twice[0]!r} twice; write each token once, in the order of the ids.")
    return tokens


def check_size(tokens: Sequence[str], size: int, where: str) -> None:
    """Check that there is a token for each row of an embedding.

    Raises:
        UserError: the numbers differ.
    """
    if len(tokens) != size:
        raise UserError(f"{where} has {len(tokens)} tokens, and the model {size}; give the vocabulary of its training.")


def character_tokenizer(tokens: Sequence[str], size: int, where: str) -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token per character, and the special tokens of the vocabulary.

    Args:
        size: number of rows of the model's embedding.
        where: name of the file, for messages.

    Raises:
        UserError: the sizes differ, or a token is neither a single character nor special.
    """
    check_size(tokens, size, where)
    specials = find_specials(tokens)
    if longer := [token for token in tokens if len(token) != 1 and token not in specials.values()]:
        raise UserError(f"{where} contains {longer[0]!r}, which is not one character; give a vocabulary of characters.")
    used = {role: token for role, token in specials.items() if role in ("pad", "unknown")}
    backend = _word_level(tokens, used)
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    backend.decoder = decoders.Fuse()
    return _fast_tokenizer(backend, used, "left")


def find_specials(tokens: Sequence[str]) -> dict[str, str]:
    """Return the special tokens of a vocabulary by role: "pad", "unknown", "begin" and "end", if present."""
    known = set(tokens)
    found = {what: [token for token in spellings if token in known] for what, spellings in SPECIALS.items()}
    return {what: spelled[0] for what, spelled in found.items() if spelled}


def word_tokenizer(tokens: Sequence[str], specials: Mapping[str, str], closes: bool) -> PreTrainedTokenizerFast:
    """Return a tokenizer that splits at whitespace, for text already split into tokens as these projects expect.

    Args:
        tokens: tokens in the order of their ids.
        specials: result of ``find_specials``. Without "unknown", encoding an unknown word is an error.
        closes: append the end token to each text, if there is one.
    """
    backend = _word_level(tokens, specials)
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if closes and "end" in specials:
        end = specials["end"]
        backend.post_processor = processors.TemplateProcessing(
            single=f"$A {end}", special_tokens=[(end, tokens.index(end))]
        )
    return _fast_tokenizer(backend, specials, "right")


def _word_level(tokens: Sequence[str], specials: Mapping[str, str]) -> Tokenizer:
    ids = {token: i for i, token in enumerate(tokens)}
    return Tokenizer(models.WordLevel(ids, unk_token=specials.get("unknown", "")))


def _fast_tokenizer(backend: Tokenizer, specials: Mapping[str, str], padding_side: str) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=specials.get("pad"),
        unk_token=specials.get("unknown"),
        bos_token=specials.get("begin"),
        eos_token=specials.get("end"),
        padding_side=padding_side,
        clean_up_tokenization_spaces=False,
        split_special_tokens=True,
        model_input_names=["input_ids", "attention_mask"],
    )
