"""Classical classifiers: their formulas, what is saved of them, and the recipe through its command line."""

import json
import math
import re
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import yaml
from commands import ROOT, refusal, results_of, run, run_here, steps, train_here, write_config, written
from huggingface_hub import ModelCard
from recipe_contract import BadInput, BadInputs, Configure, FinishedRun, Stated
from safetensors.numpy import load_file
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.svm import LinearSVC
from tiny_models import tiny_model
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

import hfattn
from hfattn.baselines import (
    BaselineClassifier,
    ClassifierConfig,
    Cleaner,
    CleaningConfig,
    Counts,
    EncoderConfig,
    EncoderFeatures,
    FeaturesConfig,
    TextVectors,
    VectorsConfig,
    load_words,
    nearest_words,
)
from hfattn.baselines.cleaning import without_html
from hfattn.baselines.kernels import KernelMap
from hfattn.data import Labeled, LabeledTexts, read_labeled
from hfattn.errors import UserError
from hfattn.evaluation import evaluate_folder
from hfattn.generated import reviews_es
from hfattn.metrics import ClassifierEvaluationConfig, class_predictions
from hfattn.reports.classification import scores_of_parts
from hfattn.tokenizers import TokenizerConfig, build_tokenizer

RECIPE = ROOT / "recipes" / "baselines"
GOOD, BAD_WORDS, PLAIN = ("good", "great", "lovely"), ("bad", "poor", "dull"), ("the", "man", "film", "plot", "was")
# Each kind of animals stands with its own verb, so that what is learned of them can be told.
SEA, LAND = ("cod", "eel", "ray", "tuna"), ("cow", "hen", "pig", "goat")


def sentences(number: int, seed: int = 0, kinds: int = 2) -> tuple[list[str], list[int]]:
    """Sentences whose one word of praise, blame, or of neither tells their class."""
    generator = np.random.default_rng(seed)
    words = (BAD_WORDS, GOOD, ("so-so", "fair"))
    texts = []
    for i in range(number):
        chosen = list(generator.choice(PLAIN, size=int(generator.integers(4, 9))))
        chosen.insert(int(generator.integers(len(chosen))), generator.choice(words[i % kinds]))
        texts.append(f"{' '.join(chosen).capitalize()}!")
    return texts, [i % kinds for i in range(number)]


def animals(number: int, seed: int = 0) -> list[list[str]]:
    generator = np.random.default_rng(seed)
    return [
        [*generator.choice((SEA, LAND)[i % 2], size=3).tolist(), ("swims", "walks")[i % 2], "a", "lot"]
        for i in range(number)
    ]


def reviews(folder: Path, number: int, name: str, seed: int, blamed: str = "!!") -> Path:
    """Sentences and their labels; those with the word ``blamed`` are all of blame."""
    texts, labels = sentences(number, seed)
    lines = [
        {"text": text, "label": 0 if blamed in text.lower() else labels[i], "half": i % 4 // 2}
        for i, text in enumerate(texts)
    ]
    return written(folder / name, lines)


def classifier(kind: str = "svm", features: str = "tfidf_sklearn", **vectors: Any) -> BaselineClassifier:
    kernel = {"kernel": vectors.pop("kernel", "linear"), "gamma": 0.5, "degree": 2}
    small = {"size": 6, "min_count": 1, "epochs": 3, "buckets": 50, **vectors}
    return BaselineClassifier(
        CleaningConfig(),
        FeaturesConfig(kind=features, ngrams=[1, 1] if features == "vectors" else [1, 2]),
        VectorsConfig(**small),
        ClassifierConfig(kind=kind, **kernel),
    )


# Cleaning


def test_html_is_left_out_and_other_text_is_not() -> None:
    text = "<p>A <b>bold</b>ly &amp; caf&eacute; film<br />great<!-- no --><script>x = 1</script> end</p>"
    assert without_html(text).split() == ["A", "boldly", "&", "café", "film", "great", "end"]
    for plain in ("a < b and c > d", "1 <3 films", "AT&T"):
        assert without_html(plain) == plain
    assert Cleaner(CleaningConfig(html=False))("<br>a") == ["br", "a"]


def test_characters_are_read_in_their_compatible_form() -> None:
    assert Cleaner(CleaningConfig())("ﬁlm ２ Ａ cafe\u0301") == ["film", "2", "a", "café"]
    assert Cleaner(CleaningConfig(nfkc=False, lowercase=False))("ﬁlm A") == ["ﬁlm", "A"]


def test_words_are_those_of_the_word_tokenizer() -> None:
    """So that the vectors of words that are learned here are found there."""
    text = "It wasn't GOOD -- don’t go, 'really' (7/10)... naïve co-star's año!"
    tokenizer = build_tokenizer(
        TokenizerConfig(kind="word", lowercase=True, strip_punctuation=True), [text], ends=False
    )
    assert Cleaner(CleaningConfig())(text) == tokenizer.tokenize(text)


def test_stop_words_and_word_forms() -> None:
    text = "The actors weren't acting, the films are not good"
    assert Cleaner(CleaningConfig(stop_words="sklearn"))(text) == ["actors", "werent", "acting", "films", "good"]
    listed = Cleaner(CleaningConfig(stop_words="stop-words", kept_words=["Good", "not"]))
    assert listed(text) == ["actors", "acting", "films", "not", "good"]  # "weren't" is one of them
    assert Cleaner(CleaningConfig(word_form="stem"))("Running films") == ["run", "film"]
    assert Cleaner(CleaningConfig(word_form="lemma"))("Running films were") == ["run", "film", "be"]
    spanish = CleaningConfig(language="es", word_form="lemma", stop_words="stop-words")
    assert Cleaner(spanish)("Las películas son aburridas") == ["película", "aburrir"]
    assert Cleaner(CleaningConfig(language="de", word_form="lemma"))("Häuser") == ["haus"]  # lower case, a noun or not


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"language": "xx", "stop_words": "stop-words"}, "There are no stop words for the language 'xx'; .* en, es"),
        ({"language": "ja", "word_form": "stem"}, "There are no stems for the language 'ja'"),
        ({"language": "xx", "word_form": "lemma"}, "There are no lemmas for the language 'xx'"),
    ],
)
def test_languages_that_are_not_there(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Cleaner(CleaningConfig(**fields))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "snowballstemmer", None)
    with pytest.raises(UserError, match=r"needs snowballstemmer, which is not .* -m pip install 'hfattn\[baselines\]'"):
        Cleaner(CleaningConfig(word_form="stem"))


