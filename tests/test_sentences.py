"""Sentence encoders: pooling, losses and scores by loops, hard negatives, gradients in chunks, and saved folders."""

import json
import math
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import TWO_PROCESSES, run, written
from safetensors.torch import load_file, save_file
from tiny_models import tiny_model, tiny_sentence_encoder
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel, TrainingArguments
from typer.testing import CliRunner

from hfattn import RNNEncoderConfig, VaswaniConfig
from hfattn.baselines.sentences import WordMeans, sentence_words
from hfattn.data import EncodedTextPairs, PairNumbers, TextPair, TextPairCollator, TextPairDataConfig, TextPairs
from hfattn.data.text_pairs import positives, read_text_pairs, with_negatives
from hfattn.errors import UserError
from hfattn.loading import ModelLocation, quiet
from hfattn.metrics import SentenceScores, cosines, sentence_scores
from hfattn.pooling import POOLINGS, pool
from hfattn.sentence_encoders import (
    SentenceEncoder,
    SentenceModules,
    load_sentence_encoder,
    read_modules,
    write_modules,
)
from hfattn.text_search import search_sentences
from hfattn.tokenizers import TokenizerConfig, build_tokenizer
from hfattn.training import SentenceTrainer, TrainedSentenceEncoder, mined_negatives
from hfattn.training.sentence_encoder import cosent_loss, cosine_loss, distillation_loss, pair_features, ranking_loss
from hfattn_cli import app

# Pooling


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_text_is_pooled_over_its_tokens_whatever_padding_there_is(pooling: str, side: str) -> None:
    torch.manual_seed(0)
    states, lengths = torch.randn(4, 5, 3, dtype=torch.float64), [5, 2, 1, 0]
    mask = torch.tensor([[1] * n + [0] * (5 - n) if side == "right" else [0] * (5 - n) + [1] * n for n in lengths])
    for row, vector in enumerate(pool(states, mask, pooling)):
        tokens = [states[row, i] for i in range(5) if mask[row, i]]
        right = torch.zeros(3, dtype=torch.float64)
        if tokens and pooling == "first":
            right = tokens[0]
        elif tokens and pooling == "max":
            right = torch.stack([max(token[i] for token in tokens) for i in range(3)])
        else:
            for token in tokens:
                right = right + token / (math.sqrt(len(tokens)) if pooling == "mean_sqrt" else len(tokens))
        torch.testing.assert_close(vector, right)


BODIES: dict[str, Any] = {
    "bert": BertConfig(vocab_size=30, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2),
    "rnn_encoder": RNNEncoderConfig(vocab_size=30, embedding_size=6, hidden_size=4, direction="bidirectional"),
    "vaswani": VaswaniConfig(
        **{"vocab_size": 30, "hidden_size": 8, "intermediate_size": 8, "encoder_layers": 1, "num_attention_heads": 2},
        **{"is_encoder_decoder": False, "bos_token_id": None, "eos_token_id": None, "decoder_start_token_id": None},
    ),
}


@pytest.mark.parametrize("kind", BODIES)
def test_padded_texts_have_the_vectors_of_texts_alone(kind: str) -> None:
    torch.manual_seed(0)
    model = TrainedSentenceEncoder(AutoModel.from_config(BODIES[kind])).eval()
    ids = torch.randint(3, 30, (3, 6))
    mask = torch.tensor([[1] * n + [0] * (6 - n) for n in (6, 3, 1)])
    padded = model.encode(ids * mask, mask)
    for row, number in enumerate((6, 3, 1)):
        alone = model.encode(ids[row : row + 1, :number], torch.ones(1, number, dtype=torch.long))
        torch.testing.assert_close(padded[row], alone[0], rtol=1e-4, atol=1e-5)


# The losses

# Row 0 shares its first text with row 2 and its second one with row 3, so that the second text of row 3 is right for
# row 2 too. The second text of row 5 is the first one of row 1, and the first text of row 6 is its second one too. The
# negatives of rows 1 and 2 are right for rows 0 and 1, and that of row 4 is its first text.
NUMBERS = [(0, 1, 9), (2, 3, 1), (0, 4, 3), (5, 1, 8), (6, 7, 6), (8, 2, 9), (10, 10, 4)]


def unit(vector: torch.Tensor) -> torch.Tensor:
    return vector / vector.norm()


