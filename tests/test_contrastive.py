"""A dual encoder and its training: losses by loops, processes that share their negatives, and ranks."""

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import TWO_PROCESSES, run
from transformers import (
    AutoModel,
    BertConfig,
    TrainingArguments,
    VisionTextDualEncoderConfig,
    VisionTextDualEncoderModel,
    ViTConfig,
)

from hfattn import DualEncoderConfig, DualEncoderModel
from hfattn.errors import UserError
from hfattn.metrics.retrieval import rank_scores, ranks, retrieval_scores
from hfattn.pooling import pool
from hfattn.training.contrastive import ContrastiveTrainer, clip_loss, sigmoid_loss

SIZES = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
TOWERS = {
    "vision_config": {"model_type": "vit", "image_size": 8, "patch_size": 4, **SIZES},
    "text_config": {"model_type": "bert", "vocab_size": 30, "hidden_dropout_prob": 0.0, **SIZES},
}
OWN_TOWERS: dict[str, dict[str, Any]] = {
    "vaswani_vision and rnn_encoder": {
        "vision_config": {
            "model_type": "vaswani_vision", "image_size": 8, "patch_size": 4, "hidden_size": 8, "intermediate_size": 16,
            "encoder_layers": 1, "num_attention_heads": 2, "self_attention_score": "additive",
        },
        "text_config": {"model_type": "rnn_encoder", "vocab_size": 30, "embedding_size": 4, "hidden_size": 5},
    },
    "vit and vaswani": {
        "vision_config": TOWERS["vision_config"],
        "text_config": {
            "model_type": "vaswani", "vocab_size": 30, "hidden_size": 8, "intermediate_size": 16, "encoder_layers": 1,
            "num_attention_heads": 2, "is_encoder_decoder": False, "is_decoder": False, "bos_token_id": None,
            "eos_token_id": None, "decoder_start_token_id": None,
        },
    },
}  # fmt: skip
LABELS = (0, 1, 0, 2, 3, 1)  # the numbers of the texts in a batch, two of them twice


def dual_encoder(**fields: Any) -> DualEncoderModel:
    torch.manual_seed(0)
    return DualEncoderModel(DualEncoderConfig(**{**TOWERS, "projection_dim": 6, **fields}))


# The losses


def clip_by_loops(logits: torch.Tensor, labels: tuple[int, ...]) -> torch.Tensor:
    """Half the cross-entropies of the images over the texts and of the texts over the images, one after the other."""
    total = logits.new_zeros(())
    for rows in (logits, logits.T):
        for i, row in enumerate(rows):
            right = [j for j in range(len(labels)) if labels[j] == labels[i]]
            partition = sum(row[j].exp() for j in range(len(labels)))
            for j in right:
                total = total - (row[j].exp() / partition).log() / len(right)
    return total / (2 * len(labels))


def sigmoid_by_loops(logits: torch.Tensor, labels: tuple[int, ...]) -> torch.Tensor:
    total = logits.new_zeros(())
    for i in range(len(labels)):
        for j in range(len(labels)):
            z = 1 if labels[i] == labels[j] else -1
            total = total - (1 / (1 + (-z * logits[i, j]).exp())).log()
    return total / len(labels)


@pytest.mark.parametrize("labels", [LABELS, tuple(range(6))])
@pytest.mark.parametrize(("loss", "by_loops"), [(clip_loss, clip_by_loops), (sigmoid_loss, sigmoid_by_loops)])
def test_losses_and_gradients_are_those_of_loops(loss: Any, by_loops: Any, labels: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    image, text = (torch.randn(6, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    scale, bias = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (0.7, -1.3))
    numbers = torch.tensor(labels)
    found = []
    for compute in (
        lambda logits: loss(logits, numbers[:, None] == numbers),
        lambda logits: by_loops(logits, labels),
    ):
        value = compute(scale.exp() * image @ text.T + bias)
        gradients = torch.autograd.grad(value, (image, text, scale, bias), allow_unused=True)
        found.append((value.detach(), *gradients))
    torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-12)


def test_at_random_the_loss_of_clip_is_the_logarithm_of_the_batch() -> None:
    assert float(clip_loss(torch.zeros(8, 8), torch.eye(8).bool())) == pytest.approx(math.log(8))


# The model


def test_texts_are_pooled_as_their_tower_was_trained() -> None:
    """The mean is over the tokens, whatever padding there is; the pooler is that of transformers' dual encoder."""
    model = dual_encoder().eval()
    ids = torch.randint(1, 30, (3, 5))
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]])
    hidden = model.text_model(input_ids=ids, attention_mask=mask).last_hidden_state
    torch.testing.assert_close(model.text_features(ids, mask), pool(hidden, mask, "mean"))
    alone = model.text_features(ids[1:2, :3])
    torch.testing.assert_close(model.text_features(ids, mask)[1:2], alone)
    pooled = dual_encoder(text_pooling="pooler", projection_bias=False).eval()
    towers = VisionTextDualEncoderConfig(**TOWERS, projection_dim=6)
    theirs = VisionTextDualEncoderModel(towers)
    theirs.load_state_dict(pooled.state_dict())
    pixels = torch.randn(2, 3, 8, 8)
    ours, same = (each.eval()(input_ids=ids, pixel_values=pixels, attention_mask=mask) for each in (pooled, theirs))
    torch.testing.assert_close(ours.logits_per_image, same.logits_per_image)
    torch.testing.assert_close(ours.text_embeds, same.text_embeds)


