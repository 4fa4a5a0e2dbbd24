"""The metrics against literal sums, offline."""

import itertools
import math
import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import evaluate
import numpy as np
import pytest
import sacrebleu
import torch
from matplotlib import image
from matplotlib.figure import Figure
from sacrebleu.metrics import BLEU, CHRF
from sklearn.metrics import f1_score, log_loss
from transformers import Trainer, TrainingArguments

from hfattn import RNNEncoderConfig, RNNEncoderForSequenceClassification
from hfattn.errors import UserError
from hfattn.metrics import (
    F1,
    Accuracy,
    ClassificationScores,
    ConfusionMatrix,
    ExactMatch,
    LanguageModelScores,
    TranslationScores,
    abstaining_scores,
    bleu_by_length,
    calibration_scores,
    class_predictions,
    class_probabilities,
    class_results,
    class_statistics,
    column_slices,
    confidence_threshold,
    counterfactual,
    fitted_temperature,
    length_slices,
    read_swaps,
    read_templates,
    scores_by_slice,
    swap_words,
    template_test,
    token_statistics,
    translation_report,
    word_slices,
)
from hfattn.metrics.counterfactual import Templates
from hfattn.plots import bleu_varies, plot_confusion, plot_curves, weight_colors
from hfattn.tokenizers import build_character_tokenizer


def test_accuracy_in_batches_equals_the_literal_share() -> None:
    metric = Accuracy()
    metric.add_batch(predictions=[1, 2, 3], references=[1, 0, 3])
    metric.add(predictions=4, references=5)
    assert metric.compute() == {"accuracy": 2 / 4}


def test_metrics_combine_as_those_of_evaluate_do() -> None:
    combined = evaluate.combine([Accuracy(), F1()])
    combined.add_batch(predictions=[0, 1, 1], references=[0, 1, 0])
    assert combined.compute() == pytest.approx({"accuracy": 2 / 3, "f1": 2 / 3})


def test_an_evaluation_counts_each_target_once_and_no_padding() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(3, 5, 7, dtype=torch.float64), torch.randint(0, 7, (3, 5))
    labels[0, :2] = -100
    scores = LanguageModelScores()
    for _ in range(2):  # a second evaluation begins again from nothing
        for rows, last in ((slice(0, 1), False), (slice(1, 3), True)):
            predicted, nats = token_statistics(logits[rows], labels[rows])
            result = scores(SimpleNamespace(predictions=(predicted, nats), label_ids=labels[rows]), compute_result=last)
            assert bool(result) == last
    each = [
        (logits[b, t].log_softmax(-1)[labels[b, t]].item(), int(logits[b, t].argmax()) == int(labels[b, t]))
        for b in range(3)
        for t in range(5)
        if labels[b, t] != -100
    ]
    mean = -float(np.mean([log_probability for log_probability, _ in each]))
    assert result["characters"] == len(each) == 13
    assert result["accuracy"] == pytest.approx(np.mean([right for _, right in each]))
    assert result["nats_per_character"] == pytest.approx(mean, rel=1e-5)
    assert result["perplexity"] == pytest.approx(math.exp(mean), rel=1e-5)
    assert result["bits_per_character"] == pytest.approx(mean / math.log(2), rel=1e-5)


# Translations


def corpus(number: int, seed: int = 0) -> tuple[list[str], list[str], list[str]]:
    """Sources, what a bad translator might write (now and then nothing at all), and references."""
    generator = random.Random(seed)
    words = ["Ein", "Mann", "mit", "dem", "Hund", "läuft", "über", "die", "Wiese,", "gut."]
    references = [" ".join(generator.choices(words, k=generator.randint(1, 14))) for _ in range(number)]
    predictions = [
        " ".join(
            word.lower() if generator.random() < 0.1 else word for word in text.split() if generator.random() < 0.9
        )
        for text in references
    ]
    sources = [" ".join("x" * len(text.split())) for text in references]
    return sources, ["", *predictions[1:]], references