def ranking_by_loops(first: Any, second: Any, negative: Any, scale: float, symmetric: bool) -> torch.Tensor:
    def is_right(i: int, number: int, own: int = 0) -> bool:
        """Whether a pair has this text with that of row i."""
        return any(NUMBERS[j][own] == NUMBERS[i][own] and NUMBERS[j][1 - own] == number for j in range(len(NUMBERS)))

    def is_candidate(query: int, candidate: int, own: int) -> bool:
        """A text is no candidate for itself, unless a pair says so; on either side."""
        number = NUMBERS[candidate][1 - own]
        return is_right(query, number, own) or NUMBERS[query][own] != number

    total = first.new_zeros(())
    rows = range(len(first))
    for own, queries, candidates, others in ((0, first, second, negative), (1, second, first, None))[: 1 + symmetric]:
        for i in rows:
            terms = [(scale * unit(queries[i]) @ unit(candidates[j])).exp() for j in rows]
            partition = sum(terms[j] for j in rows if is_candidate(i, j, own))
            if others is not None:
                for j in rows:
                    if NUMBERS[j][2] != NUMBERS[i][0] and not is_right(i, NUMBERS[j][2]):
                        partition = partition + (scale * unit(queries[i]) @ unit(others[j])).exp()
            right = [terms[j] for j in rows if is_right(i, NUMBERS[j][1 - own], own)]
            for term in right:
                total = total - (term / partition).log() / len(right) / len(rows)
    return total / (1 + symmetric)


