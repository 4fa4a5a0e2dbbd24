"""Self-distillation without labels: the loss, the schedules, an update, processes, resumption, collapse."""

import copy
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import TWO_PROCESSES, run
from huggingface_hub.errors import StrictDataclassError
from safetensors.torch import load_file
from torch.nn import functional
from transformers import TrainingArguments, ViTConfig, ViTModel

from hfattn.data import (
    Crops,
    EncodedImages,
    ImageAugmentationConfig,
    LabeledImage,
    LabeledImages,
    MultiCropImages,
    PermutationSampler,
    make_processor,
)
from hfattn.errors import UserError
from hfattn.metrics import neighbor_accuracy
from hfattn.training import (
    AveragingConfig,
    CollapseError,
    DinoConfig,
    DinoHead,
    DinoModel,
    DinoTrainer,
    cosine_schedule,
    dino_losses,
    image_features,
)

pytestmark = pytest.mark.runs

K = 12
DINO: dict[str, Any] = {
    **{"prototypes": K, "head_size": 16, "bottleneck_size": 8},
    **{"local_crops": 1, "local_size": 4, "frozen_epochs": 0.5},
}


def some_images(number: int = 16) -> LabeledImages:
    """Bright squares on the left (class 0) or on the right (class 1), with noise."""
    random, items = np.random.default_rng(0), []
    for i in range(number):
        pixels = random.integers(0, 60, (8, 8), dtype=np.uint8)
        pixels[2:6, 4 * (i % 2) : 4 * (i % 2) + 4] += 150
        items.append(LabeledImage(pixels, i % 2))
    return LabeledImages("squares", items, labels=["left", "right"])


def some_views(images: LabeledImages) -> MultiCropImages:
    crops = {"global_views": Crops(2, (8, 8), (0.5, 1)), "local_views": Crops(1, (4, 4), (0.2, 0.5))}
    return MultiCropImages(
        images, make_processor((8, 8), [0.5] * 3, [0.5] * 3), crops, ImageAugmentationConfig(flip=0.5)
    )


def tiny_vit(**fields: Any) -> ViTModel:
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return ViTModel(ViTConfig(**sizes, image_size=8, patch_size=4, initializer_range=0.2, **fields))


def make_trainer(folder: Path, dino: dict[str, Any] | None = None, **arguments: Any) -> DinoTrainer:
    images, student = some_images(), tiny_vit()
    torch.manual_seed(1)  # of the head
    defaults = {
        **{"per_device_train_batch_size": 8, "max_steps": 6, "learning_rate": 0.01, "weight_decay": 0.1},
        **{"adam_epsilon": 0.1, "max_grad_norm": 0.0, "lr_scheduler_type": "constant", "save_strategy": "no"},
        **{"report_to": "none", "use_cpu": True, "disable_tqdm": True, "remove_unused_columns": False},
    }
    return DinoTrainer(
        student,
        TrainingArguments(str(folder), **{**defaults, **arguments}),
        dino=DinoConfig(**{**DINO, **(dino or {})}),
        bank=EncodedImages(images, make_processor((8, 8), [0.5] * 3, [0.5] * 3)),
        train_dataset=some_views(images),
    )


# Views and loss


def test_views_depend_on_seed_epoch_and_index_alone() -> None:
    views, again = some_views(some_images()), some_views(some_images())
    first = views[3]
    assert {name: tuple(tensor.shape) for name, tensor in first.items()} == {
        "global_views": (2, 3, 8, 8),
        "local_views": (1, 3, 4, 4),
    }
    _ = again[5]
    torch.testing.assert_close(again[3], first, atol=0, rtol=0)
    again.set_epoch(1)
    assert not torch.equal(again[3]["global_views"], first["global_views"])
    assert not torch.equal(first["global_views"][0], first["global_views"][1])