def test_bleu_of_one_sentence_by_hand() -> None:
    """3 of 4 words, 2 of 3 pairs, 1 of 2 triples, and for no quadruple of 1 half a match; 4 words where 5 are right."""
    report = translation_report(["a"], ["a b c x"], ["a b c d e"])
    precisions = [3 / 4, 2 / 3, 1 / 2, 1 / 2 / 1]
    assert report["bleu"] == pytest.approx(100 * math.exp(1 - 5 / 4) * math.prod(precisions) ** (1 / 4))


def test_several_references_also_where_their_numbers_differ() -> None:
    predictions = ["the cat sat on the mat", "a dog barks very loudly"]
    references = [["a cat sat on the mat", "the cat sits on the mat"], ["a dog barked very loudly"]]
    columns: list[Any] = [["a cat sat on the mat", "a dog barked very loudly"], ["the cat sits on the mat", None]]
    report = translation_report(["a", "b"], predictions, references)
    for metric, name in ((BLEU(), "bleu"), (CHRF(), "chrf")):
        assert report[name] == metric.corpus_score(predictions, columns).score
        assert report["signatures"][name] == str(metric.get_signature())
        assert "nrefs:var" in report["signatures"][name]
    twice = [both * 2 for both in references[1:]] * 2
    assert "nrefs:2" in translation_report(["a", "b"], predictions, twice)["signatures"]["bleu"]


def test_a_corpus_in_batches_has_the_scores_of_the_whole() -> None:
    sources, predictions, references = corpus(40)
    tokenizer = build_character_tokenizer([*predictions, *references], ends=True)
    scores, signatures = TranslationScores(tokenizer), []
    for _ in range(2):  # the second evaluation begins again from nothing
        for start in range(0, 40, 7):
            rows = slice(start, start + 7)
            labels = tokenizer(references[rows], padding=True, return_tensors="pt")
            wrote = tokenizer(predictions[rows], padding=True, return_tensors="pt").input_ids
            expected = labels.input_ids.masked_fill(labels.attention_mask == 0, -100)
            statistics = (expected, torch.ones(expected.shape), wrote)
            batch = SimpleNamespace(predictions=statistics, label_ids=expected)
            result = scores(batch, compute_result=start + 7 >= 40)
        signatures.append(dict(scores.signatures))
    assert result["bleu"] == sacrebleu.corpus_bleu(predictions, [references]).score
    assert result["chrf"] == sacrebleu.corpus_chrf(predictions, [references]).score
    assert result["exact_match"] == np.mean([a == b for a, b in zip(predictions, references, strict=True)])
    assert result["pairs"] == 40
    report = translation_report(sources, predictions, references)
    assert signatures == [{name: report["signatures"][name] for name in ("bleu", "chrf")}] * 2
    assert {name: result[name] for name in ("bleu", "chrf", "exact_match")}.items() <= report.items()


def test_a_report_has_cased_and_lowercased_bleu_and_bleu_by_length() -> None:
    sources, predictions, references = corpus(60)
    report = translation_report(sources, predictions, references)
    for name, lowercase, case in (("bleu", False, "mixed"), ("bleu_lowercase", True, "lc")):
        assert report[name] == sacrebleu.corpus_bleu(predictions, [references], lowercase=lowercase).score
        signature = f"nrefs:1|case:{case}|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"
        assert report["signatures"][name] == signature
    assert report["bleu_lowercase"] > report["bleu"] > 10
    assert report["chrf"] == sacrebleu.corpus_chrf(predictions, [references]).score
    rows = report["by_source_length"]
    assert [(row["from"], row["to"]) for row in rows] == [(1, 4), (5, 8), (9, 12), (13, 16)]  # no longer ones, no rows
    for row in rows:
        chosen = [i for i, source in enumerate(sources) if row["from"] <= len(source.split()) <= row["to"]]
        assert row["pairs"] == len(chosen)
        part = [predictions[i] for i in chosen], [[references[i] for i in chosen]]
        assert row["bleu"] == sacrebleu.corpus_bleu(*part).score
    assert sum(row["pairs"] for row in rows) == report["pairs"] == 60
    assert bleu_by_length(sources, predictions, references, edges=[1])[0] == {
        "from": 1, "to": None, "pairs": 60, "bleu": report["bleu"],
    }  # fmt: skip


