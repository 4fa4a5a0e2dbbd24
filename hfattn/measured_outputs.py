"""Compute outputs of a model from which its scores are computed, where the right answers are not known.

``hfattn verify --measure`` runs these functions in the sandbox, and ``hub/measured_scores.py`` outside of it. Of a
language model, the text is the right answer, so its likelihoods are computed here.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from transformers import AutoImageProcessor, AutoTokenizer, DataCollatorForTokenClassification, DataCollatorWithPadding

from .data import (
    Demonstration,
    Demonstrations,
    EncodedDemonstrations,
    EncodedQuestions,
    EncodedSentences,
    Question,
    Questions,
    Tagged,
    TaggedSentences,
    Text,
    encode_text,
    pack,
    processed,
    unlabeled,
)
from .evaluation import text_logits
from .generation import translate_texts
from .likelihood import score_ids, score_rows
from .loading import ModelLocation, reads_backward
from .models.pipeline_attn_translation import load_target_tokenizer
from .retrieval import embed_images, embed_texts
from .sentence_encoders import SentenceEncoder, SentenceModules, read_modules

Outputs = tuple[dict[str, Any], dict[str, torch.Tensor]]  # facts, which JSON can hold, and tensors


def outputs_of_texts(model: Any, tokenizer: Any, order: Mapping[str, Any]) -> Outputs:
    """Return facts and tensors by part of the data.

    Args:
        model: a model in evaluation mode.
        tokenizer: its tokenizer, or its image processor.
        order: ``kind``, the name of a function of this module, ``texts`` or ``images`` by part, ``rows``, their number
            per batch, and what else that function needs. Images are files in base64.
    """
    compute = {"logits": logits, "translations": translations, "likelihoods": likelihoods, "tags": tags,
               "completions": completions, "answers": answers, "features": features, "embeddings": embeddings,
               "image_logits": image_logits, "captions": captions,
               "sentence_vectors": sentence_vectors}[order["kind"]]  # fmt: skip
    with torch.inference_mode():
        return compute(model, tokenizer, order)


def logits(model: Any, tokenizer: Any, order: Mapping[str, Any]) -> Outputs:
    """Return the logits (n, C) of n texts, or pairs of texts: lists of one text or two."""
    found = {}
    for part, texts in order["texts"].items():
        inputs = [tuple(text) if len(text) > 1 else text[0] for text in texts]
        found[part] = text_logits(model, tokenizer, unlabeled(inputs), order["rows"])
    return {}, found


def decoded(files: Sequence[str]) -> list[bytes]:
    """Return files that are in base64."""
    return [base64.b64decode(file) for file in files]


def pixel_batches(files: Sequence[str], processor: Any, order: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    """Yield ``pixel_values`` (rows, 3, height, width) of images; ``background`` is behind their transparent pixels."""
    for start in range(0, len(files), order["rows"]):
        yield processed(decoded(files[start : start + order["rows"]]), processor, order["background"])


def image_logits(model: Any, processor: Any, order: Mapping[str, Any]) -> Outputs:
    """Return the logits (n, C) of n images."""
    found = {}
    for part, files in order["images"].items():
        batches = [model(pixel_values=batch).logits.float() for batch in pixel_batches(files, processor, order)]
        found[part] = torch.cat(batches)
    return {}, found


def embeddings(model: Any, tokenizer: Any, order: Mapping[str, Any]) -> Outputs:
    """Return embeddings (N, D) of the images and (M, D) of the texts of each part, as PART.images and PART.texts."""
    folder = model.config.name_or_path  # which has a tokenizer and an image processor
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    processor = AutoImageProcessor.from_pretrained(folder, backend="pil", trust_remote_code=True)
    found = {}
    for part, texts in order["texts"].items():
        images = decoded(order["images"][part])
        found[f"{part}.images"] = embed_images(model, processor, images, order["background"], order["rows"])
        found[f"{part}.texts"] = embed_texts(model, tokenizer, texts, order["rows"])
    return {}, found


def sentence_vectors(model: Any, tokenizer: Any, order: Mapping[str, Any]) -> Outputs:
    """Return the vectors (M, D) of the texts of each part, by the pooling that the folder of the model states."""
    modules = read_modules(ModelLocation(name=model.config.name_or_path)) or SentenceModules()
    encoder = SentenceEncoder(model, tokenizer, modules)
    return {}, {part: encoder.embed(texts, order["rows"]) for part, texts in order["texts"].items()}


def translations(model: Any, tokenizer: Any, order: Mapping[str, Any]) -> Outputs:
    """Return translations by search: by part and name, ``searches`` sets fields of the generation configuration."""
    target_tokenizer = load_target_tokenizer(model)
    found: dict[str, dict[str, list[str]]] = {}
    for part, sources in order["texts"].items():
        for search, options in order["searches"][part].items():
            for name, value in options.items():
                setattr(model.generation_config, name, value)
            translated: list[str] = []
            for start in range(0, len(sources), order["rows"]):
                batch = sources[start : start + order["rows"]]
                translated += translate_texts(model, tokenizer, batch, target_tokenizer)
            found.setdefault(part, {})[search] = translated
    return {"translations": found}, {}


def captions(model: Any, tokenizer: Any, order: Mapping[str, Any]) -> Outputs:
    """Return the captions of ``images`` by part; ``num_beams`` is the number of beams."""
    processor = AutoImageProcessor.from_pretrained(model.config.name_or_path, backend="pil")
    found: dict[str, list[str]] = {part: [] for part in order["images"]}
    for part, files in order["images"].items():
        for batch in pixel_batches(files, processor, order):
            written = model.generate(pixel_values=batch, num_beams=order["num_beams"])
            found[part] += tokenizer.batch_decode(written, skip_special_tokens=True)
    return {"captions": found}, {}


def likelihoods(model: Any, tokenizer: Any, order: Mapping[str, Any]) -> Outputs:
    """Return the scores of ``score_ids`` in ``window``, ``stride`` and ``streams``, and the size of the text scored."""
    found = {}
    options = {name: order[name] for name in ("window", "stride", "unit", "rows", "streams")}
    for part, texts in order["texts"].items():
        if order["unit"] == "character":
            ids, size = encode_text(Text(part, partial(iter, texts)), tokenizer).ids, {}
        else:
            packed = pack(texts, tokenizer, reads_backward(model.config))
            ids, size = packed.ids, asdict(packed.size)
        found[part] = {"scores": score_ids(model, ids, **options), "size": size}
    return {"likelihoods": found}, {}


def completions(model: Any, tokenizer: Any, order: Mapping[str, Any]) -> Outputs:
    """Return the scores of completions and their size; texts are prompt, completion and tools."""
    found = {}
    for part, texts in order["texts"].items():
        examples = Demonstrations(
            part, [Demonstration(prompt, completion, tools=tools) for prompt, completion, tools in texts]
        )
        dataset = EncodedDemonstrations(examples, tokenizer, order["max_length"])
        found[part] = {"scores": score_rows(model, dataset, rows=order["rows"]), "size": asdict(dataset.size)}
    return {"likelihoods": found}, {}


def tags(model: Any, tokenizer: Any, order: Mapping[str, Any]) -> Outputs:
    """Return the logits (n, C) of the tags of all n words; those of a word that is not read are NaN.

    Texts are lists of words; ``options`` are those of ``EncodedSentences``.
    """
    found = {}
    for part, texts in order["texts"].items():
        sentences = TaggedSentences(part, [Tagged(tuple(words), ("O",) * len(words)) for words in texts], ["O"])
        dataset = EncodedSentences(sentences, tokenizer, **order["options"])
        collate, starts, number = DataCollatorForTokenClassification(tokenizer), [], 0
        for words in texts:
            starts.append(number)
            number += len(words)
        of_words = torch.full((number, model.config.num_labels), torch.nan)
        for start in range(0, len(dataset), order["rows"]):
            rows = range(start, min(start + order["rows"], len(dataset)))
            batch = collate([dataset[row] for row in rows])
            batch.pop("labels")
            outputs = model(**batch).logits.float()
            for row, found_tags in zip(rows, outputs, strict=True):
                sentence, places = dataset.windows[row]
                for position, word in places.items():
                    of_words[starts[sentence] + word] = found_tags[position]
        found[part] = of_words
    return {}, found


def answers(model: Any, tokenizer: Any, order: Mapping[str, Any]) -> Outputs:
    """Return the text, span and null margin of the answer to each question.

    Texts are pairs of a question and its context; ``options`` are those of ``EncodedQuestions``.
    """
    found = {}
    for part, texts in order["texts"].items():
        items = [Question(str(i), question, context) for i, (question, context) in enumerate(texts)]
        dataset = EncodedQuestions(Questions(part, items), tokenizer, **order["options"])
        collate, starts, ends = DataCollatorWithPadding(tokenizer), [], []
        for start in range(0, len(dataset), order["rows"]):
            rows = [dataset[row] for row in range(start, min(start + order["rows"], len(dataset)))]
            without = [{name: row[name] for name in row if not name.endswith("_positions")} for row in rows]
            outputs = model(**collate(without))
            starts += list(outputs.start_logits.float().numpy())
            ends += list(outputs.end_logits.float().numpy())
        found[part] = [[each.text, each.span, each.null_margin] for each in dataset.answers(starts, ends)]
    return {"answers": found}, {}


def features(model: Any, processor: Any, order: Mapping[str, Any]) -> Outputs:
    """Return the features (n, D) of n images; ``feature`` says which states they are."""
    from .training.dino import image_features  # it imports the Trainer

    found = {}
    for part, files in order["images"].items():
        batches = pixel_batches(files, processor, order)
        found[part] = torch.cat([image_features(model, batch, order["feature"]) for batch in batches])
    return {}, found
