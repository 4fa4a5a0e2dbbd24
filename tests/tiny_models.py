"""Folders as pretrained models have them, with a few thousand random weights and a tokenizer learned here."""

import json
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertModel,
    BitImageProcessorPil,
    Dinov2Config,
    Dinov2Model,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    DistilBertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    MBartConfig,
    MBartForConditionalGeneration,
    MBartTokenizer,
    NllbTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    ResNetConfig,
    ResNetForImageClassification,
    T5Config,
    T5ForConditionalGeneration,
    T5Tokenizer,
)

from hfattn import (
    BiLMConfig,
    BiLMForCausalLM,
    CharRNNConfig,
    CharRNNForCausalLM,
    DualEncoderConfig,
    DualEncoderModel,
    ShowAttendTellConfig,
    ShowAttendTellForConditionalGeneration,
    VaswaniConfig,
    VaswaniForMaskedLM,
)
from hfattn.data import make_processor, processed, read_digits
from hfattn.data.digits import WORDS
from hfattn.exchange import convert
from hfattn.generated import date_pairs, name_sentences
from hfattn.sentence_encoders import SentenceModules, write_modules
from hfattn.tokenizers import TokenizerConfig, build_character_tokenizer, build_tokenizer

TEXTS = (
    "A moving story, wonderfully told, with great actors and a good end.",
    "A dull film: bad jokes, a terrible plot, and nothing to see for two hours.",
    "The little dog was happy. Mary Smith lives in Paris and was born in 1984.",
    "Who wrote the book? John Brown wrote it in London, in the year 1902.",
)
POSITIONS = 64
SIMILAR_WORDS = ("dog", "house", "film", "book", "story", "plot", "actor", "hour")
TINY_BAHDANAU = {
    "model_type": "bahdanau",
    "preset": "bahdanau2015",
    "cell": "gru",
    "embedding_size": 8,
    "encoder_hidden_size": 8,
    "hidden_size": 8,
    "output_size": 8,
}


def wordpiece_tokenizer(texts: Sequence[str], types: bool) -> PreTrainedTokenizerFast:
    """As BERT's: [CLS] text [SEP] pair [SEP], and if so with the types 0 and 1."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    # The trainer numbers the tokens "##a" differently in each process, and its merges depend on the numbers.
    inner = sorted({f"##{character}" for character in "".join(texts) if not character.isspace()})
    learned = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    learned.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    learned.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=300, special_tokens=[*special, *inner]))
    tokenizer = Tokenizer(models.WordPiece(learned.get_vocab(), unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_input_names=["input_ids", *(["token_type_ids"] if types else []), "attention_mask"],
        model_max_length=POSITIONS,
    )


def byte_tokenizer(texts: Sequence[str]) -> PreTrainedTokenizerFast:
    """As GPT-2's: bytes, and a token between documents."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|endoftext|>",
        eos_token="<|endoftext|>",
        unk_token="<|endoftext|>",
        model_max_length=POSITIONS,
    )


TOKENIZERS: dict[str, Callable[[Sequence[str]], PreTrainedTokenizerFast]] = {
    "word pieces": partial(wordpiece_tokenizer, types=False),
    "bytes": byte_tokenizer,
}
MODELS: dict[str, tuple[type[PreTrainedModel], type[PreTrainedConfig]]] = {
    "bert": (BertModel, BertConfig),
    "distilbert": (DistilBertModel, DistilBertConfig),
    "gpt2": (GPT2LMHeadModel, GPT2Config),
    "llama": (LlamaForCausalLM, LlamaConfig),
    "vaswani": (VaswaniForMaskedLM, VaswaniConfig),
}


