"""The captioner, against the formulas of Xu et al. 2015 and as a model of transformers."""

import itertools
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import run
from generation_tests import Make, Seq2SeqGenerationTests, V, literal, sharpen
from huggingface_hub.errors import StrictDataclassError
from PIL import Image
from test_cells import literal_step
from torch import nn
from transformers import (
    AutoModelForImageTextToText,
    Dinov2Config,
    GenerationConfig,
    PreTrainedTokenizerFast,
    ResNetConfig,
    SwinConfig,
    ViTConfig,
    pipeline,
    set_seed,
)

from hfattn import ShowAttendTellConfig, ShowAttendTellForConditionalGeneration, VaswaniVisionConfig
from hfattn.data import make_processor
from hfattn.models import attention_distributions
from hfattn.tokenizers import build_character_tokenizer

SIZES: dict[str, Any] = {"embedding_size": 4, "hidden_size": 5, "annotation_size": 8, "channels": [3, 4]}
HARD: dict[str, Any] = {"attention_distribution": "hard"}
REINFORCE: dict[str, Any] = {**HARD, "attention_distribution_options": {"estimator": "score_function"}}
TINY_VIT = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 16, "patch_size": 8}
VISION: dict[str, Any] = {
    "vit": ViTConfig(**TINY_VIT, intermediate_size=8),
    "dinov2": Dinov2Config(**TINY_VIT, mlp_ratio=1),
    "vaswani_vision": VaswaniVisionConfig(
        image_size=16, patch_size=8, hidden_size=8, encoder_layers=1, num_attention_heads=2, intermediate_size=8
    ),
    "resnet": ResNetConfig(embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1], layer_type="basic"),
}


def build(vocab_size: int = V, seed: int = 0, **fields: Any) -> Any:
    fields.pop("attn_implementation", None)  # one implementation computes all attention
    torch.manual_seed(seed)
    config = ShowAttendTellConfig(**{"vocab_size": vocab_size, **SIZES, "initializer_range": 1.0, **fields})
    return ShowAttendTellForConditionalGeneration(config).double()


