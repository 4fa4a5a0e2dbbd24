"""The recipe sentence_encoder: runs with every loss through the real command line, and what they leave behind."""

import json
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from commands import ROOT, printed_by_card, results_of, steps, train_here, write_config, written
from hub_server import Hub
from huggingface_hub import ModelCard
from recipe_contract import BadInput, BadInputs, Configure, FinishedRun, KilledRun, Stated, TwoProcesses
from scipy.stats import spearmanr
from tiny_models import similar_file, tiny_model, tiny_sentence_encoder, tiny_translator, vectors_file

import hfattn
from hfattn.errors import UserError
from hfattn.evaluation import report_lines
from hfattn.loading import ModelLocation
from hfattn.sentence_encoders import load_sentence_encoder, read_modules

pytestmark = pytest.mark.runs

RECIPE = ROOT / "recipes" / "sentence_encoder"
TINY: dict[str, dict[str, Any]] = {
    "data": {"score_column": "score", "split": [0.6, 0.2, 0.2], "max_length": 12},
    "tokenizer": {"kind": "word"},
    "model": {"model_type": "rnn_encoder", "embedding_size": 2, "hidden_size": 8, "direction": "bidirectional"},
    "training": {**steps(20, 10), "per_device_eval_batch_size": 7, "metric_for_best_model": "spearman"},
    "sample": {"mistakes": 3},
}
LABELED = {"label_column": "label", "positive_labels": ["same"]}


def tiny_config(folder: Path, **fields: Any) -> Path:
    files = {"dataset": str(similar_file(folder / "pairs.jsonl", 120)), "vectors": str(vectors_file(folder / "v.txt"))}
    return write_config(folder, TINY, {"data": files}, fields)


def pretrained_config(folder: Path, **fields: Any) -> Path:
    sections = {name: TINY[name] for name in ("data", "training", "sample")}
    data = {"dataset": str(similar_file(folder / "pairs.jsonl", 120))}
    model = {"name": str(tiny_sentence_encoder(folder / "bert"))}
    return write_config(folder, sections, {"data": data, "model": model}, fields)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    train_here(RECIPE, tiny_config(folder))
    return folder


def test_the_folder_is_a_sentence_encoder(finished: Path) -> None:
    """It has the files of sentence-transformers, and the scores of the run are those of its vectors."""
    folder = finished / "run"
    modules = read_modules(ModelLocation(name=str(folder)))
    assert modules is not None
    assert (modules.pooling, modules.normalize, modules.max_length) == ("mean", True, 12)
    assert json.loads((folder / "1_Pooling" / "config.json").read_text())["word_embedding_dimension"] == 16
    listed = json.loads((folder / "manifest.json").read_text())["files"]
    assert {"modules.json", "1_Pooling/config.json", "2_Normalize/config.json"} <= listed.keys()
    encoder = load_sentence_encoder(str(folder))
    vectors = encoder.embed(["dog house film", "dog house film", "actor hour plot"])
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(3))
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]


def test_it_is_evaluated_and_predicts_vectors(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, file = str(finished / "run"), finished / "pairs.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    first, second = (
        torch.tensor([each["vector"] for each in hfattn.predict(run, [row[side] for row in rows])])
        for side in ("text", "pair")
    )
    torch.testing.assert_close(first, load_sentence_encoder(run).embed([row["text"] for row in rows]))
    cosines = torch.cosine_similarity(first, second, dim=-1).numpy().round(5)  # equal texts tie
    scores = hfattn.evaluate(run, file, columns=["text", "pair", "score"])
    assert scores["examples"] == len(rows) == 120
    assert scores["spearman"] == pytest.approx(spearmanr(cosines, [row["score"] for row in rows])[0], abs=1e-3)
    few = hfattn.evaluate(run, file, limit=5)
    assert 0 < few["recall_at_1"] <= few["recall_at_5"] == 1
    assert few["examples"] <= 5
    print("\n".join(report_lines(few)))
    assert re.search(r"^pair_to_text_recall_at_10 +1\.0000$", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ("pairs.jsonl", {"columns": ["text"]}, "columns names 1 columns; write those of two texts, or text,pair,score"),
        ("pairs.jsonl", {"columns": ["text", "pair", "label"]}, "Line 1 of pairs.jsonl has the label 'other'; write"),
        ("pairs.jsonl", {"threshold": 0.5}, "threshold is not for the task of"),
        ("templates", {}, "is a RNNEncoderModel, which has no measure here"),
    ],
)
def test_bad_requests_of_an_evaluation(finished: Path, data: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        hfattn.evaluate(str(finished / "run"), finished / data if data != "templates" else data, **options)


def test_an_encoder_that_names_the_head_of_its_pretraining(tmp_path: Path) -> None:
    """As several of sentence-transformers do, whose files have no weights of that head."""
    folder = tiny_sentence_encoder(tmp_path / "bert")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["BertForMaskedLM"]}))
    (found,) = hfattn.predict(str(folder), ["dog house"])
    torch.testing.assert_close(torch.tensor([found["vector"]]), load_sentence_encoder(str(folder)).embed(["dog house"]))