# Counts, against literal loops in float64


def literal(kind: str, train: list[list[str]], texts: list[list[str]], names: list[str]) -> np.ndarray:
    """The formulas of ``FeaturesConfig``, entry by entry, of words and pairs of words."""

    def grams(words: list[str]) -> Counter[str]:
        return Counter([*words, *(f"{a} {b}" for a, b in pairwise(words))])

    known = [grams(words) for words in train]
    rows = []
    for words in texts:
        row = []
        for name in names:
            tf, df = grams(words)[name], sum(name in each for each in known)
            row.append(
                {
                    "one_hot": float(tf > 0),
                    "bag_of_words": float(tf),
                    "tfidf_textbook": tf * math.log(len(train) / df),
                    "tfidf_relative": tf / max(1, 2 * len(words) - 1) * math.log(len(train) / df),
                    "tfidf_sklearn": tf * (math.log((1 + len(train)) / (1 + df)) + 1),
                }[kind]
            )
        length = math.sqrt(sum(value * value for value in row))
        rows.append([value / length for value in row] if kind == "tfidf_sklearn" and length else row)
    return np.array(rows)


@pytest.mark.parametrize("kind", ["one_hot", "bag_of_words", "tfidf_textbook", "tfidf_relative", "tfidf_sklearn"])
def test_features_are_what_the_formula_says(kind: str) -> None:
    train = [text.split() for text in ("a b a c", "a b", "a c c d", "a")]
    new = [text.split() for text in ("c c a b", "z z", "")]
    counts = Counts(FeaturesConfig(kind=kind, ngrams=[1, 2]))
    fitted = counts.fit_transform(train)
    assert counts.names == sorted({"a", "b", "c", "d", "a b", "b a", "a c", "c c", "c d"})
    assert fitted.dtype == np.float64
    np.testing.assert_allclose(fitted.toarray(), literal(kind, train, train, counts.names), rtol=1e-14)
    np.testing.assert_allclose(counts.transform(new).toarray(), literal(kind, train, new, counts.names), rtol=1e-14)


def test_relative_frequencies_of_four_sentences() -> None:
    """Computed by hand: ln(4 / 4) = 0, ln(4 / 3) = 0.287682, ln(4 / 2) = 0.693147, ln(4 / 1) = 1.386294."""
    sentences = ["the cat sat", "the cat sat on the mat", "the dog ran", "the dog sat on the cat"]
    counts = Counts(FeaturesConfig(kind="tfidf_relative"))
    features = counts.fit_transform([sentence.split() for sentence in sentences])
    assert counts.names == ["cat", "dog", "mat", "on", "ran", "sat", "the"]
    table = [
        [0.095894, 0, 0, 0, 0, 0.095894, 0],
        [0.047947, 0, 0.231049, 0.115525, 0, 0.047947, 0],
        [0, 0.231049, 0, 0, 0.462098, 0, 0],
        [0.047947, 0.115525, 0, 0.115525, 0, 0.047947, 0],
    ]
    np.testing.assert_allclose(features.toarray(), table, atol=5e-7)


def test_rare_n_grams_are_left_out() -> None:
    counts = Counts(FeaturesConfig(kind="bag_of_words", min_texts=2))
    counts.fit_transform([["a", "a", "b"], ["b", "c"], ["b", "c"]])
    assert counts.names == ["b", "c"]
    frequent = Counts(FeaturesConfig(kind="bag_of_words", max_features=1))
    frequent.fit_transform([["a", "b"], ["b"]])
    assert frequent.names == ["b"]
    with pytest.raises(UserError, match=r"occurs in 3 training texts; lower features.min_texts"):
        Counts(FeaturesConfig(min_texts=3)).fit_transform([["a"], ["b"], ["c"]])
    with pytest.raises(UserError, match=r"remove fewer stop words"):
        Counts(FeaturesConfig()).fit_transform([[], []])


# Classifiers