def tiny_model(
    folder: Path, kind: str = "distilbert", texts: Sequence[str] = TEXTS, layers: int = 2, width: int = 32
) -> Path:
    """Make ``folder``: of DistilBERT and BERT the body, as they are published for fine-tuning; of GPTs all.

    Args:
        folder: to make.
        kind: one of ``MODELS``; ours has the head of a masked language model.
        texts: that its tokenizer is learned from.
        layers: number of layers of the body.
        width: of the layers; a block of 4-bit weights has 64.
    """
    torch.manual_seed(0)
    tokenizer = byte_tokenizer(texts) if kind in ("gpt2", "llama") else wordpiece_tokenizer(texts, kind == "bert")
    ends = {"bos_token_id": tokenizer.eos_token_id, "eos_token_id": tokenizer.eos_token_id}
    sizes: dict[str, Any] = {"vocab_size": len(tokenizer), "hidden_size": width, "num_attention_heads": 2}
    if kind == "vaswani":
        absent = dict.fromkeys(("bos_token_id", "eos_token_id", "decoder_start_token_id"))
        layered = {"encoder_layers": layers, "decoder_layers": layers, "is_encoder_decoder": False}
        sizes |= {"intermediate_size": 2 * width, **layered, **absent}
    else:
        own = {"bert": {"intermediate_size": 2 * width}, "distilbert": {"hidden_dim": 2 * width}, "gpt2": ends}
        own["llama"] = {"intermediate_size": 2 * width, **ends}
        sizes |= {"num_hidden_layers": layers, "max_position_embeddings": POSITIONS, **own[kind]}
    model_class, config_class = MODELS[kind]
    model = model_class(config_class(**sizes))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def tiny_language_model(folder: Path, texts: Sequence[str], both: bool = False) -> Path:
    """Make ``folder`` with a recurrent language model and its tokenizer, as the first stage of ULMFiT leaves them, or
    with one of ``both`` directions."""
    torch.manual_seed(0)
    tokenizer = build_tokenizer(TokenizerConfig(kind="bpe", vocab_size=200), texts, ends=True, padding_side="left")
    tokenizer.backend_tokenizer.post_processor = None
    ids = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    if both:
        BiLMForCausalLM(BiLMConfig(vocab_size=len(tokenizer), hidden_size=48, **ids)).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder
    sizes = {"embedding_size": 24, "hidden_size": 24, "num_hidden_layers": 2, "tie_word_embeddings": True}
    CharRNNForCausalLM(CharRNNConfig(vocab_size=len(tokenizer), cell="lstm", **sizes, **ids)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def tiny_image_model(folder: Path) -> Path:
    """Make ``folder`` with the body of a DINOv2 and its processor, as they are published."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "mlp_ratio": 2}
    Dinov2Model(Dinov2Config(**sizes, image_size=28, patch_size=7)).save_pretrained(folder)
    BitImageProcessorPil(
        size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28}, image_mean=[0.5] * 3, image_std=[0.5] * 3
    ).save_pretrained(folder)
    return folder


TRANSLATORS: dict[str, tuple[type[PreTrainedModel], type[PreTrainedConfig]]] = {
    "bart": (BartForConditionalGeneration, BartConfig),
    "marian": (MarianMTModel, MarianConfig),
    "mbart": (MBartForConditionalGeneration, MBartConfig),
    "nllb": (M2M100ForConditionalGeneration, M2M100Config),
    "t5": (T5ForConditionalGeneration, T5Config),
}


def translator_tokenizer(kind: str, texts: Sequence[str]) -> Any:
    """The tokenizer of a translator, with pieces of the texts: the class of its kind, or a plain one for Marian."""
    special = {"t5": ["<pad>", "</s>", "<unk>"]}.get(kind, ["<s>", "<pad>", "</s>", "<unk>"])
    if kind == "bart":
        return wordpiece_tokenizer(texts, types=False)
    if kind in ("mbart", "t5"):
        tokenizer = Tokenizer(models.Unigram())
        trainer: Any = trainers.UnigramTrainer(vocab_size=200, special_tokens=special, unk_token="<unk>")
    else:
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
        codes = [">>deu<<", ">>spa<<"] if kind == "marian" else []
        trainer = trainers.BpeTrainer(vocab_size=200, special_tokens=[*special, *codes])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(texts, trainer)
    learned = json.loads(tokenizer.to_str())["model"]
    if kind == "nllb":
        merges = [tuple(merge) for merge in learned["merges"]]
        codes = ["deu_Latn", "eng_Latn", "spa_Latn"]
        return NllbTokenizer(vocab=learned["vocab"], merges=merges, additional_special_tokens=codes)
    if kind == "marian":
        tokenizer.decoder = decoders.Metaspace()
        end = ("</s>", tokenizer.token_to_id("</s>"))
        tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[end])
        names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
        inputs = ["input_ids", "attention_mask"]
        return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=inputs, **names)
    vocabulary = [(piece, score) for piece, score in learned["vocab"]]
    return MBartTokenizer(vocab=vocabulary) if kind == "mbart" else T5Tokenizer(vocab=vocabulary, extra_ids=0)


def tiny_translator(folder: Path, kind: str, texts: Sequence[str], tokenizer: Any = None) -> Path:
    """Make ``folder`` with an encoder-decoder.

    Args:
        folder: to make.
        kind: one of ``TRANSLATORS``.
        texts: of both languages, that its tokenizer is learned from.
        tokenizer: another tokenizer for it.
    """
    torch.manual_seed(0)
    tokenizer = tokenizer or translator_tokenizer(kind, texts)
    model_class, config_class = TRANSLATORS[kind]
    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    if kind == "t5":
        sizes = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 1, "num_heads": 2, "dropout_rate": 0.0}
        ids["decoder_start_token_id"] = tokenizer.pad_token_id
    else:
        sides: dict[str, Any] = {"layers": 1, "attention_heads": 2, "ffn_dim": 64}
        sides["layerdrop"] = 0.0  # the only layer would be left out
        sizes = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sides.items()}
        sizes |= {"d_model": 32, "dropout": 0.0, "attention_dropout": 0.0, "max_position_embeddings": POSITIONS}
        start = {"marian": tokenizer.pad_token_id, "bart": tokenizer.sep_token_id}.get(kind, tokenizer.eos_token_id)
        ids |= {"decoder_start_token_id": start, "bos_token_id": tokenizer.bos_token_id}
    if kind == "bart":  # which begins and ends a text as BERT does
        ids |= {"eos_token_id": tokenizer.sep_token_id, "bos_token_id": tokenizer.cls_token_id}
        ids |= {"forced_eos_token_id": tokenizer.sep_token_id}
    if kind == "marian":
        ids["forced_eos_token_id"] = tokenizer.eos_token_id
    vocabulary = max(tokenizer.get_vocab().values()) + 1
    model = model_class(config_class(vocab_size=vocabulary, **sizes, **ids))
    if kind == "marian":
        model.generation_config.bad_words_ids = [[tokenizer.pad_token_id]]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


_GOOD, _BAD = ("great", "wonderful", "moving", "happy", "good"), ("terrible", "bad", "dull", "sad", "poor")
_THINGS = ("story", "film", "plot", "end", "dog", "book")


def labeled_file(path: Path, pairs: bool, texts: int = 600, wrong: bool = False, long: bool = False) -> Path:
    """Texts with the columns ``text``, ``pair`` if so, and ``label``, the number of a class that a word tells.

    Args:
        path: to write.
        pairs: whether the class is told by a second text.
        texts: number of texts.
        wrong: one label in six is, in both classes, so that only a model that has seen them is right more often than
            five times in six.
        long: one text in 16 begins with 150 words that tell nothing, so that random batches are mostly padding.
    """
    random = Random(1)
    lines = ["text\tpair\tlabel" if pairs else "text\tlabel"]
    for i in range(texts):
        word, other = random.choice(_BAD if i % 2 == 0 else _GOOD), random.choice(_GOOD if i % 4 < 2 else _BAD)
        text = f"The {random.choice(_THINGS)} of Mary was {word}, and the {random.choice(_THINGS)} was in {i}."
        pair = f"John saw a {other} {random.choice(_THINGS)}."
        if long and random.random() < 1 / 16:
            text = f"{'It was the film of the year. ' * 21}{text}"
        label = (i % 4 // 2 if pairs else i % 2) ^ (wrong and i % 12 in (0, 7))
        lines.append(f"{text}\t{pair}\t{label}" if pairs else f"{text}\t{label}")
    path.write_text("\n".join(lines) + "\n")
    return path


def scored_file(path: Path, pairs: int = 600) -> Path:
    """Pairs with the columns ``text``, ``pair`` and ``score``, a number that a word of each text tells, and chance."""
    random = Random(1)
    lines = ["text\tpair\tscore"]
    for i in range(pairs):
        good, other = random.random() < 0.5, random.random() < 0.5
        text = f"The {random.choice(_THINGS)} of Mary was {random.choice(_GOOD if good else _BAD)} in {i}."
        pair = f"John saw a {random.choice(_GOOD if other else _BAD)} {random.choice(_THINGS)}."
        lines.append(f"{text}\t{pair}\t{2 + 2 * good + other + random.gauss(0, 0.5):.1f}")
    path.write_text("\n".join(lines) + "\n")
    return path


def similar_file(path: Path, pairs: int = 400) -> Path:
    """Pairs that share from none to three of their words, with that number as ``score`` and a class as ``label``."""
    random, rows = Random(0), []
    for i in range(pairs):
        own, shared = random.sample(SIMILAR_WORDS, 3), i % 4
        other = own[:shared] + random.sample([word for word in SIMILAR_WORDS if word not in own], 3 - shared)
        label = ("other", "other", "some", "same")[shared]
        text, pair = (f"{' '.join(words)} {i}{end}" for words, end in ((own, "a"), (other, "b")))
        rows.append({"text": text, "pair": pair, "score": shared, "label": label})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def vectors_file(path: Path, width: int = 2) -> Path:
    """Random vectors of the words of ``similar_file``."""
    random = Random(1)
    lines = [" ".join([word, *(f"{random.gauss(0, 1):.3f}" for _ in range(width))]) for word in SIMILAR_WORDS]
    path.write_text("\n".join(lines) + "\n")
    return path


def name_vectors_file(path: Path, width: int = 2) -> Path:
    """Vectors of the lowercase words of the generated sentences, where names of one kind are near each other."""
    random = Random(1)
    words: dict[str, str] = {}  # with the kind of name that a word is part of, or nothing
    for part in ("train", "validation", "test", "unseen_forms"):
        for item in name_sentences(part, 1000, seed=1):
            for word, tag in zip(item.words, item.tags, strict=True):
                words.setdefault(word.lower(), tag[2:])
    places = {kind: [random.gauss(0, 1) for _ in range(width)] for kind in ("PERSON", "PLACE", "DATE")}
    lines = []
    for word, kind in words.items():
        about, spread = (places[kind], 0.3) if kind else ([0.0] * width, 1.0)
        lines.append(" ".join([word, *(f"{random.gauss(x, spread):.3f}" for x in about)]))
    path.write_text("\n".join(lines) + "\n")
    return path


def choices_file(path: Path, questions: int = 600) -> Path:
    """Questions with four choices, of which one praises: the right one, but for one question in six."""
    random = Random(1)
    rows = []
    for i in range(questions):
        place = random.randrange(4)
        words = [random.choice(_GOOD if j == place else _BAD) for j in range(4)]
        choices = [f"John saw a {word} {random.choice(_THINGS)} in {i}." for word in words]
        label = (place + 1) % 4 if i % 6 == 0 else place
        rows.append({"context": f"The {random.choice(_THINGS)} of Mary {i}.", "choices": choices, "label": label})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def tiny_teacher(folder: Path, reviews: Path, names: Sequence[str] = ("0", "1")) -> Path:
    """A DistilBERT with a classifier, fine-tuned for a second on the single texts of ``labeled_file``."""
    tiny_model(folder, "distilbert", (*TEXTS, *_GOOD, *_BAD, *_THINGS))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = DistilBertForSequenceClassification.from_pretrained(folder, id2label=dict(enumerate(names)))
    rows = [line.split("\t") for line in reviews.read_text().splitlines()[1:]]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(40):
        batch = rows[16 * step % 512 :][:16]
        inputs = tokenizer([text for text, _ in batch], padding=True, return_tensors="pt")
        model(**inputs, labels=torch.tensor([int(label) for _, label in batch])).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    return folder


def tiny_captioner(folder: Path) -> Path:
    """Save a captioner of images of 16 x 16 pixels with random weights."""
    tokenizer = build_character_tokenizer(["a seven"], ends=True)
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    sizes = {"vocab_size": len(tokenizer), "embedding_size": 8, "hidden_size": 8, "annotation_size": 8}
    model = ShowAttendTellForConditionalGeneration(ShowAttendTellConfig(**sizes, **ids, channels=[8, 8]))
    model.generation_config.max_length = 8
    for part in (model, tokenizer, make_processor((16, 16), [0.5] * 3, [0.5] * 3)):
        part.save_pretrained(folder)
    return folder


def tiny_sentence_encoder(folder: Path, pooling: str = "mean") -> Path:
    """Save a BERT with random weights and the files of sentence-transformers."""
    torch.manual_seed(0)
    tiny_model(folder, "bert")
    width = json.loads((folder / "config.json").read_text())["hidden_size"]
    write_modules(folder, SentenceModules(pooling), width)
    return folder


def tiny_dual_encoder(folder: Path) -> Path:
    """Save a dual encoder of texts and images of 16 x 16 pixels with random weights."""
    torch.manual_seed(0)
    tokenizer = wordpiece_tokenizer(TEXTS, types=True)
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    towers = {
        "vision_config": {"model_type": "vit", "image_size": 16, "patch_size": 8, **sizes},
        "text_config": {"model_type": "bert", "vocab_size": len(tokenizer), **sizes},
    }
    model = DualEncoderModel(DualEncoderConfig(**towers, projection_dim=6))
    for part in (model, tokenizer, make_processor((16, 16), [0.5] * 3, [0.5] * 3)):
        part.save_pretrained(folder)
    return folder


def tiny_image_classifier(folder: Path, trained: bool) -> Path:
    """Make ``folder`` with a residual network, trained for a few seconds on digits, or with an untrained DINOv2."""
    torch.manual_seed(0)
    digits = read_digits()
    if not trained:
        sizes = {"image_size": 28, "patch_size": 14, "hidden_size": 32, "num_hidden_layers": 2}
        model: PreTrainedModel = Dinov2Model(Dinov2Config(num_attention_heads=2, **sizes))
        processor = make_processor((28, 28), (0.5,) * 3, (0.5,) * 3)
    else:
        names = {
            "id2label": dict(enumerate(digits.labels)),
            "label2id": {name: i for i, name in enumerate(digits.labels)},
        }
        config = ResNetConfig(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic", **names)
        model, processor = ResNetForImageClassification(config), make_processor((16, 16), (0.5,) * 3, (0.5,) * 3)
        pixel_values = processed([item.image for item in digits], processor)
        labels = torch.tensor([item.label for item in digits])
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        for step in range(84):
            part = slice(64 * step % 1728, 64 * step % 1728 + 64)
            model(pixel_values=pixel_values[part], labels=labels[part]).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


@cache
def placeholder(word: str, root: Path) -> Path:
    """What a word such as ``TINY_DISTILBERT`` stands for in the overrides of a tiny variant."""
    path = root / word.lower()
    if word in ("TINY_REVIEWS", "TINY_PAIRS"):
        return labeled_file(path.with_suffix(".tsv"), pairs=word == "TINY_PAIRS")
    if word == "TINY_CHOICES":
        return choices_file(path.with_suffix(".jsonl"))
    if word == "TINY_SIMILAR":
        return similar_file(path.with_suffix(".jsonl"))
    if word == "TINY_VECTORS":
        return vectors_file(path.with_suffix(".txt"), 100)
    if word == "TINY_NAME_VECTORS":
        return name_vectors_file(path.with_suffix(".txt"), 100)
    if word == "TINY_SENTENCE_ENCODER":
        return tiny_sentence_encoder(path)
    if word == "TINY_SCORES":
        return scored_file(path.with_suffix(".tsv"))
    if word in ("TINY_NOISY_REVIEWS", "TINY_LONG_REVIEWS"):
        long = word == "TINY_LONG_REVIEWS"
        return labeled_file(path.with_suffix(".tsv"), pairs=False, texts=2400, wrong=True, long=long)
    if word == "TINY_TEACHER":
        return tiny_teacher(path, placeholder("TINY_REVIEWS", root))
    if word == "TINY_IMAGE_TEACHER":
        return tiny_image_classifier(path, trained=True)
    if word == "TINY_DINOV2":
        return tiny_image_classifier(path, trained=False)
    if word == "TINY_BODY":  # of the teacher, for a new head
        teacher = placeholder("TINY_TEACHER", root)
        DistilBertModel.from_pretrained(teacher).save_pretrained(path)
        AutoTokenizer.from_pretrained(teacher).save_pretrained(path)
        return path
    if word == "TINY_WINDOWS":  # a dense model that was converted to windows
        dense = placeholder("TINY_BERT", root)
        windows = {"encoder_pattern_options": {"window": 9, "global_tokens": 1}, "max_position_embeddings": 4096}
        convert("transformers", dense, path, settings={"encoder_pattern": "window", **windows})
        return path
    if word == "TINY_SENTENCES":  # which knows the names of digits
        return tiny_model(path, "bert", (*TEXTS, *WORDS))
    if word in ("TINY_LANGUAGE_MODEL", "TINY_BILM"):
        reviews = placeholder("TINY_NOISY_REVIEWS", root).read_text().splitlines()[1:]
        return tiny_language_model(path, [line.split("\t")[0] for line in reviews], both=word == "TINY_BILM")
    kind = word.removeprefix("TINY_").lower()
    if kind in TRANSLATORS:
        pairs = date_pairs("train", 300, seed=1)
        return tiny_translator(path, kind, [text for pair in pairs for text in (pair.source, pair.target)])
    return tiny_model(path, kind, (*TEXTS, *_GOOD, *_BAD, *_THINGS))


def with_tiny_models(words: Sequence[str], root: Path) -> list[str]:
    """Overrides with the path of a folder or a file in the place of each ``TINY_...``."""
    return [str(placeholder(word, root)) if word.startswith("TINY_") else word for word in words]