def images(rows: int = 3, height: int = 16, width: int = 24) -> torch.Tensor:
    return torch.randn(rows, 3, height, width, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def captions(rows: int = 3, steps: int = 4) -> torch.Tensor:
    labels = torch.randint(3, V, (rows, steps), generator=torch.Generator().manual_seed(4))
    labels[1, 2:] = -100
    return labels


class TestGeneration(Seq2SeqGenerationTests):
    def batch(self, lengths: list[int] | None = None, vocab_size: int = V) -> dict[str, torch.Tensor]:
        return {"pixel_values": images(len(lengths or self.lengths)) * 3}

    @pytest.fixture
    def make(self) -> Make:
        return lambda **fields: sharpen(build(**fields), 12)

    @pytest.mark.skip("images have no embeddings")
    def test_the_source_may_be_embeddings(self, make: Make) -> None: ...


# The paper, one word and one annotation at a time


def literal_annotations(model: Any, pixels: torch.Tensor) -> list[torch.Tensor]:
    hidden = pixels
    for convolution in model.model.encoder.convolutions:
        hidden = convolution(hidden[None])[0]
    found = []
    for row, column in itertools.product(*map(range, hidden.shape[1:])):
        position: list[torch.Tensor] = []
        for place in (row, column):
            angles = torch.tensor([place / 10_000 ** (k / 2) for k in range(2)], dtype=torch.float64)
            position += [*angles.sin(), *angles.cos()]
        found.append(hidden[:, row, column] + torch.stack(position))
    return found


def literal_caption(
    model: Any, annotations: list[torch.Tensor], labels: list[int], chosen: list[int] | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return log p(y | a) of a caption, or log p(y | s, a) for the positions ``chosen``; log p(s | a); and α (T, L)."""
    decoder = model.model.decoder
    score, size = decoder.attention.score, model.config.hidden_size
    mean = torch.stack(annotations).mean(0)
    h, c = torch.tanh(decoder.initial_state(mean)).split(size)
    log_p, log_s, alphas = torch.zeros(()).double(), torch.zeros(()).double(), []
    for t, word in enumerate(labels):
        previous = decoder.embed_tokens.weight[labels[t - 1] if t else model.config.decoder_start_token_id]
        energies = torch.stack([score.v @ torch.tanh(score.W_q @ h + score.W_k @ a) for a in annotations])  # eq. 4
        alpha = energies.exp() / energies.exp().sum()  # eq. 5
        z = sum(weight * a for weight, a in zip(alpha, annotations, strict=True))
        if chosen is not None:
            z, log_s = annotations[chosen[t]], log_s + alpha[chosen[t]].log()  # eq. 8-9
        if decoder.gate is not None:
            z = torch.sigmoid(decoder.gate(h)) * z  # section 4.2.1
        h, c = literal_step("lstm", decoder.layers[0].rnn, torch.cat([previous, z]), (h, c))  # eq. 1-3
        deep = torch.tanh(previous + decoder.deep(torch.cat([h, z])))  # eq. 7
        log_p = log_p + model.lm_head(deep).log_softmax(-1)[word]
        alphas.append(alpha)
    return log_p, log_s, torch.stack(alphas)


def gradients(loss: torch.Tensor, model: Any) -> list[torch.Tensor]:
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True, retain_graph=True)
    return [torch.zeros_like(p) if g is None else g for g, p in zip(found, model.parameters(), strict=True)]


@pytest.mark.parametrize("gate", ["scalar", "none"])
def test_soft_attention_equals_equations_1_to_7_and_14(gate: str) -> None:
    model, pixels, labels = build(attention_gate=gate, doubly_stochastic=0.7).train(), images(), captions()
    out = model(pixels, labels=labels, output_attentions=True)
    total, number = torch.zeros(()).double(), 0
    for row in range(3):
        words = [word for word in labels[row].tolist() if word != -100]
        log_p, _, alpha = literal_caption(model, literal_annotations(model, pixels[row]), words)
        term = sum((1 - sum(step[i] for step in alpha)) ** 2 for i in range(alpha.shape[1]))
        torch.testing.assert_close(out.cross_attentions[0][row, 0, : len(words)], alpha)
        torch.testing.assert_close(out.doubly_stochastic[row], term.detach())
        size = alpha.shape[1]
        assert out.doubly_stochastic_floor[row].item() == pytest.approx(size * (1 - len(words) / size) ** 2)
        assert term >= out.doubly_stochastic_floor[row] - 1e-6
        total, number = total - log_p + 0.7 * term, number + len(words)
    torch.testing.assert_close(out.loss, total / number)
    torch.testing.assert_close(gradients(out.loss, model), gradients(total / number, model))


def test_the_detection_of_words_is_the_largest_logit_of_the_annotations() -> None:
    """A word counts once however often it is in the caption; positions without a label are not words."""
    model, pixels, labels = build(word_detection=0.3).train(), images(), captions()
    plain = build().train()
    plain.load_state_dict({name: each for name, each in model.state_dict().items() if "word_detector" not in name})
    total, number = plain(pixels, labels=labels).loss * (labels != -100).sum(), (labels != -100).sum()
    for row in range(3):
        annotations = literal_annotations(model, pixels[row])
        words = set(labels[row].tolist()) - {-100}
        for word in range(V):
            logits = [model.word_detector.weight[word] @ a + model.word_detector.bias[word] for a in annotations]
            p = torch.sigmoid(max(logits))
            total = total - 0.3 * (p if word in words else 1 - p).log()
    loss = model(pixels, labels=labels).loss
    torch.testing.assert_close(loss, total / number)
    weights = list(model.word_detector.parameters())
    found, literal = (torch.autograd.grad(each, weights) for each in (loss, total / number))
    torch.testing.assert_close(found, literal)
    untrained: Any = ShowAttendTellForConditionalGeneration(model.config)
    assert untrained.word_detector.bias.unique().tolist() == [-5.0]


def force(monkeypatch: pytest.MonkeyPatch, chosen: list[int]) -> None:
    """Make hard attention draw these positions, one for each step."""
    drawn = iter(chosen)

    def draw(energies: torch.Tensor, *args: Any, **options: Any) -> tuple[torch.Tensor, None]:
        return torch.zeros_like(energies).index_fill(-1, torch.tensor([next(drawn)]), 1), None

    monkeypatch.setattr(attention_distributions, "hard_sample", draw)


def test_reinforce_equals_equation_12_and_an_enumeration_of_all_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sample's gradient is that of the paper. For λ_r = 1 and λ_e = 0 their mean is the gradient of the mean."""
    model = build(**REINFORCE, expected_attention=0.0, doubly_stochastic=0.0, attention_gate="none").train()
    pixels, labels, words = images(1, 8, 24), torch.tensor([[5, 7]]), 2
    annotations = literal_annotations(model, pixels[0])
    exact, mean = torch.zeros(()).double(), [torch.zeros_like(p) for p in model.parameters()]
    for chosen in itertools.product(range(3), repeat=words):
        log_p, log_s, alpha = literal_caption(model, annotations, labels[0].tolist(), list(chosen))
        probability = log_s.exp()
        for reinforce, entropy in ((0.1, 0.3), (1.0, 0.0)):
            model.config.reinforce_weight, model.config.entropy_weight = reinforce, entropy
            model.baseline.fill_(-2.0)
            force(monkeypatch, list(chosen))
            found = gradients(model(pixels, labels=labels).loss * words, model)
            surrogate = -log_p - reinforce * (log_p.detach() + 2.0) * log_s - entropy * -(alpha * alpha.log()).sum()
            torch.testing.assert_close(found, gradients(surrogate, model))
            assert model.baseline.item() == pytest.approx(0.9 * -2.0 + 0.1 * log_p.item())
        mean = [total + probability.detach() * g for total, g in zip(mean, found, strict=True)]
        exact = exact - probability * log_p
    torch.testing.assert_close(mean, gradients(exact, model))


def test_an_image_may_be_read_with_its_expected_attention() -> None:
    """With probability 1 the loss is that of soft attention; with ½ some images are read so, for all their words."""
    soft, hard = (build(**fields, attention_gate="none").train() for fields in ({}, {**REINFORCE, "entropy_weight": 0}))
    hard.load_state_dict({**soft.state_dict(), "baseline": hard.baseline})
    hard.config.expected_attention = 1.0
    pixels, labels = images(8), captions(8)
    losses = [model(pixels, labels=labels).loss for model in (soft, hard)]
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(*(gradients(loss, model) for loss, model in zip(losses, (soft, hard), strict=True)))
    hard.config.expected_attention = 0.5
    weights = hard(pixels, labels=labels, output_attentions=True).cross_attentions[0][:, 0]
    one_hot = ((weights == 0) | (weights == 1)).all(-1)  # (B, T)
    assert (one_hot == one_hot[:, :1]).all()
    assert 0 < one_hot[:, 0].sum() < 8


def test_straight_through_passes_the_gradient_of_the_weights() -> None:
    model = build(**HARD, doubly_stochastic=0.0).train()
    out = model(images(), labels=captions(), output_attentions=True)
    assert ((out.cross_attentions[0].round() - out.cross_attentions[0]).abs() < 1e-9).all()
    found = torch.autograd.grad(out.loss, model.model.decoder.attention.score.v)[0]
    assert found.abs().sum() > 0


@pytest.mark.parametrize("fields", [HARD, REINFORCE])
def test_hard_attention_takes_the_largest_weight_in_evaluation(fields: dict[str, Any]) -> None:
    model = sharpen(build(**fields), 12)
    pixels = images() * 3
    options = {"max_new_tokens": 6, "output_attentions": True, "return_dict_in_generate": True}
    cached, again = (model.generate(pixel_values=pixels, **options, use_cache=use) for use in (True, False))
    assert torch.equal(cached.sequences, literal(model, {"pixel_values": pixels}, 6, lambda scores: scores.argmax(-1)))
    assert torch.equal(cached.sequences, again.sequences)
    weights = torch.cat([step[0] for step in cached.cross_attentions], dim=2)
    assert torch.equal(weights.amax(-1), torch.ones_like(weights[..., 0]))
    soft = build(**{name: value for name, value in fields.items() if name in SIZES}).eval()
    soft.load_state_dict({name: tensor for name, tensor in model.state_dict().items() if name != "baseline"})
    first = soft(pixels, decoder_input_ids=cached.sequences[:, :1], output_attentions=True).cross_attentions[0]
    assert torch.equal(weights[:, :, 0].argmax(-1), first[:, :, 0].argmax(-1))


# The loss over padded batches and parts of a batch


@pytest.mark.parametrize("fields", [{}, {"word_detection": 0.3}, {**REINFORCE, "expected_attention": 1.0}])
def test_padding_of_captions_and_parts_of_a_batch_do_not_change_the_loss(fields: dict[str, Any]) -> None:
    model, pixels, labels = build(**fields).train(), images(), captions()
    whole = model(pixels, labels=labels).loss
    expected = gradients(whole, model)
    padded = nn.functional.pad(labels, (0, 3), value=-100)
    if model.baseline is not None:
        model.baseline.zero_()
    again = model(pixels, labels=padded).loss
    torch.testing.assert_close(again, whole)
    torch.testing.assert_close(gradients(again, model), expected)
    number, parts = (labels != -100).sum(), []
    for rows in (slice(0, 1), slice(1, 3)):
        if model.baseline is not None:
            model.baseline.zero_()
        parts.append(model(pixels[rows], labels=padded[rows], num_items_in_batch=number).loss)
    torch.testing.assert_close(sum(parts), whole)
    torch.testing.assert_close(gradients(sum(parts), model), expected)


def test_a_caption_without_a_word_adds_nothing_to_the_loss() -> None:
    model, pixels, labels = build().train(), images(), captions()
    assert model.config.doubly_stochastic > 0
    labels[2] = -100
    out = model(pixels, labels=labels)
    torch.testing.assert_close(out.loss, model(pixels[:2], labels=labels[:2]).loss)
    assert out.doubly_stochastic[2] == out.doubly_stochastic_floor[2] == 0
    assert model(pixels[2:], labels=labels[2:], num_items_in_batch=3).loss == 0


def test_inputs_have_the_data_type_of_the_weights() -> None:
    for fields in ({}, {"vision_config": VISION["vit"].to_dict()}):
        model = build(**fields).bfloat16().eval()
        pixels = images(2, 16, 16).float()
        features = model.get_encoder().features(pixels).float()
        for inputs in ({"pixel_values": pixels}, {"image_features": features}):
            assert model(**inputs, labels=captions(2)).loss.isfinite()


def test_patches_may_be_rectangles_and_penalties_are_in_the_loss() -> None:
    spans = {"encoder_pattern": "adaptive_span", "encoder_pattern_options": {"span": 4, "ramp": 2, "penalty": 100.0}}
    vision = {**VISION["vaswani_vision"].to_diff_dict(), "patch_size": [8, 4], **spans}
    model, frozen = (build(vision_config=vision, freeze_vision=freeze).train() for freeze in (False, True))
    for each in (model, frozen):
        each.get_encoder().vision_model.layers[0].self_attn.spans.data.fill_(0.5)
    pixels = images(2, 16, 16)
    assert model.get_encoder()(pixels).grid.tolist() == [[2, 4]] * 2
    loss = model(pixels, labels=captions(2)).loss
    assert loss - model.eval()(pixels, labels=captions(2)).loss > 1
    torch.testing.assert_close(frozen(pixels, labels=captions(2)).loss, frozen.eval()(pixels, labels=captions(2)).loss)


def test_the_baseline_is_saved_with_the_model(tmp_path: Path) -> None:
    model = build(**REINFORCE).train()
    model(images(), labels=captions())
    assert model.baseline != 0
    model.save_pretrained(tmp_path)
    loaded = ShowAttendTellForConditionalGeneration.from_pretrained(tmp_path)
    assert torch.equal(loaded.baseline, model.baseline)
    before = model.baseline.clone()
    model.eval()(images(), labels=captions())
    assert torch.equal(model.baseline, before)
    assert build().baseline is None


@pytest.mark.parametrize("fields", [{}, {**REINFORCE, "reinforce_weight": 1.0}])
def test_gradient_checkpointing_replays_the_same_samples(fields: dict[str, Any]) -> None:
    model = build(**fields).train()
    found = []
    for enabled in (False, True):
        if enabled:
            model.gradient_checkpointing_enable()
        if model.baseline is not None:
            model.baseline.zero_()
        set_seed(3)
        found.append(gradients(model(images(), labels=captions()).loss, model))
    torch.testing.assert_close(*found)


# Encoders


@pytest.mark.parametrize("name", VISION)
def test_an_image_model_is_the_encoder(name: str, tmp_path: Path) -> None:
    model = build(vision_config=VISION[name].to_dict(), freeze_vision=name != "vit")
    encoder, pixels = model.get_encoder(), images(2, 16, 16)
    model.train()
    assert encoder.vision_model.training == (name == "vit")
    out = model(pixels, labels=captions(2))
    out.loss.backward()
    trained = {parameter.grad is not None for parameter in encoder.vision_model.parameters()}
    assert (True in trained) == (name == "vit")
    model.eval()
    encoded, features = encoder(pixels), encoder.features(pixels)
    assert encoded.grid.tolist() == [[2, 2]] * 2
    again = encoder(image_features=features)
    torch.testing.assert_close(again.last_hidden_state, encoded.last_hidden_state)
    inner = encoder.vision_model(pixel_values=pixels).last_hidden_state
    patch = inner[:, :, 1, 0] if name == "resnet" else inner[:, -4:][:, 2]
    angles = torch.tensor([1.0, 0.01]).double()
    position = torch.cat([angles.sin(), angles.cos(), torch.zeros(2), torch.ones(2)])
    torch.testing.assert_close(encoded.last_hidden_state[:, 2], encoder.projection(patch) + position)
    torch.testing.assert_close(encoded.final_state[:, 0, 0], encoded.last_hidden_state.mean(1))
    model.save_pretrained(tmp_path)
    loaded = AutoModelForImageTextToText.from_pretrained(tmp_path)
    frozen = {parameter.requires_grad for parameter in loaded.get_encoder().vision_model.parameters()}
    assert frozen == {name == "vit"}
    assert torch.equal(loaded.generate(pixel_values=pixels), model.generate(pixel_values=pixels))


def test_a_captioner_with_an_image_model_of_hfattn_is_loaded_without_hfattn(tmp_path: Path) -> None:
    model = build(vision_config=VISION["vaswani_vision"].to_dict()).eval()
    model.save_pretrained(tmp_path)
    code = (
        "import sys, torch; sys.modules['hfattn'] = None\n"
        "from transformers import AutoModelForImageTextToText\n"
        "model = AutoModelForImageTextToText.from_pretrained('.', trust_remote_code=True)\n"
        "print(model.generate(pixel_values=torch.ones(1, 3, 16, 16, dtype=torch.float64)).tolist())\n"
    )
    done = run([sys.executable, "-c", code], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    here = model.generate(pixel_values=torch.ones(1, 3, 16, 16, dtype=torch.float64))
    assert done.stdout.strip() == str(here.tolist())


def test_images_of_other_sizes_have_other_grids() -> None:
    encoder = build().get_encoder()
    assert encoder(images(2, 24, 17)).grid.tolist() == [[3, 2]] * 2
    moved = encoder(images(1, 8, 16)).last_hidden_state
    assert moved.shape == (1, 2, 8)
    with pytest.raises(
        ValueError, match="The images have 4 x 16 pixels, and an annotation has 8 x 8; make them larger"
    ):
        encoder(images(1, 4, 16))


def test_a_cell_of_the_grid_lies_over_what_it_sees() -> None:
    """The gradient of an annotation with respect to the pixels is centered on its cell."""
    encoder = build().double().get_encoder()
    for convolution in encoder.convolutions:
        torch.nn.init.ones_(convolution.convolution.weight)
        convolution.norm = torch.nn.Identity()
    pixels = torch.ones(1, 3, 64, 64, dtype=torch.float64, requires_grad=True)
    encoder(pixels).last_hidden_state[0, 3 * 8 + 4].sum().backward()
    assert pixels.grad is not None
    weight = pixels.grad.abs().sum((0, 1))
    place = torch.arange(64, dtype=torch.float64)
    center = (weight.sum(1) @ place / weight.sum(), weight.sum(0) @ place / weight.sum())
    torch.testing.assert_close(torch.stack(center), torch.tensor([8 * 3 + 3.5, 8 * 4 + 3.5]).double())


@pytest.mark.parametrize("tied", [True, False])
def test_the_vocabulary_is_resized(tied: bool, tmp_path: Path) -> None:
    model, labels = build(tie_word_embeddings=tied, word_detection=0.3).eval(), captions()
    before = model(images(), labels=labels).logits
    model.resize_token_embeddings(V + 3)
    after = model(images(), labels=labels).logits
    torch.testing.assert_close(after[..., :V], before)
    assert model(images(), labels=labels.clamp(min=V + 2)).loss.isfinite()
    model.save_pretrained(tmp_path)
    again = ShowAttendTellForConditionalGeneration.from_pretrained(tmp_path)
    torch.testing.assert_close(again(images(), labels=labels).loss, model(images(), labels=labels).loss)
    assert after.shape[-1] == model.config.vocab_size == V + 3
    assert (model.lm_head.weight is model.get_input_embeddings().weight) == tied


# The pipeline, and a process without hfattn


def tokenizer() -> PreTrainedTokenizerFast:
    return build_character_tokenizer(["abcdefghi"], ends=True)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captioner")
    words = tokenizer()
    model = sharpen(build(vocab_size=len(words)), 12)
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    make_processor((16, 24), (0.5,) * 3, (0.5,) * 3).save_pretrained(folder)
    colors = torch.randint(0, 256, (40, 60, 4), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    Image.fromarray(colors.numpy(), "RGBA").save(folder / "picture.png")
    return folder


def test_the_pipeline_returns_text_score_and_record(saved: Path) -> None:
    caption = pipeline("image-captioning", str(saved), trust_remote_code=True)
    options = {"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 5}
    path = str(saved / "picture.png")
    best, second = caption(path, **options)
    assert best["caption_text"] != second["caption_text"]
    record, pixels = best["alignment"], caption.preprocess(path)["pixel_values"].double()
    words = caption.tokenizer
    ids = torch.tensor([words.convert_tokens_to_ids(list(record.target_tokens))])
    with torch.no_grad():
        out = caption.model(pixels, labels=ids, output_attentions=True)
    scores = out.logits[0].log_softmax(-1).gather(1, ids[0, :, None])
    assert best["score"] == pytest.approx(scores.sum().item(), rel=1e-4)
    assert record.grid == (2, 3)
    torch.testing.assert_close(record.weights, out.cross_attentions[0])
    assert record.maps().shape == (len(ids[0]), 2, 3)
    pictures = [path, Image.new("RGB", (24, 16), "red")]
    batch = caption(pictures, batch_size=2, max_new_tokens=5)
    assert batch[0]["caption_text"] == caption(path, max_new_tokens=5)["caption_text"]
    # What a configuration of the call does not say, such as the end, is that of the model.
    sampled = {"generation_config": GenerationConfig(max_new_tokens=5, do_sample=True, top_k=0)}
    for end in words.convert_tokens_to_ids(list("abcdefghi")):
        caption.model.generation_config.eos_token_id = end
        torch.manual_seed(0)
        for result in caption(pictures * 4, batch_size=8, **sampled):
            assert end not in words.convert_tokens_to_ids(list(result["alignment"].target_tokens))[:-1]
    white = Image.new("RGBA", (24, 16), (0, 0, 0, 0))
    assert torch.equal(caption.preprocess(white)["pixel_values"], torch.ones(1, 3, 16, 24))
    with pytest.raises(ValueError, match="Cannot caption a int; give a path or a PIL image"):
        caption.preprocess(3)


def test_the_saved_folder_captions_without_hfattn(saved: Path) -> None:
    code = (
        "import sys; sys.modules['hfattn'] = None\n"
        "from transformers import pipeline\n"
        "caption = pipeline('image-captioning', '.', trust_remote_code=True)\n"
        "print(caption('picture.png', max_new_tokens=5)['caption_text'])\n"
    )
    done = run([sys.executable, "-c", code], cwd=saved)
    assert done.returncode == 0, done.stderr
    here = pipeline("image-captioning", str(saved), trust_remote_code=True)(
        str(saved / "picture.png"), max_new_tokens=5
    )
    assert done.stdout.strip() == here["caption_text"].strip()


# Refusals


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"annotation_size": 10}, "annotation_size is 10; write a multiple of 4"),
        ({"channels": [8]}, r"channels is \[8\]; write two whole numbers"),
        ({"freeze_vision": True}, "name one in vision_config"),
        ({"vision_config": {"hidden_size": 8}}, "vision_config has no model_type"),
        ({"attention_score": None}, "attention_score is null, and a captioner attends"),
        ({"attention_gate": "vector"}, "attention_gate is 'vector'; write one of 'none', 'scalar'"),
        ({"doubly_stochastic": -1}, "doubly_stochastic is -1; write a number of at least 0"),
        ({"word_detection": -1}, "word_detection is -1; write a number of at least 0"),
        ({"reinforce_weight": 1.0}, "reinforce_weight is a setting of REINFORCE; write attention_distribution: hard"),
        ({**REINFORCE, "baseline_decay": 1.5}, "baseline_decay is 1.5; write a number from 0 to 1"),
        ({"output_size": 9}, "output_layer 'deep' has the width of embedding_size, which is 4; remove output_size"),
        ({"attention_position": "after"}, "'attention_position' is not a field of ShowAttendTellConfig"),
    ],
)
def test_a_mistake_in_the_configuration_is_one_sentence(fields: dict[str, Any], message: str) -> None:
    with pytest.raises((StrictDataclassError, ValueError), match=message):
        ShowAttendTellConfig(**{"vocab_size": V, **SIZES, **fields})


def test_wrong_inputs_are_refused_in_one_sentence() -> None:
    model = build()
    with pytest.raises(ValueError, match="Pass either pixel_values or image_features"):
        model(labels=captions())
    with pytest.raises(
        ValueError, match=r"pixel_values has the shape \(3, 1, 16, 24\); pass \(batch, 3, height, width\)"
    ):
        model(images()[:, :1], labels=captions())
    with pytest.raises(
        ValueError, match=r"image_features has the shape \(3, 6, 8\); pass \(batch, rows, columns, width\)"
    ):
        model(image_features=torch.zeros(3, 6, 8).double(), labels=captions())
    swin = SwinConfig(image_size=32, patch_size=2, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=4)
    with pytest.raises(
        ValueError, match="returns 64 vectors, not one for each of 16 x 16 patches; use a model that does"
    ):
        build(vision_config=swin.to_dict())(images(1, 32, 32), labels=captions()[:1])
