"""Texts for causal language models: documents joined into one stream of tokens and cut into blocks without padding.

Shapes: B batch, T block length. A batch is ``input_ids`` (B, T) and ``labels`` (B, T + 1): the tokens of the block and
the next token. As in transformers, labels are not shifted; the model shifts them. They are -100 at tokens that are
not predicted: at the first token of each block, and at tokens that an earlier block has predicted.
"""

import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from ..tokenizers import uncovered_characters
from .batches import IGNORED, Batch, _Batches, check_window
from .stored import BUFFER, mapped

CHARACTERS = 1 << 20  # of documents that are encoded at once; a longer document is encoded alone


@dataclass(frozen=True)
class TextSize:
    """The length of a text in Unicode code points, in bytes of UTF-8, and in words separated by white space."""

    characters: int
    bytes: int
    words: int


@dataclass(frozen=True)
class PackedText:
    """Documents as one stream of tokens.

    Attributes:
        ids: (n,) token ids, in a temporary file.
        size: length of the predicted text, which is the whole text or all but its first token.
        unknown: number of unknown tokens.
    """

    ids: np.ndarray = field(repr=False)
    size: TextSize
    unknown: int

    def __len__(self) -> int:
        return len(self.ids)


def pack(texts: Sequence[str], tokenizer: PreTrainedTokenizerBase, backward: bool = False) -> PackedText:
    """Tokenize documents and join them with end tokens.

    The stream begins with the tokenizer's start token, or with its end token if it has no start token, so that the
    first token of the text is predicted too. If the tokenizer has neither, the first token is not predicted and its
    characters are not counted. Special tokens that are spelled out in a text are encoded as ordinary text.

    Args:
        texts: the documents, each with at least one character.
        tokenizer: the model's tokenizer.
        backward: give each document from its last token to its first, for a model that predicts the previous token.

    Raises:
        UserError: there are several documents and the tokenizer has no end token, or it can neither encode nor replace
            a character.
    """
    end = tokenizer.eos_token_id
    start = end if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    if end is None and len(texts) > 1:
        raise UserError(
            f"The tokenizer has no end token to put between the {len(texts)} documents; use another tokenizer, or "
            "write data.lines_are_texts: false."
        )
    if missing := uncovered_characters(tokenizer, chain.from_iterable(texts)):
        raise UserError(
            f"The text has {missing[0]!r} (U+{ord(missing[0]):04X}), which is not in the tokenizer's vocabulary; "
            "remove it, or use a tokenizer that was learned with tokenizer.unknown: true."
        )
    backend = tokenizer.backend_tokenizer
    backend.no_padding()
    backend.no_truncation()
    backend.encode_special_tokens = True
    before, between = (array("i", [] if each is None else [each]) for each in (start, end))
    characters = size = words = unknown = 0
    with tempfile.TemporaryFile(buffering=BUFFER) as file:
        for batch in _batches(texts):
            for text, encoding in zip(batch, backend.encode_batch_fast(batch, add_special_tokens=False), strict=True):
                ids = encoding.ids[::-1] if backward else encoding.ids
                file.write(before.tobytes() + array("i", ids).tobytes())
                before = between
                unknown += ids.count(tokenizer.unk_token_id)
                characters, size, words = characters + len(text), size + len(text.encode()), words + len(text.split())
        stream = mapped(file, np.int32)
    backend.encode_special_tokens = False
    first = tokenizer.decode(stream[:1].tolist()) if start is None else ""
    return PackedText(stream, TextSize(characters - len(first), size - len(first.encode()), words), unknown)


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and size + len(text) > CHARACTERS:
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    yield batch


class PackedBlocks(_Batches):
    """Blocks of T tokens; the model predicts the next token at each position.

    For training, the blocks do not overlap, and the tokens at the end that do not fill a block are dropped. For
    evaluation (``stride``), each block begins ``stride`` tokens after the previous one. It predicts only the tokens
    that no earlier block predicted, each with at least T - ``stride`` tokens of context. The last block is moved back
    so that it ends with the text. Every token but the first of the stream is therefore predicted exactly once.

    Args:
        ids: (n,) the stream of tokens.
        block: the length T.
        stride: for evaluation, the number of tokens between the starts of two blocks; None for training.

    Raises:
        UserError: the text has fewer than T + 1 tokens, or the stride is longer than the block.
    """

    def __init__(self, ids: np.ndarray, block: int, stride: int | None = None) -> None:
        check_window(ids, block, block if stride is None else stride, "tokens")
        self.ids, self.block, self.stride = ids, block, stride

    def __len__(self) -> int:
        targets = len(self.ids) - 1
        if self.stride is None:
            return targets // self.block
        return 1 - (self.block - targets) // self.stride  # rounded up

    @property
    def dropped(self) -> int:
        """Number of tokens at the end that are never predicted."""
        return 0 if self.stride is not None else (len(self.ids) - 1) % self.block

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        stride = self.block if self.stride is None else self.stride
        wanted = np.asarray(indices, dtype=np.int64) * stride
        starts = np.minimum(wanted, len(self.ids) - self.block - 1)
        tokens = torch.from_numpy(self.ids[starts[:, None] + np.arange(self.block + 1)].astype(np.int64))  # (B, T + 1)
        # Targets up to here were predicted by the previous block, which began a stride earlier.
        done = torch.from_numpy(np.where(wanted > 0, wanted - stride + self.block - starts, 0))
        labels = tokens.masked_fill(torch.arange(self.block + 1) <= done[:, None], IGNORED)
        return {"input_ids": tokens[:, :-1].clone(), "labels": labels}