def test_features_stand_for_what_a_tower_has_read() -> None:
    model = dual_encoder(logit_bias_init_value=-10).eval()
    ids, pixels = torch.randint(1, 30, (3, 5)), torch.randn(2, 3, 8, 8)
    whole = model(input_ids=ids, pixel_values=pixels)
    assert whole.logits_per_image.shape == (2, 3)
    cosines = whole.image_embeds @ whole.text_embeds.T
    torch.testing.assert_close(whole.logits_per_image, math.exp(2.6592) * cosines - 10)
    kept = model(text_features=model.text_features(ids), image_features=model.image_features(pixels))
    torch.testing.assert_close(kept.logits_per_text, whole.logits_per_text)
    assert model(input_ids=ids).keys() == {"text_embeds", "text_model_output"}
    projected = model.get_image_features(pixels).pooler_output
    torch.testing.assert_close(torch.nn.functional.normalize(projected, dim=-1), whole.image_embeds)


@pytest.mark.parametrize("fields", [{}, {"text_pooling": "pooler"}, *OWN_TOWERS.values()])
def test_the_outputs_of_the_towers_are_returned(fields: dict[str, Any]) -> None:
    model = dual_encoder(**fields).eval()
    model.set_attn_implementation("eager")
    ids, pixels = torch.randint(1, 30, (3, 5)), torch.randn(2, 3, 8, 8)
    asked = {"output_hidden_states": True, "output_attentions": True}
    found = model(input_ids=ids, pixel_values=pixels, **asked)
    projected = model.get_text_features(ids, **asked), model.get_image_features(pixels, **asked)
    towers = model.text_model(input_ids=ids, **asked), model.vision_model(pixel_values=pixels, **asked)
    for outputs, features, tower in zip(
        (found.text_model_output, found.vision_model_output), projected, towers, strict=True
    ):
        for each in (outputs, features):
            torch.testing.assert_close(each.last_hidden_state, tower.last_hidden_state)
            torch.testing.assert_close(each.hidden_states, tower.hidden_states)
            torch.testing.assert_close(each.attentions, tower.get("attentions"))
    as_tuple = model(input_ids=ids, pixel_values=pixels, return_dict=False)
    torch.testing.assert_close(as_tuple[0], found.text_embeds)
    assert isinstance(as_tuple[-1], tuple)


@pytest.mark.parametrize("towers", OWN_TOWERS.values(), ids=OWN_TOWERS)
def test_towers_of_hfattn_read_texts_and_images(towers: dict[str, Any]) -> None:
    model = dual_encoder(**towers).eval()
    ids, pixels = torch.randint(1, 30, (3, 5)), torch.randn(2, 3, 8, 8)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]])
    found = model(input_ids=ids, pixel_values=pixels, attention_mask=mask)
    alone = model(input_ids=ids[1:2, :3], pixel_values=pixels)
    torch.testing.assert_close(found.text_embeds[1:2], alone.text_embeds)  # padding changes nothing
    image = model.visual_projection(model.vision_model(pixels).pooler_output)
    torch.testing.assert_close(found.image_embeds, torch.nn.functional.normalize(image, dim=-1))
    found.logits_per_image.square().sum().backward()
    for tower in (model.vision_model, model.text_model):
        assert any(each.grad is not None and each.grad.any() for each in tower.parameters())