@pytest.mark.parametrize("negatives", [True, False])
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_ranking_loss_and_its_gradient_are_those_of_loops(negatives: bool, symmetric: bool) -> None:
    torch.manual_seed(0)
    first, second, negative = (torch.randn(7, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    third = negative if negatives else None
    numbers = torch.tensor(NUMBERS)[:, : 3 if negatives else 2]
    found = []
    for value in (
        ranking_loss(first, second, numbers, third, 7.0, symmetric),
        ranking_by_loops(first, second, third, 7.0, symmetric),
    ):
        inputs = (first, second, *([negative] if negatives else []))
        found.append((value.detach(), *torch.autograd.grad(value, inputs)))
    torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-12)


def test_the_other_losses_are_those_of_their_formulas() -> None:
    torch.manual_seed(0)
    first, second, teacher = (torch.randn(4, 3, dtype=torch.float64) for _ in range(3))
    target = torch.rand(4, dtype=torch.float64)
    cosine, distance = cosine_loss(first, second, target), distillation_loss(first, second, teacher)
    features = pair_features(first, second)
    for i in range(4):
        between = sum(first[i] * second[i]) / math.sqrt(sum(first[i] ** 2)) / math.sqrt(sum(second[i] ** 2))
        assert float(cosine[i]) == pytest.approx(float((between - target[i]) ** 2))
        squares = [float((u[i, d] - teacher[i, d]) ** 2) for u in (first, second) for d in range(3)]
        assert float(distance[i]) == pytest.approx(sum(squares))
        by_hand = [*first[i], *second[i], *(abs(u - v) for u, v in zip(first[i], second[i], strict=True))]
        assert features[i].tolist() == [float(each) for each in by_hand]


def test_cosent_is_that_of_a_loop_over_pairs_in_the_wrong_order() -> None:
    torch.manual_seed(0)
    first, second = (torch.randn(5, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    target = torch.tensor([0.2, 0.9, 0.2, 0.5, 0.0])
    cosines = [unit(first[i]) @ unit(second[i]) for i in range(5)]
    pairs = [(i, j) for i in range(5) for j in range(5) if target[i] > target[j]]
    assert len(pairs) == 9  # two targets are equal
    by_loop = torch.stack([torch.exp(7 * (cosines[j] - cosines[i])) for i, j in pairs]).sum().log1p()
    loss = cosent_loss(first, second, target, 7.0)
    found, expected = ((value, *torch.autograd.grad(value, (first, second))) for value in (loss, by_loop))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    # Equal targets have no order, and nothing to learn.
    alone = cosent_loss(first, second, torch.ones(5), 7.0)
    gradients = torch.autograd.grad(alone, (first, second))
    assert alone == 0
    assert all((gradient == 0).all() for gradient in gradients)


# Training in chunks, and in several processes


def pairs_of(rows: int = 6, negatives: bool = True) -> TextPairs:
    words = ["the dog runs", "a small dog", "snow", "the tall man sings here", "a woman sings", "red car", "one two"]
    items = [TextPair(words[i], f"{words[i]} now", negative=words[i + 1] if negatives else None) for i in range(rows)]
    return TextPairs("pairs", items)


def trainer(folder: Path, model: Any, loss: str = "ranking", rows: int = 6, **options: Any) -> SentenceTrainer:
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    dataset = EncodedTextPairs(pairs_of(rows, loss == "ranking"), tokenizer, 16, **options.pop("examples", {}))
    settings = {"report_to": "none", "use_cpu": True, "disable_tqdm": True, "save_strategy": "no", **options}
    return SentenceTrainer(
        model,
        TrainingArguments(str(folder / "run"), **settings),
        loss=loss,
        scores=SentenceScores(),
        train_dataset=dataset,
        data_collator=TextPairCollator(tokenizer),
    )


def tiny_bert(folder: Path, chunk: int | None, labels: int | None = None, dropout: float = 0.0) -> Any:
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    with quiet():
        body = BertModel.from_pretrained(folder / "model", add_pooling_layer=False, **rates)
    torch.manual_seed(1)
    return TrainedSentenceEncoder(body, "mean", labels, chunk)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    words = [text for item in pairs_of() for text in pairs_of().texts(item)]
    tiny_model(folder / "model", "bert", words * 3)
    return folder


def gradients(model: Any) -> dict[str, torch.Tensor]:
    return {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}


@pytest.mark.parametrize("chunk", [1, 4, 6])
def test_the_gradient_of_chunks_is_that_of_the_whole_batch(folder: Path, chunk: int) -> None:
    """GradCache: only the memory differs. With dropout, a chunk is read twice with the same mask."""
    found = []
    for size in (None, chunk):
        model = tiny_bert(folder, size).train()
        training = trainer(folder, model)
        batch = training.data_collator([training.train_dataset[i] for i in range(6)])
        loss = training.compute_loss(model, batch)
        loss.backward()
        found.append({"loss": loss.detach(), **gradients(model)})
    assert len(found[0]) > 10
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-7)


def test_a_chunk_that_is_read_again_has_the_same_dropout(folder: Path) -> None:
    model = tiny_bert(folder, 2, dropout=0.5).train()
    training = trainer(folder, model)
    batch = training.data_collator([training.train_dataset[i] for i in range(6)])
    torch.manual_seed(3)
    training.compute_loss(model, batch).backward()
    first = gradients(model)
    model.zero_grad()
    torch.manual_seed(3)
    found = [model._encode(**{n: side[n][i : i + 2] for n in ("input_ids", "attention_mask")})
             for side in batch["texts"] for i in (0, 2, 4)]  # fmt: skip
    sides = [torch.cat(found[3 * side : 3 * side + 3]) for side in range(3)]
    ranking_loss(sides[0], sides[1], batch["numbers"], sides[2]).backward()
    torch.testing.assert_close(first, gradients(model), rtol=1e-5, atol=1e-7)


def test_activations_of_one_chunk_are_kept(folder: Path) -> None:
    """What is saved for the backward pass does not grow with the batch."""
    kept = []
    for size in (None, 2):
        model = tiny_bert(folder, size).train()
        training = trainer(folder, model)
        batch = training.data_collator([training.train_dataset[i] for i in range(6)])
        saved: list[int] = []

        def note(tensor: torch.Tensor, saved: list[int] = saved) -> torch.Tensor:
            saved.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            training.compute_loss(model, batch)
        kept.append(sum(saved))
    assert kept[1] < kept[0] / 4


SHARED = """
import sys, torch
from pathlib import Path
from accelerate import PartialState
state = PartialState(cpu=True)
sys.path.insert(0, {tests!r})
from test_sentences import gradients, tiny_bert, trainer
folder = Path({folder!r})
found = {{}}
for chunk in (None, 2):
    model = tiny_bert(folder, chunk).train()
    training = trainer(folder, model)
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    rows = range(0, 3) if state.process_index == 0 else range(3, 6)
    batch = training.data_collator([training.train_dataset[i] for i in rows])
    loss = training.compute_loss(wrapped, batch)
    loss.backward()
    found[str(chunk)] = {{"loss": loss.detach(), **gradients(model)}}
if state.process_index == 0:
    torch.save(found, {out!r})
"""


def test_two_processes_have_the_loss_and_the_gradients_of_one(folder: Path, tmp_path: Path) -> None:
    script = written(
        tmp_path / "shared.py",
        SHARED.format(tests=str(Path(__file__).parent), folder=str(folder), out=str(tmp_path / "found.pt")),
    )
    done = run([*TWO_PROCESSES, script])
    assert done.returncode == 0, done.stderr
    model = tiny_bert(folder, None).train()
    training = trainer(folder, model)
    loss = training.compute_loss(model, training.data_collator([training.train_dataset[i] for i in range(6)]))
    loss.backward()
    expected = {"loss": loss.detach(), **gradients(model)}
    for shared in torch.load(tmp_path / "found.pt").values():
        torch.testing.assert_close(shared, expected, rtol=1e-4, atol=1e-6)


def test_each_loss_reads_what_it_needs(folder: Path) -> None:
    """The loss of a batch by hand, from the vectors that the model returns."""
    teacher = torch.nn.functional.normalize(torch.randn(99, 32), dim=-1)
    for loss, labels, examples in (
        ("cosine", None, {"targets": [0.1 * i for i in range(6)]}),
        ("cosent", None, {"targets": [0.1 * i for i in range(6)]}),
        ("softmax", 3, {"targets": [0, 1, 2, 0, 1, 2]}),
        ("distillation", None, {"vectors": teacher}),
    ):
        model = tiny_bert(folder, None, labels).eval()
        training = trainer(folder, model, loss, examples=examples)
        batch = training.data_collator([training.train_dataset[i] for i in range(6)])
        value, vectors = training.compute_loss(model, batch, return_outputs=True)
        first, second = vectors["first"], vectors["second"]
        if loss == "cosine":
            right = sum((unit(first[i]) @ unit(second[i]) - 0.1 * i) ** 2 for i in range(6)) / 6
        elif loss == "cosent":
            cosines = [20 * unit(first[i]) @ unit(second[i]) for i in range(6)]
            right = torch.stack([(cosines[j] - cosines[i]).exp() for i in range(6) for j in range(i)]).sum().log1p()
        elif loss == "softmax":
            logits = model.classifier(torch.cat([first, second, (first - second).abs()], 1))
            right = torch.nn.functional.cross_entropy(logits, torch.tensor([0, 1, 2, 0, 1, 2]))
        else:
            own = training.train_dataset.numbered.rows[:, 0]
            right = (
                sum((unit(vector[i]) - teacher[own[i]]).pow(2).sum() for vector in (first, second) for i in range(6))
                / 6
            )
        torch.testing.assert_close(value, torch.as_tensor(right), rtol=1e-5, atol=1e-6)
        assert type(training.whole_model()) is BertModel


# Data


def columns(**fields: Any) -> TextPairDataConfig:
    return TextPairDataConfig(**{"dataset": "rows.jsonl", **fields})


def entailments(path: Path) -> Path:
    rows = []
    for i in range(40):
        for label in ("yes", "no", "maybe")[: 2 + i % 2]:
            rows.append({"text": f"premise {i}", "pair": f"{label} {i}", "label": label, "score": i % 5 + 1})
    return written(path, rows)


def test_pairs_of_a_class_are_positive_and_others_hard_negatives(tmp_path: Path) -> None:
    config = columns(
        dataset=str(entailments(tmp_path / "rows.jsonl")),
        label_column="label",
        positive_labels=["yes"],
        negative_labels=["no"],
        split=[0.5, 0.25, 0.25],
    )
    parts = config.read_parts(1)
    assert not {text for item in parts["train"] for text in parts["train"].texts(item)} & {
        text for part in ("validation", "test") for item in parts[part] for text in parts[part].texts(item)
    }
    kept = positives(parts["train"], ["yes"])
    assert {kept.labels[item.label or 0] for item in kept} == {"yes"}
    for item in with_negatives(kept, parts["train"], ["no"], 0):
        assert item.negative == f"no {item.text.split()[1]}"
    with pytest.raises(UserError, match="has no pair of the class always"):
        positives(parts["train"], ["always"])


def test_files_of_two_columns_need_no_header(tmp_path: Path) -> None:
    plain = written(tmp_path / "plain.tsv", "Go.\tVe.\nGo.\tVete.\nRun!\t¡Corre!\n")
    pairs = read_text_pairs(str(plain), columns())
    assert [item[:2] for item in pairs] == [("Go.", "Ve."), ("Go.", "Vete."), ("Run!", "¡Corre!")]
    named = written(tmp_path / "named.tsv", "pair\ttext\nVe.\tGo.\n")
    assert read_text_pairs(str(named), columns()).items[0][:2] == ("Go.", "Ve.")
    table = written(tmp_path / "rows.csv", "a,b,c,s\nx,y,z,2.5\n")
    read = read_text_pairs(str(table), columns(text_column="a", pair_column="b", negative_column="c", score_column="s"))
    assert read.items[0][:5] == ("x", "y", 2.5, None, "z")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"positive_labels": ["a"]}, "name classes; write label_column too"),
        ({"negative_labels": ["a"], "label_column": "l"}, "negative_labels are beside positive_labels"),
        ({"score_range": [5, 1]}, r"score_range is \[5, 1\]; write the scores of cosines 0 and 1"),
        ({"words": "w.txt"}, "words is the file of words for vectors"),
    ],
)
def test_columns_that_do_not_go_together_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        columns(**fields)