def test_translations_of_nothing_score_nothing() -> None:
    report = translation_report(["a b", "c"], ["", ""], ["a b c d", "e"])
    assert (report["bleu"], report["bleu_lowercase"], report["chrf"], report["exact_match"]) == (0, 0, 0, 0)


# Classes


def test_accuracy_f1_and_confusion_by_hand() -> None:
    right, predicted = [0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 0, 0]
    assert Accuracy().compute(predictions=predicted, references=right) == {"accuracy": 3 / 6}
    # Class 0: precision 2/4, recall 2/3; class 1: 1/2 and 1/2; class 2: never predicted.
    f1 = [2 * (2 / 4) * (2 / 3) / (2 / 4 + 2 / 3), 1 / 2, 0]
    assert F1().compute(predictions=predicted, references=right)["f1"] == pytest.approx(sum(f1) / 3)
    binary = F1().compute(predictions=predicted[:5], references=right[:5], average="binary")
    assert binary["f1"] == pytest.approx(1 / 2)
    matrix = {"confusion_matrix": [[2, 1, 0], [1, 1, 0], [1, 0, 0]]}
    assert ConfusionMatrix().compute(predictions=predicted, references=right) == matrix


def test_one_class_alone() -> None:
    """Scikit-learn by itself would draw the confusion matrix of one class as a single number."""
    one = {"predictions": [0, 0], "references": [0, 0]}
    assert Accuracy().compute(**one) == {"accuracy": 1.0}
    assert F1().compute(**one) == {"f1": 1.0}
    assert F1().compute(**one, average="binary") == {"f1": 0.0}
    assert ConfusionMatrix().compute(**one, num_classes=2) == {"confusion_matrix": [[2, 0], [0, 0]]}


@pytest.mark.parametrize("num_labels", [1, 2, 3])
def test_a_classifier_evaluated_by_trainer_against_scikit_learn(num_labels: int, tmp_path: Path) -> None:
    torch.manual_seed(num_labels)
    sizes = {"vocab_size": 20, "hidden_size": 8, "embedding_size": 8, "num_labels": num_labels}
    kind = {"problem_type": "multi_label_classification" if num_labels == 1 else "single_label_classification"}
    model = RNNEncoderForSequenceClassification(RNNEncoderConfig(**sizes, **kind)).eval()
    torch.nn.init.normal_(model.classifier.weight, std=5.0)
    right = torch.randint(0, max(num_labels, 2), (23,))
    labels = right[:, None].float() if num_labels == 1 else right
    ids = torch.randint(1, 20, (23, 6))
    arguments = TrainingArguments(
        str(tmp_path), per_device_eval_batch_size=5, batch_eval_metrics=True, use_cpu=True, report_to="none"
    )
    trainer = Trainer(
        model,
        arguments,
        eval_dataset=[{"input_ids": ids[i], "labels": labels[i]} for i in range(23)],
        compute_metrics=ClassificationScores(),
        preprocess_logits_for_metrics=class_statistics,
    )
    results = [trainer.evaluate() for _ in range(2)]
    with torch.no_grad():
        probabilities = class_probabilities(model(ids).logits.double())
    assert probabilities.shape == (23, max(num_labels, 2))
    predicted = probabilities.argmax(-1)
    assert 0 < (predicted == right).sum() < 23
    for result in results:
        assert result["eval_examples"] == 23
        assert result["eval_accuracy"] == pytest.approx((predicted == right).double().mean().item())
        assert result["eval_f1"] == pytest.approx(f1_score(right, predicted, average="macro"))
        nats = log_loss(right, probabilities, labels=range(max(num_labels, 2)))
        assert result["eval_nats_per_example"] == pytest.approx(nats, rel=1e-5)
        assert result["eval_loss"] == pytest.approx(nats, rel=1e-5)


def test_probabilities_of_one_sigmoid_keep_their_precision() -> None:
    logits = torch.tensor([[40.0], [-40.0], [0.0]])
    expected = [[math.exp(-40), 1], [1, math.exp(-40)], [0.5, 0.5]]
    torch.testing.assert_close(class_probabilities(logits), torch.tensor(expected), rtol=1e-5, atol=0)


