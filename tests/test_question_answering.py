"""Questions with answers in a text, their way to an extractive model and back, and the recipe's command line."""

import json
import re
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from commands import ROOT, results_of, steps, train_here, write_config, written
from huggingface_hub import ModelCard
from recipe_contract import BadInput, BadInputs, Configure, FinishedRun, KilledRun, Stated, TwoProcesses
from tiny_models import TOKENIZERS, tiny_model, wordpiece_tokenizer
from transformers import AutoModelForQuestionAnswering, AutoTokenizer, DataCollatorWithPadding

from hfattn.data import (
    Answer,
    EncodedQuestions,
    Question,
    Questions,
    read_questions,
)
from hfattn.errors import UserError
from hfattn.generated import GENERATED, fact_questions
from hfattn.metrics import AnswerMetric
from hfattn.reports.question_answering import question_word

pytestmark = pytest.mark.runs

RECIPE = ROOT / "recipes" / "question_answering"
CONTEXT = "York is old. Mary Smith was born in York in 1984."


# The questions


def questions_file(folder: Path, content: Any, name: str = "questions.jsonl") -> Path:
    whole = name.endswith(".json") and not isinstance(content, str)
    return written(folder / name, json.dumps(content) if whole else content)


def row(text: str = "York", start: int = 36, **fields: Any) -> dict[str, Any]:
    question = {"question": "Where was Mary Smith born?", "context": CONTEXT}
    return {"id": "q7", **question, "answers": {"text": [text], "answer_start": [start]}, **fields}


def squad(*questions: dict[str, Any]) -> dict[str, Any]:
    return {"data": [{"title": "Mary", "paragraphs": [{"context": CONTEXT, "qas": list(questions)}]}]}


def test_squads_files_and_rows_say_the_same(tmp_path: Path) -> None:
    answers = [{"text": "York", "answer_start": 36}, {"text": "York in 1984", "answer_start": 36}] * 2
    asked = {"id": "a", "question": "Where?", "answers": answers}
    never = {"id": "b", "question": "Why?", "answers": [], "is_impossible": True,
             "plausible_answers": [{"text": "York", "answer_start": 0}]}  # fmt: skip
    first = read_questions(questions_file(tmp_path, squad(asked, never), "squad.json"), unanswerable=True)
    rows = [
        {"id": "a", "question": "Where?", "context": CONTEXT, "answers": answers},
        {"id": "b", "question": "Why?", "context": CONTEXT, "answers": {"text": [], "answer_start": []}, "title": "x"},
    ]
    second = read_questions(questions_file(tmp_path, rows), unanswerable=True)
    assert first.items[0].answers == (Answer("York", 36), Answer("York in 1984", 36))  # equal ones once
    assert [item[:4] for item in first] == [item[:4] for item in second]
    assert first.fingerprint == second.fingerprint
    assert (first.items[1].answers, first.items[1].fields) == ((), {"title": "Mary"})
    assert first.place(1) == "Question 2 of squad.json (id 'b')"
    assert second.place(1) == "Line 2 of questions.jsonl (id 'b')"


BAD_FILES: list[tuple[str, Any, str]] = [
    ("questions.jsonl", [row(), row(start=35)], r"Line 2 of questions.jsonl \(id 'q7'\) has the answer 'York' at "
     r"character 35 of its context, which is ' Yor'; write answer_start 36, where it is"),
    ("questions.jsonl", [row("Leeds")], "'Leeds' .* which is 'York '; the context does not contain it"),
    ("questions.jsonl", [row(start=-4)], "'York' at character -4 of its context, which is ''.* answer_start 0"),
    ("questions.jsonl", [row(start=99)], "'York' at character 99 of its context, which is ''.* answer_start 36"),
    ("questions.jsonl", [row(" ", 4)], "has an empty answer; write an empty list if it is unanswerable"),
    ("questions.jsonl", [row(answers={"text": [], "answer_start": []})], r"\(id 'q7'\) has no answer; write data"),
    ("questions.jsonl", [row(answers={"text": ["York"]})], r"Line 1 of questions.jsonl has the answers .* write \{\"t"),
    ("questions.jsonl", [row(answers={"text": ["York"], "answer_start": []})], "one number for each text"),
    ("questions.jsonl", [row(answers=["York"])], "Line 1 of questions.jsonl has the answers"),
    ("questions.jsonl", [row(question=" ")], "has an empty question; fill it in"),
    ("questions.jsonl", [{"question": "Why?", "answers": []}], "has no column 'context'; write one of question, ans"),
    ("questions.jsonl", "", "questions.jsonl is empty; write questions with their contexts and answers"),
    ("squad.json", squad({"id": "a", "question": "Where?", "answers": [{"text": "York", "answer_start": 3}]}),
     r"Question 1 of squad.json \(id 'a'\) has the answer 'York' at character 3 .* write answer_start 0"),
    ("squad.json", squad({"id": "a", "question": "Where?", "answers": {"text": ["York", "in"], "answer_start": [0]}}),
     r"Question 'a' of squad.json has the answers .* one number for each text"),
    ("squad.json", {"data": [{"paragraphs": [{"qas": []}]}, {}]}, "not in the format of SQuAD .* 'paragraphs'"),
    ("squad.json", squad({"id": "a", "question": None, "answers": []}), "has None as its question; write a text"),
    ("squad.json", [1], "squad.json is not in the format of SQuAD"),
    ("squad.json", "{", "squad.json is not JSON .* in line 1"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "message"), BAD_FILES)