def test_bad_rows_are_named(tmp_path: Path) -> None:
    rows = [{"text": "a", "pair": "b", "score": "high", "label": "yes"}, {"text": "c", "pair": "d", "label": "no"}]
    path = str(written(tmp_path / "rows.jsonl", rows))
    for fields, message in (
        ({"score_column": "score"}, "Line 1 of rows.jsonl has the label 'high'; write a number"),
        ({"score_column": "points"}, "Line 1 of rows.jsonl has no column 'points'"),
        ({"label_column": "label", "positive_labels": ["perhaps"]}, "labels of rows.jsonl are no, yes, and not 'perh"),
    ):
        with pytest.raises(UserError, match=message):
            read_text_pairs(path, columns(**fields))


def test_a_right_text_is_not_drawn_as_a_negative() -> None:
    """All first texts but one are the same; of its negatives, the one that is right elsewhere is not chosen."""
    items = [TextPair("a", f"b{i}", label=1) for i in range(20)] + [
        TextPair("x", "y", label=1),
        TextPair("x", "a", label=1),
    ]
    whole = TextPairs("pairs", [*items, TextPair("x", "y", label=0), TextPair("x", "z", label=0)], ["no", "yes"])
    kept = positives(whole, ["yes"])
    for item in with_negatives(kept, whole, ["no"], 0):
        assert item.negative in ({"y"} if item.text == "a" else {"z"})
    alone = TextPairs("pairs", items[:3], ["no", "yes"])
    assert {item.negative for item in with_negatives(alone, whole, ["no"], 0)} <= {"b0", "b1", "b2"}  # no others exist