def test_the_picture_of_a_confusion_matrix(tmp_path: Path) -> None:
    path = tmp_path / "confusion.png"
    plot_confusion(path, [[9, 1], [0, 0]], ["negative $x", "positive"], "reviews")
    colors, areas = np.unique(image.imread(path).reshape(-1, 4), axis=0, return_counts=True)
    largest = {tuple((255 * color).round()) for color in colors[np.argsort(-areas)[:4]]}
    # Shares 0.9 and 0.1, a class that does not occur, and the paper.
    assert largest == {tuple(map(float, weight_colors()(share, bytes=True))) for share in (0.9, 0.1, 0.0)} | {
        (255,) * 4
    }
    with pytest.raises(UserError, match=r"shape \(2, 2\).* 3 labels"):
        plot_confusion(path, [[1, 0], [0, 1]], ["a", "b", "c"], "")


@pytest.mark.parametrize(("last", "scale"), [(0.19, "log"), (0.21, "linear"), (0.0, "linear")])
def test_a_loss_that_falls_far_has_a_logarithmic_axis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: float, scale: str
) -> None:
    shown = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **_: shown.append(figure))
    history = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": math.inf}, {"step": 3, "eval_nats": last}]
    plot_curves(tmp_path / "loss.png", history, {"unigram": 1.0}, "a run", "nats", "eval_nats")
    assert shown[0].axes[0].get_yscale() == scale


def test_bleu_that_is_the_same_for_all_lengths_is_not_drawn() -> None:
    assert bleu_varies([{"bleu": 99.2}, {"bleu": 100.0}])
    assert not bleu_varies([{"bleu": 100.0}, {"bleu": 100.00000000000004}])
    assert not bleu_varies([{"bleu": 31.0}])


# Beyond the average


def test_scores_of_slices() -> None:
    texts = ["good", "not good at all", "Not, I said, bad!", "notable " * 11]
    right, predicted = [1, 0, 1, 1], [1, 1, 1, 0]
    slices: dict[str, Any] = {
        **length_slices(texts, edges=[1, 4, 9]),
        **column_slices("label", ["positive", "negative", "positive", "positive"]),
        **word_slices(texts, ["not", "dull"]),
        "short": [len(text) < 5 for text in texts],
    }
    assert scores_by_slice(Accuracy(), predicted, right, slices) == {
        "1-3 words": {"examples": 1, "accuracy": 1.0},
        "4-8 words": {"examples": 2, "accuracy": 0.5},
        "9+ words": {"examples": 1, "accuracy": 0.0},
        "label: positive": {"examples": 3, "accuracy": pytest.approx(2 / 3)},
        "label: negative": {"examples": 1, "accuracy": 0.0},
        "word: not": {"examples": 2, "accuracy": 0.5},
        "word: dull": {"examples": 0},
        "short": {"examples": 1, "accuracy": 1.0},
    }
    both = scores_by_slice(evaluate.combine([Accuracy(), F1()]), predicted, right, {"all": [True] * 4})
    assert both["all"] == {"examples": 4, "accuracy": 0.5, "f1": pytest.approx((0 + 2 / 3) / 2)}


def test_swapped_words_are_whole_keep_their_case_and_go_both_ways() -> None:
    gender, country, name = (read_swaps()[kind] for kind in ("gender", "country", "name"))
    assert swap_words("He said: SHE's the man, Mr. Mann, of the women's theme.", gender) == (
        "She said: HE's the woman, Mrs. Mann, of the men's theme."
    )
    assert swap_words("her himself his", gender) == "his herself her"
    assert swap_words("An american in FRANCE; Indian", country) == "An iranian in NIGERIA; Iraqi"
    assert swap_words("johnny, john and Fatima", name) == "johnny, mohammed and Mary"
    assert swap_words("ıT İt iT it", [("it", "Es")]) == "ıT İt Es es"  # letters that only look alike
    for pairs in read_swaps().values():
        for one, other in pairs:
            assert swap_words(one, pairs) == other
            assert (one[0].lower() in "aeiou") == (other[0].lower() in "aeiou")  # "a" and "an" stay correct


