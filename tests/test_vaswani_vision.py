"""The Vision Transformer: formulas, ViT and DeiT of transformers, other resolutions, patterns, saved folders."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import run
from huggingface_hub.errors import StrictDataclassError
from torch.nn.functional import gelu
from transformers import (
    AutoImageProcessor,
    DeiTConfig,
    DeiTForImageClassification,
    DeiTForImageClassificationWithTeacher,
    ViTConfig,
    ViTForImageClassification,
    ViTModel,
)

from hfattn import VaswaniVisionConfig, VaswaniVisionForImageClassification, VaswaniVisionModel
from hfattn.data.image_encoding import make_processor
from hfattn.errors import UserError
from hfattn.exchange import convert, export
from hfattn.hub.inspection import inspect

SIZES: dict[str, Any] = {
    "image_size": 8, "patch_size": 4, "hidden_size": 16, "intermediate_size": 24, "encoder_layers": 2,
    "num_attention_heads": 2,
}  # fmt: skip
THEIR_SIZES: dict[str, Any] = {
    "image_size": 8, "patch_size": 4, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_labels": 3,
}  # fmt: skip


def config(**fields: Any) -> VaswaniVisionConfig:
    return VaswaniVisionConfig(**{**SIZES, "num_labels": 3, **fields})


def randomize(model: Any) -> Any:
    """Random values for every weight, also those that start at zero or one."""
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype) * 0.3
    return model.eval()


def classifier(**fields: Any) -> Any:
    return randomize(VaswaniVisionForImageClassification(config(**fields)))


def pictures(height: int = 8, width: int = 8, number: int = 2) -> torch.Tensor:
    return torch.randn(number, 3, height, width, generator=torch.Generator().manual_seed(0))


# The formula


def literal_norm(x: torch.Tensor, norm: Any, eps: float) -> torch.Tensor:
    x = x - x.mean()
    return x / (x.square().mean() + eps).sqrt() * norm.weight + norm.bias


def literal(model: Any, picture: torch.Tensor) -> torch.Tensor:
    """Eq. 1 to 4 for one picture (C, height, width): patch by patch, head by head, query by query."""
    vit, settings = model.model, model.config
    side, heads, eps = settings.patch_size, settings.num_attention_heads, settings.layer_norm_eps
    width = settings.hidden_size // heads
    tokens = [*vit.embeddings.prefix.weight]
    for row in range(0, picture.shape[1], side):
        for column in range(0, picture.shape[2], side):
            patch = picture[:, row : row + side, column : column + side].flatten()
            tokens.append(vit.embeddings.projection(patch))
    states = [token + position for token, position in zip(tokens, vit.embeddings.positions.weight, strict=True)]
    for layer in vit.layers:
        attention, network = layer.self_attn, layer.feed_forward
        normed = [literal_norm(state, layer.self_attn_residual.norm, eps) for state in states]
        outputs = []
        for query_state in normed:
            contexts = []
            for head in range(heads):
                part = slice(head * width, (head + 1) * width)
                query = attention.q_proj(query_state)[part]
                energies = torch.stack([query @ attention.k_proj(key)[part] for key in normed]) / width**0.5
                weights = energies.exp() / energies.exp().sum()
                values = (attention.v_proj(value)[part] for value in normed)
                contexts.append(sum(weight * value for weight, value in zip(weights, values, strict=True)))
            outputs.append(attention.out_proj(torch.cat(contexts)))
        states = [state + output for state, output in zip(states, outputs, strict=True)]
        normed = [literal_norm(state, layer.feed_forward_residual.norm, eps) for state in states]
        states = [state + network.fc2(gelu(network.fc1(each))) for state, each in zip(states, normed, strict=True)]
    first = model.classifier(literal_norm(states[0], vit.norm, eps))
    if not settings.distillation_token:
        return first
    return (first + model.distillation_classifier(literal_norm(states[1], vit.norm, eps))) / 2


@pytest.mark.parametrize("distillation_token", [False, True])
def test_it_is_the_formula(distillation_token: bool) -> None:
    """Outputs and gradients in float64, of pictures that are not square."""
    model = classifier(image_size=[8, 4], patch_size=2, distillation_token=distillation_token).double()
    inputs = pictures(8, 4).double().requires_grad_()
    logits = model(inputs).logits
    expected = torch.stack([literal(model, picture) for picture in inputs])
    torch.testing.assert_close(logits, expected, rtol=1e-10, atol=1e-10)
    direction = torch.randn(logits.shape, dtype=torch.float64)
    watched = [inputs, *(parameter for name, parameter in model.named_parameters())]
    found, literal_found = (torch.autograd.grad((each * direction).sum(), watched) for each in (logits, expected))
    for gradient, other in zip(found, literal_found, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    ("preset", "number"),
    [
        ("vit_tiny", 5_717_416),
        ("vit_small", 22_050_664),
        ("vit_base", 86_567_656),
        # A token, its position and its classifier more.
        ("deit_tiny", 5_717_416 + 2 * 192 + 193 * 1000),
    ],
)
def test_presets_have_the_sizes_of_the_papers(preset: str, number: int) -> None:
    with torch.device("meta"):
        model = VaswaniVisionForImageClassification(VaswaniVisionConfig.preset(preset, num_labels=1000))
    assert model.num_parameters() == number


def test_training_starts_from_equal_classes() -> None:
    """The classifiers start with zeros, and both of them learn from the labels."""
    torch.manual_seed(0)
    model = VaswaniVisionForImageClassification(config(distillation_token=True))
    outputs = model(pictures(), labels=torch.tensor([0, 2]))
    torch.testing.assert_close(outputs.loss, torch.tensor(3.0).log())
    outputs.loss.backward()
    for head in (model.classifier, model.distillation_classifier):
        assert head.weight.grad is not None
        assert head.weight.grad.abs().sum() > 0
    other = model.eval()(pictures())
    assert torch.equal(other.logits, (other.cls_logits + other.distillation_logits) / 2)


def test_the_initial_tokens_and_positions_have_their_own_spread() -> None:
    torch.manual_seed(0)
    for field, expected in ((None, 64**-0.5), (0.5, 0.5)):
        sizes = {"hidden_size": 64, "patch_size": 1, "embedding_std": field}
        embeddings = VaswaniVisionForImageClassification(config(**sizes)).model.embeddings
        assert float(embeddings.positions.weight.std()) == pytest.approx(expected, rel=0.05)
        assert float(embeddings.prefix.weight.std()) == pytest.approx(expected, rel=0.4)


@pytest.mark.parametrize("distillation_token", [False, True])
def test_labels_of_several_classes_may_be_integers(distillation_token: bool) -> None:
    model = classifier(problem_type="multi_label_classification", distillation_token=distillation_token)
    labels = torch.zeros(2, model.num_labels).long()
    labels[0, 1] = 1
    expected = model(pictures(), labels=labels.double()).loss
    torch.testing.assert_close(model(pictures(), labels=labels).loss, expected)


def test_the_loss_of_a_step_does_not_depend_on_its_batches() -> None:
    model = classifier()
    inputs, labels = pictures(number=4), torch.tensor([0, 2, 1, 1])
    whole = model(inputs, labels=labels).loss
    parts = [model(inputs[part], labels=labels[part], num_items_in_batch=4).loss for part in (slice(3), slice(3, 4))]
    torch.testing.assert_close(sum(parts), whole)


# ViT and DeiT of transformers

THEIRS: dict[str, Any] = {
    "vit": lambda: ViTForImageClassification(ViTConfig(**THEIR_SIZES)),
    "other sizes": lambda: ViTForImageClassification(
        ViTConfig(**{**THEIR_SIZES, "image_size": [8, 12], "layer_norm_eps": 1e-5, "hidden_act": "relu"})
    ),
    "deit": lambda: DeiTForImageClassificationWithTeacher(DeiTConfig(**THEIR_SIZES)),
}


@pytest.mark.parametrize("name", THEIRS)
def test_weights_go_to_vaswani_vision_and_back(tmp_path: Path, name: str) -> None:
    """The same logits and weights of attention; bit for bit back, with the names of the classes and the processor."""
    theirs = randomize(THEIRS[name]())
    theirs.config.id2label = {0: "cat", 1: "dog", 2: "bird"}
    theirs.config.label2id = {"cat": 0, "dog": 1, "bird": 2}
    theirs.save_pretrained(tmp_path / "theirs")
    inputs = pictures(8, 12 if name == "other sizes" else 8)
    processor = make_processor(tuple(inputs.shape[2:]), (0.5, 0.4, 0.3), (0.2, 0.3, 0.4))  # type: ignore[arg-type]
    processor.save_pretrained(tmp_path / "theirs")
    ours: Any = convert("transformers", tmp_path / "theirs", tmp_path / "ours").model.eval()
    assert ours.config.id2label == theirs.config.id2label
    theirs.set_attn_implementation("eager")
    expected = theirs(inputs, output_attentions=True)
    for attn_implementation in ("sdpa", "eager"):
        ours.set_attn_implementation(attn_implementation)
        found = ours(inputs, output_attentions=attn_implementation == "eager")
        torch.testing.assert_close(found.logits, expected.logits, rtol=1e-5, atol=1e-5)
    for weights, their_weights in zip(found.attentions, expected.attentions, strict=True):
        torch.testing.assert_close(weights, their_weights, rtol=1e-5, atol=1e-6)
    if name == "deit":
        torch.testing.assert_close(found.distillation_logits, expected.distillation_logits, rtol=1e-5, atol=1e-5)

    export("transformers", tmp_path / "ours", tmp_path / "back")
    assert not list((tmp_path / "back").glob("*.py"))
    back = type(theirs).from_pretrained(tmp_path / "back")
    assert back.state_dict().keys() == theirs.state_dict().keys()
    assert all(torch.equal(tensor, back.state_dict()[key]) for key, tensor in theirs.state_dict().items())
    assert back.config.id2label == theirs.config.id2label
    for folder in ("ours", "back"):
        assert tuple(AutoImageProcessor.from_pretrained(tmp_path / folder).image_mean) == (0.5, 0.4, 0.3)


def test_a_model_without_a_classifier(tmp_path: Path) -> None:
    """The pooler of transformers, which ViT has not, is left out."""
    theirs = randomize(ViTModel(ViTConfig(**THEIR_SIZES)))
    theirs.save_pretrained(tmp_path / "theirs")
    ours: Any = convert("transformers", tmp_path / "theirs", tmp_path / "ours").model.eval()
    assert isinstance(ours, VaswaniVisionModel)
    found, expected = ours(pictures()), theirs(pictures())
    torch.testing.assert_close(found.last_hidden_state, expected.last_hidden_state, rtol=1e-5, atol=1e-5)
    assert torch.equal(found.pooler_output, found.last_hidden_state[:, 0])


@pytest.mark.parametrize("name", ["vit", "deit"])
def test_another_resolution_is_that_of_transformers(tmp_path: Path, name: str) -> None:
    theirs = randomize(THEIRS[name]())
    theirs.save_pretrained(tmp_path / "theirs")
    ours: Any = convert("transformers", tmp_path / "theirs", tmp_path / "ours").model.eval()
    inputs = pictures(12, 20)
    found, expected = (model(inputs, interpolate_pos_encoding=True).logits for model in (ours, theirs))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match=r"3 x 5 patches, and the model learned 2 x 2 positions; resize it with the m"):
        ours(inputs)


@pytest.mark.parametrize(
    ("theirs", "sentence"),
    [
        (lambda: ViTForImageClassification(ViTConfig(**THEIR_SIZES, qkv_bias=False)), "qkv_bias=False; our models"),
        (lambda: DeiTForImageClassification(DeiTConfig(**THEIR_SIZES)), "has no cls_classifier.bias"),
    ],
)
def test_what_we_do_not_have(tmp_path: Path, theirs: Any, sentence: str) -> None:
    theirs().save_pretrained(tmp_path / "theirs")
    with pytest.raises(UserError, match=sentence):
        convert("transformers", tmp_path / "theirs", tmp_path / "ours")


def test_what_they_do_not_have(tmp_path: Path) -> None:
    classifier(self_attention_score="additive").save_pretrained(tmp_path / "ours")
    with pytest.raises(UserError, match="ViTForImageClassification of transformers has self_attention_score=scaled_"):
        export("transformers", tmp_path / "ours", tmp_path / "theirs")
    with pytest.raises(UserError, match="a classifier of images, which can be exported to transformers only"):
        export("onnx", tmp_path / "ours", tmp_path / "theirs")


# Options


@pytest.mark.parametrize(
    ("positions", "sees_order"), [("learned", True), ("sinusoidal", True), ("sinusoidal_2d", True), ("none", False)]
)
def test_positions(positions: str, sees_order: bool) -> None:
    """Without positions, an exchange of two patches changes nothing; those without weights are for any resolution."""
    model = classifier(positions=positions)
    inputs = pictures()
    exchanged = torch.cat((inputs[..., 4:], inputs[..., :4]), dim=-1)
    assert torch.allclose(model(inputs).logits, model(exchanged).logits, atol=1e-5) != sees_order
    if positions != "learned":
        assert model(pictures(8, 24)).logits.shape == (2, 3)


def test_two_dimensional_positions_know_rows_and_columns() -> None:
    """Patches of a row share one half of the features, and those of a column the other."""
    table = VaswaniVisionModel(config(positions="sinusoidal_2d")).embeddings.table((3, 5), False)
    assert not table[0].any()  # of the class token
    rows, columns = table[1:].unflatten(0, (3, 5)).chunk(2, dim=-1)
    assert torch.equal(rows, rows[:, :1].expand_as(rows))
    assert torch.equal(columns, columns[:1].expand_as(columns))
    assert torch.equal(rows[:, 0], columns[0, :3])


@pytest.mark.parametrize(
    "fields",
    [
        {"self_attention_score": "additive", "self_attention_distribution": "sparsemax"},
        {"encoder_pattern": "window", "encoder_pattern_options": {"window": 3, "global_tokens": 1}},
        {"encoder_pattern": ["linear", "full"], "classifier_pooling": "mean"},
        {"encoder_attention_groups": [2]},
        {"reversible": True},
        {"latents": 3, "classifier_pooling": "mean", "patch_size": 1, "latent_rounds": 2},
        {"norm_type": "rms", "gated_feed_forward": True, "activation": "silu", "bias": False},
    ],
)
def test_the_options_of_the_encoder_work_on_patches(fields: dict[str, Any]) -> None:
    """The layers are those of a text whose embeddings are the patches; and gradient checkpointing changes nothing."""
    from hfattn import VaswaniConfig, VaswaniModel

    ours = randomize(VaswaniVisionModel(config(**fields)))
    settings = {
        name: value for name, value in {**SIZES, **fields}.items() if "_size" not in name or "_size" in "hidden_size"
    }
    settings = {name: value for name, value in settings.items() if name not in ("image_size", "patch_size")}
    shared = {name: getattr(ours.config, name) for name in ("activation", "dropout", "norm", "layer_norm_eps")}
    text_config = VaswaniConfig(
        vocab_size=5, **{**settings, **shared}, positions="none", scale_embedding=False, is_encoder_decoder=False
    )
    text = VaswaniModel(text_config).eval()
    known = text.encoder.state_dict().keys()
    text.encoder.load_state_dict({key: value for key, value in ours.state_dict().items() if key in known}, strict=False)
    inputs = pictures()
    expected = text(inputs_embeds=ours.embeddings(inputs)).last_hidden_state
    torch.testing.assert_close(ours(inputs).last_hidden_state, expected)

    if fields.get("reversible"):
        return
    gradients = []
    for checkpointed in (False, True):
        model = classifier(**fields).train()
        if checkpointed:
            model.gradient_checkpointing_enable()
        model(inputs, labels=torch.tensor([0, 2])).loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
    for plain, other in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, other)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"image_size": 9}, "image_size 9 does not divide into patches of 4 pixels; write a multiple of patch_size"),
        ({"image_size": [8, 8, 8]}, r"image_size is \[8, 8, 8\]; write a number of pixels, or \[height, width\]"),
        ({"patch_size": 0}, "patch_size is 0; write a number of pixels"),
        (
            {"positions": "rotary"},
            "positions is 'rotary'; write one of 'learned', 'sinusoidal', 'sinusoidal_2d', 'none'",
        ),
        ({"distillation_token": True, "classifier_pooling": "mean"}, "write classifier_pooling: first, or leave dist"),
        ({"embedding_std": 0}, "embedding_std is 0; write a number above 0, such as 0.5"),
        ({"latents": 3}, "latents is 3, and no latent belongs to a class token; write classifier_pooling: mean"),
        ({"positions": "sinusoidal_2d", "hidden_size": 18}, "hidden_size is 18; write a multiple of 4"),
        ({"vocab_size": 3}, "'vocab_size' is not a field of VaswaniVisionConfig"),
    ],
)
def test_a_wrong_field_is_refused_with_what_to_write_instead(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises((StrictDataclassError, ValueError), match=sentence):
        config(**fields)


def test_wrong_pictures_are_refused_in_one_sentence() -> None:
    model = classifier()
    with pytest.raises(ValueError, match="pixel_values have 1 channels, and the model reads 3; convert the images"):
        model(pictures()[:, :1])
    with pytest.raises(ValueError, match="An image of 8 x 9 pixels does not divide into patches of 4 x 4; resize it"):
        model(pictures(8, 9))


# Saved folders

CLEAN = """
import sys, torch
sys.modules["hfattn"] = None
from PIL import Image
from transformers import AutoModel, pipeline
folder, tensors, again = sys.argv[1:]
picture = Image.new("L", (20, 10), 70)
classify = pipeline("image-classification", model=folder, trust_remote_code=True, device="cpu")
answer = classify(picture, top_k=3)
body = AutoModel.from_pretrained(folder, trust_remote_code=True)
pixels = classify.image_processor(picture.convert("RGB"), return_tensors="pt")["pixel_values"]
torch.save([pixels, answer, classify.model(pixels).logits.detach(), body(pixels).pooler_output.detach()], tensors)
classify.model.save_pretrained(again)
"""
OWN_FILES = {
    "attention.py", "attention_distributions.py", "attention_scores.py", "classifier_output.py",
    "configuration_layers.py", "configuration_vaswani.py", "configuration_vaswani_vision.py", "custom_classes.py",
    "encoder_decoder.py", "modeling_vaswani.py", "modeling_vaswani_vision.py", "penalties.py", "score_kernels.py",
    "strict_config.py",
}  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "further"),
    [
        ({}, set()),
        ({"encoder_pattern": ["window", "full"], "encoder_pattern_options": {"window": 2}}, {"attention_windows.py"}),
    ],
)
def test_a_saved_folder_runs_in_a_pipeline_without_hfattn(
    tmp_path: Path, fields: dict[str, Any], further: set[str]
) -> None:
    """With the files that it needs: no pattern that it does not name, and no code of translators."""
    model = classifier(**fields, id2label={0: "cat", 1: "dog", 2: "bird"}, label2id={"cat": 0, "dog": 1, "bird": 2})
    folder = tmp_path / "repo"
    model.save_pretrained(folder)
    make_processor((8, 8), (0.5,) * 3, (0.5,) * 3).save_pretrained(folder)
    assert {path.name for path in folder.glob("*.py")} == OWN_FILES | further
    assert not inspect(str(folder)).findings
    command = [sys.executable, "-c", CLEAN, str(folder), str(tmp_path / "tensors.pt"), str(tmp_path / "again")]
    done: subprocess.CompletedProcess[str] = run(command, cwd=tmp_path, HF_MODULES_CACHE=str(tmp_path / "modules"))
    assert done.returncode == 0, done.stderr
    pixels, answer, logits, pooled = torch.load(tmp_path / "tensors.pt")
    expected = model(pixels).logits[0].softmax(-1)
    assert answer[0]["label"] == model.config.id2label[int(expected.argmax())]
    assert [each["score"] for each in answer] == pytest.approx(sorted(expected.tolist(), reverse=True), abs=1e-5)
    torch.testing.assert_close(logits, model(pixels).logits)
    torch.testing.assert_close(pooled, model.model(pixels).pooler_output)
    assert {path.name for path in (tmp_path / "again").glob("*.py")} == OWN_FILES | further