def test_the_least_similar_negative_is_not_right_either() -> None:
    pairs = TextPairs("pairs", [TextPair("a", "b1"), TextPair("a", "b2"), TextPair("x", "y"), TextPair("z", "a")])
    angles = {"a": 0.0, "b1": 1.5, "b2": 1.55, "x": 0.1, "y": 0.4, "z": 0.2}
    vectors = np.array([[np.cos(angles[text]), np.sin(angles[text])] for text in PairNumbers(pairs).texts])
    assert [item.negative for item in mined_negatives(pairs, vectors, 0.9)][:2] == ["y", "y"]


def test_mined_negatives_are_near_and_not_right() -> None:
    """By loops: the most similar second text below the margin that no pair says to be right."""
    random = np.random.default_rng(0)
    items = [TextPair(f"a{i % 15}", f"b{i}") for i in range(30)] + [TextPair("b3", "a2")]
    pairs = TextPairs("pairs", items)
    numbered = PairNumbers(pairs)
    vectors = random.normal(size=(len(numbered.texts), 4))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    place = {text: i for i, text in enumerate(numbered.texts)}
    right: dict[str, set[str]] = {}
    for item in items:
        right.setdefault(item.text, set()).add(item.pair)
    for item in mined_negatives(pairs, vectors, 0.9):
        assert item.negative is not None
        to = vectors @ vectors[place[item.text]]
        wrong = {pair.pair for pair in items} - right[item.text] - {item.text}
        below = [text for text in wrong if to[place[text]] <= 0.9 * to[place[item.pair]]]
        best = max(below, key=lambda text: to[place[text]]) if below else None
        assert best is None or item.negative == best
    assert pairs.items[0].negative is None


# Scores


def test_any_listed_second_text_is_a_hit_in_both_directions() -> None:
    random = np.random.default_rng(0)
    items = [TextPair(f"a{i}", f"b{j}") for i, j in [(0, 0), (0, 1), (1, 1), (2, 2), (3, 3), (3, 0), (4, 4)]]
    pairs = TextPairs("pairs", items)
    numbered = PairNumbers(pairs)
    vectors = random.integers(-2, 3, (len(numbered.texts), 3)) + 0.5
    scores = sentence_scores(pairs, vectors)
    place = {text: i for i, text in enumerate(numbered.texts)}
    for prefix, own, other in (("", 0, 1), ("pair_to_text_", 1, 0)):
        ranks = []
        candidates = sorted({item[other] for item in items}, key=str)
        for query in sorted({item[own] for item in items}, key=str):
            right = {item[other] for item in items if item[own] == query}
            to = {each: cosines(vectors[[place[str(query)]]], vectors[[place[str(each)]]])[0] for each in candidates}
            best = max(to[each] for each in right)
            ranks.append(1 + sum(to[each] >= best - 1e-12 for each in candidates if each not in right))
        assert scores[f"{prefix}recall_at_1"] == sum(rank == 1 for rank in ranks) / 5
        assert scores[f"{prefix}mrr"] == pytest.approx(sum(1 / rank for rank in ranks) / 5)
    assert (scores["examples"], scores["candidates"]) == (5, 5)


def test_a_text_is_no_wrong_candidate_for_itself() -> None:
    """The nearest to a is a itself, which is the second text of c."""
    pairs = TextPairs("pairs", [TextPair("a", "b"), TextPair("c", "a"), TextPair("d", "d")])
    vectors = np.array([[1.0, 0.0], [0.9, 0.4], [0.8, -0.1], [0.0, 1.0]])  # of a, b, c and d
    scores = sentence_scores(pairs, vectors)
    assert scores["recall_at_1"] == scores["pair_to_text_recall_at_1"] == 1