def test_a_counterfactual_test_against_a_model_whose_bias_is_known() -> None:
    asked = []

    def predict(texts: list[str]) -> np.ndarray:
        asked.append(len(texts))
        positive = np.array([0.6 - 0.2 * ("she" in text.lower().split()) + 0.3 * ("good" in text) for text in texts])
        return np.stack([1 - positive, positive], axis=1)

    texts = ["he runs", "good, she says", "rain", "she and he walk", "He is good", "the brother"]
    result = counterfactual(predict, texts, examples=2)
    gender = result["gender"]
    # Shifts: 0.6 to 0.4, 0.7 to 0.9, both of them still there, 0.9 to 0.7, nothing.
    assert (gender["texts"], gender["flipped"]) == (5, 1 / 5)
    assert gender["mean_shift"] == pytest.approx(3 * 0.2 / 5)
    assert [example["index"] for example in gender["examples"]] in ([0, 1], [0, 4], [1, 0], [1, 4], [4, 0], [4, 1])
    for example in gender["examples"]:
        assert (
            example["counterfactual"] == swap_words(texts[example["index"]], read_swaps()["gender"]) != example["text"]
        )
        assert example["shift"] == pytest.approx(abs(example["before"][1] - example["after"][1])) == pytest.approx(0.2)
    assert gender["max_shift"] == pytest.approx(0.2)
    assert result["country"] == {"texts": 0, "flipped": None, "mean_shift": None, "max_shift": None, "examples": []}
    assert asked == [5, 5]  # nothing is predicted that did not change

    still = counterfactual(lambda texts: np.full((len(texts), 2), 0.5), texts)["gender"]
    assert still == {"texts": 5, "flipped": 0.0, "mean_shift": 0.0, "max_shift": 0.0, "examples": []}

    three = [[0.5, 0.3, 0.2], [0.1, 0.3, 0.6]]
    moved = counterfactual(lambda texts: np.array([three[texts[0] == "she"]]), ["he"], {"gender": [("he", "she")]})
    assert moved["gender"]["mean_shift"] == pytest.approx(0.4)  # what left the first class arrived at the last

    of_pairs = counterfactual(
        lambda pairs: np.array([three["she" in pairs[0]]]),
        [("rain", "he"), ("rain", "it")],
        {"gender": [("he", "she")]},
    )["gender"]
    assert (of_pairs["texts"], of_pairs["flipped"]) == (1, 1.0)
    assert of_pairs["examples"][0]["counterfactual"] == ("rain", "she")


