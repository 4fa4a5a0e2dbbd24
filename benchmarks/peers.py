"""The Transformer translator of a benchmark as BART, and in other libraries, with the same weights.

    pip install 'hfattn[bench]'

installs the other libraries. The biases of an attention are missing in x-transformers, and zero in Keras, as ours are
before training.
"""

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from transformers import BartConfig, BartForConditionalGeneration, MarianMTModel

from hfattn import VaswaniForConditionalGeneration
from hfattn.models.modeling_vaswani import sinusoidal_positions


class KerasPeer(NamedTuple):
    """The translator in Keras, and a batch.

    Attributes:
        loss: returns the loss without dropout.
        step: does a training step with AdamW.
    """

    loss: Callable[[], float]
    step: Callable[[], Any]


def bart_of(marian: MarianMTModel) -> BartForConditionalGeneration:
    """Return a BART with the weights of a Marian model.

    BART learns its positions, which begin as the sines and cosines of Marian, and has a norm after its embeddings.
    """
    known = BartConfig().to_dict().keys() - {"model_type"}
    shared = {name: value for name, value in marian.config.to_dict().items() if name in known}
    bart = BartForConditionalGeneration(BartConfig(**shared)).eval()
    weights = marian.state_dict()
    tables = {name: weights.pop(name) for name in [*weights] if "embed_positions" in name}
    missing, unexpected = bart.load_state_dict(weights, strict=False)
    assert not unexpected, unexpected
    assert all("embed_positions" in name or "layernorm_embedding" in name for name in missing), missing
    for name, table in tables.items():
        bart.get_parameter(name).data[-len(table) :] = table  # after two rows that the published models never read
    return bart


class XTransformersTranslator(nn.Module):
    """Encoder and decoder of x-transformers between one matrix of embeddings and an output layer."""

    positions: torch.Tensor

    def __init__(self, ours: VaswaniForConditionalGeneration) -> None:
        from x_transformers import Decoder, Encoder

        super().__init__()
        config = ours.config
        options = {
            "dim": config.hidden_size,
            "heads": config.num_attention_heads,
            "attn_dim_head": config.hidden_size // config.num_attention_heads,
            "attn_flash": True,
            "ff_mult": config.intermediate_size / config.hidden_size,
            "ff_custom_activation": nn.ReLU(),
            "attn_sublayer_dropout": config.dropout,
            "cross_attn_sublayer_dropout": config.dropout,
            "ff_sublayer_dropout": config.dropout,
            "pre_norm": False,
        }
        self.encoder = Encoder(depth=config.encoder_layers, **options)
        self.decoder = Decoder(depth=config.decoder_layers, cross_attend=True, **options)
        self.embedding = nn.Embedding.from_pretrained(ours.lm_head.weight.detach().clone(), freeze=False)
        self.dropout = nn.Dropout(config.dropout)
        for stack, own in ((self.encoder, ours.model.encoder), (self.decoder, ours.model.decoder)):
            blocks = iter(block for _, block, _ in stack.layers)
            layers: Any = own.layers
            for layer in layers:
                for attention in [layer.self_attn, *([layer.cross_attn] if stack is self.decoder else [])]:
                    block: Any = next(blocks)
                    for side in "qkv":
                        getattr(block, f"to_{side}").weight.data.copy_(getattr(attention, f"{side}_proj").weight)
                    block.to_out.weight.data.copy_(attention.out_proj.weight)
                inner, outer = (each for each in next(blocks).modules() if isinstance(each, nn.Linear))
                for theirs, linear in ((inner, layer.feed_forward.fc1), (outer, layer.feed_forward.fc2)):
                    theirs.load_state_dict(linear.state_dict())
        self.start, self.width = config.decoder_start_token_id, config.hidden_size
        places = torch.arange(config.max_position_embeddings)
        self.register_buffer("positions", sinusoidal_positions(places, self.width))

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        written = torch.cat([torch.full_like(labels[:, :1], self.start), labels[:, :-1]], dim=1)
        read, written = (
            self.dropout(self.embedding(ids) * self.width**0.5 + self.positions[: ids.shape[1]])
            for ids in (input_ids, written)
        )
        states = self.decoder(written, context=self.encoder(read))
        logits = nn.functional.linear(states, self.embedding.weight)
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def keras_peer(ours: VaswaniForConditionalGeneration, batch: dict[str, torch.Tensor]) -> KerasPeer:
    """Return the layers of Keras, compiled by XLA, in float32 on as many threads as PyTorch has."""
    os.environ["KERAS_BACKEND"] = "jax"
    if torch.get_num_threads() == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    import jax
    import keras
    from keras import layers

    config, length = ours.config, batch["labels"].shape[1]
    width, heads, rate = config.hidden_size, config.num_attention_heads, config.dropout
    positions = sinusoidal_positions(torch.arange(length), width).numpy()
    embedding = layers.ReversibleEmbedding(config.vocab_size, width, tie_weights=True)

    def kernel(linear: nn.Linear, *shape: int) -> Any:
        return linear.weight.detach().T.reshape(shape).numpy()

    weights: list[tuple[Any, list[Any]]] = []  # of layers, which exist once they were called

    def added(states: Any, change: Any) -> Any:
        return layers.LayerNormalization(epsilon=config.layer_norm_eps)(states + layers.Dropout(rate)(change))

    def attended(attention: Any, states: Any, read: Any, causal: bool = False) -> Any:
        layer = layers.MultiHeadAttention(heads, width // heads)
        context = layer(states, read, use_causal_mask=causal)
        sides = (attention.q_proj, attention.k_proj, attention.v_proj)
        kernels = [kernel(side, width, heads, width // heads) for side in sides]
        kernels.append(kernel(attention.out_proj, heads, width // heads, width))
        biases = [np.zeros((heads, width // heads), np.float32)] * 3 + [np.zeros(width, np.float32)]
        weights.append((layer, [each for pair in zip(kernels, biases, strict=True) for each in pair]))
        return added(states, context)

    def fed_forward(block: Any, states: Any) -> Any:
        inner, outer = layers.Dense(config.intermediate_size, activation="relu"), layers.Dense(width)
        change = outer(inner(states))
        for layer, linear in ((inner, block.fc1), (outer, block.fc2)):
            weights.append((layer, [linear.weight.detach().T.numpy(), linear.bias.detach().numpy()]))
        return added(states, change)

    source, target = (keras.Input((length,), dtype="int32") for _ in range(2))
    read, written = (layers.Dropout(rate)(embedding(ids) * width**0.5 + positions) for ids in (source, target))
    weights.append((embedding, [ours.lm_head.weight.detach().numpy()]))
    own: Any = ours.model
    for layer in own.encoder.layers:
        read = fed_forward(layer.feed_forward, attended(layer.self_attn, read, read))
    for layer in own.decoder.layers:
        written = attended(layer.self_attn, written, written, causal=True)
        written = fed_forward(layer.feed_forward, attended(layer.cross_attn, written, read))
    model = keras.Model([source, target], embedding(written, reverse=True))
    for layer, values in weights:
        layer.set_weights(values)
    model.compile(
        keras.optimizers.AdamW(1e-5, weight_decay=0.01),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=True,
    )
    shifted = ours.prepare_decoder_input_ids_from_labels(batch["labels"])
    inputs = [batch["input_ids"].numpy().astype(np.int32), shifted.numpy().astype(np.int32)]
    labels = batch["labels"].numpy()

    def step() -> None:
        model.train_on_batch(inputs, labels)
        jax.block_until_ready([each.value for each in model.trainable_variables])

    return KerasPeer(lambda: float(model.test_on_batch(inputs, labels)), step)