@pytest.mark.parametrize("fields", [{"latents": 4}, {"subsampling": 2}], ids=str)
def test_outputs_that_are_no_tokens_are_pooled_without_their_mask(fields: dict[str, Any]) -> None:
    towers = OWN_TOWERS["vit and vaswani"]
    model = dual_encoder(**{**towers, "text_config": {**towers["text_config"], **fields}}).eval()
    ids = torch.randint(1, 30, (2, 4))
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    padded, alone = (model.get_text_features(*each).pooler_output for each in ((ids, mask), (ids[1:, :2],)))
    torch.testing.assert_close(padded[1:], alone)


def test_towers_that_would_not_be_saved_are_refused() -> None:
    foreign = ViTConfig(**SIZES, auto_map={"AutoConfig": "theirs.Config"})  # as trust_remote_code loads one
    with pytest.raises(Exception, match="vision_config is a ViTConfig, whose code would not be saved with the model"):
        DualEncoderConfig(vision_config=foreign, text_config=BertConfig(**SIZES))
    vaswani = OWN_TOWERS["vit and vaswani"]["text_config"]
    with pytest.raises(Exception, match="text_config is a VaswaniConfig with a decoder; write is_encoder_decoder"):
        DualEncoderConfig(vision_config=ViTConfig(**SIZES), text_config={"model_type": "vaswani"})
    with pytest.raises(Exception, match="text_pooling is 'pooler', and vaswani has no pooler; write mean"):
        DualEncoderConfig(vision_config=ViTConfig(**SIZES), text_config=vaswani, text_pooling="pooler")
    with pytest.raises(Exception, match="text_pooling is 'first'; write one of 'mean', 'pooler'"):
        DualEncoderConfig(vision_config=ViTConfig(**SIZES), text_config=BertConfig(**SIZES), text_pooling="first")


CLEAN = """
import sys, torch
from transformers import AutoModel
sys.modules["hfattn"] = None
model = AutoModel.from_pretrained(sys.argv[1], trust_remote_code=True).eval()
inputs = torch.load(sys.argv[2])
torch.save(model(**inputs).logits_per_image.detach(), sys.argv[2])
"""


@pytest.mark.parametrize("towers", [TOWERS, OWN_TOWERS["vaswani_vision and rnn_encoder"]], ids=["theirs", "own"])
def test_a_saved_folder_gives_the_same_without_hfattn(tmp_path: Path, towers: dict[str, Any]) -> None:
    model = dual_encoder(**towers, logit_bias_init_value=-10, text_hidden_size=5).eval()
    model.save_pretrained(tmp_path / "model")
    inputs = {"input_ids": torch.randint(1, 30, (3, 5)), "pixel_values": torch.randn(2, 3, 8, 8)}
    inputs["attention_mask"] = torch.ones(3, 5)
    inputs["attention_mask"][0, 2:] = 0
    torch.save(inputs, tmp_path / "inputs.pt")
    done = run([sys.executable, "-c", CLEAN, tmp_path / "model", tmp_path / "inputs.pt"])
    assert done.returncode == 0, done.stderr
    torch.testing.assert_close(torch.load(tmp_path / "inputs.pt"), model(**inputs).logits_per_image.detach())
    assert type(AutoModel.from_pretrained(tmp_path / "model")) is DualEncoderModel


# The trainer


def batch(rows: slice = slice(None)) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    inputs = {
        "image_features": torch.randn(6, 8, generator=generator),
        "text_features": torch.randn(4, 8, generator=generator)[list(LABELS)],
        "labels": torch.tensor([(7 * number, number) for number in LABELS]),
    }
    return {name: tensor[rows] for name, tensor in inputs.items()}


def trainer(folder: Path | str, model: DualEncoderModel, loss: str = "clip", **options: Any) -> ContrastiveTrainer:
    settings = {"report_to": "none", "use_cpu": True, "disable_tqdm": True, "save_strategy": "no", **options}
    rows = [{name: tensor[i] for name, tensor in batch().items()} for i in range(len(LABELS))]
    return ContrastiveTrainer(model, TrainingArguments(str(folder), **settings), train_dataset=rows, loss=loss)


def trained_weights(model: DualEncoderModel) -> dict[str, torch.Tensor]:
    return {name: each.grad for name, each in model.named_parameters() if each.grad is not None}


def test_the_scale_stays_below_one_hundred_and_is_not_decayed(tmp_path: Path) -> None:
    model = dual_encoder()
    training = trainer(tmp_path, model)
    decayed = training.get_decay_parameter_names(model)
    assert "visual_projection.weight" in decayed
    assert "logit_scale" not in decayed
    with torch.no_grad():
        model.logit_scale.fill_(math.log(200))
    training.callback_handler.on_optimizer_step(training.args, training.state, training.control)
    assert float(model.logit_scale.detach().exp()) == pytest.approx(100)


