"""Classification with a decoder as in GPT (Radford et al. 2018): the tokens around and between texts, pairs in both
orders, and the loss of the language model beside that of the task."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import ROOT, load_recipe, results_of, run_here
from tiny_models import TEXTS, choices_file, labeled_file, scored_file, tiny_model
from tokenizers.processors import TemplateProcessing
from torch.nn import functional
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    TrainingArguments,
)
from typer.testing import CliRunner

from benchmarks.claims import auxiliary_loss
from hfattn import VaswaniConfig, VaswaniForCausalLM, VaswaniForSequenceClassification
from hfattn.data import Labeled, LabeledTexts, WindowCollator, WindowedTexts
from hfattn.data.task_tokens import TASK_TOKENS, with_input_format
from hfattn.errors import UserError
from hfattn.evaluation import text_logits
from hfattn.loading import BaseModel, load_model, load_tokenizer
from hfattn.training import ClassifierTrainer, load_config
from hfattn.training.auxiliary import add_embeddings, check_language_model_weight, language_model_nats
from hfattn.training.fine_tuning import tuned
from hfattn.training.multiple_choice import ChoiceTrainer
from hfattn.training.tuning_config import TuningConfig
from hfattn.yaml_values import override_words
from hfattn_cli import app

pytestmark = pytest.mark.runs

DECODER: dict[str, Any] = {
    "vocab_size": 30, "hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "decoder_layers": 2,
    "is_encoder_decoder": False, "is_decoder": True, "dropout": 0.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {kind: tiny_model(folder / kind, kind) for kind in ("gpt2", "llama", "bert")}


def trained(name: str, folder: Path, *words: object) -> Path:
    """Train with a configuration of a recipe, and return the run folder."""
    recipe, config = (ROOT / "recipes" / name).parent, ROOT / "recipes" / f"{name}.yaml"
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        run_here(recipe, monkeypatch, "--config", config, "--output_dir", folder / "run", *words)
    return folder / "run"


# Inputs


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_texts_stand_between_start_delimiter_and_extract(models: dict[str, Path], tmp_path: Path, kind: str) -> None:
    plain = AutoTokenizer.from_pretrained(models[kind])
    first, second = (plain(text, add_special_tokens=False)["input_ids"] for text in TEXTS[:2])
    tokenizer = with_input_format(load_tokenizer(BaseModel(name=str(models[kind]))), "gpt")
    start, delimiter, extract = range(len(plain), len(plain) + 3)
    assert [*first, *second] != []
    tokenizer.save_pretrained(tmp_path)
    for each in (tokenizer, AutoTokenizer.from_pretrained(tmp_path)):
        assert each.convert_tokens_to_ids(list(TASK_TOKENS)) == [start, delimiter, extract]
        assert each(TEXTS[0])["input_ids"] == [start, *first, extract]
        assert each(*TEXTS[:2])["input_ids"] == [start, *first, delimiter, *second, extract]
        cut = each(*TEXTS[:2], truncation=True, max_length=12)["input_ids"]
        assert (len(cut), cut[0], cut[-1], cut.count(delimiter)) == (12, start, extract, 1)
    assert with_input_format(plain, "tokenizer")(TEXTS[0])["input_ids"] != [start, *first, extract]


def test_a_pair_is_read_in_both_orders(models: dict[str, Path]) -> None:
    tokenizer = with_input_format(load_tokenizer(BaseModel(name=str(models["gpt2"]))), "gpt")
    items = [Labeled(TEXTS[i], i % 2, i, {}, TEXTS[i + 1]) for i in range(3)]
    dataset = WindowedTexts(LabeledTexts("pairs", items, ["no", "yes"]), tokenizer, 40, both_orders=True)
    for i, item in enumerate(items):
        ids = [window["input_ids"] for window in dataset[i]["windows"]]
        orders = [(item.text, item.pair), (item.pair, item.text)]
        assert ids == [tokenizer(*texts, truncation=True, max_length=40)["input_ids"] for texts in orders]
    assert dataset.lengths[:, 0].tolist() == [sum(len(w["input_ids"]) for w in dataset[i]["windows"]) for i in range(3)]
    single = LabeledTexts("reviews", [item._replace(pair=None) for item in items], ["no", "yes"])
    with pytest.raises(UserError, match="both_orders is for pairs, and reviews has single texts; write false"):
        WindowedTexts(single, tokenizer, 40, both_orders=True)


# The loss of the language model


def test_the_nats_of_tokens_equal_a_literal_loop() -> None:
    torch.manual_seed(0)
    states, embeddings = torch.randn(3, 5, 4, dtype=torch.float64), torch.randn(7, 4, dtype=torch.float64)
    ids = torch.randint(7, (3, 5))
    mask = torch.tensor([[1] * 5, [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]])
    found = language_model_nats(states, embeddings, ids, mask)
    for row in range(3):
        total, number = 0.0, 0
        for t in range(1, 5):
            if mask[row, t]:
                logits = [(states[row, t - 1] * embeddings[token]).sum().item() for token in range(7)]
                total -= torch.tensor(logits, dtype=torch.float64).log_softmax(0)[ids[row, t]].item()
                number += 1
        assert found[row].item() == pytest.approx(total / max(number, 1), rel=1e-5)


def classifier(path: Path, folder: Path, kind: Any, num_labels: int, **options: Any) -> tuple[Any, Any, Any]:
    """A trainer, its model in evaluation mode and its tokenizer, whose dropout is off also in training."""
    where = BaseModel(name=str(path))
    tokenizer = with_input_format(load_tokenizer(where), "gpt")
    fields = {"num_labels": num_labels, "pad_token_id": tokenizer.pad_token_id}
    loaded = load_model(AutoModelForSequenceClassification, where, **fields)
    add_embeddings(loaded.model, tokenizer)
    for module in loaded.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    arguments = TrainingArguments(str(folder), report_to="none", use_cpu=True)
    trainer = kind(loaded.model, arguments, source=where, loaded=loaded, tuning=TuningConfig(), **options)
    return trainer, loaded.model, tokenizer


def parts_of_loss(model: Any, ids: list[int]) -> tuple[torch.Tensor, float]:
    """The logits (C,) of a sequence that is read alone, and the mean nats of its tokens, by the language model."""
    inputs = torch.tensor([ids])
    outputs = model(input_ids=inputs, output_hidden_states=True)
    logits = outputs.hidden_states[-1][0] @ model.get_input_embeddings().weight.T
    nats = [-logits[t].log_softmax(-1)[ids[t + 1]].item() for t in range(len(ids) - 1)]
    return outputs.logits[0], sum(nats) / len(nats)


def test_the_loss_of_a_classifier_is_that_of_the_task_and_of_its_tokens(
    models: dict[str, Path], tmp_path: Path
) -> None:
    """L3 = L2 + λ L1 (eq. 5), over pairs in both orders, and 2 x 3 pairs as 6."""
    options = {"language_model_weight": 0.5}
    trainer, model, tokenizer = classifier(models["gpt2"], tmp_path, ClassifierTrainer, 3, **options)
    items = [Labeled(TEXTS[i % 4], i % 3, i, {}, TEXTS[(i + 1) % 4]) for i in range(6)]
    dataset = WindowedTexts(LabeledTexts("pairs", items, ["a", "b", "c"]), tokenizer, 30, both_orders=True)
    collate = WindowCollator(tokenizer)
    task, tokens = 0.0, 0.0
    for i in range(6):
        read = [parts_of_loss(model, window["input_ids"]) for window in dataset[i]["windows"]]
        task -= torch.stack([logits for logits, _ in read]).mean(0).log_softmax(-1)[i % 3].item() / 6
        tokens += sum(nats for _, nats in read) / 2 / 6
    batch = collate([dataset[i] for i in range(6)])
    assert trainer.compute_loss(model.eval(), dict(batch)).item() == pytest.approx(task, rel=1e-4)
    whole = trainer.compute_loss(model.train(), dict(batch))
    assert whole.item() == pytest.approx(task + 0.5 * tokens, rel=1e-4)
    gradients = []
    for trainer.chunked_loss in (True, False):
        trainer.compute_loss(model, dict(batch)).backward()
        gradients.append({name: weight.grad for name, weight in model.named_parameters()})
        model.zero_grad()
    torch.testing.assert_close(*gradients)
    halves = [collate([dataset[i] for i in part]) for part in (range(3), range(3, 6))]
    pieces = [trainer.compute_loss(model, half, num_items_in_batch=torch.tensor(6)) for half in halves]
    torch.testing.assert_close(sum(pieces), whole)


def test_the_loss_of_choices_is_a_softmax_over_them_and_that_of_their_tokens(
    models: dict[str, Path], tmp_path: Path
) -> None:
    trainer, model, tokenizer = classifier(models["gpt2"], tmp_path, ChoiceTrainer, 1, language_model_weight=0.5)
    questions = [[(TEXTS[0], TEXTS[1]), (TEXTS[0], TEXTS[2])], [(TEXTS[i], TEXTS[3]) for i in range(3)]]
    examples, expected = [], 0.0
    for label, choices in enumerate(questions):
        windows = [dict(tokenizer(*texts, truncation=True, max_length=30)) for texts in choices]
        examples.append({"windows": windows, "labels": label})
        read = [parts_of_loss(model, window["input_ids"]) for window in windows]
        expected -= torch.stack([logits[0] for logits, _ in read]).log_softmax(0)[label].item() / 2
        expected += 0.5 * sum(nats for _, nats in read) / len(read) / 2
    batch = WindowCollator(tokenizer)(examples)
    assert trainer.compute_loss(model.train(), dict(batch)).item() == pytest.approx(expected, rel=1e-4)


def test_padding_on_the_left_changes_neither_scores_nor_the_nats_of_tokens(
    models: dict[str, Path], tmp_path: Path
) -> None:
    _, model, tokenizer = classifier(models["gpt2"], tmp_path, ClassifierTrainer, 2, language_model_weight=0.5)
    tokenizer.padding_side = "left"
    texts = LabeledTexts("texts", [Labeled(text, 0, i, {}) for i, text in enumerate((TEXTS[0], "a"))], ["a", "b"])
    alone, together = (text_logits(model.eval(), tokenizer, texts, rows) for rows in (1, 2))
    torch.testing.assert_close(alone, together, atol=1e-5, rtol=1e-4)
    states, embeddings = torch.randn(1, 5, 3), torch.randn(7, 3)
    ids, mask = torch.randint(7, (1, 5)), torch.tensor([[0, 0, 1, 1, 1]])
    found = language_model_nats(states, embeddings, ids, mask)
    torch.testing.assert_close(found, language_model_nats(states[:, 2:], embeddings, ids[:, 2:]))


def test_padding_is_on_the_left_where_the_last_token_stands_for_the_text(models: dict[str, Path]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(models["bert"])
    assert WindowCollator(tokenizer).tokenizer.padding_side == "right"
    ids = [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("[SEP]", "[CLS]")]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="$A [SEP] [CLS]", pair="$A [SEP] $B [SEP] [CLS]", special_tokens=ids
    )
    batch = WindowCollator(tokenizer)([{"windows": [dict(tokenizer(text))], "labels": 0} for text in (TEXTS[0], "a")])
    assert batch["input_ids"][:, -1].tolist() == [tokenizer.cls_token_id] * 2


def test_only_a_method_that_trains_the_body_has_this_loss(models: dict[str, Path], tmp_path: Path) -> None:
    where = BaseModel(name=str(models["gpt2"]))
    tokenizer = with_input_format(load_tokenizer(where), "gpt")
    loaded = load_model(AutoModelForSequenceClassification, where, num_labels=2, pad_token_id=tokenizer.pad_token_id)
    new_tokens = add_embeddings(loaded.model, tokenizer)
    head_only = TuningConfig(method="head_only")
    with pytest.raises(UserError, match="leaves the embeddings of the new tokens at their random values"):
        tuned(loaded, head_only, "SEQ_CLS", new_tokens)
    options: dict[str, Any] = {"source": where, "loaded": loaded, "language_model_weight": 0.5}
    arguments = TrainingArguments(str(tmp_path), report_to="none", use_cpu=True)
    with pytest.raises(UserError, match="head_only leaves as it is"):
        ClassifierTrainer(loaded.model, arguments, tuning=head_only, **options)
    lora = TuningConfig(method="lora")
    model = tuned(loaded, lora, "SEQ_CLS", new_tokens)
    trainer = ClassifierTrainer(model, arguments, tuning=lora, **options)
    texts = LabeledTexts("texts", [Labeled(text, i % 2, i, {}) for i, text in enumerate(TEXTS[:4])], ["a", "b"])
    dataset = WindowedTexts(texts, tokenizer, 30)
    batch = WindowCollator(tokenizer)([dataset[i] for i in range(4)])
    losses = []
    for trainer.chunked_loss in (True, False):
        torch.manual_seed(0)
        losses.append(trainer.compute_loss(model.train(), dict(batch)))
    torch.testing.assert_close(*losses)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("bert", "a bert sees the tokens that it should predict; write 0"),
        ("llama", "the language model of this body does not"),
    ],
)
def test_only_a_causal_model_that_predicts_by_its_embedding_has_this_loss(
    models: dict[str, Path], tmp_path: Path, kind: str, message: str
) -> None:
    config = AutoConfig.from_pretrained(models[kind])
    assert kind != "llama" or not config.tie_word_embeddings
    with pytest.raises(UserError, match=message):
        classifier(models[kind], tmp_path, ClassifierTrainer, 2, language_model_weight=0.5)


@pytest.mark.parametrize(
    ("kind", "is_refused"),
    [
        ("gemma", False),
        ("gemma2", True),  # the logits are bounded
        ("modernbert-decoder", True),  # a layer stands before the output layer
    ],
)
def test_a_body_whose_language_model_has_other_logits_is_refused(kind: str, is_refused: bool) -> None:
    config = AutoConfig.for_model(
        kind, vocab_size=300, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, head_dim=8, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1,
        sep_token_id=2, tie_word_embeddings=True,
    )  # fmt: skip
    model = AutoModelForSequenceClassification.from_config(config)
    with pytest.raises(UserError, match="the language model of this body does not") if is_refused else nullcontext():
        check_language_model_weight(0.5, model)


# A decoder of this package


@pytest.mark.parametrize("pooling", ["last", "first", "mean"])
@pytest.mark.parametrize("side", ["left", "right", None])
def test_a_decoder_classifies_by_the_states_of_its_language_model(
    tmp_path: Path, pooling: str, side: str | None
) -> None:
    torch.manual_seed(0)
    language_model = VaswaniForCausalLM(VaswaniConfig(**DECODER)).eval()
    language_model.save_pretrained(tmp_path)
    model = VaswaniForSequenceClassification.from_pretrained(tmp_path, classifier_pooling=pooling, num_labels=3).eval()
    ids = torch.randint(4, 30, (1, 6))
    states = language_model(ids, output_hidden_states=True).hidden_states[-1][0]
    pooled = {"last": states[-1], "first": states[0], "mean": states.mean(0)}[pooling]
    pad = {"left": (3, 0), "right": (0, 3), None: (0, 0)}[side]
    mask = None if side is None else functional.pad(torch.ones(1, 6, dtype=torch.long), pad)
    logits = model(functional.pad(ids, pad), attention_mask=mask).logits[0]
    torch.testing.assert_close(logits, model.classifier(pooled), atol=1e-5, rtol=1e-4)


def test_a_later_token_changes_only_what_a_decoder_reads_last() -> None:
    torch.manual_seed(0)
    model = VaswaniForSequenceClassification(VaswaniConfig(**DECODER, classifier_pooling="last")).eval()
    ids = torch.randint(4, 30, (1, 6))
    first, again = model(ids, output_hidden_states=True), model(ids + 0, output_hidden_states=True)
    ids[0, -1] = 4 + (ids[0, -1] - 3) % 26
    other = model(ids, output_hidden_states=True)
    torch.testing.assert_close(first.logits, again.logits)
    torch.testing.assert_close(first.hidden_states[-1][:, :-1], other.hidden_states[-1][:, :-1])
    assert not torch.allclose(first.logits, other.logits)


# Recipes

QUICK = [
    *("--training.max_steps", 4, "--training.warmup_steps", 1, "--training.bf16", "false", "--max_tokens", 400),
    *("--training.eval_strategy", "steps", "--training.eval_steps", 2, "--training.save_strategy", "steps"),
    *(
        "--training.save_steps",
        2,
        "--data.split",
        "[0.6, 0.2, 0.2]",
        "--data.max_length",
        60,
        "--data.split_by",
        "text",
    ),
]


def test_a_regression_reads_both_orders_and_its_folder_too(models: dict[str, Path], tmp_path: Path) -> None:
    file = scored_file(tmp_path / "pairs.tsv", 60)
    words = ["--model.name", models["gpt2"], "--data.dataset", file, "--data.text_column", "text"]
    words += ["--data.pair_column", "pair", "--data.label_column", "score"]
    out = trained("classification/sick_relatedness_gpt", tmp_path, *words, *QUICK)
    config = json.loads((out / "config.json").read_text())
    assert config["task_specific_params"]["text-classification"]["both_orders"] is True
    assert config["vocab_size"] == len(AutoTokenizer.from_pretrained(out))
    assert results_of(out)["configuration"]["language_model_weight"] == 0.5
    verified = CliRunner().invoke(app, ["verify", str(out)])
    assert verified.exit_code == 0, verified.output
    model = AutoModelForSequenceClassification.from_pretrained(out).eval()
    tokenizer = AutoTokenizer.from_pretrained(out)
    rows = [line.split("\t")[:2] for line in file.read_text().splitlines()[1:9]]
    texts = LabeledTexts("new", [Labeled(one, 0, pair=other) for one, other in rows], ["score"])
    for (one, other), read in zip(rows, text_logits(model, tokenizer, texts, 8), strict=True):
        inputs = [tokenizer(*pair, return_tensors="pt") for pair in ((one, other), (other, one))]
        expected = sum(model(**each).logits.item() for each in inputs) / 2
        assert read.item() == pytest.approx(expected, abs=1e-4)


def test_a_decoder_of_this_package_goes_on_from_its_language_model(tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model(tmp_path / "words", "gpt2"))
    absent = dict.fromkeys(("bos_token_id", "eos_token_id", "decoder_start_token_id"))
    sizes = {**DECODER, "vocab_size": len(tokenizer), "tie_word_embeddings": True, **absent}
    VaswaniForCausalLM(VaswaniConfig(**sizes)).save_pretrained(tmp_path / "decoder")
    tokenizer.save_pretrained(tmp_path / "decoder")
    words = ["--model.name", tmp_path / "decoder", "--model.options", "{classifier_pooling: last}"]
    words += ["--data.dataset", labeled_file(tmp_path / "pairs.tsv", pairs=True, texts=60), "--data.labels", "null"]
    words += ["--data.text_column", "text", "--data.pair_column", "pair", "--data.label_column", "label"]
    out = trained("classification/sick_gpt", tmp_path, *words, *QUICK)
    model = AutoModelForSequenceClassification.from_pretrained(out)
    assert (model.config.is_decoder, model.config.classifier_pooling) == (True, "last")
    verified = CliRunner().invoke(app, ["verify", str(out)])
    assert verified.exit_code == 0, verified.output


def test_choices_are_read_between_the_tokens(models: dict[str, Path], tmp_path: Path) -> None:
    words = ["--model.name", models["gpt2"], "--data.dataset", choices_file(tmp_path / "choices.jsonl")]
    words += ["--data.context_column", "context", "--data.choice_columns", "[choices]", "--data.config", "null"]
    words += ["--data.test", "null", "--data.input_format", "gpt", "--language_model_weight", 0.5]
    words += [word for i, word in enumerate(QUICK) if {QUICK[i], QUICK[i - i % 2]}.isdisjoint(SKIPPED)]
    out = trained("multiple_choice/swag_distilbert", tmp_path, *words)
    tokens = AutoTokenizer.from_pretrained(out)("a", "b").tokens()
    assert [token for token in tokens if token in TASK_TOKENS] == list(TASK_TOKENS)
    assert results_of(out)["configuration"]["language_model_weight"] == 0.5


SKIPPED = {"--max_tokens", "--data.split_by"}


@pytest.mark.parametrize("name", ["data.input_format", "data.both_orders", "language_model_weight"])
def test_a_model_from_scratch_has_no_such_field(tmp_path: Path, name: str) -> None:
    value = {"data.input_format": "gpt", "data.both_orders": "true", "language_model_weight": 0.5}[name]
    with pytest.raises(UserError, match=f"{name} is for a model that is pretrained"):
        trained("classification/opinions", tmp_path, f"--{name}", value)


def test_the_claim_compares_runs_that_differ_in_the_weight_alone(tmp_path: Path) -> None:
    script = load_recipe(ROOT / "recipes" / "classification" / "train.py")
    for task, config in auxiliary_loss.TASKS.items():
        path = ROOT / "recipes" / "classification" / f"{config}.yaml"
        texts = []
        for variant in (auxiliary_loss.WITH, auxiliary_loss.WITHOUT):
            fields = auxiliary_loss.fields(task, variant, 3, tmp_path)
            checked = load_config(script.Config, path, override_words(fields))
            script.validate(checked)
            assert checked.language_model_weight == auxiliary_loss.WEIGHTS[variant]
            checked.language_model_weight = 0
            texts.append(repr(checked))
        assert texts[0] == texts[1]


def test_the_claim_reads_the_scores_of_its_runs(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands of the claim, made small."""
    verdicts = ("ENTAILMENT", "NEUTRAL", "CONTRADICTION")
    rows = [f"A man {i} runs.\tA dog {i} sits.\t{verdicts[i % 3]}\t{1 + i % 4 + i / 100}" for i in range(60)]
    names = "sentence_A\tsentence_B\tentailment_judgment\trelatedness_score"
    (tmp_path / "sick.txt").write_text("\n".join([names, *rows, ""]))
    for part in ("train", "dev"):
        phrases = [f"film {part} {i} was {['bad', 'good'][i % 2]}\t{i % 2}" for i in range(120)]
        (tmp_path / f"sst2.{part}.tsv").write_text("\n".join(["sentence\tlabel", *phrases, ""]))
    small = dict(zip((str(word)[2:] for word in QUICK[::2]), QUICK[1::2], strict=True))
    small = {name: value for name, value in small.items() if name not in ("data.split", "data.split_by")}

    def train_small(recipe: str, config: str, fields: dict[str, Any], out: Path) -> dict[str, Any]:
        folder = ROOT / "recipes" / recipe
        own: dict[str, Any] = {"model.name": str(models["gpt2"])}
        if config == "sst2_gpt":
            own |= {"evaluation.counterfactual_texts": 4}
        words = override_words({**fields, **small, **own})
        run_here(folder, monkeypatch, "--config", folder / f"{config}.yaml", "--output_dir", out, *words)
        return results_of(out)

    monkeypatch.setattr(auxiliary_loss, "train", train_small)
    monkeypatch.setattr(auxiliary_loss, "RUNS", tmp_path / "runs")
    measured = auxiliary_loss.measure(auxiliary_loss.WITH, 1, tmp_path)
    for task, config in auxiliary_loss.TASKS.items():
        scores = results_of(tmp_path / "runs" / config / "0.5-1")["metrics"]["test"]
        assert measured.values[task] == scores["spearman" if task == auxiliary_loss.RELATEDNESS else "accuracy"]
    assert measured.steps == 12


def test_the_language_model_is_unchanged_but_for_new_tokens(models: dict[str, Path]) -> None:
    model = AutoModelForCausalLM.from_pretrained(models["gpt2"])
    before = model.get_input_embeddings().weight.detach().clone()
    tokenizer = with_input_format(load_tokenizer(BaseModel(name=str(models["gpt2"]))), "gpt")
    assert len(add_embeddings(model, tokenizer)) == 3
    torch.testing.assert_close(model.get_input_embeddings().weight[: len(before)], before)
    assert len(add_embeddings(model, tokenizer)) == 0
