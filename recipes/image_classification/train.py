"""Train a classifier of images, from scratch, with a teacher, or from a pretrained model, and write a folder to publish.

accelerate launch recipes/image_classification/train.py --config recipes/image_classification/digits_vit.yaml
accelerate launch recipes/image_classification/train.py --config recipes/image_classification/mnist_vit.yaml \\
    --data.dataset my_images --data.test null --data.labels null
accelerate launch recipes/image_classification/train.py --config recipes/image_classification/digits_vit.yaml --resume
"""

from dataclasses import dataclass, field
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import AutoModelForImageClassification

import hfattn  # noqa: F401  registers the models of the package
from hfattn.data import (
    EncodedImages,
    ImageAugmentationConfig,
    ImageCollator,
    ImageDataConfig,
    LabeledImages,
    fingerprints,
    input_size,
    make_processor,
)
from hfattn.errors import UserError, one_sentence
from hfattn.fields import at_least
from hfattn.generated import check_generated, generated_for
from hfattn.loading import Loaded, load_image_processor, load_model
from hfattn.metrics import ImageClassScores, image_class_statistics
from hfattn.reports.base import TrainedRun
from hfattn.reports.image_classification import report
from hfattn.training import (
    ImageClassifierTrainer,
    ImageDistillationConfig,
    ImageTeacher,
    ImageTeacherConfig,
    PretrainedOrScratchConfig,
    RecipeCommand,
    finishing,
    load_config,
    parse_command,
    scratch_config,
    scratch_model,
    tuned,
    tuning_facts,
)
from hfattn.training.config import build_section
from hfattn.training.image_classification import check_reading, fit_head

RECIPE = "image_classification"