@pytest.mark.usefixtures("online")
def test_an_encoder_on_the_hub_is_known_by_its_modules(hub: Hub, tmp_path: Path) -> None:
    encoder, masked = tiny_sentence_encoder(tmp_path / "encoder"), tiny_model(tmp_path / "masked", "vaswani")
    for name, folder in (("encoder", encoder), ("masked", masked)):
        files = [path for path in folder.rglob("*") if path.is_file()]
        hub.put("model", f"user/{name}", {path.relative_to(folder).as_posix(): path.read_bytes() for path in files})
    (found,) = hfattn.predict("user/encoder", ["dog house"])
    expected = load_sentence_encoder(str(encoder)).embed(["dog house"])
    torch.testing.assert_close(torch.tensor([found["vector"]]), expected)
    rows = written(tmp_path / "pairs.tsv", "dog house\ta dog\nactor hour\tthe actor\n")
    assert hfattn.evaluate("user/encoder", rows) == hfattn.evaluate(encoder, rows)
    assert hfattn.predict("user/masked", ["dog [MASK]"])[0].keys() == {"masks"}


def test_scores_without_training_are_beside_those_of_the_run(finished: Path) -> None:
    results = results_of(finished / "run")
    assert results["baselines"].keys() == {"mean of word vectors", "SIF"}
    text = (finished / "run" / "README.md").read_text()
    for name, scores in results["baselines"].items():
        assert f"| test | {name} | {scores['test']['spearman']:.4f} | {scores['test']['pearson']:.4f} |" in text


def test_a_softmax_over_classes_leaves_no_classifier(tmp_path: Path) -> None:
    training = {"metric_for_best_model": "average_precision"}
    sentence = {"loss": "softmax", "pooling": "first"}
    config = pretrained_config(tmp_path, sentence=sentence, data={"score_column": None, **LABELED}, training=training)
    results = train_here(RECIPE, config)
    assert results["baselines"].keys() == {"before training"}
    assert 0 < results["metrics"]["test"]["average_precision"] <= 1
    names = json.loads((tmp_path / "run" / "config.json").read_text())["architectures"]
    assert names == ["BertModel"]
    assert "| average precision |" in (tmp_path / "run" / "README.md").read_text()
    assert printed_by_card(tmp_path / "run")


def test_cosent_learns_the_order_of_the_scores(tmp_path: Path) -> None:
    training = {**TINY["training"], **steps(60, 30), "learning_rate": 1e-2, "per_device_train_batch_size": 32}
    sections = {"model": {**TINY["model"], "hidden_size": 32}, "sentence": {"loss": "cosent", "scale": 10.0}}
    results = train_here(RECIPE, tiny_config(tmp_path, **sections, training=training))
    assert results["metrics"]["test"]["spearman"] > 0.6  # three seeds have 0.72 to 0.76
    text = (tmp_path / "run" / "README.md").read_text()
    assert "a penalty for cosines of a batch that are not in the order of their scores (CoSENT)" in text
    assert "li2024" in text


@pytest.mark.parametrize("negatives", ["mined", "labels", "column"])
def test_a_ranking_with_hard_negatives(negatives: str, tmp_path: Path) -> None:
    sentence: dict[str, Any] = {"loss": "ranking", "chunk": 3}
    data: dict[str, Any] = dict(LABELED)
    if negatives == "mined":
        sentence["mine_negatives"] = True
    elif negatives == "labels":
        data["negative_labels"] = ["other"]
    else:
        data = {"negative_column": "third"}
    config = pretrained_config(tmp_path, sentence=sentence, data=data)
    if negatives == "column":
        file = tmp_path / "pairs.jsonl"
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        written(file, [{**row, "third": f"{row['text'][::-1]} c"} for row in rows])
    results = train_here(RECIPE, config)
    assert results["data"]["trained"] == (72 if negatives == "column" else results["data"]["trained"])
    assert results["metrics"]["test"].keys() >= {"spearman", "pearson"}


