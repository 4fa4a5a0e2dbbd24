"""Tests of ``generate()`` for every family: each mode equals a loop that runs the whole text again for each token.

The test file of a family subclasses ``GenerationTests`` and defines the fixture ``make``, which builds a model in
evaluation mode and float64 with a vocabulary of ``vocab_size`` tokens: 0 is padding, 1 starts a target, 2 ends one.
"""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from transformers import LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList, set_seed
from transformers.generation.streamers import BaseStreamer

V = 12
PAD, BOS, EOS = 0, 1, 2

Make = Callable[..., Any]
Inputs = dict[str, torch.Tensor]


def sharpen(model: Any, factor: float = 8) -> Any:
    """Sharpen an untrained model, which is close to uniform, so that the modes of generation differ; in float64."""
    model = model.double().eval()
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(factor)
    return model


def texts(lengths: list[int], vocab_size: int = V, seed: int = 3) -> Inputs:
    """Return a batch of texts of these lengths, padded on the left, which all models accept."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, vocab_size, (len(lengths), max(lengths)), generator=generator)
    mask = torch.tensor([[0] * (max(lengths) - length) + [1] * length for length in lengths])
    return {"input_ids": ids * mask, "attention_mask": mask}


def row_of(inputs: Inputs, row: int) -> Inputs:
    """Return one row of a batch without its padding."""
    if "attention_mask" not in inputs:  # images
        return {name: tensor[row : row + 1] for name, tensor in inputs.items()}
    real = inputs["attention_mask"][row].bool()
    vectors = {name: tensor[row : row + 1] for name, tensor in inputs.items() if name == "conditioning"}
    return {name: inputs[name][row : row + 1, real] for name in ("input_ids", "attention_mask")} | vectors


def prompt(model: Any, inputs: Inputs) -> torch.Tensor:
    if model.config.is_encoder_decoder:
        return torch.full((len(next(iter(inputs.values()))), 1), model.config.decoder_start_token_id)
    return inputs["input_ids"]


def logits(model: Any, inputs: Inputs, ids: torch.Tensor) -> torch.Tensor:
    """Return the logits (B, T, V) of the whole text so far."""
    if model.config.is_encoder_decoder:
        return model(**inputs, decoder_input_ids=ids, use_cache=False).logits
    mask = inputs["attention_mask"]
    written = mask.new_ones(len(mask), ids.shape[1] - mask.shape[1])
    whole = {**inputs, "input_ids": ids, "attention_mask": torch.cat([mask, written], dim=1)}
    return model(**whole, use_cache=False).logits


@torch.no_grad()
def literal(model: Any, inputs: Inputs, steps: int, choose: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Generate by definition: run the model on the whole text for each token, until all rows have ended."""
    ids = prompt(model, inputs)
    ended = torch.zeros(len(ids), dtype=torch.bool)
    for _ in range(steps):
        chosen = choose(logits(model, inputs, ids)[:, -1].float()).masked_fill(ended, PAD)
        ids = torch.cat([ids, chosen[:, None]], dim=1)
        ended |= chosen == EOS
        if ended.all():
            break
    return ids


def draw(temperature: float = 1.0, top_k: int = V, top_p: float = 1.0) -> Callable[[torch.Tensor], torch.Tensor]:
    def choose(scores: torch.Tensor) -> torch.Tensor:
        scores = scores / temperature
        for row in scores:
            order = row.argsort(descending=True).tolist()
            mass = row[order].softmax(-1).cumsum(-1).tolist()
            # The nucleus is the smallest set of the most probable symbols that reaches top_p.
            nucleus = 1 + sum(reached < top_p for reached in mass)
            row[order[min(top_k, nucleus) :]] = -torch.inf
        return torch.multinomial(scores.softmax(-1), 1).squeeze(1)

    return choose


@torch.no_grad()
def log_probability(model: Any, inputs: Inputs, row: int, sequence: torch.Tensor) -> tuple[float, int]:
    """Return the log-probability of the generated part of ``sequence``, and its number of tokens."""
    alone = row_of(inputs, row)
    start = prompt(model, alone)
    written = sequence[prompt(model, inputs).shape[1] :]
    if EOS in written.tolist():
        written = written[: written.tolist().index(EOS) + 1]
    ids = torch.cat([start, written[None]], dim=1)
    scores = logits(model, alone, ids)[0, start.shape[1] - 1 : -1].log_softmax(-1)
    return scores.gather(1, written[:, None]).sum().item(), len(written)


