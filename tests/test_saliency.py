"""Saliency of all kinds of models, and texts with a score for each piece."""

import csv
import html.parser
import math
import re
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgba
from tiny_models import TEXTS, byte_tokenizer, wordpiece_tokenizer
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerFast,
)

from hfattn import (
    BahdanauConfig,
    BahdanauForConditionalGeneration,
    CharRNNConfig,
    CharRNNForCausalLM,
    RNNEncoderConfig,
    RNNEncoderForSequenceClassification,
    VaswaniConfig,
    VaswaniForConditionalGeneration,
    VaswaniForSequenceClassification,
)
from hfattn.errors import UserError
from hfattn.explaining import (
    AttentionRecord,
    ScoredText,
    attribute,
    hidden_units,
    log_odds,
    plot_rows,
    plot_scores,
    render_rows_html,
    render_rows_text,
    render_scores_html,
    render_scores_text,
    saliency,
    saliency_rows,
    score_attention,
    score_tokens,
    score_unit,
    scores_snippet,
    strongest_unit,
    unit_states,
    write_rows_csv,
)
from hfattn.tokenizers import build_character_tokenizer

TEXT = "A moving story, wonderfully told."
WORDPIECES, BYTES = wordpiece_tokenizer(TEXTS, types=True), byte_tokenizer(TEXTS)
CHARACTERS = build_character_tokenizer(TEXTS)
ENDED = build_character_tokenizer(TEXTS, ends=True)
KINDS = ("bert", "vaswani", "rnn", "hierarchical", "gpt2", "char_rnn", "bahdanau", "translator", "marian")
SIDES = {
    "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "d_model": 16, "max_position_embeddings": 64,
}  # fmt: skip


def make(kind: str) -> tuple[Any, PreTrainedTokenizerFast]:
    """A small random model in float64, and its tokenizer."""
    torch.manual_seed(0)
    size, ends = len(WORDPIECES), len(ENDED)
    labels: dict[str, Any] = {"id2label": {0: "bad", 1: "middling", 2: "good"}}
    symbols = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    model: Any
    tokenizer = WORDPIECES
    if kind == "bert":
        model = BertForSequenceClassification(
            BertConfig(
                vocab_size=size, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
                max_position_embeddings=64, **labels,
            )
        )  # fmt: skip
    elif kind == "vaswani":
        model = VaswaniForSequenceClassification(
            VaswaniConfig(
                vocab_size=size, hidden_size=16, intermediate_size=16, encoder_layers=2, decoder_layers=2,
                num_attention_heads=2, is_encoder_decoder=False, bos_token_id=None, eos_token_id=None,
                decoder_start_token_id=None, **labels,
            )
        )  # fmt: skip
    elif kind in ("rnn", "hierarchical"):
        pooling = "attention" if kind == "rnn" else kind
        stops = tokenizer.convert_tokens_to_ids([".", ",", "[SEP]"]) if kind == "hierarchical" else []
        model = RNNEncoderForSequenceClassification(
            RNNEncoderConfig(
                vocab_size=size, embedding_size=8, hidden_size=8, pooling=pooling, sentence_end_token_ids=stops,
                pad_token_id=0, **labels,
            )
        )  # fmt: skip
    elif kind == "gpt2":
        tokenizer = BYTES
        model = GPT2LMHeadModel(GPT2Config(vocab_size=len(BYTES), n_embd=16, n_layer=2, n_head=2, n_positions=64))
    elif kind == "char_rnn":
        tokenizer = CHARACTERS
        config = CharRNNConfig(
            vocab_size=len(CHARACTERS), embedding_size=8, hidden_size=8, num_hidden_layers=2, cell="lstm"
        )
        model = CharRNNForCausalLM(config)
    elif kind == "bahdanau":
        tokenizer = ENDED
        config = BahdanauConfig(vocab_size=ends, hidden_size=8, encoder_hidden_size=8, embedding_size=8)
        model = BahdanauForConditionalGeneration(config)
    elif kind == "translator":
        tokenizer = ENDED
        config = VaswaniConfig.preset(
            "small", vocab_size=ends, hidden_size=16, intermediate_size=16, num_attention_heads=2,
            decoder_start_token_id=1, **symbols,
        )  # fmt: skip
        model = VaswaniForConditionalGeneration(config)
    else:
        tokenizer = ENDED
        config = MarianConfig(
            vocab_size=ends, decoder_start_token_id=0, forced_eos_token_id=None, **SIDES, **symbols
        )  # fmt: skip
        model = MarianMTModel(config)
    if getattr(model, "generation_config", None) is not None:
        model.generation_config.max_new_tokens, model.generation_config.max_length = 5, None
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1 and parameter.requires_grad:  # tables of positions stay
                parameter.normal_(std=0.3)
    return model, tokenizer


