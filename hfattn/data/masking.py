"""Masked language modeling: choose the tokens to predict, and replace them in the input."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from tokenizers.models import WordPiece
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from .batches import IGNORED, TrainingExamples
from .documents import Documents

SHOWN_AS_MASK, SHOWN_AS_RANDOM = 0.8, 0.1  # shares of the chosen tokens; the others stay unchanged


class Masking:
    """Choose the tokens to predict and mask them (Devlin et al. 2019, arXiv 1810.04805, section 3.1, task 1).

    A fraction of the tokens that are not special is chosen; their number is rounded and at least one. 80% of the
    chosen tokens are replaced by the mask token, 10% by a random token that is not special, and 10% stay unchanged.
    transformers' ``DataCollatorForLanguageModeling`` samples per batch, so that the masks of an example depend on the
    other examples of its batch, and it replaces whole words only by the mask token.

    Args:
        tokenizer: the tokenizer of the texts.
        share: fraction of the tokens to choose, from 0 to 1.
        whole_words: whether to choose whole words: in random order, the first word and each further word with which the
            number of tokens is not exceeded. This requires WordPiece, which marks the tokens that continue a word.

    Raises:
        UserError: the tokenizer has no mask token, or ``whole_words`` is set and it is not WordPiece.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, share: float = 0.15, whole_words: bool = False) -> None:
        if tokenizer.mask_token_id is None:
            raise UserError("The tokenizer has no mask token; write the model.name of a masked language model.")
        self.share, self.mask = share, tokenizer.mask_token_id
        self.special = np.zeros(len(tokenizer), dtype=bool)
        self.special[tokenizer.all_special_ids] = True
        self.ordinary = np.flatnonzero(~self.special)
        self.continues = np.zeros(len(tokenizer), dtype=bool)
        if whole_words:
            model = tokenizer.backend_tokenizer.model if tokenizer.is_fast else None
            if not isinstance(model, WordPiece):
                raise UserError(
                    "data.whole_words needs a WordPiece tokenizer, which marks the tokens within a word; write false."
                )
            prefix = model.continuing_subword_prefix
            self.continues[[i for token, i in tokenizer.get_vocab().items() if token.startswith(prefix)]] = True

    def __call__(self, ids: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Mask a text.

        Args:
            ids: (T,) token ids of the text, special tokens included.
            generator: random generator. It draws an order of the words, one number for each chosen token from first to
                last, and a token for each random replacement.

        Returns:
            ``input_ids`` (T,) and ``labels`` (T,), which are -100 except at the chosen tokens.
        """
        candidates = np.flatnonzero(~self.special[ids])
        goes_on = self.continues[ids[candidates]] & (np.diff(candidates, prepend=-2) == 1)
        word_of = np.cumsum(~goes_on) - 1  # for each candidate
        sizes = np.bincount(word_of)
        room = max(1, round(self.share * len(candidates)))
        taken: list[int] = []
        for word in generator.permutation(len(sizes)):
            if sizes[word] <= room or not taken:
                taken.append(word)
                room -= sizes[word]
            if room <= 0:
                break
        chosen = candidates[np.isin(word_of, taken)]
        fate = generator.random(len(chosen))
        replaced = chosen[fate >= 1 - SHOWN_AS_RANDOM]
        inputs, labels = ids.copy(), np.full_like(ids, IGNORED)
        labels[chosen] = ids[chosen]
        inputs[chosen[fate < SHOWN_AS_MASK]] = self.mask
        inputs[replaced] = self.ordinary[generator.integers(len(self.ordinary), size=len(replaced))]
        return inputs, labels


class MaskedExamples(TrainingExamples[dict[str, Any]]):
    """Examples with masked tokens, masked anew in each epoch, for ``DataCollatorForTokenClassification``.

    The masks depend only on seed, epoch and index. A resumed run and a run of several processes therefore read the same
    examples as an uninterrupted run of one process. Without calls of ``set_epoch``, the masks never change, as
    evaluation requires.

    Args:
        tokenizer: a tokenizer with [CLS] and [SEP].
        masking: how tokens are masked.
        seed: random seed.

    Attributes:
        opening, closing: ids of [CLS] (1,) and [SEP] (1,), with which a text begins and ends.
        lengths: (n, 1) numbers of tokens of each example, in the first epoch.

    Raises:
        UserError: the tokenizer lacks one of these tokens.
    """

    lengths: np.ndarray

    def __init__(self, tokenizer: PreTrainedTokenizerBase, masking: Masking, seed: int) -> None:
        if tokenizer.cls_token_id is None or tokenizer.sep_token_id is None:
            raise UserError(
                "The tokenizer has no tokens for the beginning and end of a text ([CLS], [SEP]); write another "
                "model.name."
            )
        self.opening, self.closing = np.array([tokenizer.cls_token_id]), np.array([tokenizer.sep_token_id])
        self.masking, self.seed = masking, seed

    def example(self, index: int, generator: np.random.Generator) -> dict[str, Any]:
        """Return an example before masking: ``input_ids`` (T,) and the model's other inputs."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        generator = self.generator(index)
        example = self.example(index, generator)
        inputs, labels = self.masking(example["input_ids"], generator)
        return {**example, "input_ids": inputs.tolist(), "labels": labels.tolist()}


class MaskedTexts(MaskedExamples):
    """Documents as examples ``[CLS] tokens [SEP]`` of at most ``max_length`` tokens.

    Args:
        documents: the documents.
        max_length: maximum number of tokens, [CLS] and [SEP] included.
        packing: whether to join the documents, separated by [SEP], and cut them into examples of ``max_length`` tokens;
            the last example may be shorter. Otherwise each document is an example, or several if it is too long.
        tokenizer, masking, seed: see ``MaskedExamples``.

    Raises:
        UserError: the tokenizer lacks [CLS] or [SEP], or produces no tokens for the documents.
    """

    def __init__(
        self,
        documents: Documents,
        tokenizer: PreTrainedTokenizerBase,
        max_length: int,
        *,
        packing: bool,
        masking: Masking,
        seed: int,
    ) -> None:
        super().__init__(tokenizer, masking, seed)
        encoded = encode_plain([item.text for item in documents], tokenizer)
        if packing:
            parts = [part for ids in encoded if len(ids) for part in (self.closing, ids)]
            encoded = [np.concatenate(parts[1:])] if parts else []
        room = max_length - 2
        self.blocks = [ids[start : start + room] for ids in encoded for start in range(0, len(ids), room)]
        if not self.blocks:
            raise UserError(f"The tokenizer produces no tokens for {documents.name}; use other texts.")
        self.lengths = np.array([[len(block) + 2] for block in self.blocks])

    def example(self, index: int, generator: np.random.Generator) -> dict[str, Any]:
        return {"input_ids": np.concatenate([self.opening, self.blocks[index], self.closing])}


def encode_plain(texts: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> list[np.ndarray]:
    """Encode texts without special tokens; special tokens that are spelled out in a text are ordinary text."""
    if not texts:
        return []
    encoded = tokenizer(
        list(texts),
        add_special_tokens=False,
        split_special_tokens=True,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,  # no warning about long texts, which are cut later
    )
    return [np.array(ids, dtype=np.int64) for ids in encoded.input_ids]