def test_the_loss_is_that_of_a_literal_loop_over_pairs() -> None:
    generator = torch.Generator().manual_seed(0)
    student = torch.randn(4, 3, K, generator=generator, dtype=torch.double, requires_grad=True)
    teacher = torch.randn(2, 3, K, generator=generator, dtype=torch.double)
    center = torch.randn(K, generator=generator, dtype=torch.double)
    found = dino_losses(student, teacher, center, 0.5, 0.3)
    expected = []
    for image in range(3):
        losses, entropies = [], []
        for x in range(2):
            p_t = [math.exp((float(teacher[x, image, k]) - float(center[k])) / 0.3) for k in range(K)]
            p_t = [each / sum(p_t) for each in p_t]
            entropies.append(-sum(each * math.log(each) for each in p_t))
            for other in range(4):
                if other != x:
                    scaled = student[other, image] / 0.5
                    losses.append(
                        -torch.stack([p_t[k] * (scaled[k] - scaled.exp().sum().log()) for k in range(K)]).sum()
                    )
        expected.append(torch.stack(losses).mean())
        assert float(found.entropy[image]) == pytest.approx(sum(entropies) / 2)
        assert float(found.divergence[image]) == pytest.approx(float(expected[-1].detach()) - sum(entropies) / 2)
    torch.testing.assert_close(found.loss, torch.stack(expected))
    gradients = [torch.autograd.grad(loss, student)[0] for loss in (found.loss.sum(), torch.stack(expected).sum())]
    torch.testing.assert_close(*gradients)


def test_the_head_returns_cosines_with_its_directions() -> None:
    head = DinoHead(8, DinoConfig(**DINO))
    features = torch.randn(5, 8)
    logits = head(features).detach()
    vectors, directions = head.mlp(features).detach(), head.last.weight.detach()
    for i in range(5):
        for k in range(K):
            expected = functional.cosine_similarity(vectors[i], directions[k], dim=0)
            assert float(logits[i, k]) == pytest.approx(float(expected), abs=1e-5)


def test_schedules() -> None:
    assert [cosine_schedule(0.9, 1.0, each) for each in (0, 0.5, 1)] == pytest.approx([0.9, 0.95, 1.0])


def test_features_are_of_the_class_token_or_the_mean_for_images_of_any_size() -> None:
    model = tiny_vit().eval()
    pixels = torch.randn(2, 3, 12, 12)
    states = model(pixels, interpolate_pos_encoding=True).last_hidden_state
    torch.testing.assert_close(image_features(model, pixels), states[:, 0])
    torch.testing.assert_close(image_features(model, pixels, "mean"), states.mean(1))


# Training


