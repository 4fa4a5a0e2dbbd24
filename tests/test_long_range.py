"""The long-range tasks: labels by an independent evaluator, guesses by count, and a model that reads too little."""

import re
from collections import Counter

import pytest
import torch

from hfattn import VaswaniConfig, VaswaniForCausalLM
from hfattn.data import Demonstration, EncodedDemonstrations, LabeledTexts, guess_accuracy
from hfattn.data.chat import set_chat_template
from hfattn.data.demonstrations import Messages
from hfattn.data.labeled import Labeled
from hfattn.errors import UserError
from hfattn.generated import GENERATED, check_generated, duplicates, listops_texts, recalls
from hfattn.tokenizers import TokenizerConfig, build_tokenizer

ARENA = {"shortest": 500, "longest": 2000}


def messages(item: Demonstration) -> Messages:
    assert not isinstance(item.completion, str)
    return item.completion


def value_of(text: str) -> tuple[int, int]:
    """The value of a list and its depth, by rewriting the innermost list until a digit is left."""
    depth = 1
    while " " in text:
        text, number = re.subn(r"\[(MIN|MAX|MED|SM)((?: \d)+) \]", lambda match: str(innermost(*match.groups())), text)
        assert number, text
        depth += 1
    return int(text), depth


def innermost(operator: str, arguments: str) -> int:
    digits = sorted(map(int, arguments.split()))
    assert 2 <= len(digits) <= 10
    if operator == "SM":
        return sum(digits) % 10
    if operator == "MED":
        half = len(digits) // 2
        return digits[half] if len(digits) % 2 else (digits[half - 1] + digits[half]) // 2
    return digits[0 if operator == "MIN" else -1]


def test_the_class_of_a_list_is_its_value() -> None:
    texts = [*listops_texts("train", 60, 1, **ARENA), *listops_texts("test", 100, 1)]
    found = [value_of(item.text) for item in texts]
    assert [value for value, _ in found] == [item.label for item in texts]
    assert max(depth for _, depth in found) == 10
    assert {item.fields["root"] for item in texts} == {"MIN", "MAX", "MED", "SM"}
    assert all(item.text.startswith(f"[{item.fields['root']} ") for item in texts)
    lengths = [len(item.text.split()) for item in texts]
    assert all(500 < length < 2000 for length in lengths[:60])
    assert all(32 < length < 128 for length in lengths[60:])


@pytest.mark.examples
def test_the_guesses_at_the_rule_of_the_long_range_arena() -> None:
    """Over 20,000 lists: 17.0 % for the most frequent class and 36.3 % by the first operator; a deviation is 0.3 %."""
    texts = listops_texts("train", 20_000, 1, **ARENA)
    assert guess_accuracy(texts, texts) == pytest.approx(0.170, abs=0.01)
    assert guess_accuracy(texts, texts, "root") == pytest.approx(0.363, abs=0.01)


def test_guesses_are_learned_on_the_training_texts() -> None:
    train, test = (
        LabeledTexts("t", [Labeled("", label, None, {"root": root}) for root, label in rows], ["0", "1", "2"])
        for rows in ([("a", 0), ("a", 1), ("a", 1), ("b", 0), ("b", 0)], [("a", 1), ("b", 1), ("c", 0), ("a", 0)])
    )
    assert guess_accuracy(train, test) == 2 / 4  # 0 for all: the most frequent class of five
    assert guess_accuracy(train, test, "root") == 2 / 4  # 1 after a, 0 after b and after c, which is not in training


@pytest.mark.parametrize(("draw", "options"), [(duplicates, {"length": 16}), (recalls, {"pairs": 4, "queries": 2})])
def test_no_sequence_is_in_two_parts(draw: object, options: dict[str, int]) -> None:
    assert callable(draw)
    prompts = [{messages(item)[0]["content"] for item in draw(part, 300, seed, **options)}
               for seed, part in enumerate(("train", "validation", "test"))]  # fmt: skip
    assert len(set.union(*prompts)) == 900


def test_no_list_is_in_two_parts() -> None:
    parts = [
        {item.text for item in listops_texts(part, 60, seed)} for seed, part in enumerate(GENERATED["listops"].parts)
    ]
    assert len(set.union(*parts)) == 180


