"""Embeddings from files of word vectors: which rows, which words are missing, and files out of shape."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from hfattn import RNNEncoderConfig, RNNEncoderForSequenceClassification
from hfattn.data import Coverage, load_embeddings
from hfattn.errors import UserError

TOKENS = ["[PAD]", "[UNK]", "the", "señor", "said", "\x85", "nothing"]
WORDS = ["said", "the", "The", "\x85", "the", "señor", "[PAD]", "others"]
VECTORS = np.arange(1, 25, dtype=np.float16).reshape(8, 3) / 4


def tokenizer(tokens: list[str] = TOKENS) -> PreTrainedTokenizerFast:
    words = Tokenizer(models.WordLevel({token: i for i, token in enumerate(tokens)}, unk_token="[UNK]"))
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]")


def model(vocab_size: int = 9, embedding_size: int = 3, **fields: object) -> RNNEncoderForSequenceClassification:
    config = RNNEncoderConfig(vocab_size=vocab_size, embedding_size=embedding_size, hidden_size=2, **fields)
    return RNNEncoderForSequenceClassification(config)


def write_text(folder: Path, words: list[str] = WORDS, end: str = "\n") -> Path:
    """As GloVe is published; some files have a space after the last number."""
    path = folder / "vectors.txt"
    rows = zip(words, VECTORS, strict=True)
    path.write_text(end.join(f"{word} " + " ".join(f"{x:.5f}" for x in row) for word, row in rows) + end, newline="")
    return path


def write_npy(folder: Path, words: list[str] = WORDS) -> tuple[Path, Path]:
    np.save(folder / "vectors.npy", VECTORS)
    (folder / "words.txt").write_text("".join(f"{word}\n" for word in words), newline="")
    return folder / "vectors.npy", folder / "words.txt"


@pytest.mark.parametrize("kind", ["text", "text with spaces", "text from Windows", "npy"])
@pytest.mark.parametrize("frozen", [False, True])
def test_rows_are_the_files_or_zero(tmp_path: Path, kind: str, frozen: bool) -> None:
    """The first of two vectors counts, letters of another case are another word, padding and unknown words are zero."""
    end = {"text with spaces": " \n", "text from Windows": "\r\n"}.get(kind, "\n")
    files = write_npy(tmp_path) if kind == "npy" else (write_text(tmp_path, end=end),)
    classifier = model(freeze_embeddings=frozen)
    coverage = load_embeddings(classifier, tokenizer(), *files)
    expected = torch.zeros(9, 3)
    for row, place in ((2, 1), (3, 5), (4, 0), (5, 3)):
        expected[row] = torch.from_numpy(VECTORS[place].astype(np.float32))
    assert torch.equal(classifier.get_input_embeddings().weight.detach(), expected)
    assert coverage == Coverage(found=4, missing=("nothing",))
    assert coverage.share == pytest.approx(4 / 5)
    assert classifier.get_input_embeddings().weight.requires_grad != frozen


def test_published_words_may_hold_spaces(tmp_path: Path) -> None:
    words = ["said", "the", ". . .", "at name@domain.com", "a", "señor", "b", "c"]
    classifier = model()
    assert load_embeddings(classifier, tokenizer(), write_text(tmp_path, words)).found == 3
    assert torch.equal(classifier.get_input_embeddings().weight[3], torch.from_numpy(VECTORS[5]).float())


def test_half_precision_and_empty_vocabularies(tmp_path: Path) -> None:
    half = model().to(torch.bfloat16)
    load_embeddings(half, tokenizer(), write_text(tmp_path))
    assert torch.equal(half.get_input_embeddings().weight[4], torch.tensor([0.25, 0.5, 0.75]).bfloat16())
    assert load_embeddings(half, tokenizer(["[PAD]", "[UNK]"]), write_text(tmp_path)) == Coverage(0, ())


def replaced(folder: Path, number: int, line: str) -> Path:
    path = write_text(folder)
    lines = path.read_text().split("\n")
    lines[number - 1] = line
    path.write_text("\n".join(lines), newline="")
    return path


@pytest.mark.parametrize(
    ("number", "line", "message"),
    [
        (1, "said 1 2", "vectors.txt begins with a word and 2 numbers, and the embeddings are 3 wide; give vectors"),
        (1, "said 1 2 3 4", "begins with a word and 4 numbers, and the embeddings are 3 wide"),
        (1, "400000 300", "begins with a word and 1 numbers"),
        (6, "señor 1 2", "Line 6 of vectors.txt is not a word and 3 numbers; correct or remove it"),
        (6, "señor 1 2 3 4", "Line 6 of vectors.txt is not a word and 3 numbers"),
        (6, "señor 1 two 3", "Line 6 of vectors.txt is not a word and 3 numbers"),
        (6, "señor 1 nan 3", "Line 6 of vectors.txt is not a word and 3 numbers"),
        (7, "", "Line 7 of vectors.txt is not a word and 3 numbers"),
    ],
)
def test_a_malformed_text_is_refused_by_its_line_and_changes_nothing(
    tmp_path: Path, number: int, line: str, message: str
) -> None:
    classifier = model()
    before = classifier.get_input_embeddings().weight.clone()
    with pytest.raises(UserError) as error:
        load_embeddings(classifier, tokenizer(), replaced(tmp_path, number, line))
    assert message in str(error.value)
    assert torch.equal(classifier.get_input_embeddings().weight, before)


def test_other_files_out_of_shape_are_refused(tmp_path: Path) -> None:
    classifier, words = model(), tokenizer()
    before = classifier.get_input_embeddings().weight.clone()
    array, names = write_npy(tmp_path)
    text = write_text(tmp_path)

    def message(*files: Path, of: RNNEncoderForSequenceClassification = classifier) -> str:
        with pytest.raises(UserError) as error:
            load_embeddings(of, words, *files)
        return str(error.value)

    assert "vectors.npy has vectors without words; pass the file of the words" in message(array)
    assert "vectors.txt is a text file with a word on each line; remove the file of words" in message(text, names)
    assert "vectors of width 3, and the embeddings are 4 wide" in message(array, names, of=model(embedding_size=4))
    assert "a model with embedding_size 3" in message(array, names, of=model(embedding_size=4))
    assert "The tokenizer has the id 6 and the model 6 embeddings; create the model with vocab_size 7" in message(
        text, of=model(vocab_size=6)
    )
    names.write_text("".join(f"{word}\n" for word in WORDS[:-1]))
    assert "vectors.npy has 8 rows and words.txt has 7 words; give a word for each row" in message(array, names)
    names.write_text("".join(f"{word}\n" for word in [*WORDS, "the", "more"]))
    assert "vectors.npy has 8 rows and words.txt has 10 words" in message(array, names)
    names.write_bytes(b"the\nse\xf1or\n")
    assert "words.txt is not UTF-8" in message(array, names)
    np.save(array, np.arange(8))
    assert "vectors.npy has type int64 and shape (8,); give floating-point vectors" in message(array, names)
    write_npy(tmp_path)
    np.save(array, np.where(np.arange(24).reshape(8, 3) == 2, np.inf, VECTORS))
    assert "Row 0 of vectors.npy has a value that is not finite" in message(array, names)
    np.save(array, np.array([["a", 1.0, None]] * 8, dtype=object), allow_pickle=True)
    assert "vectors.npy is not an array of numbers that numpy can map" in message(array, names)
    array.write_bytes(b"")
    assert "vectors.npy is not an array of numbers that numpy can map" in message(array, names)
    text.write_text("")
    assert "vectors.txt is empty; give a file with a word and its numbers on each line" in message(text)
    with pytest.raises(FileNotFoundError):
        load_embeddings(classifier, words, tmp_path / "none.txt")
    assert torch.equal(classifier.get_input_embeddings().weight, before)
