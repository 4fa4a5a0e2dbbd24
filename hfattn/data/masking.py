"""Masked language modelling: which tokens are hidden, and what stands in their place."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from tokenizers.models import WordPiece
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from .batches import PermutationSampler
from .documents import Documents

_IGNORED = -100  # label of a position without a target, as in torch and transformers
SHOWN_AS_MASK, SHOWN_AS_RANDOM = 0.8, 0.1  # of the chosen tokens; what is left stays as it is


class Masking:
    """Chooses tokens to predict, and hides them (Devlin et al. 2019, arXiv 1810.04805, section 3.1, task 1).

    Of the tokens that are not special, the nearest whole number to a share is chosen, at least one. Of these 80 %
    become the mask token, 10 % one drawn from all that are not special, and 10 % stay. transformers'
    ``DataCollatorForLanguageModeling`` draws by batch, so that what is hidden depends on the other examples of a batch,
    and it hides whole words by masks alone.

    Args:
        tokenizer: of the texts.
        share: of the tokens that are chosen.
        whole_words: choose words, with all of their tokens: words in random order, each that still fits into the number
            of tokens, and the first one always. For WordPiece, whose tokens say where a word goes on.

    Raises:
        UserError: the tokenizer has no mask token, or whole words are wanted of one that is not WordPiece.
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
                    "data.whole_words needs a WordPiece tokenizer, whose tokens say where a word goes on; write false."
                )
            prefix = model.continuing_subword_prefix
            self.continues[[i for token, i in tokenizer.get_vocab().items() if token.startswith(prefix)]] = True

    def __call__(self, ids: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Hide some tokens of a text.

        Args:
            ids: (T,) of the text, its special tokens included.
            generator: what is drawn comes from: an order of the words, a number for each chosen token from the first to
                the last, and a token for each that is replaced by one.

        Returns:
            ``input_ids`` (T,) and ``labels`` (T,), -100 where nothing was chosen.
        """
        candidates = np.flatnonzero(~self.special[ids])
        goes_on = self.continues[ids[candidates]] & (np.diff(candidates, prepend=-2) == 1)
        word_of = np.cumsum(~goes_on) - 1  # of each candidate
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
        inputs, labels = ids.copy(), np.full_like(ids, _IGNORED)
        labels[chosen] = ids[chosen]
        inputs[chosen[fate < SHOWN_AS_MASK]] = self.mask
        inputs[replaced] = self.ordinary[generator.integers(len(self.ordinary), size=len(replaced))]
        return inputs, labels


class MaskedExamples(Dataset[dict[str, Any]]):
    """Examples of which some tokens are hidden, others at each pass, for ``DataCollatorForTokenClassification``.

    Seed, epoch and index decide what is drawn: a run that is resumed, and one of several processes, read the same as
    one that never stopped. Without ``set_epoch``, what is hidden is always the same, as an evaluation needs it.

    Args:
        masking: how tokens are hidden.
        seed: of the draws.

    Attributes:
        lengths: (n, 1) tokens of each example, as they are in the first pass.
    """

    lengths: np.ndarray

    def __init__(self, masking: Masking, seed: int) -> None:
        self.masking, self.seed, self.epoch = masking, seed, 0

    def example(self, index: int, generator: np.random.Generator) -> dict[str, Any]:
        """An example before anything is hidden: ``input_ids`` (T,), and what else the model reads."""
        raise NotImplementedError

    def generator(self, index: int) -> np.random.Generator:
        """What is drawn for an example in this pass comes from it."""
        return np.random.default_rng([self.seed, self.epoch, index])

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        generator = self.generator(index)
        example = self.example(index, generator)
        inputs, labels = self.masking(example["input_ids"], generator)
        return {**example, "input_ids": inputs.tolist(), "labels": labels.tolist()}

    def set_epoch(self, epoch: int) -> None:
        """Draw otherwise than in other epochs."""
        self.epoch = epoch

    def sampler(self, seed: int) -> PermutationSampler:
        """The order in which training reads the examples."""
        return PermutationSampler(len(self), seed)


class MaskedTexts(MaskedExamples):
    """Documents as examples of at most ``max_length`` tokens, each between the tokens that open and close a text.

    Args:
        documents: the documents.
        tokenizer: with such tokens ([CLS] and [SEP]).
        max_length: in tokens, these two included.
        packing: join all documents, with a [SEP] between two of them, and cut that into examples that are all equally
            long but the last. Otherwise no example has tokens of two documents, and a document that is too long makes
            several, one after the other.
        masking, seed: as in ``MaskedExamples``.

    Raises:
        UserError: the tokenizer has no such tokens, or leaves nothing of the documents.
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
        super().__init__(masking, seed)
        self.opening, self.closing = opening_and_closing(tokenizer)
        encoded = encode_plain([item.text for item in documents], tokenizer)
        if packing:
            parts = [part for ids in encoded if len(ids) for part in (self.closing, ids)]
            encoded = [np.concatenate(parts[1:])] if parts else []
        room = max_length - 2
        self.blocks = [ids[start : start + room] for ids in encoded for start in range(0, len(ids), room)]
        if not self.blocks:
            raise UserError(f"The tokenizer leaves nothing of {documents.name}; give other texts.")
        self.lengths = np.array([[len(block) + 2] for block in self.blocks])

    def example(self, index: int, generator: np.random.Generator) -> dict[str, Any]:
        return {"input_ids": np.concatenate([self.opening, self.blocks[index], self.closing])}


def encode_plain(texts: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> list[np.ndarray]:
    """The ids of texts without any special token: one that a text spells out is characters like any others."""
    if not texts:
        return []
    encoded = tokenizer(
        list(texts),
        add_special_tokens=False,
        split_special_tokens=True,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,  # of texts longer than the model reads, which are cut later
    )
    return [np.array(ids, dtype=np.int64) for ids in encoded.input_ids]


def opening_and_closing(tokenizer: PreTrainedTokenizerBase) -> tuple[np.ndarray, np.ndarray]:
    """The tokens (1,) and (1,) that a text begins and ends with.

    Raises:
        UserError: the tokenizer lacks one of them.
    """
    if tokenizer.cls_token_id is None or tokenizer.sep_token_id is None:
        raise UserError(
            "The tokenizer has no tokens to open and close a text ([CLS], [SEP]); write another model.name."
        )
    return np.array([tokenizer.cls_token_id]), np.array([tokenizer.sep_token_id])


__all__ = ["MaskedExamples", "MaskedTexts", "Masking", "encode_plain", "opening_and_closing"]
