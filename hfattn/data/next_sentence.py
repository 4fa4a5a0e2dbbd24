"""Next sentence prediction: pairs of passages, the second of which follows the first or is from another document."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from .documents import Documents
from .encoding import check_choice, lengths_of
from .masking import MaskedExamples, Masking, encode_plain

FOLLOWS, RANDOM = 0, 1  # values of next_sentence_label, as in transformers
SENTENCES = ("marks", "lines")

# A sentence ends after an end mark and its closing quotes or brackets, unless a lowercase letter follows.
_SENTENCE = re.compile(r"\S.*?(?:[.!?…]+\s?[\"'”’»)\]]*(?=\s+[^\sa-z])|\s*\Z)", re.DOTALL)


def split_sentences(text: str, by: str = "marks") -> list[str]:
    """Cut a text into sentences.

    Args:
        text: the text.
        by: the rule. "marks": a sentence ends at a period, exclamation mark or question mark that is followed by a
            space and no lowercase letter (so an abbreviation before a name ends a sentence too); "lines": each line is
            a sentence.
    """
    check_choice("sentences", by, SENTENCES)
    found = text.splitlines() if by == "lines" else _SENTENCE.findall(text)
    return [sentence.strip() for sentence in found if sentence.strip()]


class SentencePairs(MaskedExamples):
    """Pairs of passages for masked language modeling and next sentence prediction (Devlin et al. 2019, section 3.1).

    Each document is cut into runs of consecutive sentences that fill ``max_length``. Each run becomes a pair, sampled
    anew in each epoch: the run is cut between two sentences, and with probability 1/2 the second passage is replaced by
    consecutive sentences of another document with at least as many tokens, so that the length does not reveal the
    class. As in appendix A.2, most passages have several sentences. If a pair is too long, tokens are removed from the
    longer passage: from the beginning of the first or from the end of the second. A single sentence at the end of a
    document is used only as a random second passage.

    An example is ``[CLS] first [SEP] second [SEP]`` with ``token_type_ids`` 0 and 1; ``next_sentence_label`` is 0 if
    the second passage follows the first, and 1 if it is from another document.

    Args:
        documents: the documents.
        max_length: maximum number of tokens, [CLS] and both [SEP] included.
        sentences: how documents are cut into sentences, "marks" or "lines" (``split_sentences``).
        tokenizer, masking, seed: see ``MaskedExamples``.

    Raises:
        UserError: there is only one document, or no document has two sentences.
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
        super().__init__(tokenizer, masking, seed)
        self.room = max_length - 3
        encoded = (encode_plain(split_sentences(item.text, sentences), tokenizer) for item in documents)
        kept = ([ids for ids in document if len(ids)] for document in encoded)
        self.documents = [document for document in kept if document]
        if len(self.documents) < 2:
            raise UserError(
                f"Next sentence prediction needs at least two documents, and {documents.name} is only one; write "
                "data.next_sentence: false, or a data.document_start that separates documents."
            )
        self.runs = [(i, *run) for i, document in enumerate(self.documents) for run in _runs(document, self.room)]
        if not self.runs:
            raise UserError(
                f"No document of {documents.name} has the two sentences that a pair needs; write data.next_sentence: "
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
    """Yield the bounds of runs of at least two sentences and ``room`` tokens; the last may have fewer tokens."""
    start = end = tokens = 0
    for end, sentence in enumerate(sentences, start=1):
        tokens += len(sentence)
        if tokens >= room and end - start >= 2:
            yield start, end
            start, tokens = end, 0
    if end - start >= 2:
        yield start, end


def _drawn(sentences: Sequence[np.ndarray], tokens: int, generator: np.random.Generator) -> np.ndarray:
    """Return consecutive sentences from a random one on, with at least ``tokens`` tokens if there are enough."""
    lengths = np.array([len(sentence) for sentence in sentences])
    left = lengths[::-1].cumsum()[::-1]  # number of tokens from each sentence to the end
    start = int(generator.integers(max(1, int((left >= tokens).sum()))))
    end = start + int(np.searchsorted(lengths[start:].cumsum(), tokens)) + 1
    return np.concatenate(sentences[start:end])
