"""Vectors of texts, learned by gensim from the training texts only."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from huggingface_hub.dataclasses import strict

from ..errors import UserError
from ..extras import optional
from ..fields import at_least, number
from ..models.strict_config import unknown_message

ALGORITHMS = {
    "word2vec": ("cbow", "skip_gram"),
    "fasttext": ("cbow", "skip_gram"),
    "doc2vec": ("pv_dm", "pv_dbow"),
}
VECTORS, WORDS = "vectors.npy", "vectors.words.txt"  # in the format of data.vectors and data.words

Words = Sequence[str]


@strict
@dataclass
class VectorsConfig:
    """The section ``vectors`` of the recipe, for ``features.kind: vectors``.

    Attributes:
        method: "word2vec" (Mikolov et al. 2013, arXiv 1301.3781, 1310.4546) or "fasttext" (Bojanowski et al. 2017): a
            text is the mean of its word vectors; "doc2vec" (Le & Mikolov 2014, section 2): a text has its own vector.
        algorithm: for word2vec and fasttext "cbow" (predicts a word from its context) or "skip_gram" (predicts the
            context from a word); for doc2vec "pv_dm" (predicts a word from the text and its context) or "pv_dbow"
            (predicts the words of a text from the text; words are trained by skip-gram at the same time).
        size: dimension of a vector.
        window: number of context words on each side.
        min_count: leave out words that occur less often.
        epochs: epochs over the training texts; with doc2vec also over each new text.
        negative: number of negative samples for each positive one.
        learning_rate: initial learning rate; it decreases to 0.0001.
        buckets: fasttext only: number of vectors that the character n-grams of all words share.
    """

    method: str = "word2vec"
    algorithm: str = "skip_gram"
    size: int = at_least(1, 100)
    window: int = at_least(1, 5)
    min_count: int = at_least(1, 5)
    epochs: int = at_least(1, 5)
    negative: int = at_least(1, 5)
    learning_rate: float = number(0.025, above=0)
    buckets: int = at_least(1, 100_000)

    def validate_vectors(self) -> None:
        if self.method not in ALGORITHMS:
            raise ValueError(unknown_message(self.method, ALGORITHMS, "a method"))
        if self.algorithm not in ALGORITHMS[self.method]:
            known = " or ".join(ALGORITHMS[self.method])
            raise ValueError(f"algorithm is {self.algorithm!r}; write {known} for {self.method}.")


class TextVectors:
    """Vectors of words and texts, trained in one thread: the same texts and seed give the same vectors everywhere.

    With word2vec and fasttext, the vector of a text is the mean over its words; word2vec leaves out unknown words, and
    fasttext represents them by the mean of their character n-grams. With doc2vec, the vectors of the training texts are
    trained with the words, and the vector of a new text against fixed words, always from the same initial values. The
    vector of a text without known words is zero.

    Attributes:
        words: (W,) words of the vocabulary.
    """

    names = None  # the components of a vector have no names

    def __init__(self, config: VectorsConfig) -> None:
        self.config = config
        self._model: Any = None  # gensim's Doc2Vec, for method doc2vec
        self._vectors: Any = None  # gensim's KeyedVectors
        self._seed = 0

    @property
    def words(self) -> list[str]:
        return self._vectors.index_to_key

    @property
    def keyed_vectors(self) -> Any:
        """The word vectors as gensim's ``KeyedVectors``."""
        return self._vectors

    @property
    def parameters(self) -> int:
        """Number of learned parameters."""
        return self._vectors.vectors.size + sum(tensor.size for tensor in self._tensors().values())

    def fit_transform(self, texts: Sequence[Words], seed: int = 0) -> np.ndarray:
        """Learn the vectors from the words of texts, and return the vectors (n, D) of the texts.

        Raises:
            UserError: no word occurs ``min_count`` times.
        """
        models, config = optional("baselines", "gensim.models"), self.config
        if max(Counter(chain(*texts)).values(), default=0) < config.min_count:
            raise UserError(f"No word occurs {config.min_count} times in the training texts; lower vectors.min_count.")
        options: dict[str, Any] = {"alpha": config.learning_rate, "min_count": config.min_count}
        corpus: Sequence[Any] = texts
        if config.method == "doc2vec":
            model = self._doc2vec(seed, **options)
            # In a file sorted by class, the vector of a text would depend on when it was read, and thus on its class.
            order = np.random.default_rng(seed).permutation(len(texts))
            corpus = [models.doc2vec.TaggedDocument(texts[i], [int(i)]) for i in order]
        else:
            if config.method == "fasttext":
                options["bucket"] = config.buckets
            kind = models.Word2Vec if config.method == "word2vec" else models.FastText
            model = kind(**self._options(seed), **options, sg=int(config.algorithm == "skip_gram"))
        model.build_vocab(corpus)
        model.train(corpus, total_examples=len(corpus), epochs=config.epochs)
        self._seed, self._vectors = seed, model.wv
        if config.method != "doc2vec":
            return self.transform(texts)
        self._model = model
        return np.where([[bool(words)] for words in map(self._known, texts)], model.dv.vectors, np.float32(0))

    def transform(self, texts: Sequence[Words]) -> np.ndarray:
        """Return the vectors (n, D) of texts, given their words."""
        vector = self._inferred if self._model is not None else self._mean
        return np.array([vector(words) for words in texts], np.float32).reshape(-1, self.config.size)

    def _options(self, seed: int) -> dict[str, Any]:
        config = self.config
        return {
            "vector_size": config.size,
            "window": config.window,
            "epochs": config.epochs,
            "negative": config.negative,
            "seed": seed,
            "workers": 1,  # with several threads, runs differ
        }

    def _doc2vec(self, seed: int, **options: Any) -> Any:
        return optional("baselines", "gensim.models").Doc2Vec(
            **self._options(seed),
            **options,
            dm=int(self.config.algorithm == "pv_dm"),
            dbow_words=1,  # without it, pv_dbow would leave the word vectors at their random initial values
            sorted_vocab=0,  # keeps the order of a saved vocabulary
        )

    def _mean(self, words: Words) -> np.ndarray:
        number_of = self._vectors.key_to_index
        known = self._vectors.vectors[[number_of[word] for word in words if word in number_of]]
        if self.config.method == "fasttext" and len(known) < len(words):
            known = np.vstack([known, *(self._vectors[word] for word in words if word not in number_of)])
        return known.mean(axis=0) if len(known) else np.zeros(self.config.size, np.float32)

    def _known(self, words: Words) -> list[str]:
        return [word for word in words if word in self._vectors.key_to_index]

    def _inferred(self, words: Words) -> np.ndarray:
        """Infer a vector as gensim's ``infer_vector`` does, with the same draws in every process and order of texts."""
        config, model, words = self.config, self._model, self._known(words)
        if not words:
            return np.zeros(config.size, np.float32)
        doc2vec = optional("baselines", "gensim.models.doc2vec")
        model.random = np.random.RandomState(self._seed)
        vector = ((model.random.rand(1, config.size) - 0.5) / config.size).astype(np.float32)
        fixed: dict[str, Any] = {"learn_words": False, "learn_hidden": False}
        own: dict[str, Any] = {"doctag_vectors": vector, "doctags_lockf": np.ones(1, np.float32)}
        for rate in np.linspace(config.learning_rate, model.min_alpha, config.epochs):
            if config.algorithm == "pv_dbow":
                doc2vec.train_document_dbow(model, words, [0], rate, **fixed, **own)
            else:
                doc2vec.train_document_dm(model, words, [0], rate, **fixed, **own)
        return vector[0]

    # Saving: plain arrays and text, no pickle

    def _tensors(self) -> dict[str, np.ndarray]:
        """Return the learned parameters other than the word vectors."""
        if self.config.method == "fasttext":
            return {"buckets": self._vectors.vectors_ngrams}
        return {"context": self._model.syn1neg} if self._model is not None else {}

    def save(self, folder: Path) -> dict[str, np.ndarray]:
        """Write the words and their vectors; return the tensors to save with them as safetensors."""
        np.save(folder / VECTORS, self._vectors.vectors)
        (folder / WORDS).write_text("".join(f"{word}\n" for word in self.words), encoding="utf-8", newline="\n")
        if self._model is not None:
            counts = [int(self._vectors.get_vecattr(word, "count")) for word in self.words]
            (folder / "vectors.json").write_text(json.dumps({"seed": self._seed, "counts": counts}), encoding="utf-8")
        return self._tensors()

    @classmethod
    def load(cls, config: VectorsConfig, folder: Path, tensors: dict[str, np.ndarray]) -> "TextVectors":
        """Load vectors from the files that ``save`` wrote."""
        made = cls(config)
        vectors = np.load(folder / VECTORS, allow_pickle=False)
        words = (folder / WORDS).read_text(encoding="utf-8").split("\n")[:-1]
        if config.method == "doc2vec":
            state = json.loads((folder / "vectors.json").read_text(encoding="utf-8"))
            made._seed = state["seed"]
            made._model = made._doc2vec(state["seed"], alpha=config.learning_rate, min_count=1)
            made._model.build_vocab_from_freq(dict(zip(words, state["counts"], strict=True)))
            made._vectors = made._model.wv
            made._vectors.vectors[:], made._model.syn1neg[:] = vectors, tensors["context"]
        elif config.method == "fasttext":
            fasttext = optional("baselines", "gensim.models.fasttext")
            example = fasttext.FastText(vector_size=1, bucket=1)  # for the default lengths of its n-grams
            made._vectors = fasttext.FastTextKeyedVectors(
                config.size, example.wv.min_n, example.wv.max_n, config.buckets
            )
            made._vectors.add_vectors(words, vectors)
            made._vectors.vectors_ngrams = tensors["buckets"]
        else:
            made._vectors = optional("baselines", "gensim.models").KeyedVectors(config.size)
            made._vectors.add_vectors(words, vectors)
        return made
