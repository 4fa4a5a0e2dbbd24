"""Small models with the parameter names of other projects, written from what those names mean."""

import math
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional


class TheirCharRNN(nn.Module):
    """Characters, as vectors or one-hot, through the layers of a torch module, to logits."""

    def __init__(self, cell: type[nn.RNNBase], size: int, num_layers: int, one_hot: bool = False) -> None:
        super().__init__()
        self.size = size
        if not one_hot:
            self.encoder = nn.Embedding(size, 6)
        self.rnn = cell(size if one_hot else 6, 8, num_layers, batch_first=True)  # type: ignore[arg-type]
        self.decoder = nn.Linear(8, size)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        dtype = self.decoder.weight.dtype
        inputs = self.encoder(ids) if "encoder" in self._modules else functional.one_hot(ids, self.size).to(dtype)
        return self.decoder(self.rnn(inputs)[0])


class _LayerNorm(nn.Module):
    """With or without a bias."""

    def __init__(self, width: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))
        self.bias = nn.Parameter(torch.randn(width)) if bias else None

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(inputs, self.weight.shape, self.weight, self.bias, 1e-5)


class _GPTBlock(nn.Module):
    def __init__(self, width: int, heads: int, bias: bool, block_size: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = _LayerNorm(width, bias), _LayerNorm(width, bias)
        self.attn = nn.ModuleDict(
            {"c_attn": nn.Linear(width, 3 * width, bias=bias), "c_proj": nn.Linear(width, width, bias=bias)}
        )
        self.attn.register_buffer("bias", torch.ones(block_size, block_size).tril()[None, None])
        self.mlp = nn.ModuleDict(
            {"c_fc": nn.Linear(width, 4 * width, bias=bias), "c_proj": nn.Linear(4 * width, width, bias=bias)}
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        parts = self.attn["c_attn"](self.ln_1(inputs)).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        context = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        inputs = inputs + self.attn["c_proj"](context.transpose(1, 2).flatten(-2))
        return inputs + self.mlp["c_proj"](functional.gelu(self.mlp["c_fc"](self.ln_2(inputs))))


class TheirGPT(nn.Module):
    """GPT-2 of linear layers, output layer tied to the embedding."""

    def __init__(self, n_layer: int, n_head: int, n_embd: int, block_size: int, bias: bool, vocab_size: int) -> None:
        super().__init__()
        blocks = (_GPTBlock(n_embd, n_head, bias, block_size) for _ in range(n_layer))
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocab_size, n_embd),
                "wpe": nn.Embedding(block_size, n_embd),
                "h": nn.ModuleList(blocks),
                "ln_f": _LayerNorm(n_embd, bias),
            }
        )
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.lm_head.weight = self.transformer["wte"].weight  # type: ignore[assignment]

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        parts = self.transformer
        hidden_states = parts["wte"](ids) + parts["wpe"](torch.arange(ids.shape[1]))
        for block in parts["h"].children():
            hidden_states = block(hidden_states)
        return self.lm_head(parts["ln_f"](hidden_states))


def sines(length: int, width: int, interleaved: bool = True) -> torch.Tensor:
    """The table of section 3.5 of the paper in float32, a sine beside its cosine or all sines before all cosines."""
    frequencies = torch.exp(torch.arange(0, width, 2).float() * (-math.log(10_000.0) / width))
    angles = torch.arange(length).float()[:, None] * frequencies
    pair = (angles.sin(), angles.cos())
    return torch.stack(pair, dim=-1).flatten(-2) if interleaved else torch.cat(pair, dim=-1)


def causal(length: int) -> torch.Tensor:
    return nn.Transformer.generate_square_subsequent_mask(length).isinf()


