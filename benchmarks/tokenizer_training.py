"""Compare the training of subword tokenizers with that of SentencePiece.

    python -m benchmarks tokenizer_training [--rounds 5] [--write]

Both learn 4,000 subwords from the lines of the Python language reference that CPython contains. Their
encodings of the text have to differ by less than a tenth in length. ``--write`` writes
docs/records/tokenizer_training.json and the table of docs/speed.md.
"""

import io
import os
from collections.abc import Iterator
from functools import partial

import sentencepiece
import torch
from transformers import PreTrainedTokenizerFast

from benchmarks.harness import ROOT, Benchmark, Group, run, titled_tables
from hfattn.data import open_text
from hfattn.tokenizers import TokenizerConfig, build_tokenizer

SIZE = 4000
KINDS = ("bpe", "unigram")


def with_hfattn(kind: str, texts: list[str]) -> PreTrainedTokenizerFast:
    return build_tokenizer(TokenizerConfig(kind=kind, vocab_size=SIZE), texts, ends=False)


def with_sentencepiece(kind: str, texts: list[str]) -> bytes:
    """Return a model of SentencePiece, which is trained with its defaults, on every character."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, model_type=kind, vocab_size=SIZE,
        num_threads=torch.get_num_threads(), character_coverage=1.0, minloglevel=2,
    )  # fmt: skip
    return model.getvalue()


def check(kind: str, texts: list[str]) -> None:
    """Compare the number of subwords, and of tokens of the texts."""
    tokenizer = with_hfattn(kind, texts)
    model = sentencepiece.SentencePieceProcessor(model_proto=with_sentencepiece(kind, texts))
    assert len(tokenizer) == len(model) == SIZE
    ratio = sum(map(len, tokenizer(texts).input_ids)) / sum(map(len, model.encode(texts)))
    assert 0.9 < ratio < 1.1, ratio


def groups(device: torch.device) -> Iterator[Group]:
    os.environ["RAYON_NUM_THREADS"] = str(torch.get_num_threads())  # read at the first training
    texts = [line for line in "".join(open_text("embedded").pieces()).splitlines() if line.strip()]
    for kind in KINDS:
        trainers = {"SentencePiece": with_sentencepiece, "hfattn": with_hfattn}
        yield Group(
            kind,
            {name: partial(train, kind, texts) for name, train in trainers.items()},
            partial(check, kind, texts),
        )


TITLES = {"tokenizers": (f"Training of {SIZE:,} subwords", "trainer")}
BENCHMARK = Benchmark(
    "tokenizer_training",
    ROOT / "docs" / "speed.md",
    {"tokenizers": groups},
    partial(titled_tables, titles=TITLES),
    ("tokenizers", "sentencepiece"),
)

if __name__ == "__main__":
    run(BENCHMARK, __doc__)
