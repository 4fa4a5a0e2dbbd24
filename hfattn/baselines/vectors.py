"""Texts as vectors that are learned from the training texts alone, over gensim."""

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
from ..models.strict_config import unknown_message

ALGORITHMS = {
    "word2vec": ("cbow", "skip_gram"),
    "fasttext": ("cbow", "skip_gram"),
    "doc2vec": ("pv_dm", "pv_dbow"),
}
VECTORS, WORDS = "vectors.npy", "vectors.words.txt"  # as the recipes read them: data.vectors, data.words

Words = Sequence[str]


@strict
@dataclass
class VectorsConfig:
    """The section ``vectors`` of the recipe, for ``features.kind: vectors``.

    Attributes:
        method: "word2vec" (Mikolov et al. 2013, arXiv 1301.3781, 1310.4546) or "fasttext" (Bojanowski et al. 2017),
            whose mean over its words a text is; or "doc2vec" (Le & Mikolov 2014, section 2), by which a text has a
            vector of its own.
        algorithm: of word2vec and fasttext "cbow" (a word is predicted from those around it) or "skip_gram" (those
            around it from the word); of doc2vec "pv_dm" (a word from the text and those around it) or "pv_dbow" (the
            words of a text from the text; words are learned by skip-gram beside it).
        size: of a vector.
        window: words on each side.
        min_count: leave out words that occur less often.
        epochs: passes over the training texts, and over a new text of doc2vec.
        negative: drawn words for each right one, negative sampling.
        learning_rate: at the start; it falls to 0.0001.
        buckets: of fasttext, vectors that the character n-grams of all words share.
    """

    method: str = "word2vec"
    algorithm: str = "skip_gram"
    size: int = 100
    window: int = 5
    min_count: int = 5
    epochs: int = 5
    negative: int = 5
    learning_rate: float = 0.025
    buckets: int = 100_000

    def validate_vectors(self) -> None:
        if self.method not in ALGORITHMS:
            raise ValueError(unknown_message(self.method, ALGORITHMS, "a method"))
        if self.algorithm not in ALGORITHMS[self.method]:
            known = " or ".join(ALGORITHMS[self.method])
            raise ValueError(f"algorithm is {self.algorithm!r}; write {known} for {self.method}.")
        for name in ("size", "window", "min_count", "epochs", "negative", "buckets"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; write a whole number of at least 1.")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate is {self.learning_rate}; write a number above 0.")


class TextVectors:
    """Vectors of words and texts, learned by one thread: the same texts and seed, the same vectors in every process.

    The vector of a text is the mean over its words; words that are not known are left out of word2vec's, and have the
    mean of their character n-grams in fasttext's. That of doc2vec is learned with the words, and of a new text against
    words that stay as they are, always from the same start. A text without any word is zero.

    Attributes:
        words: (W,) of them.
    """

    names = None  # a vector's components mean nothing by themselves

    def __init__(self, config: VectorsConfig) -> None:
        self.config = config
        self._model: Any = None  # of doc2vec
        self._vectors: Any = None  # gensim's KeyedVectors
        self._seed = 0

    @property
    def words(self) -> list[str]:
        return self._vectors.index_to_key

    @property
    def parameters(self) -> int:
        """Numbers that were learned."""
        return self._vectors.vectors.size + sum(tensor.size for tensor in self._tensors().values())

    def fit_transform(self, texts: Sequence[Words], seed: int = 0) -> np.ndarray:
        """Learn the vectors from the words of texts, and return those of the texts (n, D).

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
            # Read in the order of a file that has one class after the other, texts would differ by when they were read.
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
        """The vectors (n, D) of the words of texts."""
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
            "workers": 1,  # several are not the same twice
        }

    def _doc2vec(self, seed: int, **options: Any) -> Any:
        return optional("baselines", "gensim.models").Doc2Vec(
            **self._options(seed),
            **options,
            dm=int(self.config.algorithm == "pv_dm"),
            dbow_words=1,  # without, the words of pv_dbow would keep the random vectors that they begin with
            sorted_vocab=0,  # the order in which a saved vocabulary is read again
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
        """As gensim's ``infer_vector``, but with the same start and draws in every process and for every order."""
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

    # Saving: plain arrays and text, nothing pickled

    def _tensors(self) -> dict[str, np.ndarray]:
        """What is learned beside the vectors of words."""
        if self.config.method == "fasttext":
            return {"buckets": self._vectors.vectors_ngrams}
        return {"context": self._model.syn1neg} if self._model is not None else {}

    def save(self, folder: Path) -> dict[str, np.ndarray]:
        """Write the words and their vectors; returns what is to be saved with them as safetensors."""
        np.save(folder / VECTORS, self._vectors.vectors)
        (folder / WORDS).write_text("".join(f"{word}\n" for word in self.words), encoding="utf-8", newline="\n")
        if self._model is not None:
            counts = [int(self._vectors.get_vecattr(word, "count")) for word in self.words]
            (folder / "vectors.json").write_text(json.dumps({"seed": self._seed, "counts": counts}), encoding="utf-8")
        return self._tensors()

    @classmethod
    def load(cls, config: VectorsConfig, folder: Path, tensors: dict[str, np.ndarray]) -> "TextVectors":
        """Read what ``save`` wrote."""
        made, keyed = cls(config), optional("baselines", "gensim.models.keyedvectors")
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
            example = fasttext.FastText(vector_size=1, bucket=1)  # for the lengths of its n-grams
            made._vectors = fasttext.FastTextKeyedVectors(
                config.size, example.wv.min_n, example.wv.max_n, config.buckets
            )
            made._vectors.add_vectors(words, vectors)
            made._vectors.vectors_ngrams = tensors["buckets"]
        else:
            made._vectors = keyed.KeyedVectors(config.size)
            made._vectors.add_vectors(words, vectors)
        return made