class PaddedTokenizer(PreTrainedTokenizerFast):
    """Pads each text to 50 tokens."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        return super().__call__(*args, padding="max_length", max_length=50, **options)


# Against formulas


def test_gradient_x_input_is_exact_where_the_model_is_linear() -> None:
    weights = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    inputs = torch.randn(1, 4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def linear(rows: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bsd,sd->b", rows, weights) + 7

    expected = [sum(float(inputs[0, s, d] * weights[s, d]) for d in range(3)) for s in range(4)]
    for method in ("gradient_x_input", "integrated_gradients"):
        scores = attribute(linear, inputs, method, steps=3)
        torch.testing.assert_close(scores, torch.tensor(expected, dtype=torch.float64))


def test_integrated_gradients_follow_their_integral() -> None:
    """For F = (x_1 x_2)², the integral is 2 x_1² x_2² / 4 for either; the gradient alone says twice the whole."""
    inputs = torch.tensor([[[2.0], [3.0]]], dtype=torch.float64)

    def product(rows: torch.Tensor) -> torch.Tensor:
        return rows.prod(1)[:, 0] ** 2

    torch.testing.assert_close(attribute(product, inputs, "integrated_gradients"), torch.tensor([18.0, 18.0]).double())
    torch.testing.assert_close(attribute(product, inputs), torch.tensor([72.0, 72.0]).double())


def test_log_odds_are_those_of_the_softmax() -> None:
    logits = torch.randn(2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for row in range(2):
        for target in range(4):
            p = float(logits[row].softmax(-1)[target])
            assert float(log_odds(logits, target)[row]) == pytest.approx(math.log(p / (1 - p)))


# All kinds of models


@pytest.mark.parametrize("kind", KINDS)
def test_integrated_gradients_are_complete(kind: str) -> None:
    model, tokenizer = make(kind)
    scored = saliency(model, tokenizer, TEXT, method="integrated_gradients", steps=48)
    assert "".join(scored.tokens) == TEXT
    assert scored.output is not None
    assert scored.baseline is not None
    assert scored.gap is not None
    change = scored.output - scored.baseline
    assert abs(change) > 1e-3
    assert scored.gap == pytest.approx(0, abs=0.02 * abs(change) + 0.01)
    assert float(scored.scores.sum()) + scored.rest == pytest.approx(change + scored.gap)


@pytest.mark.parametrize("kind", ["bert", "vaswani", "rnn", "hierarchical", "gpt2", "char_rnn"])
def test_gradient_x_input_is_a_derivative(kind: str) -> None:
    """The scores of all tokens together are how F changes when all embeddings grow a little."""
    model, tokenizer = make(kind)
    scored, step = saliency(model, tokenizer, TEXT), 1e-5
    known = []
    for factor in (1 - step, 1 + step):
        hook = model.get_input_embeddings().register_forward_hook(lambda _, __, output, by=factor: output * by)
        known.append(saliency(model, tokenizer, TEXT).output or 0.0)
        hook.remove()
    slope = (known[1] - known[0]) / (2 * step)
    assert float(scored.scores.sum()) + scored.rest == pytest.approx(slope, rel=1e-4)
    assert abs(slope) > 1e-3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["gradient_x_input", "integrated_gradients"])
def test_padding_changes_nothing(kind: str, method: str) -> None:
    model, tokenizer = make(kind)
    padded = PaddedTokenizer(
        tokenizer_object=tokenizer.backend_tokenizer,
        padding_side="right" if tokenizer is BYTES else tokenizer.padding_side,
        **{name: getattr(tokenizer, name) for name in tokenizer.special_tokens_map if name != "pad_token"},
        pad_token=tokenizer.pad_token or tokenizer.eos_token,
    )
    assert len(padded(TEXT).input_ids) == 50 > len(tokenizer(TEXT).input_ids)
    known, result = (saliency(model, each, TEXT, method=method, steps=8) for each in (tokenizer, padded))
    assert known.tokens == result.tokens
    torch.testing.assert_close(known.scores, result.scores)
    assert result.rest == pytest.approx(known.rest, abs=1e-9)
    assert result.output == pytest.approx(known.output)


@pytest.mark.parametrize("kind", KINDS)
def test_occlusion_is_what_changes_without_a_token(kind: str) -> None:
    """Against a loop that replaces the embedding of one token, and of one word, after another."""
    model, tokenizer = make(kind)
    encoded = tokenizer(TEXT, return_tensors="pt", return_special_tokens_mask=True, return_offsets_mapping=True)
    blanks = (tokenizer.mask_token, tokenizer.unk_token, tokenizer.pad_token)
    blank = next((token for token in blanks if token is not None), None)
    vector = 0.0 if blank is None else model.get_input_embeddings().weight[tokenizer.convert_tokens_to_ids(blank)]

    def without(places: list[int]) -> float:
        def replaced(_: Any, __: Any, output: torch.Tensor) -> torch.Tensor:
            output = output.clone()
            output[:, places] = vector
            return output

        hook = model.get_input_embeddings().register_forward_hook(replaced)
        try:
            answer = saliency(model, tokenizer, TEXT, **given).output
            assert answer is not None
            return answer
        finally:
            hook.remove()

    given: dict[str, Any] = {}
    if model.config.is_encoder_decoder and model.can_generate():
        given = {"translation": "told"}
    elif model.can_generate():
        given = {"target": 5}
    else:
        given = {"target": 0}
    scored = saliency(model, tokenizer, TEXT, method="occlusion", **given)
    assert scored.method == f"occlusion (by {blank or 'zero'})"
    assert scored.gap is None
    assert scored.output is not None
    real = [place for place, special in enumerate(encoded["special_tokens_mask"][0].tolist()) if not special]
    assert scored.scores.tolist() == pytest.approx([scored.output - without([place]) for place in real], abs=1e-6)

    words = saliency(model, tokenizer, TEXT, method="occlusion", by_word=True, **given)
    assert [word.strip() for word in words.tokens] == ["A", "moving", "story", ",", "wonderfully", "told", "."]
    start = len("".join(words.tokens[:4]))
    end = start + len(words.tokens[4])
    inside = [place for place in real if start <= encoded["offset_mapping"][0, place, 0] < end]
    assert len(inside) > 1 or tokenizer is WORDPIECES
    assert words.scores[4].item() == pytest.approx(scored.output - without(inside), abs=1e-6)


@pytest.mark.parametrize("kind", ["bert", "gpt2", "bahdanau"])
def test_a_contrast_is_a_difference_of_log_probabilities(kind: str) -> None:
    """F by a softmax over the answers; it is complete, and what counts for one answer counts against the other."""
    model, tokenizer = make(kind)
    options: dict[str, Any] = {}
    with torch.no_grad():
        inputs = tokenizer(TEXT, return_tensors="pt")
        if kind == "bert":
            one, other, logits = "bad", "good", model(**inputs).logits[0]
            numbers = [0, 2]
        elif kind == "gpt2":
            one, other, logits = "w", "m", model(**inputs).logits[0, -1]
            numbers = tokenizer.convert_tokens_to_ids([one, other])
        else:
            options, other = {"translation": "told", "target": 2}, "m"
            labels = tokenizer("told", return_tensors="pt").input_ids
            logits, numbers = model(**inputs, labels=labels).logits[0, 2], [int(labels[0, 2]), tokenizer.vocab["m"]]
            one = "l"
    shares = logits.log_softmax(-1)
    options = options or {"target": one}
    scored = saliency(model, tokenizer, TEXT, contrast=other, method="integrated_gradients", **options)
    assert scored.target == f"{one} rather than {other}"
    assert scored.unit == "nats of log-probability"
    assert scored.output == pytest.approx(float(shares[numbers[0]] - shares[numbers[1]]))
    assert scored.gap == pytest.approx(0, abs=0.02)
    assert "change of the log-probability ratio from an empty input" in render_scores_text(scored)
    if kind != "bahdanau":
        towards = saliency(model, tokenizer, TEXT, target=one, contrast=other)
        against = saliency(model, tokenizer, TEXT, target=other, contrast=one)
        torch.testing.assert_close(towards.scores, -against.scores)


def test_the_whole_own_translation_is_explained() -> None:
    """Without a length in the generation configuration, the default of transformers would end it after 20 tokens."""
    model, tokenizer = make("bahdanau")
    model.generation_config.update(max_length=None, max_new_tokens=None, suppress_tokens=[model.config.eos_token_id])
    last = saliency(model, tokenizer, TEXT, target=255)
    assert last.output is not None
    with pytest.raises(ValueError, match="target is 256; write the index of a token in the translation, 0 to 255"):
        saliency(model, tokenizer, TEXT, target=256)


@pytest.mark.parametrize("kind", ["bahdanau", "translator", "marian"])
@pytest.mark.parametrize("method", ["gradient_x_input", "integrated_gradients", "occlusion"])
def test_a_row_for_each_token_of_a_translation(kind: str, method: str) -> None:
    """Each is what ``saliency`` says of that token; integrated gradients are complete in each row."""
    model, tokenizer = make(kind)
    rows = saliency_rows(model, tokenizer, TEXT, method=method, translation="told", steps=48)
    names = tokenizer.convert_ids_to_tokens(tokenizer(text_target="told").input_ids)
    assert [row.target for row in rows] == names
    for place in (0, len(rows) - 1):
        options: dict[str, Any] = {"method": method, "translation": "told", "steps": 48}
        known = saliency(model, tokenizer, TEXT, target=place, **options)
        torch.testing.assert_close(rows[place].scores, known.scores)
        assert rows[place].output == known.output
    for row in rows:
        if method == "integrated_gradients":
            assert row.output is not None
            assert row.baseline is not None
            change = row.output - row.baseline
            assert float(row.scores.sum()) + row.rest == pytest.approx(change, abs=0.02 * abs(change) + 0.01)
        else:
            assert (row.gap is None) == (method == "occlusion")


def test_rows_are_drawn_and_written(tmp_path: Path) -> None:
    rows = [
        ScoredText(("a ", "<b> ", "c"), torch.tensor([2.0, -1.0, 0.25]), "occlusion", "▁x", "nats", 0.5, 1.0),
        ScoredText(("a ", "<b> ", "c"), torch.tensor([0.0, 0.5, -0.1]), "occlusion", "[EOS]", "nats"),
    ]
    assert render_rows_text(rows, 2) == "␣x    ← a +2.00   <b> -1.00\n[EOS] ← <b> +0.50   c -0.10"
    header, *lines = csv.reader(write_rows_csv(rows).splitlines())
    assert header == ["", "a", "<b>", "c", "special tokens", "F(x)", "F(0)"]
    assert lines[0] == ["▁x", "2.0", "-1.0", "0.25", "0.5", "1.0", ""]
    page = render_rows_html(rows)
    assert "b" not in Page(page).tags
    numbers = [["+2.00", "-1.00", "+0.25", "+0.50"], ["+0.00", "+0.50", "-0.10", "+0.00"]]  # with special tokens
    assert [re.findall(r"<td[^>]*>([-+.\d]+)", line) for line in page.splitlines() if "<tr>" in line][-2:] == numbers
    figure = plot_rows(rows)
    figure.draw_without_rendering()
    axes, bar = figure.axes
    assert [text.get_text() for text in axes.texts] == ["+2.0", "-1.0", "+0.2", "+0.0", "+0.5", "-0.1"]
    shown = [*axes.texts, *axes.get_xticklabels(), *axes.get_yticklabels(), *figure.texts, *bar.texts]
    for box in [text.get_window_extent() for text in shown]:
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= figure.bbox.width
        assert box.y1 <= figure.bbox.height
    for draw in (plot_rows, render_rows_html, render_rows_text, write_rows_csv):
        with pytest.raises(ValueError, match="The list of rows is empty"):
            draw([])
        with pytest.raises(ValueError, match="The rows belong to different texts"):
            draw([*rows, ScoredText(("a",), torch.ones(1), "")])


def test_contrasts_and_rows_that_there_are_not() -> None:
    model, tokenizer = make("bert")
    with pytest.raises(ValueError, match="contrast is 'fine', which is not a class; write one of bad, middling, good"):
        saliency(model, tokenizer, TEXT, contrast="fine")
    with pytest.raises(ValueError, match="contrast is 'bad', which is the answer itself"):
        saliency(model, tokenizer, TEXT, target="bad", contrast=0)
    with pytest.raises(UserError, match="the model does not translate; use saliency"):
        saliency_rows(model, tokenizer, TEXT)
    model, tokenizer = make("bahdanau")
    with pytest.raises(ValueError, match=r"A contrast needs target, the index of a token in .*, 0 to 4: t o"):
        saliency(model, tokenizer, TEXT, translation="told", contrast="m")
    with pytest.raises(ValueError, match="contrast is 'mo', which is 2 tokens"):
        saliency(model, tokenizer, TEXT, translation="told", target=0, contrast="mo")
    config = RNNEncoderConfig(vocab_size=len(WORDPIECES), embedding_size=8, hidden_size=8, num_labels=1)
    with pytest.raises(UserError, match="A contrast needs classes of which one is right"):
        saliency(RNNEncoderForSequenceClassification(config), WORDPIECES, TEXT, contrast=0)


def test_targets() -> None:
    model, tokenizer = make("bert")
    with torch.no_grad():
        logits = model(**tokenizer(TEXT, return_tensors="pt")).logits[0]
    best = int(logits.argmax())
    assert saliency(model, tokenizer, TEXT).target == ("bad", "middling", "good")[best]
    for target, name in ((0, "bad"), ("good", "good")):
        scored = saliency(model, tokenizer, TEXT, target=target)
        assert scored.target == name
        number = 0 if target == 0 else 2
        assert scored.output == pytest.approx(float(log_odds(logits, number)))

    model, tokenizer = make("gpt2")
    with torch.no_grad():
        logits = model(**tokenizer(TEXT, return_tensors="pt")).logits[0, -1]
    known = saliency(model, tokenizer, TEXT, target="w")
    assert known.target == "w"
    assert known.output == pytest.approx(float(log_odds(logits, tokenizer.convert_tokens_to_ids("w"))))

    model, tokenizer = make("bahdanau")
    whole = saliency(model, tokenizer, TEXT, translation="told")
    parts = [saliency(model, tokenizer, TEXT, translation="told", target=place) for place in range(5)]
    assert whole.target == "told"
    assert [part.target for part in parts] == ["t", "o", "l", "d", "[EOS]"]
    torch.testing.assert_close(whole.scores, torch.stack([part.scores for part in parts]).sum(0))
    labels = tokenizer("told", return_tensors="pt").input_ids
    with torch.no_grad():
        logits = model(**tokenizer(TEXT, return_tensors="pt"), labels=labels).logits[0]
    assert parts[2].output == pytest.approx(float(log_odds(logits[2], int(labels[0, 2]))))


def test_models_of_one_number() -> None:
    torch.manual_seed(0)
    for problem, unit, outputs in (("regression", "", 1), ("multi_label_classification", "nats of log-odds", 3)):
        config = RNNEncoderConfig(
            vocab_size=len(WORDPIECES), embedding_size=8, hidden_size=8, num_labels=outputs, problem_type=problem
        )
        model = RNNEncoderForSequenceClassification(config).double().eval()
        with torch.no_grad():
            logits = model(WORDPIECES(TEXT, return_tensors="pt").input_ids).logits[0]
        scored = saliency(model, WORDPIECES, TEXT, target=outputs - 1)
        assert scored.unit == unit
        assert scored.output == pytest.approx(float(logits[-1]))


def test_training_mode_and_threads() -> None:
    """Dropout is off meanwhile, and several threads with one model do not mix their texts up."""
    model, tokenizer = make("bert")
    known = saliency(model, tokenizer, TEXT)
    model.train()
    again = saliency(model, tokenizer, TEXT)
    assert model.training
    torch.testing.assert_close(known.scores, again.scores)
    assert all(parameter.grad is None for parameter in model.parameters())
    model.eval()
    texts = [TEXT, TEXTS[1], TEXTS[2]]
    expected = [saliency(model, tokenizer, text).scores for text in texts]
    found: list[Any] = [None] * 12

    def ask(place: int) -> None:
        found[place] = saliency(model, tokenizer, texts[place % 3]).scores

    threads = [Thread(target=ask, args=(place,)) for place in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for place, scores in enumerate(found):
        torch.testing.assert_close(scores, expected[place % 3])


def test_what_cannot_be_answered() -> None:
    bert, gpt2, bahdanau = (make(kind) for kind in ("bert", "gpt2", "bahdanau"))
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig(vocab_size=len(WORDPIECES), **small)
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (bert, {"method": "lime"}, "method is 'lime'; write one of 'gradient_x_input', 'integrated_gradients'"),
        (bert, {"method": "integrated_gradients", "steps": 0}, "steps is 0"),
        (bert, {"target": "fine"}, "target is 'fine', which is not a class; write one of bad, middling, good"),
        (bert, {"target": 3}, "target is 3, which is not a class"),
        (bert, {"text": " "}, "The text is empty"),
        (bert, {"text": "A story. " * 60}, r"has \d+ tokens, and the model has 64 positions; shorten the text"),
        (gpt2, {"target": "xyz!"}, r"'xyz!', which is \d tokens; write one token"),
        (gpt2, {"target": 9999}, "target is 9999; the vocabulary has"),
        (bahdanau, {"translation": "told", "target": 5}, r"target is 5; write the index .* 0 to 4: t o l d \[EOS\]"),
        ((BertForMaskedLM(config), WORDPIECES), {}, "an answer for each token"),
        ((BertModel(config), WORDPIECES), {}, "has no head"),
    ]
    for (model, tokenizer), arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            saliency(model, tokenizer, **({"text": TEXT} | arguments))
    model, tokenizer = make("rnn")
    with torch.no_grad():
        model.classifier.weight.fill_(math.nan)
    with pytest.raises(ValueError, match="gradients contain NaN or infinity in float64"):
        saliency(model, tokenizer, TEXT)


def test_saliency_works_without_captum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "captum", None)
    model, tokenizer = make("rnn")
    assert saliency(model, tokenizer, TEXT).scores.any()
    with pytest.raises(
        UserError, match=r"needs captum, which is not installed; run: .* -m pip install 'hfattn\[explain\]'"
    ):
        saliency(model, tokenizer, TEXT, method="integrated_gradients")


# Scores on a text


def test_pieces_join_to_the_text() -> None:
    for tokenizer, text in (
        (WORDPIECES, "  A  wonderful film — isn't it?\n"),
        (BYTES, " A café, 👩‍🚀 and サッカー "),
        (CHARACTERS, "The dog.  A"),
        (ENDED, "The dog."),
    ):
        ids = tokenizer(text).input_ids
        scored = score_tokens(text, tokenizer, torch.arange(1.0, len(ids) + 1), "order")
        assert "".join(scored.tokens) == text
        assert float(scored.scores.sum()) + scored.rest == pytest.approx(len(ids) * (len(ids) + 1) / 2)
        words = scored.by_word()
        assert "".join(words.tokens) == text
        assert float(words.scores.sum()) == pytest.approx(float(scored.scores.sum()))
    assert "".join(token for token in score_tokens("é", BYTES, torch.ones(2), "").tokens) == "é"  # two bytes, one piece
    assert score_tokens("é", BYTES, torch.ones(2), "").scores.tolist() == [2]


def test_words() -> None:
    text = "Isn't it  good? (Sí—muy 好的 film.)"
    known = ["Isn't ", "it  ", "good", "? ", "(", "Sí", "—", "muy ", "好", "的 ", "film", ".)"]
    scored = ScoredText(tuple(text), torch.ones(len(text)), "length")
    words = scored.by_word()
    assert list(words.tokens) == known
    assert words.scores.tolist() == [len(word) for word in known]


def test_attention_on_a_text() -> None:
    ids = WORDPIECES(TEXT).input_ids
    names = tuple(WORDPIECES.convert_ids_to_tokens(ids))
    weights = torch.rand(2, 2, len(ids), len(ids), generator=torch.Generator().manual_seed(0)).softmax(-1)
    record = AttentionRecord(names, names, weights, "self")
    first = score_attention(record, TEXT, WORDPIECES, 0, layer=1)
    assert first.target == "[CLS]"
    matrix = record.matrix(1)
    torch.testing.assert_close(first.scores, matrix[0, 1:-1])
    assert first.rest == pytest.approx(float(matrix[0, 0] + matrix[0, -1]))
    mean = score_attention(record, TEXT, WORDPIECES)
    torch.testing.assert_close(mean.scores, record.matrix().mean(0)[1:-1])
    with pytest.raises(ValueError, match="row is 99; the record has"):
        score_attention(record, TEXT, WORDPIECES, 99)
    with pytest.raises(ValueError, match="the tokenizer splits this text into 3 tokens"):
        score_attention(record, "A", WORDPIECES)


class SlowTokenizer:
    """What is asked of a tokenizer that does not say where its tokens stand, such as Marian's."""

    is_fast = False

    def __call__(self, text: str, **options: Any) -> dict[str, Any]:
        assert not options["return_offsets_mapping"]
        return {"input_ids": [0, 1, 2], "special_tokens_mask": [0, 0, 1]}

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return ["▁A", "▁film", "</s>"][: len(ids)]


