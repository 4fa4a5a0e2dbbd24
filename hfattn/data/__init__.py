"""Read texts, labeled texts, pairs, tagged sentences, questions and images, and turn them into batches."""

from .augmentation import MASKED, AugmentationConfig, augmented, read_unlabeled, spell_masks
from .batches import (
    PermutationSampler,
    Streams,
    TokenBatches,
    TrainingExamples,
    Windows,
    order_by_length,
    padding_share,
)
from .captions import CaptionCollator, EncodedCaptions
from .chat import check_chat_template, set_chat_template
from .choices import Choice, Choices, EncodedChoices, read_choices, with_distractors
from .completions import EncodedDemonstrations, best_fit, prompt_ids
from .demonstrations import FORMS, Demonstration, Demonstrations, form_of, read_demonstrations
from .digits import read_digits
from .documents import Document, Documents, read_documents, split_corpus
from .encoding import EncodedExamples
from .examples import check_columns
from .grouping import split_by_shared_text
from .image_augmentation import Augmentation
from .image_augmentation import AugmentationConfig as ImageAugmentationConfig
from .image_encoding import EncodedImages, ImageCollator, input_size, make_processor, processed, store_background
from .image_features import frozen_features, pool_images
from .image_parts import CaptionedDataConfig, ImageDataConfig
from .image_texts import ImageTextCollator, ImageTextDataConfig, ImageTexts, text_groups, text_numbers
from .images import (
    CaptionedImage,
    CaptionedImages,
    LabeledImage,
    LabeledImages,
    open_image,
    read_captioned_images,
    read_images,
    unlabeled_images,
)
from .labeled import EncodedTexts, Labeled, LabeledTexts, guess_accuracy, read_labeled, unlabeled
from .masking import MaskedExamples, MaskedTexts, Masking
from .mixtures import MixedExamples, epoch_sizes, mixing_rates
from .model_limits import check_causal, check_length, check_model, check_packing, check_positions, prepare_positions
from .multi_crop import Crops, MultiCropImages
from .next_sentence import SentencePairs, split_sentences
from .packing import PackedBlocks, PackedText, TextSize, pack
from .pairs import EncodedPairs, Pair, Pairs, read_pairs
from .parts import LabeledDataConfig, PartsConfig, fingerprints
from .questions import Answer, EncodedQuestions, FoundAnswer, Question, Questions, read_questions
from .rows import GIVEN, Row, Rows, Source, is_local, open_rows
from .scenes import SceneDataConfig, SceneObject
from .spans import SpanCorruption, SpanExamples
from .splitting import choose_indices
from .stored import Again
from .tagged import EncodedSentences, Tagged, TaggedSentences, read_tagged, tag_labels
from .tasks import TaskConfig, TaskTexts, answers_of, as_pairs, joined_parts
from .text import EncodedText, Text, check_split, encode_text, open_text, split_positions
from .text_pairs import EncodedTextPairs, PairNumbers, TextPair, TextPairCollator, TextPairDataConfig, TextPairs
from .truncation import WindowCollator, WindowedTexts, mean_of_windows
from .vectors import Coverage, WordVectorsConfig, load_embeddings, word_vectors

__all__ = [
    "FORMS",
    "GIVEN",
    "MASKED",
    "Again",
    "Answer",
    "Augmentation",
    "AugmentationConfig",
    "CaptionCollator",
    "CaptionedDataConfig",
    "CaptionedImage",
    "CaptionedImages",
    "Choice",
    "Choices",
    "Coverage",
    "Crops",
    "Demonstration",
    "Demonstrations",
    "Document",
    "Documents",
    "EncodedCaptions",
    "EncodedChoices",
    "EncodedDemonstrations",
    "EncodedExamples",
    "EncodedImages",
    "EncodedPairs",
    "EncodedQuestions",
    "EncodedSentences",
    "EncodedText",
    "EncodedTextPairs",
    "EncodedTexts",
    "FoundAnswer",
    "ImageAugmentationConfig",
    "ImageCollator",
    "ImageDataConfig",
    "ImageTextCollator",
    "ImageTextDataConfig",
    "ImageTexts",
    "Labeled",
    "LabeledDataConfig",
    "LabeledImage",
    "LabeledImages",
    "LabeledTexts",
    "MaskedExamples",
    "MaskedTexts",
    "Masking",
    "MixedExamples",
    "MultiCropImages",
    "PackedBlocks",
    "PackedText",
    "Pair",
    "PairNumbers",
    "Pairs",
    "PartsConfig",
    "PermutationSampler",
    "Question",
    "Questions",
    "Row",
    "Rows",
    "SceneDataConfig",
    "SceneObject",
    "SentencePairs",
    "Source",
    "SpanCorruption",
    "SpanExamples",
    "Streams",
    "Tagged",
    "TaggedSentences",
    "TaskConfig",
    "TaskTexts",
    "Text",
    "TextPair",
    "TextPairCollator",
    "TextPairDataConfig",
    "TextPairs",
    "TextSize",
    "TokenBatches",
    "TrainingExamples",
    "WindowCollator",
    "WindowedTexts",
    "Windows",
    "WordVectorsConfig",
    "answers_of",
    "as_pairs",
    "augmented",
    "best_fit",
    "check_causal",
    "check_chat_template",
    "check_columns",
    "check_length",
    "check_model",
    "check_packing",
    "check_positions",
    "check_split",
    "choose_indices",
    "encode_text",
    "epoch_sizes",
    "fingerprints",
    "form_of",
    "frozen_features",
    "guess_accuracy",
    "input_size",
    "is_local",
    "joined_parts",
    "load_embeddings",
    "make_processor",
    "mean_of_windows",
    "mixing_rates",
    "open_image",
    "open_rows",
    "open_text",
    "order_by_length",
    "pack",
    "padding_share",
    "pool_images",
    "prepare_positions",
    "processed",
    "prompt_ids",
    "read_captioned_images",
    "read_choices",
    "read_demonstrations",
    "read_digits",
    "read_documents",
    "read_images",
    "read_labeled",
    "read_pairs",
    "read_questions",
    "read_tagged",
    "read_unlabeled",
    "set_chat_template",
    "spell_masks",
    "split_by_shared_text",
    "split_corpus",
    "split_positions",
    "split_sentences",
    "store_background",
    "tag_labels",
    "text_groups",
    "text_numbers",
    "unlabeled",
    "unlabeled_images",
    "with_distractors",
    "word_vectors",
]