def test_retrieval_in_blocks_is_that_of_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    items = [TextPair(f"a{random.integers(9)}", f"b{random.integers(12)}") for _ in range(30)]
    pairs = TextPairs("pairs", items)
    vectors = random.normal(size=(len(PairNumbers(pairs).texts), 3))
    whole = sentence_scores(pairs, vectors)
    monkeypatch.setattr("hfattn.metrics.retrieval._ROWS", 4)
    assert sentence_scores(pairs, vectors) == whole


def test_scores_and_classes_decide_what_is_measured() -> None:
    random = np.random.default_rng(0)
    vectors = random.normal(size=(8, 3))
    items = [TextPair(f"a{i}", f"b{i}", score=float(i), label=i % 2) for i in range(4)]
    found = sentence_scores(TextPairs("pairs", items, ["no", "yes"]), vectors, ("yes",))
    assert found.keys() == {"pearson", "spearman", "examples"}
    by_hand = cosines(vectors[::2], vectors[1::2])
    assert found["pearson"] == pytest.approx(np.corrcoef(by_hand, range(4))[0, 1])
    classes = TextPairs("pairs", [item._replace(score=None) for item in items], ["no", "yes"])
    order = sorted(range(4), key=lambda i: -by_hand[i])
    hits = [sum(order[k] % 2 for k in range(n + 1)) / (n + 1) for n in range(4) if order[n] % 2]
    assert sentence_scores(classes, vectors, ("yes",)) == {
        "average_precision": pytest.approx(sum(hits) / 2),
        "examples": 4,
    }


def test_means_and_sif_are_those_of_loops(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    words = ["the", "dog", "cat", "runs", "."]
    table = {word: random.normal(size=4).round(3) for word in words}
    file = written(tmp_path / "v.txt", "".join(f"{w} {' '.join(map(str, v))}\n" for w, v in table.items()))
    texts = ["The dog runs.", "The cat runs.", "the the dog", "a bird"]
    assert sentence_words(texts[0]) == ["the", "dog", "runs", "."]
    tokens = [sentence_words(text) for text in texts]
    other = ["the the a", *texts[:1]]
    for a, corpus in ((None, None), (0.1, None), (0.1, other)):
        counted = [word for text in corpus or texts for word in sentence_words(text)]
        counts, total = Counter(counted), len(counted)
        rows = []
        for each in tokens:
            known = [word for word in each if word in table]
            weights = [1.0 if a is None else a / (a + counts[word] / total) for word in known]
            parts = [w * table[word] / len(known) for w, word in zip(weights, known, strict=True)]
            rows.append(sum(parts) if parts else np.zeros(4))
        right = np.array(rows)
        if a is not None:
            u = np.linalg.svd(right)[2][0]
            right = np.array([row - u * (u @ row) for row in right])
        made = WordMeans(file, a=a).fit(texts, corpus).transform(texts)
        np.testing.assert_allclose(made, right, atol=1e-6)  # the file is read in float32
    with pytest.raises(UserError, match=r"v.txt has no word of the sentences"):
        WordMeans(file).transform(["bird"])


# Folders

CLEAN = """
import sys, torch
sys.modules["hfattn"] = None
from transformers import AutoModel, AutoTokenizer
model = AutoModel.from_pretrained(sys.argv[1], trust_remote_code=True).eval()
inputs = torch.load(sys.argv[2])
torch.save(model(**inputs).last_hidden_state.detach(), sys.argv[2])
"""


@pytest.mark.parametrize("kind", ["rnn_encoder", "vaswani"])
def test_a_folder_of_our_families_loads_without_hfattn(kind: str, tmp_path: Path) -> None:
    model = TrainedSentenceEncoder(AutoModel.from_config(BODIES[kind])).eval()
    model.body.save_pretrained(tmp_path / "model")
    ids = torch.randint(3, 30, (2, 5))
    mask = torch.tensor([[1] * 5, [1, 1, 0, 0, 0]])
    torch.save({"input_ids": ids, "attention_mask": mask}, tmp_path / "inputs.pt")
    done = run([sys.executable, "-c", CLEAN, tmp_path / "model", tmp_path / "inputs.pt"])
    assert done.returncode == 0, done.stderr
    states = torch.load(tmp_path / "inputs.pt")
    torch.testing.assert_close(pool(states, mask, "mean"), model.encode(ids, mask).detach())


@pytest.mark.parametrize("pooling", POOLINGS)
def test_modules_are_read_as_they_were_written(pooling: str, tmp_path: Path) -> None:
    written(tmp_path / "config.json", "{}")
    for normalize, length in ((True, 12), (False, None)):
        modules = SentenceModules(pooling, normalize, length)
        write_modules(tmp_path, modules, 8)
        assert read_modules(ModelLocation(name=str(tmp_path))) == modules
    # as versions from 6 on write it
    names = {"first": "cls", "mean_sqrt": "mean_sqrt_len_tokens"}
    stated = {"embedding_dimension": 8, "pooling_mode": names.get(pooling, pooling), "include_prompt": True}
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(stated))
    found = read_modules(ModelLocation(name=str(tmp_path)))
    assert found is not None
    assert found.pooling == pooling