class TheirTorchTransformer(nn.Module):
    """``nn.Transformer`` between embeddings, a table of positions and an output layer of its author's names."""

    def __init__(self, norm_first: bool, bias: bool, activation: str, table: torch.Tensor, eps: float = 1e-5) -> None:
        super().__init__()
        width = table.shape[1]
        self.transformer = nn.Transformer(
            width, 4, 2, 3, 20, dropout=0.0, activation=activation, layer_norm_eps=eps, batch_first=True,
            norm_first=norm_first, bias=bias,
        )  # fmt: skip
        self.src_tok_emb, self.tgt_tok_emb = nn.Embedding(13, width), nn.Embedding(11, width)
        self.positional_encoding = nn.Module()
        self.positional_encoding.register_buffer("pos_embedding", table[:, None].clone())
        self.generator = nn.Linear(width, 11)

    def forward(self, source: torch.Tensor, mask: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        table = self.positional_encoding.get_buffer("pos_embedding")[:, 0]
        read, written = (
            embedding(ids) * table.shape[1] ** 0.5 + table[: ids.shape[1]]
            for embedding, ids in ((self.src_tok_emb, source), (self.tgt_tok_emb, target))
        )
        hidden = mask == 0
        decoded = self.transformer(
            read, written, tgt_mask=causal(target.shape[1]), src_key_padding_mask=hidden, memory_key_padding_mask=hidden
        )
        return self.generator(decoded)


class TheirTorchEncoder(nn.Module):
    """``nn.TransformerEncoder`` as a language model (under a causal mask) or as a classifier (of the mean)."""

    def __init__(self, norm_first: bool, final_norm: bool, classes: int | None, scale: bool) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 24, 0.0, "gelu", batch_first=True, norm_first=norm_first)
        last = nn.LayerNorm(16) if final_norm else None
        self.encoder = nn.TransformerEncoder(layer, 2, norm=last, enable_nested_tensor=False)
        self.embedding = nn.Embedding(13, 16)
        self.positions = nn.Parameter(torch.randn(1, 12, 16))
        self.scale = 4.0 if scale else 1.0
        if classes is None:
            self.generator = nn.Linear(16, 13)
        else:
            self.classifier = nn.Linear(16, classes)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        inputs = self.embedding(ids) * self.scale + self.positions[:, : ids.shape[1]]
        if "generator" in self._modules:
            return self.generator(self.encoder(inputs, mask=causal(ids.shape[1])))
        outputs = self.encoder(inputs, src_key_padding_mask=mask == 0)
        weights = mask[..., None].to(outputs.dtype)
        return self.classifier((outputs * weights).sum(1) / weights.sum(1))


