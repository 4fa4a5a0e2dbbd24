"""Small models as a release saves them, with their outputs: python tests/released_models.py VERSION

They are written to ``tests/releases/VERSION`` before the release. After it they are never written again: later versions
have to load them, and compute the same (``test_releases.py``). Their code is not kept, because a published folder runs
on its own.
"""

import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import PreTrainedModel

import hfattn
from hfattn.tokenizers import build_character_tokenizer

RELEASES = Path(__file__).parent / "releases"
OUTPUTS = "outputs.safetensors"
_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_START = {**_IDS, "decoder_start_token_id": 1}


def models(size: int) -> dict[str, PreTrainedModel]:
    """Make one model of each class and kind, with random weights.

    Args:
        size: of the vocabulary.
    """
    recurrent: dict[str, Any] = {"vocab_size": size, "embedding_size": 6, "hidden_size": 8}
    stacks: dict[str, Any] = {
        "vocab_size": size,
        "hidden_size": 8,
        "intermediate_size": 12,
        "num_attention_heads": 2,
        "encoder_layers": 2,
        "decoder_layers": 2,
    }
    one: dict[str, Any] = {**stacks, "is_encoder_decoder": False}
    attends: dict[str, Any] = {
        "attention_score": "general",
        "attention_position": "after",
        "input_feeding": True,
        "output_layer": "attentional",
    }
    return {
        "char_rnn_lstm": hfattn.CharRNNForCausalLM(hfattn.CharRNNConfig(vocab_size=size, hidden_size=8, cell="lstm")),
        "char_rnn_gru": hfattn.CharRNNForCausalLM(hfattn.CharRNNConfig(vocab_size=size, hidden_size=8, cell="gru")),
        "bahdanau": hfattn.BahdanauForConditionalGeneration(
            hfattn.BahdanauConfig(**recurrent, **_START, encoder_hidden_size=4)
        ),
        "luong": hfattn.BahdanauForConditionalGeneration(
            hfattn.BahdanauConfig(**recurrent, **_START, **attends, encoder_hidden_size=4)
        ),
        "rnn_classifier": hfattn.RNNEncoderForSequenceClassification(
            hfattn.RNNEncoderConfig(**recurrent, pad_token_id=0, pooling="attention", num_labels=3)
        ),
        "rnn_tagger": hfattn.RNNEncoderForTokenClassification(
            hfattn.RNNEncoderConfig(**recurrent, pad_token_id=0, num_labels=3)
        ),
        "vaswani": hfattn.VaswaniForConditionalGeneration(hfattn.VaswaniConfig(**stacks, **_START)),
        "vaswani_decoder": hfattn.VaswaniForCausalLM(hfattn.VaswaniConfig(**one, **_IDS)),
        "vaswani_encoder": hfattn.VaswaniForMaskedLM(hfattn.VaswaniConfig(**one, pad_token_id=0)),
        "vaswani_classifier": hfattn.VaswaniForSequenceClassification(
            hfattn.VaswaniConfig(**one, pad_token_id=0, num_labels=3)
        ),
    }


@torch.no_grad()
def outputs(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Compute logits of two padded rows, and what a generating model writes after the first one."""
    ids = torch.tensor([[3, 4, 5, 6, 7], [5, 3, 0, 0, 0]])
    inputs = {"input_ids": ids, "attention_mask": (ids != 0).long()}
    decoder = {"decoder_input_ids": torch.tensor([[1, 4, 6], [1, 5, 3]])} if model.config.is_encoder_decoder else {}
    found = {"logits": model(**inputs, **decoder).logits.contiguous()}
    if model.can_generate():
        first = {name: value[:1] for name, value in inputs.items()}
        found["generated"] = model.generate(**first, do_sample=False, max_new_tokens=8, num_beams=2).contiguous()
    return found


def main(version: str) -> None:
    folder = RELEASES / version
    if folder.exists():
        sys.exit(f"error: {folder} exists, and the models of a release are written once; give another version.")
    torch.manual_seed(0)
    tokenizer = build_character_tokenizer(["abcdefgh "], ends=True)
    for name, model in models(len(tokenizer)).items():
        for weight in model.parameters():
            torch.nn.init.normal_(weight, std=0.5)
        model.eval().save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
        for path in (folder / name).glob("*.py"):
            path.unlink()
        save_file(outputs(model), folder / name / OUTPUTS)


if __name__ == "__main__":
    main(*sys.argv[1:])
