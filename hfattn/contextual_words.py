"""Search a word in the contexts that are nearest to one of its uses (Peters et al. 2018, table 4)."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerBase

from .errors import UserError
from .loading import ModelLocation, load_model, load_model_config, load_tokenizer, max_positions
from .pooling import pool
from .text_search import read_sentences

ROWS = 32  # sentences in a batch


class WordUse(NamedTuple):
    """A word in a sentence: the sentence, and the characters from ``start`` to ``end`` that are the word."""

    text: str
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.text[: self.start]}[{self.text[self.start : self.end]}]{self.text[self.end :]}"


def uses_of(word: str, texts: Sequence[str]) -> list[WordUse]:
    """Return each use of a word in texts, in either case."""
    pattern = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE)
    return [WordUse(text, *found.span()) for text in texts for found in pattern.finditer(text)]


@torch.inference_mode()
def vectors_of_uses(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, uses: Sequence[WordUse]
) -> torch.Tensor:
    """Return the contextual vectors (n, W) of n uses of a word.

    A vector is the mean over the tokens of the word, and over all hidden states of the model: the mixture of an ELMo
    that no task has trained. A word behind the last token that the model can read has zeros.

    Args:
        model: an encoder in evaluation mode.
        tokenizer: its tokenizer, which returns the positions of tokens in the text.
        uses: the uses.
    """
    longest = max_positions(model.config)
    options = {} if longest is None else {"truncation": True, "max_length": longest}
    # A bilm has read documents between end tokens, and a model that takes its vectors gives it texts in this way.
    end = tokenizer.eos_token_id if model.config.model_type == "bilm" else None
    ends, outside = ([], []) if end is None else ([end], [(0, 0)])
    padding = tokenizer.pad_token_id or 0
    found = []
    for first in range(0, len(uses), ROWS):
        batch = uses[first : first + ROWS]
        encoded = tokenizer([use.text for use in batch], return_offsets_mapping=True, **options)
        rows = [torch.tensor([*ends, *ids, *ends]) for ids in encoded["input_ids"]]
        offsets = [torch.tensor([*outside, *places, *outside]) for places in encoded["offset_mapping"]]
        inputs = {
            "input_ids": pad_sequence(rows, batch_first=True, padding_value=padding).to(model.device),
            "attention_mask": pad_sequence([torch.ones_like(row) for row in rows], batch_first=True).to(model.device),
        }
        places = pad_sequence(offsets, batch_first=True)  # (B, S, 2)
        states = model(**inputs, output_hidden_states=True).hidden_states
        mean = torch.stack(states).mean(0)  # (B, S, W)
        left, right = (torch.tensor([use[side] for use in batch])[:, None] for side in (1, 2))
        within = (places[..., 0] < right) & (places[..., 1] > left)  # (B, S)
        found.append(pool(mean, within.to(mean.device), "mean"))
    return torch.cat(found)


def nearest_uses(name: str, word: str, text: str, file: Path, number: int = 5) -> list[tuple[WordUse, float]]:
    """Return the uses of a word in a file that are nearest to its first use in a text, with their cosines.

    Args:
        name: folder or Hub id of an encoder, such as a bilm.
        word: the word.
        text: a text with the word.
        file: UTF-8 text file with a sentence on each line.
        number: number of uses to return.

    Raises:
        UserError: the model cannot be loaded, or the text or the file does not have the word.
    """
    given = uses_of(word, [text])
    if not word.strip() or not given:
        raise UserError(f"The text does not have the word {word!r}; write a text that does.")
    others = [use for use in uses_of(word, read_sentences(file)) if use.text != text]
    if not others:
        raise UserError(f"No other sentence of {file} has the word {word!r}; give more sentences.")
    location = ModelLocation(name=name)
    if load_model_config(location).is_encoder_decoder:
        raise UserError(f"{name} is an encoder-decoder; give an encoder, or a language model.")
    model, tokenizer = load_model(AutoModel, location).model.eval(), load_tokenizer(location)
    vectors = functional.normalize(vectors_of_uses(model, tokenizer, [given[0], *others]), dim=-1)
    if not vectors[0].any():
        raise UserError(f"The word {word!r} stands behind the last token that {name} reads; give a shorter text.")
    read = vectors[1:].any(1)
    others = [use for use, seen in zip(others, read.tolist(), strict=True) if seen]
    cosines = (vectors[1:] @ vectors[0])[read]
    best = cosines.topk(min(number, len(others)))
    return [(others[i], cosine) for i, cosine in zip(best.indices.tolist(), best.values.tolist(), strict=True)]