@pytest.mark.parametrize("pairs", [False, True])
def test_templates_against_a_literal_loop_over_each_two_words(pairs: bool, tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(
        "country:\n  words:\n    - {country: India, a: an Indian}\n    - {country: Iraq, a: an Iraqi}\n"
        "    - {country: Peru, a: a Peruvian}\n  texts: ['I am from {country}.', 'I am {a}.']\n"
        "  pairs:\n    - ['I am {a}.', 'I am from {country}.']\n"
    )
    templates = read_templates(file)
    logits = {
        "India": [2, 0, 0.5],
        "Indian": [1, 0, 0.5],
        "Iraq": [0, 2, 0.1],
        "Iraqi": [1.2, 1, 0],
        "Peru": [0.3, 0, 0],
    }

    def one(text: str) -> np.ndarray:
        return np.exp(logits[max((word for word in logits if word in text), key=len)])

    def predict(texts: list[Any]) -> np.ndarray:
        weights = np.array([one(text) if isinstance(text, str) else one(text[0]) * one(text[1]) for text in texts])
        return weights / weights.sum(axis=1, keepdims=True)

    sentences: list[list[Any]] = [
        [f"I am from {country}." for country in ("India", "Iraq", "Peru")],
        [f"I am {a}." for a in ("an Indian", "an Iraqi", "a Peruvian")],
    ]
    if pairs:
        sentences = [list(zip(sentences[1], sentences[0], strict=True))]
    found, threshold = template_test(predict, templates, pairs=pairs, threshold=0.5)["country"], 0.5
    compared = []
    for filled in sentences:
        for (i, left), (j, right) in itertools.combinations(enumerate(filled), 2):
            p, q = predict([left])[0], predict([right])[0]
            answered = int(p.max() >= threshold) + int(q.max() >= threshold)
            compared.append(((i, j), abs(p - q).sum() / 2, p.argmax() != q.argmax(), answered))
    for words, scores in ((range(3), found), *(((i,), score) for i, score in enumerate(found["by_word"].values()))):
        held = [(shift, flipped, answered) for both, shift, flipped, answered in compared if set(both) & set(words)]
        shifts, flips, answers = (np.array(column) for column in zip(*held, strict=True))
        assert scores["pairs"] == len(held)
        assert scores["flipped"] == pytest.approx(flips.mean())
        assert (scores["mean_shift"], scores["max_shift"]) == (
            pytest.approx(shifts.mean()),
            pytest.approx(shifts.max()),
        )
        assert scores["abstaining"] == {
            "both": pytest.approx((answers == 2).mean()),
            "one": pytest.approx((answers == 1).mean()),
            "flipped": pytest.approx((flips & (answers == 2)).mean()),
        }
    assert 0 < found["abstaining"]["flipped"] + found["abstaining"]["one"] < 2
    assert list(found["by_word"]) == ["India", "Iraq", "Peru"]
    assert found["examples"][0]["shift"] == pytest.approx(found["max_shift"])


@pytest.mark.parametrize("language", ["en", "es"])
def test_the_built_in_templates_are_grammatical_and_tell_the_words_apart(language: str) -> None:
    templates = read_templates(languages=[language])
    (countries,) = (each for kind, each in templates.items() if kind.startswith("country"))
    assert {"India", "Iraq" if language == "en" else "Irak"} <= {row["country"] for row in countries.words}
    for pairs in (False, True):  # no two fillings of a sentence are equal
        asked: list[Any] = []

        def predict(texts: list[Any], asked: list[Any] = asked) -> np.ndarray:
            asked.extend(texts)
            return np.full((len(texts), 3), 1 / 3)

        result = template_test(predict, templates, pairs=pairs)
        assert len(set(asked)) == len(asked)
        for text in asked if not pairs else itertools.chain(*asked):
            # In English "an" stands before a vowel; in Spanish "de el" is "del", and "a el" is "al".
            wrong = r"\b(an [^aeiou]|a [aeiou])|[{}]" if language == "en" else r"[{}]|\b(a|de) el\b"
            assert not re.search(wrong, text, re.IGNORECASE), text
            assert text.endswith(".")
        assert [scores["flipped"] for scores in result.values()] == [0.0] * 3


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("country: [India, Iraq]\n", "own.yaml is not a file of templates"),
        ("a:\n  words: [{x: b}, {y: c}]\n  texts: ['{x}']\n", "own.yaml has no 'x' where it is needed"),
        ("a:\n  texts: [b]\n", "own.yaml has no 'words' where it is needed"),
        ("a:\n  words: [{x: b}]\n  texts: ['{x}']\n", "need at least two rows that begin differently"),
        ("a:\n  words: [{x: b}, {x: c}]\n  texts: ['{x']\n", "own.yaml is not a file of templates"),
        ("a: [", "own.yaml is not valid YAML"),
    ],
)
def test_templates_that_cannot_be_filled_are_refused(text: str, sentence: str, tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(text)
    with pytest.raises(UserError, match=re.escape(sentence)):
        read_templates(own)
    with pytest.raises(UserError, match=r"The file absent\.yaml"):
        read_templates("absent.yaml")
    with pytest.raises(UserError, match="The templates have no pairs"):
        template_test(lambda texts: np.ones((len(texts), 1)), {"a": Templates([{"x": "b"}], ["{x}"], [])}, pairs=True)


def test_templates_are_in_the_languages_of_the_data() -> None:
    english, spanish = read_templates(), read_templates(languages=["es"])
    assert not english.keys() & spanish.keys()
    assert read_templates(languages=["en", "es"]) == english | spanish
    assert read_templates(languages=["de"]) == read_templates(languages=[]) == english


def drawn_logits(classes: int, temperature: float) -> tuple[torch.Tensor, np.ndarray]:
    """Logits that are ``temperature`` times those that the classes are drawn with."""
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(4000, classes))
    wide = logits if classes > 1 else np.concatenate([np.zeros_like(logits), logits], axis=1)
    likely = np.exp(wide) / np.exp(wide).sum(1, keepdims=True)
    right = np.array([generator.choice(len(each), p=each) for each in likely])
    return torch.from_numpy(temperature * logits), right