def test_modules_that_are_not_known_are_refused(tmp_path: Path) -> None:
    written(tmp_path / "config.json", "{}")
    location = ModelLocation(name=str(tmp_path))
    assert read_modules(location) is None
    write_modules(tmp_path, SentenceModules(), 8)
    file = tmp_path / "1_Pooling" / "config.json"
    two = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}
    for stated in (two, {"pooling_mode": "lasttoken"}, {}):
        file.write_text(json.dumps(stated))
        with pytest.raises(UserError, match=r"pools by .*, and hfattn by one of cls, mean, max, mean_sqrt_len_tokens"):
            read_modules(location)
    listed = json.loads((tmp_path / "modules.json").read_text())
    dense = {"idx": 3, "name": "3", "path": "3_Dense", "type": "sentence_transformers.models.Dense"}
    (tmp_path / "modules.json").write_text(json.dumps([*listed, dense]))
    with pytest.raises(UserError, match="has the module Dense, and hfattn reads Transformer, Pooling and Normalize"):
        read_modules(location)
    (tmp_path / "modules.json").write_text("{}")
    with pytest.raises(UserError, match=r"modules.json of .* is not a list of modules"):
        read_modules(location)


# Search


def test_search_lists_the_nearest_sentences_and_keeps_an_index(tmp_path: Path) -> None:
    model = str(tiny_sentence_encoder(tmp_path / "model"))
    file = written(tmp_path / "s.txt", "The dog was happy.\n\nA dull film\nMary lives in Paris\nA dull film\n")
    sentences = ["The dog was happy.", "A dull film", "Mary lives in Paris"]
    encoder = load_sentence_encoder(model)
    to = encoder.embed(sentences) @ encoder.embed(["a film"])[0]
    best = to.argsort(descending=True).tolist()
    lines = "".join(f"{to[i]:.3f}  {sentences[i]}\n" for i in best)
    index = tmp_path / "index.safetensors"

    def search(*words: object) -> Any:
        return CliRunner().invoke(app, ["search", *map(str, words)])

    assert search(model, "a film", file).output == lines
    assert search(model, "a film", file, "--number", 2).output == "".join(lines.splitlines(True)[:2])
    assert search(model, "a film", file, "--index", index).output == lines
    found = load_file(index)["vectors"]
    stored = load_file(index) | {"vectors": found.flip(0)}
    save_file(stored, tmp_path / "swapped.safetensors", metadata(index))
    swapped = search(model, "a film", file, "--index", tmp_path / "swapped.safetensors").output
    assert swapped != lines  # the vectors are read, and not computed again
    torch.testing.assert_close(found, encoder.embed(sentences))
    save_file(stored | {"digests": stored["digests"].float()}, tmp_path / "damaged", metadata(index))
    for words, message in (
        ((model, " ", file), "The text to look for is empty"),
        ((model, "film", file, "--index", tmp_path / "damaged"), "damaged is damaged; remove it, or give another file"),
        ((model, "film", written(tmp_path / "empty.txt", "\n")), "empty.txt has no sentence; write one on each line"),
        ((model, "film", file, "--index", tmp_path / "none" / "index"), "none is not a folder; create it, or give"),
        ((model, "film", file, "--index", file), "is not an index of hfattn search"),
        ((tiny_model(tmp_path / "plain", "bert"), "film", file), "has no modules.json, which says how a text becomes"),
    ):
        refused = search(*words)
        assert refused.exit_code == 2
        assert message in " ".join(refused.output.split()), refused.output
    tiny_sentence_encoder(tmp_path / "model", pooling="max")
    refused = search(model, "film", file, "--index", index)
    assert "was written with another model" in " ".join(refused.output.split())