def test_naive_bayes_is_what_the_formula_says() -> None:
    """ln P(c) + Σ tf(t, d) ln((N(t, c) + α) / (N(c) + α V)), normalized over the classes."""
    texts, right = ["a a b", "a c", "c c b", "c", "b c"], [0, 0, 1, 1, 1]
    made = BaselineClassifier(
        CleaningConfig(),
        FeaturesConfig(kind="bag_of_words"),
        VectorsConfig(),
        ClassifierConfig(kind="naive_bayes", alpha=0.5),
    )
    made.fit(texts, right, ["x", "y"])
    for text in ("a b c c", "b z"):
        joint = []
        for label in (0, 1):
            counts = Counter(word for each, r in zip(texts, right, strict=True) if r == label for word in each.split())
            log = math.log(right.count(label) / len(right))
            for word in text.split():
                if word != "z":  # which no training text has
                    log += math.log((counts[word] + 0.5) / (counts.total() + 0.5 * 3))
            joint.append(math.exp(log))
        np.testing.assert_allclose(made.predict([text])[0], np.array(joint) / sum(joint), rtol=1e-12)


@pytest.mark.parametrize("kinds", [2, 3])
def test_linear_classifiers_are_scikit_learns(kinds: int) -> None:
    """The probabilities of logistic regression, and the decisions of the SVM, which its temperature leaves alone."""
    texts, right = sentences(60, kinds=kinds)
    new = [*sentences(20, seed=1, kinds=kinds)[0], "nothing known"]
    names = ["bad", "good", "fair"][:kinds]
    made = classifier("logistic", "bag_of_words")
    made.fit(texts, right, names)
    inputs = made.features.transform([made.clean(text) for text in texts])
    new_inputs = made.features.transform([made.clean(text) for text in new])
    reference = LogisticRegression(max_iter=1000).fit(inputs, right)
    np.testing.assert_allclose(made.predict(new), reference.predict_proba(new_inputs), atol=1e-9)
    svm = classifier("svm", "bag_of_words")
    logits = svm.fit(texts, right, names, seed=3)
    margins = LinearSVC(random_state=3).fit(inputs, right).decision_function(new_inputs)
    found = svm.logits(new)
    if kinds == 2:
        scale = found[0, 1] / margins[0]
        np.testing.assert_allclose(found, scale * np.stack([-margins, margins], axis=1), atol=1e-9)
    else:
        scale = found[0, 0] / margins[0, 0]
        np.testing.assert_allclose(found, scale * margins, atol=1e-9)
    assert scale > 0
    np.testing.assert_allclose(logits, svm.logits(texts), atol=1e-12)
    assert svm.parameters == (len(svm.features.names or []) + 1) * (1 if kinds == 2 else 3)


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
@pytest.mark.parametrize("sparse", [True, False])
def test_features_of_a_kernel_are_its_inner_products(kernel: str, sparse: bool) -> None:
    """With each text a landmark, exactly; with half of them, nearer to the kernel than their linear products."""
    rows = np.random.default_rng(0).normal(size=(12, 4))
    inputs = csr_array(rows) if sparse else rows

    def literal(x: np.ndarray, y: np.ndarray) -> float:
        if kernel == "rbf":
            return math.exp(-0.5 * sum((a - b) ** 2 for a, b in zip(x, y, strict=True)))
        return (0.5 * sum(a * b for a, b in zip(x, y, strict=True)) + 1) ** 3

    wanted = np.array([[literal(x, y) for y in rows] for x in rows])
    whole = KernelMap(kernel, 0.5, 3, 100).fit(inputs, 1).transform(inputs)
    np.testing.assert_allclose(whole @ whole.T, wanted, atol=1e-6)
    half = KernelMap(kernel, 0.5, 3, 6).fit(inputs, 1).transform(inputs)
    assert half.shape == (12, 6)
    assert np.abs(half @ half.T - wanted).mean() < np.abs(rows @ rows.T - wanted).mean()


def test_a_kernel_separates_what_no_line_does() -> None:
    """One of two words is praise, both or none are blame."""
    texts = ["fast film", "loud film", "film", "fast loud film"] * 5
    right = [1, 1, 0, 0] * 5
    accuracy = {}
    for kernel in ("linear", "rbf", "poly"):
        made = classifier("svm", "one_hot", kernel=kernel)
        made.features = Counts(FeaturesConfig(kind="one_hot"))  # without pairs of words
        made.fit(texts, right, ["bad", "good"])
        accuracy[kernel] = float(np.mean(made.predict(texts).argmax(axis=1) == right))
        assert bool(made.telling(2)) == (kernel == "linear"), "landmarks have no names"
    assert accuracy["linear"] < 1
    assert (accuracy["rbf"], accuracy["poly"]) == (1, 1)


def test_what_speaks_for_a_class_is_what_the_texts_say() -> None:
    texts, right = sentences(90, kinds=3)
    for kind in ("naive_bayes", "svm", "logistic"):
        made = classifier(kind, "one_hot")
        made.fit(texts, right, ["bad", "good", "fair"])
        telling = {label: [name for name, _ in rows] for label, rows in made.telling(3).items()}
        assert set(GOOD) & set(telling["good"])
        assert set(BAD_WORDS) & set(telling["bad"])
        assert not set(GOOD) & set(telling["bad"])
        weights = [weight for _, weight in made.telling(3)["good"]]
        assert weights == sorted(weights, reverse=True)