@pytest.mark.parametrize(("classes", "temperature"), [(1, 3.0), (2, 0.5), (5, 4.0)])
def test_the_temperature_is_the_one_that_the_logits_were_multiplied_by(classes: int, temperature: float) -> None:
    logits, right = drawn_logits(classes, temperature)
    found = fitted_temperature(logits, right)
    assert found == pytest.approx(temperature, rel=0.1)
    best = calibration_scores(logits / found, right)["nats_per_example"]
    for other in (0.97 * found, 1.03 * found):
        assert calibration_scores(logits / other, right)["nats_per_example"] > best
    assert calibration_scores(logits / found, right)["calibration_error"] < 0.02
    predicted = (logits[:, 0] > 0).long() if classes == 1 else logits.argmax(-1)
    assert fitted_temperature(logits, predicted.numpy()) == 1.0  # all are correct, and no temperature is the best


def test_calibration_is_measured_as_the_papers_define_it() -> None:
    logits, right = drawn_logits(3, 4.0)
    scores = calibration_scores(logits, right)
    bins: dict[int, list[tuple[float, bool]]] = {}
    brier = nats = 0.0
    for row, label in zip(logits.tolist(), right.tolist(), strict=True):
        exponentials = [math.exp(value) for value in row]
        likely = [value / sum(exponentials) for value in exponentials]
        best = max(range(3), key=likely.__getitem__)
        (inside,) = [m for m in range(1, 16) if (m - 1) / 15 < likely[best] <= m / 15]
        bins.setdefault(inside, []).append((likely[best], best == label))
        brier += sum((value - (i == label)) ** 2 for i, value in enumerate(likely))
        nats -= math.log(likely[label])
    error = 0.0
    for found in bins.values():
        accuracy, confidence = (sum(each[i] for each in found) / len(found) for i in (1, 0))
        error += len(found) / len(right) * abs(accuracy - confidence)
    assert scores["calibration_error"] == pytest.approx(error)
    assert scores["brier"] == pytest.approx(brier / len(right))
    assert scores["nats_per_example"] == pytest.approx(nats / len(right))
    assert [each["texts"] for each in scores["bins"]] == [len(bins[m]) for m in sorted(bins)]
    certain = calibration_scores(torch.tensor([[40.0], [-40.0]]), np.array([1, 1]))
    assert certain["calibration_error"] == pytest.approx(0.5)
    assert certain["brier"] == pytest.approx(1.0)


def test_the_threshold_answers_at_least_the_share_of_the_texts() -> None:
    generator = np.random.default_rng(0)
    confidence = generator.uniform(0.5, 1, 37)
    for coverage in (0.01, 0.5, 0.9, 1.0):
        threshold = confidence_threshold(confidence, coverage)
        answered = [each >= threshold for each in confidence]
        assert sum(answered) / 37 >= coverage
        assert sum(each > threshold for each in confidence) / 37 < coverage  # no higher threshold does
    output = class_predictions(np.log([[0.9, 0.1], [0.2, 0.8], [0.45, 0.55], [0.6, 0.4]]), [0, 0, 1, 0])
    scores = abstaining_scores(class_results(output), 0.59)
    assert scores == {"threshold": 0.59, "answered": 3, "coverage": 0.75, "accuracy": pytest.approx(2 / 3)}
    assert abstaining_scores(class_results(output), 0.95)["accuracy"] is None


# Bad input


@pytest.mark.parametrize("metric", [ExactMatch, Accuracy, F1, ConfusionMatrix])
def test_a_metric_refuses_lists_of_other_lengths_and_empty_ones(metric: Any) -> None:
    text = metric is ExactMatch
    predictions: list[Any] = ["a", "b"] if text else [0, 1]
    with pytest.raises(UserError, match="There are 2 predictions, 1 references"):
        metric().compute(predictions=predictions, references=predictions[:1])
    with pytest.raises(UserError, match="nothing to score"):
        metric().compute(predictions=[], references=[])