def test_a_loss_needs_its_bias(tmp_path: Path) -> None:
    for model, loss in ((dual_encoder(), "sigmoid"), (dual_encoder(logit_bias_init_value=-10), "clip")):
        with pytest.raises(UserError, match="The sigmoid loss, and no other, has a bias"):
            trainer(tmp_path, model, loss)
    with pytest.raises(UserError, match="The loss 'triplet' is unknown; write one of clip, sigmoid"):
        trainer(tmp_path, dual_encoder(), "triplet")


SHARED = """
import sys, torch
from accelerate import PartialState
state = PartialState(cpu=True)
sys.path.insert(0, {tests!r})
from test_contrastive import batch, dual_encoder, trainer, trained_weights
assert state.num_processes == 2
rows = slice(0, 3) if state.process_index == 0 else slice(3, 6)
found = {{}}
for loss, bias in (("clip", None), ("sigmoid", -10.0)):
    model = dual_encoder(logit_bias_init_value=bias)
    training = trainer({folder!r}, model, loss)
    wrapped = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
    value = training.compute_loss(wrapped, batch(rows))
    value.backward()
    found[loss] = {{"loss": value.detach(), **trained_weights(model)}}
if state.process_index == 0:
    torch.save(found, {folder!r} + "/found.pt")
"""


def test_two_processes_have_the_loss_and_the_gradients_of_one(tmp_path: Path) -> None:
    script = tmp_path / "shared.py"
    script.write_text(SHARED.format(tests=str(Path(__file__).parent), folder=str(tmp_path)))
    done = run([*TWO_PROCESSES, script])
    assert done.returncode == 0, done.stderr
    shared = torch.load(tmp_path / "found.pt")
    for loss, bias in (("clip", None), ("sigmoid", -10.0)):
        model = dual_encoder(logit_bias_init_value=bias)
        value = trainer(tmp_path, model, loss).compute_loss(model, batch())
        value.backward()
        expected = {"loss": value.detach(), **trained_weights(model)}
        assert {"logit_scale", "visual_projection.weight", "text_projection.weight"} <= shared[loss].keys()
        torch.testing.assert_close(shared[loss], expected, rtol=1e-5, atol=1e-6)


# Ranks


def ranks_by_loops(queries: np.ndarray, candidates: np.ndarray, right: np.ndarray, of: np.ndarray) -> list[int]:
    """All wrong candidates that are not less similar than the best right one come before it."""
    found = []
    for query, number in zip(queries, right, strict=True):
        scored = [(float(query @ candidate), text == number) for candidate, text in zip(candidates, of, strict=True)]
        best = max(score for score, is_right in scored if is_right)
        found.append(1 + sum(score >= best for score, is_right in scored if not is_right))
    return found


def test_ranks_and_scores_are_those_of_loops() -> None:
    random = np.random.default_rng(0)
    texts, of_texts = np.array([0, 1, 2, 0, 3, 1, 1]), np.arange(4)
    images = random.integers(-2, 3, (7, 3)).astype(float)  # whole numbers, so that there are ties
    embeds = random.integers(-2, 3, (4, 3)).astype(float)
    to_text = ranks(images, embeds, texts, of_texts)
    to_image = ranks(embeds, images, of_texts, texts)
    assert to_text.tolist() == ranks_by_loops(images, embeds, texts, of_texts)
    assert to_image.tolist() == ranks_by_loops(embeds, images, of_texts, texts)
    scores = retrieval_scores(images, embeds, texts, of_texts)
    assert scores["recall_at_1"] == sum(rank == 1 for rank in to_text) / 7
    assert scores["text_to_image_recall_at_5"] == sum(rank <= 5 for rank in to_image) / 4
    assert scores["mrr"] == pytest.approx(sum(1 / rank for rank in to_text) / 7)
    assert scores["median_rank"] == sorted(to_text)[3]
    assert (scores["examples"], scores["texts"]) == (7, 4)


def test_a_collapsed_model_is_last_and_not_first() -> None:
    same = np.ones((5, 2))
    assert ranks(same, same, np.arange(5), np.arange(5)).tolist() == [5] * 5
    assert rank_scores(np.array([5] * 5))["recall_at_1"] == 0