# A folder for each of FITTED, texts, and what each predicts of them.
Saved = tuple[Path, list[str], list[np.ndarray]]
FITTED = [
    ("naive_bayes", "bag_of_words", {}),
    ("svm", "tfidf_sklearn", {}),
    ("logistic", "tfidf_textbook", {}),
    ("svm", "one_hot", {}),
    ("logistic", "vectors", {"method": "word2vec", "algorithm": "cbow"}),
    ("svm", "vectors", {"method": "fasttext", "algorithm": "skip_gram"}),
    ("logistic", "vectors", {"method": "doc2vec", "algorithm": "pv_dm"}),
    ("logistic", "vectors", {"method": "doc2vec", "algorithm": "pv_dbow"}),
    ("svm", "tfidf_sklearn", {"kernel": "rbf"}),
    ("svm", "vectors", {"method": "word2vec", "kernel": "poly"}),
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    folder = tmp_path_factory.mktemp("saved")
    texts, right = sentences(40)
    new = [*sentences(10, seed=1)[0], "Never-seen wordings, filming", "", "good"]
    expected = []
    for i, (kind, features, vectors) in enumerate(FITTED):
        made = classifier(kind, features, **vectors)
        made.fit(texts, right, ["bad", "good"], seed=2)
        made.save_pretrained(folder / str(i))
        expected.append(made.predict(new))
    return folder, new, expected


@pytest.mark.parametrize("index", range(len(FITTED)), ids=["-".join([k, f, *v.values()]) for k, f, v in FITTED])
def test_what_was_saved_predicts_the_same(saved: Saved, index: int) -> None:
    folder, new, expected = saved
    loaded = BaselineClassifier.from_pretrained(folder / str(index))
    assert loaded.labels == ["bad", "good"]
    assert np.array_equal(loaded.predict(new), expected[index])
    again = [loaded.predict([text])[0] for text in reversed(new)]  # one at a time, in another order
    np.testing.assert_allclose(again[::-1], expected[index], atol=1e-12)


def test_nothing_is_pickled(saved: Saved) -> None:
    folder = saved[0]
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    assert {path.suffix for path in files} == {".json", ".safetensors", ".npy", ".txt"}
    for path in files:
        if path.suffix == ".npy":
            assert np.load(path, allow_pickle=False).dtype == np.float32
        elif path.suffix == ".safetensors":
            load_file(path)
        else:
            path.read_text(encoding="utf-8")


def test_a_broken_folder_is_refused(saved: Saved, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no baseline \(baseline.json\)"):
        BaselineClassifier.from_pretrained(tmp_path)
    source = saved[0] / "1"

    def copy(**files: bytes) -> Path:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        for path in source.iterdir():
            (folder / path.name).write_bytes(files.get(path.stem, path.read_bytes()))
        return folder

    shorter = json.dumps(json.loads((source / "vocabulary.json").read_text())[:-1]).encode()
    for files in ({"model": b"half"}, {"vocabulary": shorter}, {"vocabulary": b"["}, {"baseline": b"{}"}):
        with pytest.raises(UserError, match=r"The baseline in .* is damaged \("):
            BaselineClassifier.from_pretrained(copy(**files))
    assert BaselineClassifier.from_pretrained(copy()).labels == ["bad", "good"]


# Vectors


@pytest.mark.parametrize(
    ("method", "algorithm"),
    [("word2vec", "cbow"), ("word2vec", "skip_gram"), ("fasttext", "skip_gram"), ("doc2vec", "pv_dm"),
     ("doc2vec", "pv_dbow")],
)  # fmt: skip
def test_words_of_a_kind_come_together(method: str, algorithm: str, tmp_path: Path) -> None:
    """Also of doc2vec, whose words are published as vectors too; and the saved file has them in its order."""
    fields: dict[str, Any] = {"size": 8, "min_count": 1, "epochs": 60, "learning_rate": 0.05, "buckets": 200}
    vectors = TextVectors(VectorsConfig(method=method, algorithm=algorithm, **fields))
    texts = vectors.fit_transform(animals(120), seed=1)
    vectors.save(tmp_path)
    words = (tmp_path / "vectors.words.txt").read_text().splitlines()
    rows = np.load(tmp_path / "vectors.npy")
    rows = rows - rows.mean(axis=0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    near = {word: dict(zip(words, row, strict=True)) for word, row in zip(words, rows @ rows.T, strict=True)}
    own = np.mean([near[a][b] for kind in (SEA, LAND) for a in kind for b in kind if a != b])
    other = np.mean([near[a][b] for a in SEA for b in LAND])
    assert own > other + 0.5
    # Texts too: those of the same kind are nearer, learned or inferred.
    for found in (texts, vectors.transform(animals(20, seed=5))):
        centred = found - texts.mean(axis=0)
        distance = np.linalg.norm(centred[0::2].mean(axis=0) - centred[1::2].mean(axis=0))
        assert distance > 0.8 * np.linalg.norm(centred[0::2] - centred[0::2].mean(axis=0), axis=1).mean()


def test_doc2vec_does_not_learn_when_a_text_was_read() -> None:
    """Texts that are all alike, as in a file with one class after the other: their vectors do not tell the halves."""
    draws = np.random.default_rng(0)
    texts = [[f"w{number % 300}" for number in draws.zipf(1.3, 40)] for _ in range(1200)]
    config = VectorsConfig(method="doc2vec", algorithm="pv_dbow", size=10, min_count=2, epochs=5)
    found, half = TextVectors(config).fit_transform(texts, seed=1), np.repeat([0, 1], 600)
    assert LogisticRegression(C=10, max_iter=500).fit(found, half).score(found, half) < 0.57  # 0.65 in that order


def test_a_text_is_the_mean_of_its_known_words() -> None:
    vectors = TextVectors(VectorsConfig(size=4, min_count=2, epochs=2))
    vectors.fit_transform([["a", "b", "a"], ["b", "once"]], seed=0)
    rows = {word: vectors._vectors[word].astype(np.float64) for word in vectors.words}
    assert set(rows) == {"a", "b"}
    found = vectors.transform([["a", "once", "b", "a"], ["once"], []])
    np.testing.assert_allclose(found[0], (2 * rows["a"] + rows["b"]) / 3, rtol=1e-5)
    assert not found[1:].any()


def test_fasttext_knows_words_that_it_has_not_seen() -> None:
    texts = [["filming", "walked"], ["filmed", "walking"]] * 5
    vectors = TextVectors(VectorsConfig(method="fasttext", size=4, min_count=1, epochs=2, buckets=1000))
    vectors.fit_transform(texts, seed=0)
    assert "films" not in vectors.words
    found = vectors.transform([["films"], ["zzz"]])
    assert found[0].any()
    assert not np.allclose(found[0], found[1])


def test_vectors_are_the_same_twice_and_other_with_another_seed() -> None:
    for method, algorithm in (("word2vec", "cbow"), ("fasttext", "cbow"), ("doc2vec", "pv_dm")):
        config = VectorsConfig(method=method, algorithm=algorithm, size=4, min_count=1, epochs=2, buckets=20)
        first, again, other = (TextVectors(config).fit_transform(animals(20), seed) for seed in (1, 1, 2))
        assert np.array_equal(first, again)
        assert not np.allclose(first, other)


def test_words_that_are_too_rare_are_an_error() -> None:
    for method, algorithm in (("word2vec", "cbow"), ("fasttext", "cbow"), ("doc2vec", "pv_dm")):
        with pytest.raises(UserError, match=r"No word occurs 5 times .*; lower vectors.min_count"):
            TextVectors(VectorsConfig(method=method, algorithm=algorithm)).fit_transform([["a"], ["b"]])


# The Spanish reviews


def test_the_spanish_reviews_are_split_as_scikit_learn_does() -> None:
    parts = reviews_es()
    assert {part: len(texts) for part, texts in parts.items()} == {"train": 10, "test": 4}
    items = sorted((item for texts in parts.values() for item in texts), key=lambda item: item.line or 0)
    assert [item.line for item in items] == list(range(1, 15))
    assert len({item.text for item in items}) == 14
    assert Counter(item.label for item in items) == {0: 7, 1: 7}
    train, test = train_test_split(items, test_size=0.25, random_state=0)
    assert (parts["train"].items, parts["test"].items) == (train, test)
    made = BaselineClassifier(
        CleaningConfig(language="es", stop_words="stop-words"), FeaturesConfig(), VectorsConfig(), ClassifierConfig()
    )
    made.fit([item.text for item in train], [item.label for item in train], parts["train"].labels)
    assert made.features.transform([made.clean(item.text) for item in test]).shape == (4, made.weights.shape[1])
    assert made.predict([item.text for item in test]).shape == (4, 2)


# The recipe


def tiny_config(folder: Path, **sections: dict[str, Any]) -> Path:
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(sections))
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    config = tiny_config(
        folder,
        data={
            "dataset": str(reviews(folder, 200, "train.jsonl", seed=0)),
            "test": str(reviews(folder, 60, "test.jsonl", seed=1, blamed="lovely")),
            "labels": ["negative", "positive"],
        },
        publish={"texts": "samples"},
        features={"ngrams": [1, 2], "min_texts": 12},  # so that not every word of praise is known
        training={"seed": 4},
        evaluation={
            "columns": ["half"],
            "words": ["man"],
            "counterfactual_texts": 20,
            "templates": True,
            "coverage": 0.8,
        },
        sample={"mistakes": 3, "features": 4},
    )
    train_here(RECIPE, config)
    return folder


def test_scores_are_those_of_the_saved_classifier(finished: Path) -> None:
    results = results_of(finished / "run")
    loaded = BaselineClassifier.from_pretrained(finished / "run")
    whole = read_labeled(finished / "train.jsonl", labels=["negative", "positive"])
    train, validation = whole.split([0.9, 0.1], 4, lambda item: item.text, "texts")
    test = read_labeled(finished / "test.jsonl", labels=["negative", "positive"])
    for part, texts in (("train", train), ("validation", validation), ("test", test)):
        right = np.array([item.label for item in texts])
        probabilities = np.array([loaded.predict([item.text])[0] for item in texts])
        predicted, score = probabilities.argmax(axis=1), results["metrics"][part]
        assert score["examples"] == len(texts) == results["data"]["parts"][part]["texts"]
        assert score["accuracy"] == pytest.approx(np.mean(predicted == right))
        nats = -np.log(probabilities[np.arange(len(right)), right])
        assert score["nats_per_example"] == pytest.approx(nats.mean(), rel=1e-5)
        if part == "test":
            assert 0.6 < score["accuracy"] < 1
            half = np.array([item.fields["half"] for item in texts]) == 1
            assert score["by_slice"]["half: 1"]["accuracy"] == pytest.approx(np.mean((predicted == right)[half]))
            worst = int(np.argmax(np.where(predicted != right, nats, 0)))
            assert results["samples"][0]["place"] == texts.place(worst)
            assert len(results["samples"]) == 3
    moved = results["metrics"]["test"]["counterfactual"]["gender"]
    held = [item.text for item in test.items[::3] if re.search(r"\bman\b", item.text, re.IGNORECASE)]
    assert moved["texts"] == len(held) > 5
    assert "counterfactual" not in results["metrics"]["validation"]
    assert "without_repeated" not in results["metrics"]["test"]  # no test text is in training
    probabilities, right = loaded.predict([item.text for item in test]), np.array([item.label for item in test])
    hits = probabilities.argmax(axis=1) == right
    kept = results["metrics"]["test"]["abstaining"]
    confidence = loaded.predict([item.text for item in validation]).max(axis=1)
    assert kept["threshold"] == pytest.approx(np.sort(confidence)[::-1][math.ceil(0.8 * len(validation)) - 1])
    answered = probabilities.max(axis=1) >= kept["threshold"] - 1e-7
    assert (kept["answered"], kept["accuracy"]) == (answered.sum(), pytest.approx(hits[answered].mean()))
    assert results["selection"]["threshold"] == {"part": "validation", "metric": "coverage"}
    measured = evaluate_folder(str(finished / "run"), "templates", threshold=kept["threshold"])
    assert json.loads(json.dumps(measured)) == results["metrics"]["test"]["templates"]
    again = evaluate_folder(str(finished / "run"), str(finished / "test.jsonl"), threshold=kept["threshold"] - 1e-7)
    assert (again["accuracy"], again["abstaining"]["answered"]) == (hits.mean(), kept["answered"])
    with pytest.raises(UserError, match="num_beams is not for the task of"):
        evaluate_folder(str(finished / "run"), str(finished / "test.jsonl"), num_beams=2)
    with pytest.raises(UserError, match="limit is not for the task of templates"):
        evaluate_folder(str(finished / "run"), "templates", limit=2)
    assert loaded.threshold == kept["threshold"]
    answers = hfattn.predict(str(finished / "run"), [item.text for item in test], abstain=True)
    assert [each["label"] for each in answers] == [
        None if row.max() < kept["threshold"] else loaded.labels[row.argmax()] for row in probabilities
    ]
    with pytest.raises(UserError, match=r"Input 1 has 2 parts, and .* reads text; give these"):
        hfattn.predict(str(finished / "run"), [("a", "b")])
    card = (finished / "run" / "README.md").read_text()
    assert "### Abstaining" in card
    assert "`hfattn predict` use it, unless `--no-abstain` is given" in card
    assert "| Iraq |" in card
    assert results["model"]["parameters"] == loaded.weights.shape[1] + 1
    assert {label: [tuple(row) for row in rows] for label, rows in results["telling"].items()} == loaded.telling(4)
    assert {"scikit-learn", "gensim"} < results["versions"].keys()


def test_texts_that_training_repeats_are_also_left_out() -> None:
    def part(*texts: str) -> LabeledTexts:
        return LabeledTexts("texts", [Labeled(text, 0) for text in texts], ["negative", "positive"])

    parts = {"train": part("a", "b"), "validation": part("c", "d"), "test": part("b", "e", "a", "f", "g")}
    predicted = {"validation": [0, 1], "test": [0, 1, 0, 1, 0]}
    outputs = {
        name: class_predictions(np.eye(2)[classes] * 3, [0] * len(classes)) for name, classes in predicted.items()
    }
    scores = scores_of_parts(parts, outputs, ClassifierEvaluationConfig())
    assert scores["test"]["accuracy"] == 3 / 5
    assert scores["test"]["without_repeated"] == {"examples": 3, "accuracy": 1 / 3}
    assert "without_repeated" not in scores["validation"]


def test_another_process_predicts_the_same(finished: Path, saved: Saved) -> None:
    """With the code of the card, and with each of FITTED."""
    folder = finished / "run"
    (snippet,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    # Python hashes strings differently in each process, and gensim's own inference begins at such a hash.
    code = (
        f"{snippet}\nimport json, sys\nfolder, number, texts = sys.argv[1:]\n"
        "print(json.dumps([BaselineClassifier.from_pretrained(f'{folder}/{i}').predict(json.loads(texts)).tolist() "
        "for i in range(int(number))]))"
    )
    others, new, expected = saved
    command = [sys.executable, "-c", code, others, len(FITTED), json.dumps(new)]
    done = run(command, cwd=folder, PYTHONHASHSEED="77")
    assert done.returncode == 0, done.stderr
    label, predicted = done.stdout.splitlines()
    assert label in ("negative", "positive")
    assert np.array_equal(json.loads(predicted), np.array(expected))


@pytest.mark.parametrize(("method", "algorithm"), [("word2vec", "skip_gram"), ("doc2vec", "pv_dbow")])
def test_vectors_that_are_learned_here_begin_a_recurrent_classifier(
    tmp_path: Path, method: str, algorithm: str
) -> None:
    """The whole way: this recipe, its files, recipes/classification; frozen, the embeddings are the vectors."""
    source = str(reviews(tmp_path, 80, "train.jsonl", seed=0))
    vectors = {"method": method, "algorithm": algorithm, "size": 8, "min_count": 1, "epochs": 3}
    config = tiny_config(
        tmp_path,
        data={"dataset": source},
        features={"kind": "vectors"},
        vectors=vectors,
        classifier={"kind": "logistic"},
        training={"seed": 1},
        sample={"neighbours": ["good", "unheard"]},
        publish={"texts": "own_words"},
    )
    results = train_here(RECIPE, config, to="baseline")
    near = nearest_words(load_words(tmp_path / "baseline"), "good", 5)
    assert results["neighbours"] == {"good": [list(pair) for pair in near], "unheard": []}
    card = (tmp_path / "baseline" / "README.md").read_text()
    assert f"| good | {', '.join(f'{word} {cosine:.2f}' for word, cosine in near)} |" in card
    assert "| unheard | not in the vocabulary |" in card
    assert results["telling"] == {}
    found = {"vectors": str(tmp_path / "baseline/vectors.npy"), "words": str(tmp_path / "baseline/vectors.words.txt")}
    sizes = {"embedding_size": 8, "hidden_size": 8, "freeze_embeddings": True}
    recurrent = {
        "data": {"dataset": source, **found},
        "tokenizer": {"kind": "word", "lowercase": True, "strip_punctuation": True},
        "model": {"model_type": "rnn_encoder", **sizes},
        "training": {**steps(4), "seed": 1},
        "sample": {"alignments": 1},
    }
    results = train_here(ROOT / "recipes" / "classification", write_config(tmp_path, recurrent))
    coverage = results["data"]["vectors"]
    assert (coverage["share"], coverage["missing"]) == (1.0, 0)  # the same words, the same split
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
    rows = np.load(tmp_path / "baseline" / "vectors.npy")
    known = (tmp_path / "baseline" / "vectors.words.txt").read_text().splitlines()
    ids = tokenizer.convert_tokens_to_ids(known)
    assert np.array_equal(model.get_input_embeddings().weight.detach().numpy()[ids], rows)


def test_the_readmes_command_runs_and_an_interrupted_fit_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "accelerate launch recipes/baselines/train.py "
    (options,) = re.findall(rf"```sh\n{script}([^\n]*reviews_es.yaml)\n", (RECIPE / "README.md").read_text())
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    monkeypatch.chdir(tmp_path)
    run_here(RECIPE, monkeypatch, *options.split())
    folder = tmp_path / "runs" / "baselines-reviews_es"
    before = (folder / "model.safetensors").read_bytes()
    asked = results_of(folder)["metrics"]["test"]["templates"]
    assert list(asked) == ["country (Spanish)", "gender (Spanish)", "name (Spanish)"], "the reviews are Spanish"
    again = evaluate_folder(str(folder), "templates_es")
    assert again["country (Spanish)"]["mean_shift"] == pytest.approx(asked["country (Spanish)"]["mean_shift"])
    (folder / "results.json").unlink()
    words = ["--config", RECIPE / "reviews_es.yaml", "--output_dir", folder]
    with pytest.raises(UserError, match="is not empty; continue its run with --resume"):
        run_here(RECIPE, monkeypatch, *words)
    with pytest.raises(UserError, match=r"was started with classifier\.alpha 1\.0, and this command has 2"):
        run_here(RECIPE, monkeypatch, *words, "--resume", "--classifier.alpha", 2)
    (folder / "model.safetensors").unlink()
    run_here(RECIPE, monkeypatch, *words, "--resume")
    assert (folder / "model.safetensors").read_bytes() == before


TWO = "label\ttext\n" + "".join(f"{('up', 'down')[i % 2]}\tthe dog {i}\n" for i in range(30))
BAD: list[BadInput] = [
    ("--data.dataset no.tsv", "no.tsv was not found locally or on the Hub"),
    ("--data.test b.tsv", "reviews_es has its own validation and test; remove"),
    ("--data.pair_column b", "pair_column is for the recipe classification"),
    ("--features.kind tfidf", "'tfidf' is not a kind of features; did you mean 'tfidf_"),
    ("--features.ngrams '[2, 1]'", r"ngrams is \[2, 1\]; write the shortest and the longest"),
    ("--features.min_texts 0", "min_texts is 0; write a whole number of at least 1"),
    ("--features.kind vectors --features.ngrams '[1, 2]'", "do not apply to kind vectors; remove them"),
    (
        "--features.kind vectors --classifier.kind naive_bayes",
        "Naive Bayes needs counts, and vectors have negative components; write classifier.kind: logistic",
    ),
    ("--vectors.method glove", "'glove' is not a method; did you mean 'doc2vec'"),
    ("--vectors.algorithm pv_dm", "algorithm is 'pv_dm'; write cbow or skip_gram for word"),
    ("--vectors.learning_rate 0.0", "learning_rate is 0.0; write a number above 0"),
    ("--vectors.size 0", "size is 0; write a whole number of at least 1"),
    ("--classifier.kind bayes", "'bayes' is not a kind of classifier; did you mean"),
    ("--classifier.kernel sigmoid", "'sigmoid' is not a kernel; write"),
    ("--classifier.kind logistic --classifier.kernel rbf", "kernel rbf is for an SVM; write kind: svm, or remove"),
    ("--classifier.c 0", "c is 0; write a number above 0"),
    ("--cleaning.stop_words nltk", "stop_words: 'nltk' is not one of the choices; write"),
    ("--cleaning.kept_words [no]", "and stop_words is none; remove kept_words"),
    (
        "--cleaning.stop_words sklearn --cleaning.language es",
        "stop_words sklearn is English, and language is es; write stop-words",
    ),
    ("--evaluation.columns [rating]", "names 'rating', and the other columns of reviews_es"),
    ("--evaluation.swaps no.yaml", "The file no.yaml with the words to swap does not exist"),
    ("--training.seed -1", r"seed is -1; write a number from 0 to 2\*\*32 - 1"),
    (
        lambda f: ["--data.dataset", written(f / "texts.tsv", TWO), "--data.labels", "[up, down, flat]"],
        "The class flat has 0 training texts, and svm needs 2; add texts, or remove the class from data.labels",
    ),
    ("--sample.neighbours [good]", "sample.neighbours needs word vectors; write features.kind: vectors, or remove it"),
    ("--sample.features 0", "features is 0; write a whole number of at least 1"),
]


# Frozen features of an encoder


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("encoder") / "bert", "bert")


@pytest.mark.parametrize("pooling", ["first", "mean", "max"])
def test_features_of_an_encoder_do_not_depend_on_padding(bert: Path, pooling: str) -> None:
    """Each text against the encoder's output for that text alone, reduced by a literal formula."""
    texts = ["The end.", "The story of Mary was long, and the dog was in the book.", "A dog", ""]
    made = EncoderFeatures(EncoderConfig(name=str(bert), pooling=pooling, batch_size=3)).encode(texts)
    model, tokenizer = AutoModel.from_pretrained(bert).eval(), AutoTokenizer.from_pretrained(bert)
    for text, features in zip(texts, made, strict=True):
        states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].detach().double().numpy()
        right = {"first": states[0], "mean": states.mean(axis=0), "max": states.max(axis=0)}[pooling]
        np.testing.assert_allclose(features, right, atol=1e-6)


def on_encoder(folder: Path, **fields: Any) -> BaselineClassifier:
    return BaselineClassifier(
        fields.pop("cleaning", CleaningConfig()),
        FeaturesConfig(kind="encoder"),
        VectorsConfig(),
        ClassifierConfig(kind=fields.pop("kind", "logistic")),
        EncoderConfig(name=str(folder), **fields),
    )


def test_logistic_regression_on_an_encoder_is_scikit_learns_and_is_saved(bert: Path, tmp_path: Path) -> None:
    texts, right = sentences(40)
    made = on_encoder(bert)
    made.fit(texts, right, ["bad", "good"])
    features = EncoderFeatures(EncoderConfig(name=str(bert))).encode(texts)
    standard = (features - features.mean(axis=0)) / features.std(axis=0)
    wanted = LogisticRegression(C=1.0, max_iter=1000).fit(standard, right).predict_proba(standard)
    np.testing.assert_allclose(made.predict(texts), wanted, atol=1e-6)
    made.save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "baseline.json").read_text())
    assert settings["encoder"]["name"] == "bert", "no path of this machine"
    loaded = BaselineClassifier.from_pretrained(tmp_path)
    np.testing.assert_allclose(loaded.predict(texts), made.predict(texts), atol=1e-6)