class Rising(LogitsProcessor):
    """Make the tokens unlikely that are not after the last one, and count the calls."""

    calls = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        before = torch.arange(scores.shape[1]) <= input_ids[:, -1:]
        return scores - 3 * before


class Twice(StoppingCriteria):
    """End a text in which its last token was written before, and count the calls."""

    calls = 0

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        self.calls += 1
        assert scores is None
        return (input_ids[:, :-1] == input_ids[:, -1:]).sum(1) > 1


MODES: list[dict[str, Any]] = [
    {"do_sample": False},
    {"do_sample": False, "min_new_tokens": 4, "repetition_penalty": 1.4, "return_dict_in_generate": True},
    {"do_sample": True, "top_k": 0, "temperature": 0.7, "num_return_sequences": 2},
    {"num_beams": 3, "do_sample": False, "num_return_sequences": 2, "length_penalty": 0.5, "no_repeat_ngram_size": 2},
    {"num_beams": 2, "do_sample": True, "top_k": 5, "early_stopping": True},
]


class Collected(BaseStreamer):
    def __init__(self) -> None:
        self.values: list[int] = []
        self.ended = False

    def put(self, value: torch.Tensor) -> None:
        self.values += value.flatten().tolist()

    def end(self) -> None:
        self.ended = True


# Lean steps, and the loop of transformers, for the models that have both.
both_ways = pytest.mark.parametrize("lean", [True, False], ids=["lean", "loop"])


def made(make: Make, lean: bool, **fields: object) -> Any:
    """Make a model that takes lean steps, or not."""
    model = make(**fields)
    model.fast_generation = lean
    return model