def literal_training(steps: int) -> DinoModel:
    """AdamW on the loss of eight images; then the teacher by λ, and the center by the mean of all teacher logits."""
    student = tiny_vit()
    torch.manual_seed(1)
    model = DinoModel(student, DinoConfig(**DINO)).train()
    views = some_views(some_images())
    named = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
    decayed = [each for name, each in named if not name.endswith("bias") and "layernorm" not in name]
    kept = [each for name, each in named if name.endswith("bias") or "layernorm" in name]
    groups: list[dict[str, Any]] = [{"params": decayed}, {"params": kept, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.01, eps=0.1)
    for step in range(steps):
        epoch, part = divmod(step, 2)
        views.set_epoch(epoch)
        sampler = PermutationSampler(len(views), 42)
        sampler.set_epoch(epoch)
        batch = [views[i] for i in list(sampler)[8 * part : 8 * part + 8]]
        pixels = [torch.stack([each[name] for each in batch]) for name in ("global_views", "local_views")]
        outputs = model(*pixels)
        losses = dino_losses(outputs.student, outputs.teacher, model.center, 0.1, 0.04)
        optimizer.param_groups[0]["weight_decay"] = 0.4 + (0.1 - 0.4) * (1 + math.cos(math.pi * step / steps)) / 2
        optimizer.zero_grad()
        losses.loss.mean().backward()
        if step == 0:  # half an epoch
            model.student_head.last.weight.grad = None
        optimizer.step()
        momentum = 1 + (0.996 - 1) * (1 + math.cos(math.pi * step / steps)) / 2
        students = [*model.student.parameters(), *model.student_head.parameters()]
        teachers = [*model.teacher.parameters(), *model.teacher_head.parameters()]
        for mean, new in zip(teachers, students, strict=True):
            mean.data = momentum * mean.data + (1 - momentum) * new.data
        model.center = 0.9 * model.center + 0.1 * outputs.teacher.flatten(0, 1).mean(0)
    return model


def assert_same(model: DinoModel, other: DinoModel, atol: float = 1e-5) -> None:
    for (name, tensor), again in zip(model.state_dict().items(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(again, tensor, atol=atol, rtol=0, msg=name)


@pytest.mark.parametrize("accumulation", [1, 4])
def test_training_is_that_of_a_literal_loop(tmp_path: Path, accumulation: int) -> None:
    sizes: dict[str, Any] = {
        "per_device_train_batch_size": 8 // accumulation,
        "gradient_accumulation_steps": accumulation,
    }
    trainer = make_trainer(tmp_path, **sizes)
    before = copy.deepcopy(trainer.model.state_dict())
    trainer.train()
    assert_same(literal_training(6), trainer.model)
    moved = {name for name, tensor in trainer.model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert {name.partition(".")[0] for name in moved} == {
        "student",
        "student_head",
        "teacher",
        "teacher_head",
        "center",
    }
    published = trainer.whole_model()
    assert type(published) is ViTModel
    torch.testing.assert_close(published.state_dict(), trainer.model.teacher.state_dict())


def test_two_processes_equal_one(tmp_path: Path) -> None:
    script = tmp_path / "two.py"
    script.write_text(
        "from pathlib import Path\n"
        "import torch\n"
        "from test_dino import make_trainer\n"
        "two = make_trainer(Path('two'), per_device_train_batch_size=2, gradient_accumulation_steps=2)\n"
        "two.train()\n"
        "if two.is_world_process_zero():\n"
        "    torch.save(two._whole.state_dict(), f'two-{two.args.world_size}.pt')\n"
    )
    done = run([*TWO_PROCESSES, script], cwd=tmp_path, PYTHONPATH=str(Path(__file__).parent))
    assert done.returncode == 0, done.stderr
    one = make_trainer(tmp_path / "one")
    one.train()
    torch.testing.assert_close(torch.load(tmp_path / "two-2.pt"), one.model.state_dict(), atol=1e-5, rtol=0)


def test_a_resumed_run_ends_with_the_same_student_teacher_and_center(tmp_path: Path) -> None:
    saving: dict[str, Any] = {"save_strategy": "steps", "save_steps": 3}
    whole = make_trainer(tmp_path / "whole", **saving)
    whole.train()
    resumed = make_trainer(tmp_path / "resumed", **saving)
    resumed.train(str(tmp_path / "whole" / "checkpoint-3"))
    assert_same(whole.model, resumed.model, atol=0)
    saved = load_file(tmp_path / "whole" / "checkpoint-6" / "model.safetensors")
    torch.testing.assert_close(saved["center"], whole.model.center)


@pytest.mark.parametrize(
    ("arm", "sentence"),
    [
        (
            {"center_momentum": 1.0},
            r"its entropy is 0\.\d+ nats, within 0.01 ln K of 0: it puts all images on one prototype",
        ),
        (
            {"teacher_temperature": 0.5, "start_temperature": 0.5},
            r"within 0.01 ln K of ln K = 2.4849: its outputs are unif",
        ),
    ],
)
def test_a_collapsed_run_stops_with_a_sentence(tmp_path: Path, arm: dict[str, float], sentence: str) -> None:
    fast: dict[str, Any] = {"learning_rate": 0.02, "adam_epsilon": 1e-8, "max_steps": 200, "logging_steps": 10}
    fast["weight_decay"] = 0.0
    trainer = make_trainer(tmp_path, {**arm, "momentum": 0.5, "final_weight_decay": 0.0}, **fast)
    with pytest.raises(CollapseError, match=sentence):
        trainer.train()
    assert trainer.state.global_step < 200


def test_evaluation_is_of_the_teacher_by_its_neighbors(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, logging_steps=2)
    trainer.train()
    assert 0 < trainer.state.log_history[0]["teacher_entropy"] < math.log(K)
    images = some_images(8)
    part, bank = EncodedImages(images, make_processor((8, 8), [0.5] * 3, [0.5] * 3)), trainer.bank
    with torch.no_grad():
        for tensor in trainer.model.student.parameters():
            tensor.zero_()  # the teacher decides
        found = [image_features(trainer.model.teacher, torch.stack([each["pixel_values"] for each in examples]))
                 for examples in ([part[i] for i in range(8)], [bank[i] for i in range(16)])]  # fmt: skip
    scores = trainer.evaluate(part)
    assert scores["eval_examples"] == 8
    labels = [torch.tensor([item.label for item in each.images]) for each in (part, bank)]
    expected = neighbor_accuracy(found[0], labels[0], found[1], labels[1])
    assert scores["eval_accuracy"] == expected


# Bad input


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(StrictDataclassError, match=r"global_scale is \[0.4\]; write the smallest and the largest"):
        DinoConfig(global_scale=[0.4])
    with pytest.raises(UserError, match="moving average of the student already; remove the section averaging"):
        DinoTrainer(tiny_vit(), dino=DinoConfig(**DINO), averaging=AveragingConfig(ema=0.9))
    with pytest.raises(UserError, match=r"ViTModel cannot read images of dino.local_size 3 pixels"):
        DinoModel(tiny_vit(), replace(DinoConfig(**DINO), local_size=3))
