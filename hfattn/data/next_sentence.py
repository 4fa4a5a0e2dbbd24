"""Next sentence prediction: pairs of passages, of which the second goes on where the first ends, or does not."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from .documents import Documents
from .encoding import check_choice, lengths_of
from .masking import MaskedExamples, Masking, encode_plain, opening_and_closing

FOLLOWS, RANDOM = 0, 1  # what next_sentence_label means in transformers
SENTENCES = ("marks", "lines")

# Up to a mark that ends a sentence and the quotes or brackets that it closes, if no small letter comes after it.
_SENTENCE = re.compile(r"\S.*?(?:[.!?…]+\s?[\"'”’»)\]]*(?=\s+[^\sa-z])|\s*\Z)", re.DOTALL)


def split_sentences(text: str, by: str = "marks") -> list[str]:
    """Cut a text into sentences.

    Args:
        text: the text.
        by: "marks", a full stop, an exclamation or a question mark, with a space and no small letter after it (an
            abbreviation before a name is taken for an end, too); or "lines", as they stand.
    """
    check_choice("sentences", by, SENTENCES)
    found = text.splitlines() if by == "lines" else _SENTENCE.findall(text)
    return [sentence.strip() for sentence in found if sentence.strip()]


class SentencePairs(MaskedExamples):
    """Pairs of passages for masked language modelling and next sentence prediction (Devlin et al. 2019, section 3.1).

    A document is cut into runs of sentences that fill ``max_length``. Each run is a pair, anew at each pass: it is cut
    between two sentences, and with probability 1/2 what follows gives way to sentences of another document, from a
    random one on, as many as have at least the same number of tokens, so that lengths do not tell. As in appendix A.2 a
    passage is most often several sentences. What is too long then loses the beginning of the first passage and the end
    of the second, the longer one first. A last sentence that is left alone by the runs before it is only drawn as a
    second passage.

    An example is ``[CLS] first [SEP] second [SEP]`` with ``token_type_ids`` 0 and 1, and ``next_sentence_label`` 0 if
    the second follows, 1 if it is of another document.

    Args:
        documents: the documents.
        tokenizer: with [CLS] and [SEP].
        max_length: in tokens, these three included.
        sentences: how documents are cut into sentences: "marks" or "lines" (``split_sentences``).
        masking, seed: as in ``MaskedExamples``.

    Raises:
        UserError: there is one document only, or none has two sentences.
    """

    def __init__(
        self,
        documents: Documents,
        tokenizer: PreTrainedTokenizerBase,
        max_length: int,
        *,
        sentences: str,
        masking: Masking,
        seed: int,
    ) -> None:
        super().__init__(masking, seed)
        self.opening, self.closing = opening_and_closing(tokenizer)
        self.room = max_length - 3
        encoded = (encode_plain(split_sentences(item.text, sentences), tokenizer) for item in documents)
        kept = ([ids for ids in document if len(ids)] for document in encoded)
        self.documents = [document for document in kept if document]
        if len(self.documents) < 2:
            raise UserError(
                f"Next sentence prediction draws from another document, and {documents.name} is one only; write "
                "data.next_sentence: false, or a data.document_start that tells documents apart."
            )
        self.runs = [(i, *run) for i, document in enumerate(self.documents) for run in _runs(document, self.room)]
        if not self.runs:
            raise UserError(
                f"No document of {documents.name} has two sentences, and a pair needs two; write data.next_sentence: "
                "false, or another data.sentences."
            )
        drawn = (self.example(i, self.generator(i))["input_ids"] for i in range(len(self.runs)))
        self.lengths = lengths_of(list(drawn))

    def example(self, index: int, generator: np.random.Generator) -> dict[str, Any]:
        own, start, end = self.runs[index]
        middle = int(generator.integers(start + 1, end))
        label = int(generator.integers(2))
        first, second = (np.concatenate(self.documents[own][i:j]) for i, j in ((start, middle), (middle, end)))
        if label == RANDOM:
            other = int(generator.integers(len(self.documents) - 1))
            other += other >= own
            second = _drawn(self.documents[other], len(second), generator)
        kept = min(len(first), max(self.room - len(second), self.room // 2))
        first, second = first[len(first) - kept :], second[: self.room - kept]
        types = [0] * (len(first) + 2) + [1] * (len(second) + 1)
        ids = np.concatenate([self.opening, first, self.closing, second, self.closing])
        return {"input_ids": ids, "token_type_ids": types, "next_sentence_label": label}


def _runs(sentences: Sequence[np.ndarray], room: int) -> Iterator[tuple[int, int]]:
    """Bounds of runs of at least two sentences that have ``room`` tokens together, or go to the document's end."""
    start = end = tokens = 0
    for end, sentence in enumerate(sentences, start=1):
        tokens += len(sentence)
        if tokens >= room and end - start >= 2:
            yield start, end
            start, tokens = end, 0
    if end - start >= 2:
        yield start, end


def _drawn(sentences: Sequence[np.ndarray], tokens: int, generator: np.random.Generator) -> np.ndarray:
    """Neighbouring sentences from a random one on that have so many tokens together; all, if they have fewer."""
    lengths = np.array([len(sentence) for sentence in sentences])
    left = lengths[::-1].cumsum()[::-1]  # from each sentence to the end
    start = int(generator.integers(max(1, int((left >= tokens).sum()))))
    end = start + int(np.searchsorted(lengths[start:].cumsum(), tokens)) + 1
    return np.concatenate(sentences[start:end])


__all__ = ["FOLLOWS", "RANDOM", "SentencePairs", "split_sentences"]
