"""Compare a training step of the recurrent encoder-decoder with a loop that computes everything at each step.

    python benchmarks/bahdanau.py [--threads 1] [--batch 16] [--length 32] [--rounds 5] [--width 256 --vocabulary 8000]

Times the preset ``bahdanau2015``, forward and backward, and the same weights in a loop that computes embedding, key
projection, gates, maxout, logits and loss at each step. Both give the same loss. The two alternate; "decoder" excludes
the encoder. --width and --vocabulary select a smaller model whose layers all have that width.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from hfattn import BahdanauConfig, BahdanauForConditionalGeneration


def step_by_step(model: Any, annotations: torch.Tensor, final_state: torch.Tensor, labels: torch.Tensor) -> Any:
    """Return the loss with everything computed inside the loop."""
    decoder = model.model.decoder
    score, cell = decoder.attention.score, decoder.layers[0].rnn
    s = torch.tanh(decoder.initial_state(final_state[:, -1, 0, -decoder.initial_state.in_features :]))
    loss = torch.zeros(())
    for t, ids in enumerate(model.prepare_decoder_input_ids_from_labels(labels).unbind(1)):
        y = decoder.embed_tokens(ids)
        query = nn.functional.linear(s, score.W_q)[:, None]
        energies = torch.tanh(query + nn.functional.linear(annotations, score.W_k)) @ score.v
        context = (energies.softmax(-1)[:, None] @ annotations)[:, 0]
        gates = nn.functional.linear(torch.cat([y, context], -1), cell.weight_ih_l0, cell.bias_ih_l0)
        (s,) = cell.step(gates, (s,))
        pieces = decoder.maxout(torch.cat([s, y, context], -1))
        logits = model.lm_head(pieces.unflatten(-1, (-1, 2)).amax(-1))
        loss = loss + nn.functional.cross_entropy(logits, labels[:, t])
    return loss / labels.shape[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    defaults = {"threads": 1, "batch": 16, "length": 32, "rounds": 5, "width": None, "vocabulary": None}
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    sizes = {}
    if options.width is not None:
        widths = ("embedding_size", "encoder_hidden_size", "hidden_size", "output_size")
        sizes.update(dict.fromkeys(widths, options.width))
    if options.vocabulary is not None:
        sizes.update(dict.fromkeys(("vocab_size", "source_vocab_size"), options.vocabulary))
    config = BahdanauConfig.preset("bahdanau2015", **sizes)
    model = BahdanauForConditionalGeneration(config)
    source, labels = torch.randint(3, config.vocab_size, (2, options.batch, options.length))
    encoder = model.get_encoder()
    read = encoder(source, return_dict=True)
    fixed = type(read)(read.last_hidden_state.detach(), read.final_state.detach())

    def literal(outputs: Any) -> torch.Tensor:
        return step_by_step(model, outputs.last_hidden_state, outputs.final_state, labels)

    runs: dict[str, Callable[[], torch.Tensor]] = {
        "decoder, all inside the loop": lambda: literal(fixed),
        "decoder, hfattn": lambda: model(encoder_outputs=fixed, labels=labels).loss,
        "whole, all inside the loop": lambda: literal(encoder(source, return_dict=True)),
        "whole, hfattn": lambda: model(source, labels=labels).loss,
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    losses = {}
    for _ in range(options.rounds + 1):
        for name, run in runs.items():
            model.zero_grad()
            start = time.perf_counter()
            loss = run()
            loss.backward()
            times[name].append(time.perf_counter() - start)
            losses[name] = loss.item()
    assert max(losses.values()) - min(losses.values()) < 1e-4, losses
    print(
        f"threads {options.threads}, batch {options.batch}, source and target {options.length}, width "
        f"{config.hidden_size}, vocabulary {config.vocab_size}; median of {options.rounds}, "
        f"loss {losses['whole, hfattn']:.5f} in all"
    )
    medians = {name: statistics.median(values[1:]) for name, values in times.items()}  # the first round is a warm-up
    for name, values in times.items():
        print(f"{name:30}{medians[name] * 1e3:9.1f} ms ({min(values[1:]) * 1e3:.1f} to {max(values[1:]) * 1e3:.1f})")
    for part in ("decoder", "whole"):
        ratio = medians[f"{part}, all inside the loop"] / medians[f"{part}, hfattn"]
        print(f"{part}: {ratio:.2f} times as fast")


if __name__ == "__main__":
    main()