def test_an_index_embeds_each_sentence_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of lines that are added, moved or removed, and of another file."""
    model, index = str(tiny_sentence_encoder(tmp_path / "model")), tmp_path / "index.safetensors"
    embedded: list[str] = []
    embed = SentenceEncoder.embed

    def counted(self: SentenceEncoder, texts: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        embedded.extend(texts)
        return embed(self, texts, *args, **kwargs)

    for lines, new in (
        ("A dull film\nSnow\n", ["A dull film", "Snow"]),
        ("Paris\nSnow\nA dull film\nThe dog\n", ["Paris", "The dog"]),
        ("The dog\nMary\n", ["Mary"]),
        ("Snow\nParis\n", []),
    ):
        file = written(tmp_path / "s.txt", lines)
        expected = search_sentences(model, "a film", file)
        with monkeypatch.context() as patch:
            patch.setattr(SentenceEncoder, "embed", counted)
            found = search_sentences(model, "a film", file, index=index)
        assert embedded == [*new, "a film"]
        embedded.clear()
        assert [text for text, _ in found] == [text for text, _ in expected]
        np.testing.assert_allclose([each for _, each in found], [each for _, each in expected], atol=1e-6)
    assert len(load_file(index)["vectors"]) == 5
    assert [each.name for each in tmp_path.glob("index*")] == [index.name]


def test_an_index_is_that_of_one_tokenizer(tmp_path: Path) -> None:
    """Two words have changed places in the vocabulary; the weights are the same."""
    model = tiny_sentence_encoder(tmp_path / "model")
    file, index = written(tmp_path / "s.txt", "The dog was happy.\nA dull film\n"), tmp_path / "index.safetensors"
    search_sentences(str(model), "a film", file, index=index)
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["dog"], vocabulary["film"] = vocabulary["film"], vocabulary["dog"]
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(UserError, match="was written with another model; remove it"):
        search_sentences(str(model), "a film", file, index=index)


def test_texts_without_tokens_or_with_unknown_characters(tmp_path: Path) -> None:
    """A text without tokens is read as one unknown token, as in training."""
    encoder = load_sentence_encoder(str(tiny_sentence_encoder(tmp_path / "model")))
    words = build_tokenizer(TokenizerConfig(kind="word", strip_punctuation=True), ["dog film"], ends=False)
    assert words.model_max_length > 10**9
    plain = SentenceEncoder(encoder.model, words, SentenceModules(normalize=False))
    torch.testing.assert_close(plain.embed(["?!", "dog", "dog film"])[0], plain.embed(["cat"])[0])
    dataset = EncodedTextPairs(TextPairs("pairs", [TextPair("?!", "dog")]), words, 8)
    batch = TextPairCollator(words)([dataset[0]])["texts"][0]
    assert batch["input_ids"].tolist() == [[words.unk_token_id]]
    letters = build_tokenizer(TokenizerConfig(kind="char"), ["dog film"], ends=False)
    with pytest.raises(UserError, match=r"does not know 'x' \(U\+0078\), which is in a text; remove it, or"):
        SentenceEncoder(encoder.model, letters, SentenceModules()).embed(["dog", "fox"])


def metadata(path: Path) -> dict[str, str]:
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return file.metadata()


def test_a_model_that_lowercases_by_itself_is_refused(tmp_path: Path) -> None:
    folder = tiny_sentence_encoder(tmp_path / "model")
    (folder / "sentence_bert_config.json").write_text(json.dumps({"do_lower_case": True}))
    with pytest.raises(UserError, match=r"lowercases texts before they are tokenized \(do_lower_case\)"):
        load_sentence_encoder(str(folder))


def test_a_model_that_puts_a_prompt_before_each_text_is_refused(tmp_path: Path) -> None:
    """Its vectors in sentence-transformers are others."""
    folder = tiny_sentence_encoder(tmp_path / "model")
    file = folder / "config_sentence_transformers.json"
    file.write_text(json.dumps({"prompts": {"query": "search_query: "}, "default_prompt_name": None}))
    assert load_sentence_encoder(str(folder)).embed(["dog"]).shape[0] == 1
    file.write_text(json.dumps({"prompts": {"query": "search_query: "}, "default_prompt_name": "query"}))
    with pytest.raises(UserError, match=r"puts the prompt 'query' before each text \(default_prompt_name\)"):
        load_sentence_encoder(str(folder))


def test_a_model_that_is_nowhere_is_not_said_to_lack_a_file() -> None:
    with pytest.raises(UserError, match="someone/encoder was not found locally, and the Hub cannot be reached"):
        load_sentence_encoder("someone/encoder")


def test_texts_are_cut_at_the_length_of_the_modules(tmp_path: Path) -> None:
    folder = tiny_sentence_encoder(tmp_path / "model")
    encoder = load_sentence_encoder(str(folder))
    short = SentenceEncoder(encoder.model, encoder.tokenizer, SentenceModules(max_length=4))
    assert short.max_length == 4
    same = short.embed(["the dog was happy", "the dog in Paris"])
    torch.testing.assert_close(same[0], same[1])
    assert not torch.allclose(*encoder.embed(["the dog was happy", "the dog in Paris"]))