class GenerationTests:
    lengths = [2, 5, 3]

    def batch(self, lengths: list[int] | None = None, vocab_size: int = V) -> Inputs:
        return texts(lengths or self.lengths, vocab_size)

    @both_ways
    def test_greedy(self, make: Make, lean: bool) -> None:
        model, inputs = made(make, lean), self.batch()
        expected = literal(model, inputs, 20, lambda scores: scores.argmax(-1))
        for use_cache in (True, False):
            generated = model.generate(**inputs, max_new_tokens=20, do_sample=False, use_cache=use_cache)
            assert torch.equal(generated, expected)

    @pytest.mark.parametrize("options", [{}, {"temperature": 0.3}, {"temperature": 2.0}, {"top_k": 3}, {"top_p": 0.7}])
    @both_ways
    def test_sampling(self, make: Make, options: dict[str, float], lean: bool) -> None:
        model, inputs = made(make, lean), self.batch()
        set_seed(5)
        expected = literal(model, inputs, 20, draw(**options))
        for use_cache in (True, False):
            set_seed(5)
            generated = model.generate(
                **inputs, max_new_tokens=20, do_sample=True, **{"top_k": 0, **options}, use_cache=use_cache
            )
            assert torch.equal(generated, expected)

    @pytest.mark.parametrize("length_penalty", [0.0, 1.0, 2.0])
    def test_beam_search(self, make: Make, length_penalty: float) -> None:
        """Cached equals uncached, the n best are sorted, and a score is the text's log-probability."""
        model, inputs = make(), self.batch()
        options = {
            "max_new_tokens": 12,
            "num_beams": 4,
            "num_return_sequences": 3,
            "do_sample": False,
            "length_penalty": length_penalty,
            "return_dict_in_generate": True,
            "output_scores": True,
        }
        cached, uncached = (model.generate(**inputs, **options, use_cache=use_cache) for use_cache in (True, False))
        assert torch.equal(cached.sequences, uncached.sequences)
        torch.testing.assert_close(cached.sequences_scores, uncached.sequences_scores)
        scores = cached.sequences_scores.view(len(self.lengths), 3)
        assert (scores[:, :-1] >= scores[:, 1:]).all()
        assert not torch.equal(cached.sequences[0], cached.sequences[1])
        for index, sequence in enumerate(cached.sequences):
            total, number = log_probability(model, inputs, index // 3, sequence)
            expected = total / number**length_penalty
            assert cached.sequences_scores[index].item() == pytest.approx(expected, rel=1e-4)
            if model.config.is_encoder_decoder:
                assert not sequence[prompt(model, inputs).shape[1] + number :].any()  # padding

    def test_a_wide_beam_finds_the_most_probable_text(self, make: Make) -> None:
        model, steps = make(vocab_size=5, eos_token_id=None), 3
        inputs = self.batch([4], vocab_size=5)
        best = model.generate(**inputs, max_new_tokens=steps, num_beams=25, do_sample=False)

        def probability(continuation: tuple[int, ...]) -> float:
            ids = torch.cat([prompt(model, inputs), torch.tensor([continuation])], dim=1)
            with torch.no_grad():
                scores = logits(model, inputs, ids)[0, -steps - 1 : -1].log_softmax(-1)
            return sum(scores[t, symbol].item() for t, symbol in enumerate(continuation))

        expected = max(itertools.product(range(5), repeat=steps), key=probability)
        assert best[0, -steps:].tolist() == list(expected)

    @both_ways
    def test_num_return_sequences_draws_independent_rows(self, make: Make, lean: bool) -> None:
        model, inputs = made(make, lean), self.batch()
        set_seed(7)
        drawn = model.generate(**inputs, max_new_tokens=10, do_sample=True, top_k=0, num_return_sequences=3)
        set_seed(7)
        repeated = {name: tensor.repeat_interleave(3, 0) for name, tensor in inputs.items()}
        assert torch.equal(drawn, literal(model, repeated, 10, draw()))

    @pytest.mark.parametrize("num_beams", [1, 3])
    @both_ways
    def test_a_padded_batch_equals_its_rows_alone(self, make: Make, num_beams: int, lean: bool) -> None:
        model, inputs = made(make, lean), self.batch()
        options = {"max_new_tokens": 10, "do_sample": False, "num_beams": num_beams}
        batch = model.generate(**inputs, **options)
        start = prompt(model, inputs).shape[1]
        for row in range(len(self.lengths)):
            alone_inputs = row_of(inputs, row)
            alone = model.generate(**alone_inputs, **options)[0, prompt(model, alone_inputs).shape[1] :]
            assert torch.equal(batch[row, start : start + len(alone)], alone)
            # For language models, beam search takes a padding id of 0 for none, and pads with the end token.
            filler = EOS if num_beams > 1 and not model.config.is_encoder_decoder else PAD
            assert set(batch[row, start + len(alone) :].tolist()) <= {filler}

    @both_ways
    def test_rows_end_at_the_end_token(self, make: Make, lean: bool) -> None:
        model, inputs = made(make, lean, eos_token_id=None), self.batch()
        free = model.generate(**inputs, max_new_tokens=20, do_sample=False)
        start = prompt(model, inputs).shape[1]
        end = int(free[0, start + 3])
        stopped = model.generate(**inputs, max_new_tokens=20, do_sample=False, eos_token_id=end)
        position = free[0, start:].tolist().index(end) + start
        assert stopped[0, : position + 1].tolist() == free[0, : position + 1].tolist()
        assert not stopped[0, position + 1 :].any()

    @both_ways
    def test_streamer_receives_the_text_token_by_token(self, make: Make, lean: bool) -> None:
        model, inputs, streamer = made(make, lean), row_of(self.batch(), 1), Collected()
        generated = model.generate(**inputs, max_new_tokens=10, do_sample=False, streamer=streamer)
        assert streamer.values == generated[0].tolist()
        assert streamer.ended

    @pytest.mark.parametrize("options", MODES)
    def test_lean_steps_equal_the_loop_of_transformers(self, make: Make, options: dict[str, Any]) -> None:
        """With processors and criteria of the caller, which are called as often."""
        written, calls = [], []
        for lean in (True, False):
            model, inputs = made(make, lean), self.batch()
            processor, criterion = Rising(), Twice()
            set_seed(3)
            ids = model.generate(
                **inputs,
                **options,
                max_new_tokens=12,
                logits_processor=LogitsProcessorList([processor]),
                stopping_criteria=StoppingCriteriaList([criterion]),
            )
            written.append(ids if isinstance(ids, torch.Tensor) else ids.sequences)
            calls.append((processor.calls, criterion.calls))
        assert torch.equal(*written)
        assert calls[0] == calls[1]
        assert calls[0][0] > 1

    @pytest.mark.parametrize("change", ["none", "captured", "scores", "training", "hook", "mixed precision", "off"])
    def test_when_lean_steps_are_taken(self, make: Make, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Otherwise the loop of transformers runs, with the same text."""
        model, inputs, taken = made(make, True), self.batch(), []
        if not hasattr(model, "lean_steps") or model.why_not_fast() is not None:
            pytest.skip("this model has no lean steps")
        options: dict[str, Any] = {"max_new_tokens": 5, "do_sample": False}
        expected = model.generate(**inputs, **options)
        steps = model.lean_steps

        def counted(*given: Any) -> Any:
            taken.append(given)
            return steps(*given)

        monkeypatch.setattr(model, "lean_steps", counted)
        if change == "captured":  # in an earlier call, whose hooks stay
            model.generate(**inputs, **options, output_hidden_states=True, return_dict_in_generate=True)
        elif change == "scores":
            options |= {"output_scores": True, "return_dict_in_generate": True}
        elif change == "training":
            model.train()
        elif change == "hook":
            next(iter(model.children())).register_forward_hook(lambda *given: None)
        elif change == "mixed precision":
            monkeypatch.setattr(AcceleratorState, "_shared_state", {})
            Accelerator(mixed_precision="bf16", cpu=True).prepare_model(model, evaluation_mode=True)
        elif change == "off":
            model.fast_generation = False
        found = model.generate(**inputs, **options)
        assert len(taken) == (change in ("none", "captured"))
        assert (model.why_not_fast() is None) == (change in ("none", "captured", "scores"))
        if change != "training":  # dropout
            assert torch.equal(found.sequences if change == "scores" else found, expected)

    def test_max_length_counts_the_prompt(self, make: Make) -> None:
        model, inputs = make(eos_token_id=None), self.batch()
        assert model.generate(**inputs, max_length=9, do_sample=False).shape == (len(self.lengths), 9)

    def test_deterministic_under_a_seed(self, make: Make) -> None:
        model, inputs = make(), self.batch()
        drawn = []
        for seed in (1, 1, 2):
            set_seed(seed)
            drawn.append(model.generate(**inputs, max_new_tokens=20, do_sample=True, top_k=0, eos_token_id=None))
        assert torch.equal(drawn[0], drawn[1])
        assert not torch.equal(drawn[0], drawn[2])

    @pytest.mark.parametrize("options", [{"do_sample": False}, {"do_sample": True, "top_k": 0}, {"num_beams": 3}])
    def test_later_steps_read_one_token(self, make: Make, options: dict[str, object]) -> None:
        model, inputs = make(eos_token_id=None), self.batch()
        read: list[int] = []
        embedding = (model.get_decoder() if model.config.is_encoder_decoder else model).get_input_embeddings()
        embedding.register_forward_hook(lambda module, args, output: read.append(args[0].shape[1]))
        model.generate(**inputs, max_new_tokens=8, **options)
        assert read == [prompt(model, inputs).shape[1]] + [1] * 7


class Seq2SeqGenerationTests(GenerationTests):
    """More tests for encoder-decoders: the source is encoded once, and attention is returned with the text."""

    def test_the_source_is_encoded_once(self, make: Make) -> None:
        model, inputs = make(eos_token_id=None), self.batch()
        runs: list[int] = []
        model.get_encoder().register_forward_hook(lambda *_: runs.append(1))
        expected = model.generate(**inputs, max_new_tokens=8, num_beams=3)
        assert len(runs) == 1
        outputs = model.get_encoder()(**inputs, return_dict=True)
        masks = {name: tensor for name, tensor in inputs.items() if name == "attention_mask"}
        given = model.generate(encoder_outputs=outputs, **masks, max_new_tokens=8, num_beams=3)
        assert torch.equal(given, expected)
        assert len(runs) == 2

    def test_the_source_may_be_embeddings(self, make: Make) -> None:
        model, inputs = make(), self.batch()
        expected = model.generate(**inputs, max_new_tokens=10, do_sample=False)
        embeds = model.get_encoder().embed_tokens(inputs["input_ids"])
        generated = model.generate(
            inputs_embeds=embeds, attention_mask=inputs["attention_mask"], max_new_tokens=10, do_sample=False
        )
        assert torch.equal(generated, expected)

    @pytest.mark.parametrize("use_cache", [True, False])
    def test_attention_during_generation_equals_that_of_a_second_run(self, make: Make, use_cache: bool) -> None:
        model, inputs = make(attn_implementation="eager"), self.batch()
        generated = model.generate(
            **inputs,
            max_new_tokens=8,
            do_sample=False,
            use_cache=use_cache,
            output_attentions=True,
            return_dict_in_generate=True,
        )
        if not generated.cross_attentions[0]:
            pytest.skip("the model has no attention")
        with torch.no_grad():
            again = model(**inputs, decoder_input_ids=generated.sequences[:, :-1], output_attentions=True)
        for layer, weights in enumerate(again.cross_attentions):
            steps = [step[layer][:, :, -1:] for step in generated.cross_attentions]
            torch.testing.assert_close(torch.cat(steps, dim=2), weights)
            if "attention_mask" in inputs:
                assert (weights * (1 - inputs["attention_mask"])[:, None, None]).abs().max() == 0


__all__ = ["GenerationTests", "Inputs", "Make", "Seq2SeqGenerationTests", "literal", "row_of", "sharpen", "texts"]
