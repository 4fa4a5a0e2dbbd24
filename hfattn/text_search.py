"""Search sentences by their vectors: those that are nearest to a text, with an index that can be kept."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch.nn import functional

from .data.rows import read_lines
from .errors import UserError
from .files import is_full, writing
from .loading import weights_digest
from .sentence_encoders import SentenceEncoder, load_sentence_encoder

VECTORS, DIGESTS = "vectors", "digests"  # tensors of an index: the vectors, and by which sentences they are found
_DIGEST = 16  # bytes


def search_sentences(
    name: str, text: str, file: Path, number: int = 5, index: Path | None = None
) -> list[tuple[str, float]]:
    """Return the lines of a text file that are nearest to a text, with their cosines, the best first.

    All cosines are computed, without an approximation.

    Args:
        name: folder or Hub id of a sentence encoder.
        text: what to look for.
        file: UTF-8 text file with a sentence on each line; empty lines are left out, and of equal ones all but the
            first.
        number: number of sentences to return.
        index: safetensors file that keeps the vectors of sentences, so that later searches embed the query and new
            sentences alone. It is created if it does not exist, and may have sentences of several files.

    Raises:
        UserError: the model cannot be loaded, the text is empty, the file has no sentence, or the index is that of
            another model.
    """
    if not text.strip():
        raise UserError("The text to look for is empty; write a few words.")
    sentences = read_sentences(file)
    encoder = load_sentence_encoder(name)
    return nearest_sentences(encoder, text, sentences, _vectors(encoder, sentences, index), number)


def nearest_sentences(
    encoder: SentenceEncoder, text: str, sentences: Sequence[str], vectors: torch.Tensor, number: int
) -> list[tuple[str, float]]:
    """Return the sentences that are nearest to a text, with their cosines, the best first.

    Args:
        encoder: the model that made the vectors.
        text: what to look for.
        sentences: where to look.
        vectors: vectors (N, D) of the sentences, of any length.
        number: number of sentences to return; all, if there are fewer.
    """
    products = vectors @ functional.normalize(encoder.embed([text])[0], dim=0)
    cosines = products / vectors.norm(dim=1).clamp(min=1e-12)  # without a copy of all vectors
    best = cosines.topk(min(number, len(sentences)))
    return [(sentences[i], cosine) for i, cosine in zip(best.indices.tolist(), best.values.tolist(), strict=True)]


def read_sentences(file: Path) -> list[str]:
    """Return the different lines of a text file that are not empty.

    Raises:
        UserError: there is no such file, it is not UTF-8, or has no such line.
    """
    if not file.is_file():
        raise UserError(f"{file} is not a file; give a text file with a sentence on each line, or a folder of images.")
    sentences = distinct_lines(line for _, line in read_lines(file))
    if not sentences:
        raise UserError(f"{file} has no sentence; write one on each line.")
    return sentences


def distinct_lines(lines: Iterable[str]) -> list[str]:
    """Return the lines without spaces around them, without empty ones, and of equal ones the first."""
    return list(dict.fromkeys(line.strip() for line in lines if line.strip()))


def _tokenizer(encoder: SentenceEncoder) -> str:
    """Return a text that differs if a tokenizer reads other tokens."""
    fast = getattr(encoder.tokenizer, "backend_tokenizer", None)
    return json.dumps(encoder.tokenizer.get_vocab(), sort_keys=True) if fast is None else str(fast.to_str())


def _vectors(encoder: SentenceEncoder, sentences: Sequence[str], index: Path | None) -> torch.Tensor:
    """Return the vectors (N, D) of sentences: those of the index, and new ones, which are added to it."""
    if index is None:
        return encoder.embed(sentences)
    if not index.parent.is_dir():
        raise UserError(f"{index.parent} is not a folder; create it, or give another file for the index.")
    model = weights_digest(encoder.model, f"{encoder.modules} {encoder.max_length} {_tokenizer(encoder)}")
    digests, vectors = (
        _read_index(index, model) if index.exists() else (torch.empty(0, _DIGEST, dtype=torch.uint8), None)
    )
    rows = {bytes(digest): row for row, digest in enumerate(digests.tolist())}
    keys = [hashlib.blake2b(sentence.encode(), digest_size=_DIGEST).digest() for sentence in sentences]
    new = {key: sentence for key, sentence in zip(keys, sentences, strict=True) if key not in rows}
    if new:
        made = encoder.embed(list(new.values()))
        vectors = made if vectors is None else torch.cat([vectors, made])
        digests = torch.cat([digests, torch.tensor([list(key) for key in new], dtype=torch.uint8)])
        rows |= {key: len(rows) + place for place, key in enumerate(new)}
        with writing(index.parent, "free some space"):
            part = index.with_name(f"{index.name}.part")
            try:
                save_file({VECTORS: vectors, DIGESTS: digests}, part, {"model": model})
                part.replace(index)
            except (OSError, SafetensorError) as error:
                part.unlink(missing_ok=True)
                if is_full(error):
                    raise
                raise UserError(f"{index} cannot be written ({error}); give another file.") from error
    assert vectors is not None  # there is a sentence
    return vectors[[rows[key] for key in keys]]


def _read_index(index: Path, model: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the digests (M, 16) of the sentences of an index, and their vectors (M, D)."""
    if not index.is_file():
        raise UserError(f"{index} is not a file; give one to read or to create.")
    try:
        with safe_open(index, "pt") as stored:
            made_by = (stored.metadata() or {}).get("model")
            digests, vectors = stored.get_tensor(DIGESTS), stored.get_tensor(VECTORS)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{index} is not an index of hfattn search ({error}); give another file.") from error
    if made_by != model:
        raise UserError(f"{index} was written with another model; remove it, or give another file.")
    if vectors.ndim != 2 or digests.dtype != torch.uint8 or digests.shape != (len(vectors), _DIGEST):
        raise UserError(f"{index} is damaged; remove it, or give another file.")
    return digests, vectors