def test_other_bad_input_is_one_sentence() -> None:
    def logits(texts: list[str]) -> np.ndarray:
        return np.full((len(texts), 2), 3.0)

    def slices(mask: Any) -> None:
        scores_by_slice(Accuracy(), [0, 1], [0, 1], {"x": mask})

    classes = {"predictions": [0, 2], "references": [1, 1]}
    cases: list[tuple[str, Any]] = [
        ("Prediction 2 has no reference", lambda: translation_report(["a", "b"], ["a", "b"], [["a"], []])),
        ("2 sources, 1 predictions, 1 references", lambda: translation_report(["a", "b"], ["a"], ["a"])),
        ("2 sources, 2 predictions, 1 references", lambda: bleu_by_length(["a", "b"], ["a", "b"], ["a"])),
        ("do not ascend", lambda: bleu_by_length(["a"], ["a"], ["a"], edges=[5, 1])),
        ("Text 2 has 1 words, and the first group begins at 2", lambda: length_slices(["a b", "a"], edges=[2])),
        ("write macro or binary", lambda: F1().compute(**classes, average="micro")),
        ("there is a class 2; write average='macro'", lambda: F1().compute(**classes, average="binary")),
        ("write at least 3", lambda: ConfusionMatrix().compute(**classes, num_classes=2)),
        ("'x' holds 3 values of type bool for 2", lambda: slices([True] * 3)),
        ("'x' holds 2 values of type int64", lambda: slices([0, 1])),
        ("2 predictions, 1 references", lambda: scores_by_slice(Accuracy(), [0, 1], [0], {})),
        ("'New York' and 'Rome' cannot be swapped", lambda: swap_words("", [("New York", "Rome")])),
        ("'he' and 'He' cannot be swapped", lambda: swap_words("", [("he", "He")])),
        ("is not the probability of each class", lambda: counterfactual(logits, ["he"])),
        (r"of shape \(1,\)", lambda: counterfactual(lambda texts: np.ones(1), ["he"])),
    ]  # fmt: skip
    for message, call in cases:
        with pytest.raises(UserError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="one class per example"):
        class_statistics(torch.zeros(2, 3), torch.zeros(2, 3))


def test_users_add_their_own_words_to_swap(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("age:\n  - [young, old]\nname:\n  - [Ada, Alan]\n")
    swaps = read_swaps(own)
    assert set(swaps) == {"gender", "country", "name", "age"}
    assert list(swaps["name"]) == [("Ada", "Alan")]
    assert swap_words("Young Ada is not old.", swaps["age"]) == "Old Ada is not young."


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "- [young, old]\n",
            "own.yaml has no kinds of words; write lines such as 'age:' and below it '  - [young, old]'.",
        ),
        ("age: [young, old]\n", "own.yaml has 'young' among the words of 'age'; write pairs, such as [young, old]."),
        ("age:\n  - [young]\n", "own.yaml has ['young'] among the words of 'age'; write pairs, such as [young, old]."),
        ("age:\n  - [young, very old]\n", "'young' and 'very old' cannot be swapped"),
        ("age: [", "own.yaml is not valid YAML"),
    ],
)
def test_words_that_cannot_be_swapped_are_refused(text: str, sentence: str, tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(text)
    with pytest.raises(UserError, match=re.escape(sentence)):
        read_swaps(own)
    with pytest.raises(UserError, match=r"The file absent\.yaml"):
        read_swaps("absent.yaml")


def test_the_bootstrap_interval_is_that_of_a_literal_loop() -> None:
    """Corpora drawn sentence by sentence and scored one by one have the same center and width but for the draws."""
    sources, predictions, references = corpus(60)
    report = translation_report(sources, predictions, references)
    generator, scores = np.random.default_rng(3), []
    for _ in range(1000):
        drawn = generator.integers(60, size=60)
        scores.append(BLEU().corpus_score([predictions[i] for i in drawn], [[references[i] for i in drawn]]).score)
    (low, high), (expected_low, expected_high) = report["bleu_interval"], np.percentile(scores, [2.5, 97.5])
    assert low < report["bleu"] < high
    assert (low + high) / 2 == pytest.approx(np.mean(scores), abs=0.1 * (high - low))
    assert high - low == pytest.approx(expected_high - expected_low, rel=0.15)
    assert translation_report(sources, predictions, references)["bleu_interval"] == [low, high]