def test_a_student_learns_its_teachers_vectors_of_translations(tmp_path: Path) -> None:
    teacher = tiny_sentence_encoder(tmp_path / "teacher")
    student = {"model_type": "rnn_encoder", "embedding_size": 8, "hidden_size": 16, "direction": "bidirectional"}
    training = {**TINY["training"], "metric_for_best_model": "recall_at_1"}
    sections = {
        "data": {"dataset": "phrases", "examples": 64, "evaluation_examples": 12, "max_length": 16},
        "tokenizer": {"kind": "word"},
        "model": student,
        "sentence": {"loss": "distillation"},
        "teacher": {"name": str(teacher)},
        "training": training,
    }
    results = train_here(RECIPE, write_config(tmp_path, sections))
    assert results["baselines"].keys() == {"teacher"}
    assert results["metrics"]["test"].keys() >= {"recall_at_1", "pair_to_text_recall_at_10", "mrr", "candidates"}
    text = (tmp_path / "run" / "README.md").read_text()
    assert "the distance of both texts of a pair from the teacher's vector of the first" in text
    assert "reimers2020" in text
    assert str(tmp_path) not in text


class TestTheRecipe(FinishedRun, KilledRun, TwoProcesses, BadInputs):
    recipe, loss, kill_step, changed = "sentence_encoder", "pearson", 13, "--sentence.pooling max"
    files: ClassVar[set[str]] = {*FinishedRun.files, "modeling_rnn_encoder.py", "modules.json"}
    pictures: ClassVar[tuple[str, ...]] = ("loss_curve.png", "predictions.png")
    stated: ClassVar[Stated] = {("spearmanr", "Spearman's rho (test)"): ("test", "spearman")}
    bad: ClassVar[list[BadInput]] = [
        ("--data.score_column null", "sentence.loss cosine needs scores; write data.score_column"),
        ("--sentence.loss softmax", "sentence.loss softmax needs classes; write data.label_column"),
        (
            "--sentence.loss softmax --data.label_column label --data.score_column null",
            "trains a classifier that is not saved; write data.positive_labels",
        ),
        ("--sentence.loss distillation", "distillation, and no other, has a teacher; write teacher.name"),
        (
            "--sentence.scale 5",
            "sentence.scale is for sentence.loss ranking or cosent, and the loss is cosine; remove it",
        ),
        ("--sentence.pooling last", "pooling is 'last'; write one of first, mean, max, mean_sqrt, or null"),
        ("--sentence.loss triplet", "loss is 'triplet'; write one of cosine, cosent, ranking, softmax, distillation"),
        ("--sentence.loss ranking --sentence.mine_negatives true", "mine_negatives is for a pretrained model"),
        ("--model.pooling attention", "model.pooling is that of a classifier; write sentence.pooling"),
        ("--model.model_type bahdanau", "model.model_type is 'bahdanau'; write one of rnn_encoder, vaswani"),
        ("--model '{name: bert}'", "data.vectors is for a model from scratch"),
        ("--data.score_column text", "has the label '.*'; write a number"),
        (
            "--sentence.loss ranking --data.label_column label --data.positive_labels [always]",
            "The labels of pairs.jsonl are other, same, some, and not 'always'",
        ),
        (
            lambda f: ["--sentence.loss", "distillation", "--teacher.name", tiny_sentence_encoder(f / "teacher")],
            "The teacher's vectors have width 32, and the student's 16",
        ),
        (
            lambda f: ["--sentence.loss", "distillation", "--teacher.name", tiny_model(f / "plain", "bert")],
            "has no modules.json, which says how a text becomes a vector",
        ),
        ("--model '{name: bert, dtype: float16}' --data.vectors null", "Weights in float16 cannot be trained"),
        ("--data.dataset phrases", "The pairs of phrases belong together, and have no scores and no classes"),
        (
            lambda f: [
                *("--sentence.loss", "distillation", "--teacher.name", tiny_sentence_encoder(f / "teacher")),
                *("--teacher.options", "{max_position: 9}"),
            ],
            "teacher.options: 'max_position' is not a field of",
        ),
        ("--sample.examples [one]", "write a text, and at least one to compare it with"),
    ]

    @pytest.fixture
    def configure(self) -> Configure:
        return tiny_config

    def check_card(self, card: ModelCard, printed: str, results: dict[str, Any]) -> None:
        stated = card.data.to_dict()
        assert (stated["library_name"], stated["pipeline_tag"]) == ("sentence-transformers", "sentence-similarity")
        assert [line.split(" ", 1)[1] for line in printed.splitlines()] == results["example"]["texts"][1:]
        for words in ("the mean over the tokens, normalized to length 1", "| part | encoder | Spearman's rho |"):
            assert words in card.text

    def killed(self, folder: Path) -> dict[str, Any]:
        return {"model": {**TINY["model"], "embedding_dropout": 0.3}}

    def shared(self, folder: Path) -> dict[str, Any]:
        return {}


def test_an_encoder_decoder_is_refused(tmp_path: Path) -> None:
    tiny_translator(tmp_path / "marian", "marian", ["a house", "la casa"])
    config = pretrained_config(tmp_path, model={"name": str(tmp_path / "marian")})
    with pytest.raises(UserError, match="is an encoder-decoder; write an encoder, such as MiniLM"):
        train_here(RECIPE, config)