class _Attention(nn.Module):
    """Heads whose four matrices have the names of a project: of query, key, value and output."""

    def __init__(self, names: Sequence[str], width: int, heads: int, bias: bool = True) -> None:
        super().__init__()
        self.names, self.heads = names, heads
        for name in names:
            self.add_module(name, nn.Linear(width, width, bias=bias))

    def forward(self, query: torch.Tensor, source: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        """``seen`` is boolean, broadcastable to (B, T, S)."""
        of_query, of_key, of_value, of_output = (self.get_submodule(name) for name in self.names)
        parts = (of_query(query), of_key(source), of_value(source))
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(~seen[:, None], -torch.inf)
        return of_output((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2))


def _tree(parts: dict[str, nn.Module]) -> nn.Module:
    """A module with the given ones at dotted names."""
    root = nn.Module()
    for name, part in parts.items():
        *path, last = name.split(".")
        parent = root
        for step in path:
            if step not in parent._modules:
                parent.add_module(step, nn.Module())
            parent = parent.get_submodule(step)
        parent.add_module(last, part)
    return root


class TheirTranslator(nn.Module):
    """A Transformer between what ``names`` calls its parts.

    Args:
        names: for each part what a project calls it: encoder and decoder layer, self- and cross-attention with their
            four matrices, norms, feed-forward matrices, last norms, embeddings, positions, output.
        pre: layer norms stand before the sub-layers.
        scale: embeddings are multiplied by the root of the width.
        table: position table in the project's shape, (1, P, width) or (P, 1, width), or None for no positions.
        biases: whether attention, the feed-forward network and the output layer have biases.
    """

    def __init__(
        self,
        names: dict[str, str],
        pre: bool,
        scale: bool,
        table: torch.Tensor | None,
        biases: tuple[bool, bool, bool],
        activation: str = "relu",
        sizes: tuple[int, int] = (9, 9),
        shared: bool = True,
    ) -> None:
        super().__init__()
        width, heads, inner = 16, 4, 20
        self.names, self.pre, self.scale, self.activation = names, pre, width**0.5 if scale else 1.0, activation
        matrices = names["matrices"].split()
        parts: dict[str, nn.Module] = {}
        for side in ("encoder", "decoder"):
            for i in range(2):
                layer = f"{names[side]}.{i}"
                crosses = ["cross"] if side == "decoder" else []
                for attention in ("self", *crosses):
                    key = names[f"{side}_{attention}"]
                    parts[f"{layer}.{key}"] = _Attention(matrices, width, heads, bias=biases[0])
                    parts[f"{layer}.{names[f'{side}_{attention}_norm']}"] = nn.LayerNorm(width, eps=1e-6)
                parts[f"{layer}.{names['ffn_norm']}"] = nn.LayerNorm(width, eps=1e-6)
                parts[f"{layer}.{names['fc1']}"] = nn.Linear(width, inner, bias=biases[1])
                parts[f"{layer}.{names['fc2']}"] = nn.Linear(inner, width, bias=biases[1])
            if pre:
                parts[names[f"{side}_norm"]] = nn.LayerNorm(width, eps=1e-6)
            if table is not None:
                parts[names[f"{side}_positions"]] = holder = nn.Module()
                holder.register_buffer("pe", table.clone())
        source, target = nn.Embedding(sizes[0], width), nn.Embedding(sizes[1], width)
        parts[names["source"]], parts[names["target"]] = target if shared else source, target
        parts[names["output"]] = nn.Linear(width, sizes[1], bias=biases[2])
        if shared:
            parts[names["output"]].weight = target.weight
        self.table = table
        self.tree = _tree(parts)
        for parameter in self.parameters():  # norms and biases count, too
            nn.init.normal_(parameter, std=0.4)

    def state(self) -> dict[str, torch.Tensor]:
        return self.tree.state_dict()

    def forward(self, source: torch.Tensor, mask: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        seen = mask.bool()[:, None]
        encoded = self._run("encoder", self._embed("encoder", source), seen, None, seen)
        decoded = self._run("decoder", self._embed("decoder", target), ~causal(target.shape[1])[None], encoded, seen)
        return self.tree.get_submodule(self.names["output"])(decoded)

    def _embed(self, side: str, ids: torch.Tensor) -> torch.Tensor:
        embedding = self.tree.get_submodule(self.names["source" if side == "encoder" else "target"])
        embedded = embedding(ids) * self.scale
        return embedded if self.table is None else embedded + self.table.flatten(0, 1)[: ids.shape[1]]

    def _run(
        self, side: str, x: torch.Tensor, own: torch.Tensor, encoded: torch.Tensor | None, seen: torch.Tensor
    ) -> torch.Tensor:
        for i in range(2):
            layer, names = self.tree.get_submodule(f"{self.names[side]}.{i}"), self.names

            def part(name: str, layer: nn.Module = layer) -> nn.Module:
                return layer.get_submodule(name)

            def around(x: torch.Tensor, norm: nn.Module, sublayer) -> torch.Tensor:  # type: ignore[no-untyped-def]
                return x + sublayer(norm(x)) if self.pre else norm(x + sublayer(x))

            attention = part(names[f"{side}_self"])
            x = around(x, part(names[f"{side}_self_norm"]), lambda y, f=attention: f(y, y, own))
            if encoded is not None:
                crossing = part(names["decoder_cross"])
                x = around(x, part(names["decoder_cross_norm"]), lambda y, f=crossing: f(y, encoded, seen))
            first, second = part(names["fc1"]), part(names["fc2"])
            act = getattr(functional, self.activation)
            x = around(x, part(names["ffn_norm"]), lambda y, a=first, b=second, act=act: b(act(a(y))))
        return self.tree.get_submodule(self.names[f"{side}_norm"])(x) if self.pre else x


JOEYNMT = {
    "matrices": "q_layer k_layer v_layer output_layer",
    "encoder": "encoder.layers",
    "decoder": "decoder.layers",
    "encoder_self": "src_src_att",
    "encoder_self_norm": "layer_norm",
    "decoder_self": "trg_trg_att",
    "decoder_self_norm": "x_layer_norm",
    "decoder_cross": "src_trg_att",
    "decoder_cross_norm": "dec_layer_norm",
    "ffn_norm": "feed_forward.layer_norm",
    "fc1": "feed_forward.pwff_layer.0",
    "fc2": "feed_forward.pwff_layer.3",
    "encoder_norm": "encoder.layer_norm",
    "decoder_norm": "decoder.layer_norm",
    "source": "src_embed.lut",
    "target": "trg_embed.lut",
    "encoder_positions": "encoder.pe",
    "decoder_positions": "decoder.pe",
    "output": "decoder.output_layer",
}
OPENNMT = {
    "matrices": "linear_query linear_keys linear_values final_linear",
    "encoder": "encoder.transformer",
    "decoder": "decoder.transformer_layers",
    "encoder_self": "self_attn",
    "encoder_self_norm": "layer_norm",
    "decoder_self": "self_attn",
    "decoder_self_norm": "layer_norm_1",
    "decoder_cross": "context_attn",
    "decoder_cross_norm": "layer_norm_2",
    "ffn_norm": "feed_forward.layer_norm",
    "fc1": "feed_forward.w_1",
    "fc2": "feed_forward.w_2",
    "encoder_norm": "encoder.layer_norm",
    "decoder_norm": "decoder.layer_norm",
    "source": "encoder.embeddings.make_embedding.emb_luts.0",
    "target": "decoder.embeddings.make_embedding.emb_luts.0",
    "encoder_positions": "encoder.embeddings.make_embedding.pe",
    "decoder_positions": "decoder.embeddings.make_embedding.pe",
    "output": "generator",
}