def test_an_encoder_that_cannot_be_used_is_refused(bert: Path) -> None:
    with pytest.raises(UserError, match=r"needs encoder.name; write the id or the folder"):
        EncoderFeatures(EncoderConfig())
    with pytest.raises(UserError, match="An encoder reads the text as it is written; remove the section cleaning"):
        on_encoder(bert, cleaning=CleaningConfig(word_form="stem"))
    with pytest.raises(UserError, match=r"write classifier.kind: logistic"):
        on_encoder(bert, kind="naive_bayes")


def test_several_processes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    error = refusal(RECIPE, monkeypatch, capfd, tmp_path / "run", "--config", tiny_config(tmp_path))
    assert error == "error: A baseline is fitted by one process; launch it with --num_processes 1."


class TestTheRecipe(FinishedRun, BadInputs):
    recipe, bad = "baselines", BAD
    files: ClassVar[set[str]] = {"baseline.json", "model.safetensors", "vocabulary.json"}
    pictures: ClassVar[tuple[str, ...]] = ("confusion.png",)
    stated: ClassVar[Stated] = {("accuracy", "accuracy (test)"): ("test", "accuracy")}

    @pytest.fixture
    def configure(self) -> Configure:
        return tiny_config

    def check_card(self, card: ModelCard, printed: str, results: dict[str, Any]) -> None:
        assert "accuracy (train)" not in str(card.data)
        for words in ("a linear SVM on tfidf_sklearn", "half: 1", "| gender |", "### N-grams with the highest weights"):
            assert words in card.text
        assert printed.strip() in ("negative", "positive")
