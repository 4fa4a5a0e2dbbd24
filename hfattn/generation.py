"""Generate text: samples and translations during training, streamed output on the command line."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

import torch
from torch import nn
from transformers import BatchEncoding, PreTrainedModel, PreTrainedTokenizerBase
from transformers.generation.streamers import BaseStreamer

from .errors import UserError
from .loading import max_positions, reads_backward
from .models.pipeline_attn_translation import source_prefix

CHAT = "chat"  # key of the configuration's task_specific_params
_LONGEST = 256  # tokens of a text whose model does not say how long it may get
UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # decoding of bytes that are not yet a whole character


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode, and then back into its mode."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def set_chat(model: PreTrainedModel, chat: bool) -> None:
    """Store with a model whether it answers messages, so that its prompts are put into the chat template."""
    store_for_task(model, CHAT, {"role": "user"} if chat else None)


def store_for_task(model: PreTrainedModel, task: str, settings: Mapping[str, Any] | None) -> None:
    """Store settings of a task in the configuration of a model, beside those of other tasks; None removes them."""
    stored = model.config.to_dict().get("task_specific_params") or {}
    others = {name: stored[name] for name in stored if name != task}
    model.config.task_specific_params = ({**others, task: dict(settings)} if settings is not None else others) or None


def set_ends(model: PreTrainedModel, ends: Iterable[int]) -> None:
    """Let a model stop at these tokens too, with which what it has learned ends."""
    known = model.generation_config.eos_token_id
    every = sorted({*ends, *([] if known is None else [known] if isinstance(known, int) else known)})
    model.generation_config.eos_token_id = every[0] if len(every) == 1 else every or None


def is_chat(model: PreTrainedModel) -> bool:
    """Return whether a model was trained on messages, as ``set_chat`` has stored."""
    return CHAT in (model.config.to_dict().get("task_specific_params") or {})


def encode_prompts(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str], **options: Any
) -> BatchEncoding:
    """Encode prompts as the model has read them in training: a model for chats reads each as a message of the user, and
    a model that predicts the previous token reads each from its end.

    Args:
        model: a causal language model.
        tokenizer: its tokenizer.
        prompts: the texts.
        options: arguments of the tokenizer, such as ``padding``.

    Returns:
        ``input_ids`` and ``attention_mask`` (B, T), on the device of the model.
    """
    chat = is_chat(model)
    if chat:
        turns = [[{"role": "user", "content": prompt}] for prompt in prompts]
        prompts = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    encoded = tokenizer(
        list(prompts), add_special_tokens=not chat, return_attention_mask=True, return_tensors="pt", **options
    )
    inputs = {name: encoded[name] for name in ("input_ids", "attention_mask")}
    if reads_backward(model.config):
        inputs = {name: tensor.flip(1) for name, tensor in inputs.items()}
    return BatchEncoding(inputs).to(model.device)


def read_prompt(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompt: str, max_new_tokens: int
) -> tuple[dict[str, torch.Tensor], int]:
    """Encode a prompt for a causal language model, and limit the length of its continuation.

    Returns:
        ``input_ids`` and ``attention_mask`` (1, T), and ``max_new_tokens``, reduced to the positions that the model
        has left.

    Raises:
        UserError: the prompt has no tokens, or leaves no position for a continuation.
    """
    inputs = dict(encode_prompts(model, tokenizer, [prompt]))
    length = inputs["input_ids"].shape[1]
    if fault := prompt_fault(model, length):
        raise UserError(f"The prompt {fault}.")
    return inputs, _room(model, length, max_new_tokens)


def prompt_fault(model: PreTrainedModel, length: int) -> str | None:
    """Return why a causal language model cannot continue a prompt of ``length`` tokens, as the end of a sentence, or
    None if it can."""
    positions = max_positions(model.config)
    if length == 0:
        return "has no tokens to continue; write some text"
    if positions is not None and length >= positions:
        return f"has {length} tokens, and the model has {positions} positions for it and its continuation; shorten it"
    return None


def prompt_length(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompt: str) -> int:
    """Return the number of tokens of a prompt as ``encode_prompts`` encodes it."""
    return encode_prompts(model, tokenizer, [prompt])["input_ids"].shape[1]


def _room(model: PreTrainedModel, length: int, max_new_tokens: int) -> int:
    """Return how many tokens a model writes after a prompt of ``length`` tokens."""
    positions = max_positions(model.config)
    return max_new_tokens if positions is None else min(max_new_tokens, positions - length)


def sampling_options(temperature: float, top_k: int = 0, top_p: float = 1.0) -> dict[str, Any]:
    """Return the arguments of ``generate()`` for sampling from all tokens, the ``top_k`` most probable ones, or the
    smallest set with probability ``top_p``; temperature 0 means greedy decoding."""
    if temperature == 0:
        return {"do_sample": False}
    return {"do_sample": True, "temperature": float(temperature), "top_k": top_k, "top_p": float(top_p)}


def sample_text(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompt: str,
    temperature: float,
    max_new_tokens: int,
    seed: int,
    top_k: int = 0,
    top_p: float = 1.0,
) -> str:
    """Continue a prompt deterministically, without changing the global random state.

    Args:
        model: a causal language model; its mode (training or evaluation) is not changed.
        tokenizer: its tokenizer.
        prompt: at least one character.
        temperature, top_k, top_p: see ``sampling_options``; the lower the temperature, the more probable and repetitive
            the text.
        max_new_tokens: length of the continuation in tokens, if the model has positions for it.
        seed: random seed for sampling.

    Returns:
        The prompt and its continuation; of a model for chats, its answer alone.

    Raises:
        UserError: the model has no position for a continuation.
    """
    inputs, max_new_tokens = read_prompt(model, tokenizer, prompt, max_new_tokens)
    devices = [model.device] if model.device.type == "cuda" else []
    with evaluation_mode(model), torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        ids = model.generate(
            **inputs,
            **sampling_options(temperature, top_k, top_p),
            max_new_tokens=max_new_tokens,
            use_cache=True,
        )
    return written_text(model, tokenizer, inputs, ids[0])


def written_text(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, inputs: Mapping[str, torch.Tensor], ids: torch.Tensor
) -> str:
    """Return the text of generated ids (T,), which begin with the prompt; of a model for chats, the answer alone.

    The text of a model that predicts the previous token ends with the prompt.
    """
    start = inputs["input_ids"].shape[1] if is_chat(model) else 0
    ids = ids.flip(0) if reads_backward(model.config) else ids
    return str(tokenizer.decode(ids[start:], skip_special_tokens=True))


def write_completions(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    rows: int = 32,
) -> list[str]:
    """Return what a causal language model writes after each prompt, greedily.

    Args:
        model: the model, whose end tokens are in its generation configuration; its mode is not changed.
        tokenizer: its tokenizer.
        prompts: token ids of the prompts.
        max_new_tokens: length of a completion in tokens, if the model has positions for it.
        rows: prompts per batch.
    """
    rooms = [_room(model, len(ids), max_new_tokens) for ids in prompts]
    written: dict[int, str] = {}
    with evaluation_mode(model), torch.inference_mode():
        for places in batches_of_equal(rooms, rows):
            batch = [prompts[i] for i in places]
            length = max(map(len, batch))
            # On the left, so that all prompts end at the same place.
            filled = [[tokenizer.pad_token_id] * (length - len(ids)) + list(ids) for ids in batch]
            mask = [[0] * (length - len(ids)) + [1] * len(ids) for ids in batch]
            inputs = {"input_ids": filled, "attention_mask": mask}
            tensors = {name: torch.tensor(each, device=model.device) for name, each in inputs.items()}
            ids = model.generate(**tensors, do_sample=False, max_new_tokens=rooms[places[0]], use_cache=True)
            written |= zip(places, tokenizer.batch_decode(ids[:, length:], skip_special_tokens=True), strict=True)
    return [written[i] for i in range(len(prompts))]


def batches_of_equal(rooms: Sequence[Hashable], rows: int) -> list[list[int]]:
    """Return the indices of prompts in batches, each of prompts that leave a model the same room to write.

    Padding a prompt to the length of a longer one would take positions from its continuation, which would then depend
    on the batch. Prompts whose room is not limited by the positions of the model still share a batch.

    Args:
        rooms: what must be the same in a batch, for each prompt.
        rows: prompts per batch.
    """
    groups: dict[Hashable, list[int]] = {}
    for i, room in enumerate(rooms):
        groups.setdefault(room, []).append(i)
    return [group[start : start + rows] for group in groups.values() for start in range(0, len(group), rows)]


def encode_sources(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]
) -> dict[str, torch.Tensor]:
    """Return ids and mask (B, S) of the texts that an encoder-decoder translates, with its prefix, on its device."""
    prefix = source_prefix(model.config)
    sources = [prefix + text for text in texts]
    encoded = tokenizer(sources, padding=True, truncation=True, return_attention_mask=True, return_tensors="pt")
    return {name: encoded[name].to(model.device) for name in ("input_ids", "attention_mask")}


def search_arguments(
    model: PreTrainedModel,
    num_beams: int | None = None,
    max_new_tokens: int | None = None,
    num_return_sequences: int = 1,
    read: int = 1,
) -> dict[str, Any]:
    """Return the arguments with which ``generate()`` searches, without drawing at random.

    Args:
        model: a model that generates.
        num_beams: None selects the default of the model.
        max_new_tokens: None selects the default of the model; without one, it is 256. It is reduced to the positions of
            the model.
        num_return_sequences: number of texts for each input, for which there are at least as many beams.
        read: tokens that the decoder reads first: the start token, or the prompt of a language model.
    """
    beams = num_beams or model.generation_config.num_beams or 1
    return {
        "do_sample": False,
        "num_return_sequences": num_return_sequences,
        "num_beams": max(beams, num_return_sequences),
        **length_arguments(model, max_new_tokens, read),
    }


def length_arguments(model: PreTrainedModel, max_new_tokens: int | None = None, read: int = 1) -> dict[str, int]:
    """Return the length to which ``generate()`` writes, as its arguments; none if the model stores ``max_length``.

    The default of transformers, for models that store no length, would end a text after 20 tokens.

    Args:
        model, max_new_tokens, read: as in ``search_arguments``.
    """
    stored = model.generation_config.to_diff_dict()
    wanted = max_new_tokens or stored.get("max_new_tokens") or (None if "max_length" in stored else _LONGEST)
    if wanted is None:
        return {}
    positions = max_positions(model.config)
    # The last token is not read, so it needs no position.
    return {"max_new_tokens": wanted if positions is None else min(wanted, positions - read + 1)}


def translate_texts(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    target_tokenizer: PreTrainedTokenizerBase | None = None,
    num_beams: int | None = None,
    length_penalty: float | None = None,
) -> list[str]:
    """Translate a batch of texts with the model's generation configuration.

    Args:
        model: an encoder-decoder; its mode (training or evaluation) is not changed.
        tokenizer: tokenizer of both sides, or of the source.
        texts: source texts.
        target_tokenizer: tokenizer of the target, if it has its own vocabulary.
        num_beams: number of beams; None selects the default of the model.
        length_penalty: beam search divides log-probabilities by length ** length_penalty; None selects the default of
            the model.
    """
    search = {"num_beams": num_beams, "length_penalty": length_penalty, **length_arguments(model)}
    inputs = encode_sources(model, tokenizer, texts)
    with evaluation_mode(model), torch.no_grad():
        ids = model.generate(**inputs, **{name: value for name, value in search.items() if value is not None})
    writer = tokenizer if target_tokenizer is None else target_tokenizer
    return writer.batch_decode(ids, skip_special_tokens=True)


class TokenStreamer(BaseStreamer):
    """Write each token when it is generated, or when the character that it belongs to is complete.

    The streamers of transformers wait for the space after a word, which delays the output of a character model.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, out: TextIO, *, with_prompt: bool = True) -> None:
        self.tokenizer, self.out = tokenizer, out
        self.reading = not with_prompt  # whether the next tokens are the prompt, which is not written
        self.before: list[int] = []  # tokens already written, which affect the decoding of the next ones
        self.waiting: list[int] = []

    def put(self, value: Any) -> None:
        if self.reading:
            self.reading = False
            return
        self.waiting += value.flatten().tolist()
        text = self._new_text()
        if not text.endswith(UNFINISHED):
            self._write(text)

    def end(self) -> None:
        self._write(f"{self._new_text()}\n")

    def _new_text(self) -> str:
        return self._decode(self.before + self.waiting)[len(self._decode(self.before)) :]

    def _decode(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=True)

    def _write(self, text: str) -> None:
        self.out.write(text)
        self.out.flush()
        self.before, self.waiting = self.waiting, []


__all__ = [
    "TokenStreamer",
    "batches_of_equal",
    "encode_prompts",
    "encode_sources",
    "evaluation_mode",
    "is_chat",
    "length_arguments",
    "prompt_fault",
    "prompt_length",
    "read_prompt",
    "sample_text",
    "sampling_options",
    "search_arguments",
    "set_chat",
    "set_ends",
    "store_for_task",
    "translate_texts",
    "write_completions",
    "written_text",
]