def test_a_tokenizer_without_places() -> None:
    scored = score_tokens("A film", SlowTokenizer(), torch.tensor([1.0, 2.0, 4.0]), "")
    assert scored.tokens == (" A", " film")
    assert (scored.scores.tolist(), scored.rest) == ([1, 2], 4)
    assert scored.by_word().tokens == (" A", " film")


# Pictures


HARD = ScoredText(
    ("</script><b>", " ", "\n", "$x^{ ", "כדורגל ", "كرة ", "サッカー", "👩‍🚀", "&amp; ", "x" * 90, "\n\n", "end"),
    torch.linspace(-1, 2, 12),
    "gradient × input",
    "<good>",
    "nats",
)


class Page(html.parser.HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.titles: list[str] = []
        self.text = ""
        self.inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.inside.append(tag)
        self.titles += [value or "" for name, value in attrs if name == "title"]

    def handle_endtag(self, tag: str) -> None:
        self.inside.pop()

    def handle_data(self, data: str) -> None:
        if self.inside and self.inside[-1] in ("p", "span") and "div" in self.inside and len(self.inside) > 1:
            self.text += data


def test_a_page_colors_each_piece() -> None:
    page = render_scores_html(HARD)
    read = Page(page)
    assert "script" not in read.tags
    assert "b" not in read.tags
    assert "default-src 'none'" in page
    assert "gradient × input → &lt;good&gt;" in page
    assert len(read.titles) == 12
    assert read.titles[0] == "</script><b>: -1"
    assert read.titles[-1] == "end: +2"
    for token in HARD.tokens:
        assert token.strip() in read.text
    assert not re.search(r"[a-z]+://", page)
    strengths = [int(s, 16) for s in re.findall(r'<span[^>]* style="background:#[0-9a-f]{6}([0-9a-f]{2})', page)]
    assert strengths == [round(255 * 0.7 * abs(score) / 2) for score in HARD.scores.tolist()]
    whole = [int(s, 16) for s in re.findall(r"background:#0072b2([0-9a-f]{2})", scores_snippet(HARD, limit=1))]
    assert max(whole) == round(255 * 0.7)  # nothing is stronger than the full color
    assert "-2" in Page(scores_snippet(HARD)).text
    positive = ScoredText(("a ", "b"), torch.tensor([0.2, 0.8]), "attention")
    assert Page(scores_snippet(positive)).text.endswith("0+0.8")
    assert "<small>" not in scores_snippet(HARD)
    small = ScoredText(("a ", "b ", "c"), torch.tensor([-0.001, 0.8, -0.25]), "gradient × input")
    for scored, numbers in ((positive, ["0.20", "0.80"]), (small, ["+0.00", "+0.80", "−0.25"])):
        assert re.findall("<small>(.*?)</small>", scores_snippet(scored, numbers=True)) == numbers


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_a_plot_of_hard_pieces(tmp_path: Path, kind: str) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # what this machine's fonts lack
        plot_scores(HARD).savefig(tmp_path / f"scores.{kind}")
    assert (tmp_path / f"scores.{kind}").stat().st_size > 2000


def test_a_plot_breaks_lines_and_cuts_nothing() -> None:
    words = " ".join(f"word{i}" for i in range(60)).split(" ")
    scored = ScoredText(tuple(f"{word} " for word in words), torch.linspace(-1, 1, 60), "attention")
    figure = plot_scores(scored, title="A title")
    figure.draw_without_rendering()
    axes, bar = figure.axes
    assert [text.get_text() for text in axes.texts[::2]] == words
    assert [text.get_text() for text in axes.texts[1::2]] == [f"{score:+.2g}" for score in scored.scores.tolist()]
    boxes = [text.get_window_extent() for text in (*axes.texts, *figure.texts)] + [bar.get_tightbbox()]
    for box in boxes:
        assert box is not None
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= figure.bbox.width
        assert box.y1 <= figure.bbox.height
    lines = {round(text.get_position()[1], 3) for text in axes.texts}
    assert len(lines) > 6
    assert all(
        not one.overlaps(other) for i, one in enumerate(boxes[:120]) for other in boxes[i + 1 : 120] if one and other
    )
    characters = plot_scores(ScoredText(tuple("to be"), torch.ones(5), "unit 3"))
    assert len(characters.axes[0].texts) == 5  # no numbers
    shown = [to_rgba(patch.get_facecolor())[3] for patch in axes.patches]
    assert shown == pytest.approx([0.7 * abs(score) for score in scored.scores.tolist()], abs=0.5 / 255)


def test_scores_in_a_terminal() -> None:
    scored = ScoredText(("good ", "bad "), torch.tensor([2.0, -1.0]), "", rest=0.5, output=3.0, baseline=1.0)
    assert scored.gap == pytest.approx(-0.5)
    assert render_scores_text(scored) == (
        "good   +2.0000 ++++++++++++++++++++\nbad    -1.0000 ----------\nspecial tokens +0.5000\n"
        "sum of scores +1.5; change of the prediction from an empty input +2"
    )
    assert "change of the log-odds from" in render_scores_text(replace(scored, unit="nats of log-odds"))
    assert render_scores_text(scored, most=1).splitlines()[1].startswith("special")


def test_what_cannot_be_drawn() -> None:
    empty, odd = ScoredText((), torch.ones(0), ""), ScoredText(("a",), torch.tensor([math.inf]), "")
    for draw in (scores_snippet, plot_scores, render_scores_text):
        with pytest.raises(ValueError, match="has no tokens"):
            draw(empty)
        with pytest.raises(ValueError, match="NaN or infinity"):
            draw(odd)
    with pytest.raises(ValueError, match=r"limit is -1; write the score, above 0"):
        plot_scores(HARD, limit=-1)
    with pytest.raises(ValueError, match=r"has shape \(2,\); 1 tokens need \(1,\)"):
        ScoredText(("a",), torch.ones(2), "")


# Units


@torch.no_grad()
def test_units_of_a_text() -> None:
    model, tokenizer = make("char_rnn")
    units = hidden_units(model, tokenizer, TEXT)
    assert units.values.shape == (len(TEXT), 16)
    cache = model.model(tokenizer(TEXT[:9], return_tensors="pt").input_ids, use_cache=True).past_key_values
    np.testing.assert_allclose(units.values[8], unit_states(cache)[0], rtol=1e-5)
    scored = score_unit(units, 11)
    assert "".join(scored.tokens) == TEXT
    assert scored.method == "unit 11"
    assert scored.scores.tolist() == units.values[:, 11].tolist()
    spreads = [float(np.var(units.values[:, u])) for u in range(16)]
    assert strongest_unit(units) == spreads.index(max(spreads))
    with pytest.raises(ValueError, match="unit is 16; the model has 16: write 0 to 15"):
        score_unit(units, 16)
    with pytest.raises(ValueError, match="A bert has no hidden units"):
        hidden_units(*make("bert"), TEXT)