def test_bad_questions(tmp_path: Path, name: str, content: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_questions(questions_file(tmp_path, content, name))


def test_made_up_questions_have_their_answers_and_names_of_their_own_in_each_part() -> None:
    parts = {part: fact_questions(part, 300, seed=3) for part in GENERATED["facts"].parts}
    assert parts["test"].fingerprint == fact_questions("test", 300, seed=3).fingerprint
    names: dict[str, set[str]] = {}
    for part, questions in parts.items():
        names[part] = {word for item in questions for word in re.findall(r"\b[A-Z]\w+", item.context)}
        for item in questions:
            (answer,) = item.answers
            assert item.context[answer.start :].startswith(answer.text)
            # The same kind of fact is told of another too, so that the name in the question is needed.
            assert item.fields["fact"]
    common = {"A", "At", "Each", "For", "Foods", "In", "Line"}
    common |= {"Motors", "Mutual", "Sons", "Steel", "The", "There", "Traders"}
    months = {"January", "March", "May", "June", "August", "October", "November"}
    for part in ("validation", "test", "unseen_forms"):
        assert not (names["train"] & names[part]) - common - months, part
    unanswered = fact_questions("train", 300, seed=3, unanswerable=True)
    assert 0.2 < sum(not item.answers for item in unanswered) / 300 < 0.5
    known = {re.sub(r"\b[A-Z]\w+", "", item.question) for item in parts["train"]}
    assert not known & {re.sub(r"\b[A-Z]\w+", "", item.question) for item in parts["unseen_forms"]}


# Their way to the model and back


def test_a_tokenizer_of_a_language_model_does_not_move_the_answers_of_a_batch() -> None:
    made = wordpiece_tokenizer([CONTEXT], types=True)
    made.padding_side = "left"
    encoded = EncodedQuestions(Questions("facts", fact_questions("train", 12, seed=0).items), made, 60, overlap=16)
    rows = [encoded[i] for i in range(len(encoded))]
    batch = DataCollatorWithPadding(made)(rows)
    for row, ids in zip(rows, batch["input_ids"], strict=True):
        assert ids[row["start_positions"]] == row["input_ids"][row["start_positions"]]
    assert len({len(row["input_ids"]) for row in rows}) > 1


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_positions_point_at_the_answer_in_every_window_that_has_it(kind: str) -> None:
    made = TOKENIZERS[kind]([CONTEXT] * 2)
    items = fact_questions("train", 12, seed=0, unanswerable=True).items
    answerable = [item for item in items if item.answers]
    encoded = EncodedQuestions(Questions("facts", items), made, 60, overlap=16)
    assert len(encoded) > len(items)
    null = encoded.nulls[0]
    seen = dict.fromkeys(range(len(items)), 0)
    for question, rows in enumerate(encoded.rows_of):
        item = items[question]
        for number in rows:
            features = encoded[number]
            start, end = features["start_positions"], features["end_positions"]
            text = made.decode(features["input_ids"])
            if (start, end) == (null, null):
                continue
            seen[question] += 1
            spelled = made.decode(features["input_ids"][start : end + 1])
            answer = item.answers[0].text
            tokens = made(answer if kind == "word pieces" else f" {answer}", add_special_tokens=False).input_ids
            assert spelled.strip() == made.decode(tokens).strip(), text
    assert all(count == 0 for i, count in seen.items() if not items[i].answers)
    assert sum(count > 0 for count in seen.values()) == len(answerable) - encoded.lost
    assert encoded.lost < len(answerable)


def test_the_target_of_a_window_is_the_first_answer_in_it() -> None:
    """White space around an answer does not count, and of several answers, each window has the first that it holds."""
    made = wordpiece_tokenizer([CONTEXT], types=True)
    context = f"{CONTEXT} {CONTEXT} {CONTEXT} "
    first, last = CONTEXT.index("York"), 2 * len(CONTEXT) + 2 + CONTEXT.index("York")
    answers = (Answer(context[last : last + 4], last), Answer("York", first))
    ends = Answer(context[-9:], len(context) - 9)
    for given, number in ((answers, 2), ((ends,), 1)):
        encoded = EncodedQuestions(Questions("one", [Question("a", "Where?", context, given)]), made, 24, overlap=4)
        found = [
            row["start_positions"]
            for row, null in zip(encoded.rows, encoded.nulls, strict=True)
            if row["start_positions"] != null
        ]
        assert len(found) >= number
        assert encoded.lost == 0


def test_an_answer_is_the_best_of_all_spans_of_all_windows() -> None:
    """Beside a loop over every start and end, one window at a time; the padding behind has high logits."""
    made = wordpiece_tokenizer(["a b c d e f g h i j what is it"], types=False)
    context = "a  b c d e f g h i j"  # two spaces, which the text of an answer keeps
    asked = [Question("1", "what is it", context, (Answer("b c", 3),)), Question("2", "what", context)]
    options: dict[str, Any] = {"overlap": 2, "n_best": 5, "max_answer_length": 3}
    generator = np.random.default_rng(0)
    for threshold in (None, 0.0, 3.0):
        encoded = EncodedQuestions(Questions("some", asked), made, 11, null_threshold=threshold, **options)
        assert [len(rows) for rows in encoded.rows_of] == [3, 2]
        for _ in range(20):
            starts, ends = ([generator.normal(size=20) * 3 for _ in range(len(encoded))] for _ in range(2))
            for logits in (*starts, *ends):
                logits[11:] = 100
            found = encoded.answers(starts, ends)
            for question, rows in enumerate(encoded.rows_of):
                scores: dict[str, float] = {}
                null = min(starts[r][0] + ends[r][0] for r in rows)
                for r in rows:
                    inside = [i for i, (first, _) in enumerate(encoded.contexts[r]) if first >= 0]
                    for i in inside:
                        for j in inside:
                            if i <= j < i + 3:
                                text = context[encoded.contexts[r][i][0] : encoded.contexts[r][j][1]]
                                scores[text] = max(starts[r][i] + ends[r][j], scores.get(text, -np.inf))
                best = max(scores, key=lambda text: scores[text])
                margin = null - scores[best]
                refused = threshold is not None and margin > threshold
                assert found[question].span == best
                assert found[question].text == ("" if refused else best)
                assert found[question].null_margin == pytest.approx(margin)
                five = sorted(scores.values())[-5:] + ([null] if threshold is not None else [])
                given = null if refused else scores[best]
                assert found[question].probability == pytest.approx(np.exp(given) / np.exp(five).sum())
    texts = {answer.text for answer in found}
    assert texts <= {"", *(context[i:j] for i in range(20) for j in range(i + 1, 21))}


def test_a_question_that_leaves_no_room_is_refused() -> None:
    made = wordpiece_tokenizer(["what is it a b c"], types=False)
    asked = Questions("some", [Question("x", "what is it what is it", "a b c a b c", (Answer("a", 0),), 3)])
    message = r"Line 3 of some \(id 'x'\) has 6 tokens, and data.max_length 12 leaves 3 for its context; write"
    with pytest.raises(UserError, match=message):
        EncodedQuestions(asked, made, 12, overlap=3)
    assert len(EncodedQuestions(asked, made, 12, overlap=2)) == 4


@pytest.mark.parametrize("answers", [(), (Answer("\u200b", 0),)])
def test_a_context_without_tokens_is_refused(answers: tuple[Answer, ...]) -> None:
    made = wordpiece_tokenizer(["what is it a b c"], types=False)
    asked = Questions("some", [Question("x", "what", "a b"), Question("y", "what", "\u200b\u200b", answers)])
    with pytest.raises(UserError, match=r"Question 2 of some \(id 'y'\) has a context without tokens, .* fill it in"):
        EncodedQuestions(asked, made, 12, overlap=3)


# The recipe


TINY = {
    "publish": {"texts": "samples"},
    "data": {"examples": 60, "evaluation_examples": 12, "max_length": 64, "overlap": 16},
    "training": {"learning_rate": 3e-3},
    "sample": {"mistakes": 3},
}


def tiny_config(folder: Path, pretrained: Path, **fields: Any) -> Path:
    return write_config(folder, TINY, {"model": {"name": str(pretrained)}}, fields)


def color_questions(folder: Path, name: str, number: int, seed: int, wrong: int = 0) -> Path:
    """A color within other words is asked for; where there is none, there is no answer. The last ones are wrong."""
    generator = np.random.default_rng(seed)
    rows = []
    for i in range(number):
        words = list(generator.choice(["dog", "cat", "cow", "hen", "pig", "ox"], size=int(generator.integers(4, 16))))
        color = str(generator.choice(["red", "green", "blue"]))
        place = int(generator.integers(len(words)))
        answers = []
        if i % 4:
            words.insert(place, color)
            answers = [{"text": color, "answer_start": len(" ".join([*words[:place], ""]))}]
        if i >= number - wrong:
            answers = [{"text": words[-1], "answer_start": len(" ".join([*words[:-1], ""]))}]
        rows.append(
            {"id": f"q{i}", "question": f"which color {i % 3}?", "context": " ".join(words), "answers": answers}
        )
    return written(folder / name, rows)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = ["dog cat cow hen pig ox red green blue which color 0 1 2 ?"]
    return tiny_model(tmp_path_factory.mktemp("model") / "tiny-distilbert", texts=texts, layers=1)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A finished run on questions of which one in four has no answer, in windows and batches by tokens."""
    folder = tmp_path_factory.mktemp("finished")
    config = tiny_config(
        folder,
        model,
        data={
            "dataset": str(color_questions(folder, "train.jsonl", 400, seed=0)),
            "test": str(color_questions(folder, "test.jsonl", 60, seed=1, wrong=5)),
            "unanswerable": True,
            "max_length": 17,
            "overlap": 4,
        },
        training={**steps(40, 20), "metric_for_best_model": "f1"},
        evaluation={"max_answer_length": 3, "null_threshold": 0.5},
        max_tokens=600,
        early_stopping_patience=3,
    )
    train_here(RECIPE, config)
    return folder


def test_scores_are_those_of_the_published_model_read_one_window_at_a_time(finished: Path) -> None:
    results = results_of(finished / "run")
    loaded = AutoModelForQuestionAnswering.from_pretrained(finished / "run").eval()
    tokenizer = AutoTokenizer.from_pretrained(finished / "run")
    whole = read_questions(finished / "train.jsonl", unanswerable=True)
    parts = {
        "validation": whole.split([0.9, 0.1], 0, lambda item: item.context, "contexts")[1],
        "test": read_questions(finished / "test.jsonl", unanswerable=True),
    }
    for part, questions in parts.items():
        options: dict[str, Any] = {"overlap": 4, "max_answer_length": 3, "null_threshold": 0.5}
        encoded = EncodedQuestions(questions, tokenizer, 17, **options)
        assert len(encoded) > len(questions)
        starts, ends, nats = [], [], 0.0
        for features in encoded.rows:
            with torch.no_grad():
                output = loaded(torch.tensor([features["input_ids"]]))
            starts.append(output.start_logits[0].numpy())
            ends.append(output.end_logits[0].numpy())
            nats -= output.start_logits[0].log_softmax(-1)[features["start_positions"]].item() / 2
            nats -= output.end_logits[0].log_softmax(-1)[features["end_positions"]].item() / 2
        texts = [answer.text for answer in encoded.answers(starts, ends)]
        expected = AnswerMetric().compute(predictions=texts, references=encoded.references)
        score = results["metrics"][part]
        assert score["exact_match"] == pytest.approx(expected["exact_match"])
        assert score["f1"] == pytest.approx(expected["f1"])
        assert score["nats_per_window"] == pytest.approx(nats / len(encoded), rel=1e-3)
        assert (score["questions"], score["windows"]) == (len(questions), len(encoded))
        assert score["best_threshold_f1"] >= score["f1"]
        none = [i for i, item in enumerate(questions) if not item.answers]
        of_slice = score["by_slice"]["answer: there is none"]
        assert of_slice["examples"] == len(none)
        assert of_slice["exact_match"] == pytest.approx(sum(not texts[i] for i in none) / len(none))
    assert results["metrics"]["test"]["f1"] > 0.6
    assert results["metrics"]["test"]["by_slice"]["asks: which"]["examples"] == 60


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("bert", {"tuning": {"method": "lora", "rank": 2}, "evaluation": {"columns": ["fact"]}}),
        ("gpt2", {"tuning": {"method": "head_only"}, "data": {"unanswerable": True, "overlap": 4}}),
    ],
)
def test_other_models_and_ways_to_tune(tmp_path: Path, kind: str, fields: dict[str, Any]) -> None:
    """On made-up facts; BERT is told which tokens are the question's."""
    training = {**steps(2), "report_to": ["tensorboard"]}
    texts = [f"{item.question} {item.context}" for item in fact_questions("train", 60, seed=42)]
    source = tiny_model(tmp_path / kind, kind, texts=texts, layers=1)
    results = train_here(RECIPE, tiny_config(tmp_path, source, training=training, **fields))
    assert results["model"]["method"] == fields["tuning"]["method"]
    assert set(results["metrics"]) == {"validation", "test", "unseen_forms"}
    by_slice = results["metrics"]["test"]["by_slice"]
    assert any(name.startswith("fact: ") for name in by_slice) == (kind == "bert")
    assert ("answer: there is none" in by_slice) == (kind == "gpt2")
    assert list((tmp_path / "run" / "logs").glob("events*"))
    AutoModelForQuestionAnswering.from_pretrained(tmp_path / "run")


def test_the_first_question_word() -> None:
    asked = {"How many people live in York?": "how many", "In which year?": "which", "Name the town.": "otherwise"}
    assert {question: question_word(question) for question in asked} == asked


BAD: list[BadInput] = [
    ("--data.dataset no.json", "no.json was not found locally or on the Hub"),
    (lambda f: ["--data.dataset", questions_file(f, [row(start=3)])], "'York' at character 3 of its context"),
    (lambda f: ["--data.dataset", color_questions(f, "c.jsonl", 9, 0)], r"Line 1 of c.jsonl \(id 'q0'\)"),
    ("--evaluation.columns [rating]", "names 'rating', and the other columns of facts are"),
    ("--data.test b.json", "facts has its own validation and test; remove"),
    ("--data.split '[0.5, 0.6]'", "write shares .*, or contexts such as"),
    ("--data.overlap -1", "data: overlap is -1; write a whole number of at least 0"),
    ("--evaluation.max_answer_length 0", "evaluation: max_answer_length is 0; write a whole"),
    ("--training.label_smoothing_factor 0.1", "label_smoothing_factor is for classes, and"),
    ("--data.max_length 65", "data.max_length is 65; this model reads at most 64 tokens."),
    ("--data.overlap 60", r"Question 1 of facts \(id 'train-1'\) has .* write a data.over"),
    ("--model.name ./none", "none was not found locally or on the Hub"),
]


class TestTheRecipe(FinishedRun, KilledRun, TwoProcesses, BadInputs):
    recipe, loss, bad, changed = "question_answering", "nats_per_window", BAD, "--data.overlap 15"
    pictures: ClassVar[tuple[str, ...]] = ("loss_curve.png",)
    stated: ClassVar[Stated] = {
        ("f1", "F1 (test)"): ("test", "f1"),
        ("exact_match", "exact match (validation)"): ("validation", "exact_match"),
    }

    @pytest.fixture
    def configure(self, model: Path) -> Configure:
        return partial(tiny_config, pretrained=model)

    def check_card(self, card: ModelCard, printed: str, results: dict[str, Any]) -> None:
        assert "base_model:" not in str(card.data)  # a folder, which is not an id on the Hub
        assert results["samples"]
        for sample in results["samples"]:
            assert re.fullmatch(r"Line \d+ of test.jsonl \(id 'q\d+'\)", sample["place"])
            assert sample["right"] != sample["answer"]
        assert printed == (results["example"]["answer"] or "no answer") + "\n"

    def killed(self, folder: Path) -> dict[str, Any]:
        asked = str(color_questions(folder, "all.jsonl", 120, seed=0))
        data = {"dataset": asked, "split": [0.6, 0.2, 0.2], "unanswerable": True}
        return {"data": data, "training": {"max_steps": 40}}

    def shared(self, folder: Path) -> dict[str, Any]:
        asked = str(color_questions(folder, "all.jsonl", 120, seed=0))
        options = {"qa_dropout": 0.0, "dropout": 0.0, "attention_dropout": 0.0}
        return {"model": {"options": options}, "data": {"dataset": asked, "unanswerable": True}}