def test_a_copy_is_a_copy_and_a_guess_is_right_in_one_of_127() -> None:
    counts: Counter[str] = Counter()
    for item in duplicates("train", 200, 3, length=256):
        user, assistant = messages(item)
        assert user == {"role": "user", "content": f"0 {assistant['content']} 0"}
        symbols = assistant["content"].split()
        assert len(user["content"].split()) + len(symbols) == 256
        counts.update(symbols)
    assert set(counts) == {str(i) for i in range(1, 128)}
    assert max(counts.values()) / counts.total() == pytest.approx(1 / 127, rel=0.3)


def test_an_answer_is_the_value_of_the_key_and_keys_are_distinct() -> None:
    for item in recalls("test", 100, 2, pairs=12, queries=5, gap=7, symbols=20):
        told, *questions = (message["content"] for message in messages(item)[::2])
        answers = [message["content"] for message in messages(item)[1::2]]
        words = told.split()
        pairs, dots = dict(zip(words[:24:2], words[1:24:2], strict=True)), words[24:-1]
        asked = [words[-1], *questions]
        assert (len(pairs), dots, len(set(asked))) == (12, ["."] * 7, 5)
        assert answers == [pairs[key] for key in asked]


def test_the_loss_is_on_the_answers_alone() -> None:
    examples = recalls("train", 50, 1, pairs=6, queries=3, gap=2)
    texts = [text for item in examples for text in examples.texts(item)]
    tokenizer = build_tokenizer(TokenizerConfig(kind="whitespace"), texts, ends=True)
    set_chat_template(tokenizer, "plain")
    encoded = EncodedDemonstrations(examples, tokenizer, 64)
    for item, row in zip(examples, encoded.rows, strict=True):
        words = " ".join(message["content"] for message in messages(item)).split()
        assert tokenizer.convert_ids_to_tokens(row["input_ids"]) == words  # no marks, no end
        learned = [word for word, label in zip(words, row["labels"], strict=True) if label != -100]
        assert learned == [message["content"] for message in messages(item)[1::2]]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("listops", {"shortest": 32, "longest": 35}, "and these are 32 and 35; write 0 or more"),
        ("duplicate", {"length": 31}, "sequences of length 31 from 127 symbols; write an even length of at least 16"),
        ("recall", {"pairs": 80}, r"80 pairs of 32 keys, .*; write 4 to 32 pairs"),
        ("recall", {"pairs": 8, "queries": 9}, "9 questions"),
    ],
)
def test_options_that_do_not_fit(name: str, options: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        GENERATED[name].draw_parts(10, 10, 1, **options)


def test_options_are_those_of_the_dataset() -> None:
    check_generated("listops", {"longest": 600}, GENERATED)
    for name, options, message in (
        ("listops", {"longst": 600}, "'longst' is not an option of listops; did you mean 'longest'"),
        ("listops", {"longest": "600"}, r"options.longest is '600'; write a value like the default, 128\."),
    ):
        with pytest.raises(ValueError, match=message):
            check_generated(name, options, GENERATED)


@pytest.mark.parametrize(("window", "layers"), [(16, 2), (8, 3)])
@pytest.mark.parametrize("pattern", ["window", "full"])
def test_a_window_that_ends_before_the_copied_symbol_cannot_copy(pattern: str, window: int, layers: int) -> None:
    """With L (w - 1) < n / 2 - 1, a prediction is the same whatever the symbol to copy is; one position more, and it is
    not: the bound is exact."""
    torch.manual_seed(0)
    for more in (0, 1):
        length = 2 * (layers * (window - 1) + 2 - more)  # of 0 w 0 w; the symbol to copy is n / 2 - 1 back
        config = VaswaniConfig(
            **{"vocab_size": 20, "hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "dropout": 0.0},
            **{"decoder_layers": layers, "is_decoder": True, "is_encoder_decoder": False, "decoder_pattern": pattern},
            decoder_pattern_options={"window": window} if pattern == "window" else {},
        )
        model = VaswaniForCausalLM(config).double().eval()
        ids = torch.randint(3, 20, (1, length))
        ids[:, [0, length // 2]] = 2
        position = length - 2  # from which the last symbol is predicted
        source = position + 1 - length // 2
        embeddings = model.get_input_embeddings()(ids).detach().requires_grad_()
        model(inputs_embeds=embeddings).logits[0, position].square().sum().backward()
        assert embeddings.grad is not None
        reaches = bool(embeddings.grad[0, source].abs().max() > 0)
        assert reaches == (pattern == "full" or more == 1)
