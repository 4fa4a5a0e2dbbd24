"""Texts for language models of any tokens: one stream of documents, cut into blocks without padding.

Shapes: B batch, T block. A batch is ``input_ids`` (B, T) and ``labels`` (B, T + 1): the same tokens and the one after
them, as transformers has labels, -100 where there is nothing to predict: the first always, and what an earlier block
has predicted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch.utils.data import Sampler
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from ..tokenizers import uncovered_characters
from .batches import Batch, PermutationSampler, _Batches
from .documents import Document, Documents, read_documents
from .encoding import check_choice
from .rows import JSON_LINES, local_file, open_rows
from .text import open_text, split_positions

DOCUMENTS = ("one", "each")
_IGNORED = -100


def read_corpus(
    source: str,
    *,
    documents: str = "one",
    document_start: str | None = None,
    column: str = "text",
    config: str | None = None,
    split: str = "train",
    revision: str | None = None,
) -> Documents:
    """Read the documents that a language model learns from.

    Args:
        source: ``"embedded"``, the path of a UTF-8 text, of a ``.jsonl`` file, or the id of a data set on the Hub.
        documents: ``"one"``, the whole source, rows joined by newlines; or ``"each"``, what ``read_documents`` tells
            apart.
        document_start: as in ``read_documents``.
        column, config, split, revision: of a ``.jsonl`` file, the column; of a Hub data set, the part to read.

    Raises:
        UserError: there is no such file, data set or column, or no text in it.
    """
    check_choice("documents", documents, DOCUMENTS)
    of_hub: dict[str, Any] = {"config": config, "split": split, "revision": revision}
    if documents == "each":
        return read_documents(source, text_column=column, document_start=document_start, **of_hub)
    path = local_file(source)
    if path is not None and path.suffix == JSON_LINES:
        rows = open_rows(source)
        name, text = rows.name, "\n".join(rows.text(row, column) for row in rows)
    else:
        opened = open_text(source, column=column, **of_hub)
        name, text = opened.name, "".join(opened.pieces())
    if not text.strip():
        raise UserError(f"{name} is empty; write at least one text.")
    return Documents(name, [Document(text)])


def split_corpus(corpus: Documents, split: Sequence[float | int | str]) -> list[Documents]:
    """Cut a corpus by position into train, validation and, if three parts are given, test.

    One document is cut by its characters; of several, none is cut.

    Raises:
        UserError: the split does not fit, or leaves a part empty.
    """
    if len(corpus) == 1:
        text = corpus.items[0].text
        parts = [[Document(text[part])] for part in split_positions(len(text), split)]
    else:
        parts = [corpus.items[part] for part in split_positions(len(corpus), split, "documents")]
    if not all(part and part[0].text for part in parts):
        raise UserError(f"split {list(split)} leaves a part of {corpus.name} empty; give more text, or another split.")
    return [replace(corpus, items=part) for part in parts]


@dataclass(frozen=True)
class TextSize:
    """How long a text is, in units that do not depend on a tokenizer.

    Attributes:
        characters: Unicode code points.
        bytes: in UTF-8.
        words: between white space.
    """

    characters: int
    bytes: int
    words: int


@dataclass(frozen=True)
class PackedText:
    """Documents as one stream of tokens.

    Attributes:
        ids: (n,) the tokens.
        size: of the text that is predicted: all of it, or all but its first token.
        unknown: tokens that stand for what the tokenizer does not know.
    """

    ids: np.ndarray = field(repr=False)
    size: TextSize
    unknown: int

    def __len__(self) -> int:
        return len(self.ids)


def pack(texts: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> PackedText:
    """Tokenise documents and join them, the end token between them.

    Before the first stands the tokenizer's start token, or its end token where it has no other, so that the first token
    of the text is predicted as well; of a tokenizer with neither, it is not, and its characters are not counted. What
    reads like a special token in a text is text.

    Args:
        texts: the documents, each with at least one character.
        tokenizer: of the model.

    Raises:
        UserError: there are several documents and no end token, or a character that the tokenizer can neither encode
            nor replace.
    """
    end = tokenizer.eos_token_id
    start = end if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    if end is None and len(texts) > 1:
        raise UserError(
            f"The tokenizer has no end token to put between the {len(texts)} documents; take another, or write "
            "data.documents: one."
        )
    if missing := uncovered_characters(tokenizer, set().union(*texts)):
        raise UserError(
            f"The text holds {missing[0]!r} (U+{ord(missing[0]):04X}), which is not in the tokenizer's vocabulary; "
            "take another tokenizer."
        )
    backend = tokenizer.backend_tokenizer
    backend.no_padding()
    backend.no_truncation()
    backend.encode_special_tokens = True
    encoded = [np.asarray(each.ids, np.int32) for each in backend.encode_batch_fast(list(texts), False)]
    backend.encode_special_tokens = False
    unknown = sum(int((ids == tokenizer.unk_token_id).sum()) for ids in encoded)
    stream = [] if start is None else [np.array([start], np.int32)]
    for i, ids in enumerate(encoded):
        stream += [np.array([end], np.int32), ids] if i else [ids]
    first = tokenizer.decode(encoded[0][:1]) if start is None else ""
    size = TextSize(
        characters=sum(map(len, texts)) - len(first),
        bytes=sum(len(text.encode()) for text in texts) - len(first.encode()),
        words=sum(len(text.split()) for text in texts),
    )
    return PackedText(np.concatenate(stream), size, unknown)


class PackedBlocks(_Batches):
    """Blocks of T tokens, each of which predicts the T tokens after its own.

    To train on, they stand side by side, and the rest at the end, which fills none, is dropped. To evaluate
    (``stride``), every token but the first of the stream is predicted once: a block begins ``stride`` tokens after the
    one before, predicts what that one did not, and knows the T - ``stride`` tokens before as context; the last is moved
    back to end with the text.

    Args:
        ids: (n,) the stream of tokens.
        block: T.
        stride: tokens from the start of a block to that of the next, to evaluate; None to train.

    Raises:
        UserError: the text is shorter than one block and its last target, or the stride longer than the block.
    """

    def __init__(self, ids: np.ndarray, block: int, stride: int | None = None) -> None:
        if stride is not None and not 1 <= stride <= block:
            raise UserError(f"A stride of {stride} skips tokens; write a whole number from 1 to the block, {block}.")
        if len(ids) < block + 1:
            raise UserError(
                f"A part of the text has {len(ids)} tokens, fewer than one block of {block} and its last target; give "
                "a longer text, a smaller block or another split."
            )
        self.ids, self.block, self.stride = ids, block, stride

    def __len__(self) -> int:
        targets = len(self.ids) - 1
        if self.stride is None:
            return targets // self.block
        return 1 - (self.block - targets) // self.stride  # rounded up

    @property
    def dropped(self) -> int:
        """Tokens at the end that are never predicted."""
        return 0 if self.stride is not None else (len(self.ids) - 1) % self.block

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        stride = self.block if self.stride is None else self.stride
        wanted = np.asarray(indices, dtype=np.int64) * stride
        starts = np.minimum(wanted, len(self.ids) - self.block - 1)
        tokens = torch.from_numpy(self.ids[starts[:, None] + np.arange(self.block + 1)].astype(np.int64))  # (B, T + 1)
        # Targets up to here are the business of the block before, which began a stride earlier.
        done = torch.from_numpy(np.where(wanted > 0, wanted - stride + self.block - starts, 0))
        labels = tokens.masked_fill(torch.arange(self.block + 1) <= done[:, None], _IGNORED)
        return {"input_ids": tokens[:, :-1].clone(), "labels": labels}

    def sampler(self, seed: int) -> Sampler[int]:
        return PermutationSampler(len(self), seed)


__all__ = ["DOCUMENTS", "PackedBlocks", "PackedText", "TextSize", "pack", "read_corpus", "split_corpus"]
