"""Configuration of the layers of a Transformer, which the models of texts and of images share."""

from .strict_config import StrictConfig, unknown_message  # isort: skip  (first, because it refuses an older transformers)

from dataclasses import field
from typing import Any, ClassVar

ACTIVATION_NAMES = ("relu", "gelu", "gelu_new", "silu", "tanh")
NORM_NAMES = ("post", "pre", "none")
NORM_TYPES = ("layer", "rms")
INITIALIZATION_NAMES = ("glorot", "t5")

# File and class of the positions that are a bias of the energies. The file is saved only with models that have one.
POSITION_BIASES = {
    "alibi": "attention_biases.Alibi",
    "relative_buckets": "attention_biases.RelativeBuckets",
    "relative_sinusoidal": "attention_biases.RelativeSinusoids",
}

# File and class of each pattern. Only the files of the patterns that a configuration names are saved with a model.
PATTERNS = {
    "window": "attention_windows.WindowAttention",
    "block_local": "attention_windows.BlockLocalAttention",
    "strided": "attention_sparse.StridedAttention",
    "fixed": "attention_sparse.FixedAttention",
    "adaptive_span": "attention_spans.AdaptiveSpanAttention",
    "memory": "attention_memory.MemoryAttention",
    "fourier": "attention_mixers.FourierMixer",
    "linformer": "attention_mixers.LinformerAttention",
    "fastformer": "attention_mixers.FastformerMixer",
    "linear": "attention_kernels.LinearAttention",
    "performer": "attention_kernels.PerformerAttention",
    "gated_linear": "attention_gated.GatedLinearMixer",
    "gated_delta": "attention_gated.GatedDeltaMixer",
    "lsh": "attention_hashing.LSHAttention",
}

# File and class of the options of a stack whose files only the models that use them are saved with.
OPTIONS = {
    "attention_groups": "attention_groups.AttentionGroups",
    "reversible": "reversible.ReversibleResidual",
    "latents": "latents.Latents",
    "subsampling": "subsampling.Subsampling",
}

STANDARD_ATTENTION = {
    "score": "scaled_dot",
    "distribution": "softmax",
    "score_options": {},
    "distribution_options": {},
}


class LayersConfig(StrictConfig):
    """Fields of the layers of a Transformer (Vaswani et al. 2017), and of their usual variants.

    Args:
        hidden_size: width of the model (H; d_model in the paper).
        intermediate_size: width of the feed-forward network's inner layer (d_ff).
        encoder_layers: number of layers of the encoder (N).
        num_attention_heads: number of heads (h).
        head_dim: width of a head (d_k = d_v); default ``hidden_size / num_attention_heads``.
        num_key_value_heads: number of heads of keys and values, each of which several heads of queries share:
            grouped-query attention (Ainslie et al. 2023), or multi-query attention with 1 (Shazeer 2019). By default,
            every head has its own.
        activation: "relu" (as in the paper), "gelu", "gelu_new" (the tanh approximation of GELU, as in GPT-2), "silu"
            or "tanh".
        gated_feed_forward: multiply the inner layer by a third linear layer, without an activation (Shazeer 2020):
            SwiGLU with ``activation="silu"``, GEGLU with "gelu". With 2/3 of ``intermediate_size``, the number of
            parameters stays the same.
        feed_forward_chunk: number of positions that the feed-forward network computes at a time (Kitaev et al. 2020,
            section 3), by default all. The result is the same; the inner layer (B, T, d_ff) is never stored as a whole,
            and in training each piece is computed again for its gradients.
        bias: add biases in the attention, the feed-forward network and layer normalization.
        dropout: dropout probability of a sub-layer's output, before it is added (section 5.4).
        embedding_dropout: dropout probability of the sum of embeddings and positions; default ``dropout``.
        attention_dropout: dropout probability of the attention weights.
        activation_dropout: dropout probability of the feed-forward network's inner layer.
        norm: position of layer normalization. "post" is LN(x + f(x)), as in the paper; "pre" is x + f(LN(x)); "none" is
            x + f(x), with the initialization of T-Fixup (Huang et al. 2020).
        final_norm: apply LN after each stack, as "pre" requires and ``torch.nn.Transformer`` always does. By default,
            it is True only for "pre".
        embedding_norm: normalize the sum of embeddings and positions (Devlin et al. 2019). With ``norm="pre"``, the
            first attention then has no norm of its own, as in ModernBERT (Warner et al. 2024).
        norm_type: "layer", or "rms", which divides by the root mean square without subtracting the mean, and has no
            bias (RMSNorm, Zhang & Sennrich 2019).
        initialization: "glorot" (Glorot & Bengio 2010; embeddings from N(0, 1 / hidden_size)), or "t5" (Raffel et al.
            2020, in the authors' code): matrices from N(0, 1 / n) for n inputs, embeddings from N(0, 1). With the score
            "dot", which does not divide by sqrt(head_dim), W^Q is divided by it instead.
        layer_norm_eps: ε that the norms add to the variance, or to the mean square.
        positions: how the encoder knows the order of what it reads; the names are those of the subclass.
        self_attention_score, cross_attention_score: names of ``hfattn.attention.SCORES``, or custom classes such as
            "my_scores.LowRank". A score compares vectors of width ``head_dim``; the heads of a layer share its weights.
        self_attention_distribution, cross_attention_distribution: names of ``hfattn.attention.DISTRIBUTIONS``.
        self_attention_score_options, cross_attention_score_options: options of the score, such as
            ``{"hidden_size": 64}`` for "additive".
        self_attention_distribution_options, cross_attention_distribution_options: options of the distribution, such
            as ``{"alpha": 1.3}`` for "entmax".
        encoder_pattern: which keys a query of a self-attention sees, or what replaces self-attention: "full" (all
            keys), a name of ``PATTERNS`` ("linear" and "performer" replace the softmax by a kernel; "lsh" has one
            projection for queries and keys; "fourier", "linformer" and "fastformer" are for encoders), a custom class
            such as "my_patterns.Diagonal", or a list with one of these for each layer.
        encoder_pattern_options: options of the patterns, such as ``{"window": 256}``. A list has a value for each
            layer, ``{"window": [64, 128, 256, 256]}``; a list in it has a value for each head. Each layer takes the
            options that its pattern has.
        encoder_attention_groups: sizes of groups of neighboring layers whose self-attention has the weights of the
            first layer of the group (Xiao et al. 2019, section 3), such as [2, 4] for six layers. The other layers of a
            group have no W^Q and W^K.
        reversible: let each sub-layer read one half of the state and add to the other (Kitaev et al. 2020, section 3),
            so that training stores the output of the last layer only, and computes the rest again in the backward pass.
            Needs ``norm="pre"`` or "none".
        latents: number of learned vectors that read the source, and that the layers of the encoder compute with instead
            of its positions (Perceiver, Jaegle et al. 2021, section 3), by default none. Their attention to the source
            has the score and the distribution of cross-attention. For classifiers and translators.
        latent_rounds: how often the latents read the source, each time followed by ``encoder_layers`` layers.
        share_rounds: use the weights of the second round in all later ones.

    Raises:
        StrictDataclassError: a field is out of range; the message suggests a correction.
    """

    _class_fields = (
        "self_attention_score",
        "self_attention_distribution",
        "cross_attention_score",
        "cross_attention_distribution",
    )
    _stacks: ClassVar[tuple[str, ...]] = ("encoder",)
    # Kinds of attention that layers may share, as arguments of ``attention_groups``.
    _groupable: ClassVar[tuple[tuple[str, bool], ...]] = (("self", False),)

    hidden_size: int = 512
    intermediate_size: int = 2048
    encoder_layers: int = 6
    num_attention_heads: int = 8
    head_dim: int | None = None
    num_key_value_heads: int | None = None
    activation: str = "relu"
    gated_feed_forward: bool = False
    feed_forward_chunk: int | None = None
    bias: bool = True
    dropout: float | int = 0.1
    embedding_dropout: float | int | None = None
    attention_dropout: float | int = 0.0
    activation_dropout: float | int = 0.0
    norm: str = "post"
    final_norm: bool | None = None
    embedding_norm: bool = False
    norm_type: str = "layer"
    layer_norm_eps: float | int = 1e-5
    initialization: str = "glorot"
    positions: str = "sinusoidal"
    self_attention_score: str = "scaled_dot"
    self_attention_score_options: dict[str, Any] = field(default_factory=dict)
    self_attention_distribution: str = "softmax"
    self_attention_distribution_options: dict[str, Any] = field(default_factory=dict)
    cross_attention_score: str = "scaled_dot"
    cross_attention_score_options: dict[str, Any] = field(default_factory=dict)
    cross_attention_distribution: str = "softmax"
    cross_attention_distribution_options: dict[str, Any] = field(default_factory=dict)
    encoder_pattern: str | list[str] = "full"
    encoder_pattern_options: dict[str, Any] = field(default_factory=dict)
    encoder_attention_groups: list[int] | None = None
    reversible: bool = False
    latents: int | None = None
    latent_rounds: int = 1
    share_rounds: bool = False

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        if self.head_dim is None and self.num_attention_heads > 0 and self.hidden_size % self.num_attention_heads == 0:
            self.head_dim = self.hidden_size // self.num_attention_heads  # caches of transformers read a number
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads  # PEFT reads a number

    @property
    def has_final_norm(self) -> bool:
        """Return whether there is a last LN above each stack."""
        return self.norm == "pre" if self.final_norm is None else self.final_norm

    @property
    def head_width(self) -> int:
        """Width of a head."""
        assert self.head_dim is not None  # otherwise _check_widths has raised an error
        return self.head_dim

    @property
    def key_value_heads(self) -> int:
        """Number of heads of keys and values."""
        return self.num_attention_heads if self.num_key_value_heads is None else self.num_key_value_heads

    def attention_parts(self, kind: str) -> dict[str, Any]:
        """Return score and distribution of the "self" or "cross" attention, as arguments of ``Attention``."""
        return {part: getattr(self, f"{kind}_attention_{part}") for part in STANDARD_ATTENTION}

    def attention_groups(self, kind: str, is_causal: bool) -> list[int] | None:
        """Return the sizes of the groups of layers that share an attention; None if each layer has its own.

        Args:
            kind: "self" or "cross".
            is_causal: whether a self-attention is that of the decoder.
        """
        stack = "cross" if kind == "cross" else "decoder" if is_causal else "encoder"
        groups: list[int] | None = getattr(self, f"{stack}_attention_groups")
        return None if groups is None or max(groups) == 1 else groups

    def layer_pattern(self, stack: str, layer_idx: int) -> tuple[str, dict[str, Any]]:
        """Return the pattern of a layer of the "encoder" or the "decoder", and the options that are given for it."""
        pattern, options = getattr(self, f"{stack}_pattern"), getattr(self, f"{stack}_pattern_options")
        return (
            pattern[layer_idx] if isinstance(pattern, list) else pattern,
            {name: value[layer_idx] if isinstance(value, list) else value for name, value in options.items()},
        )

    @property
    def pattern_names(self) -> set[str]:
        """Names of the patterns other than "full" that self-attention has in some layer."""
        patterns = [getattr(self, f"{stack}_pattern") for stack in self._stacks]
        return {name for each in patterns for name in (each if isinstance(each, list) else [each])} - {"full"}

    def _class_names(self) -> set[str]:
        options = {OPTIONS[name] for name in self.option_names}
        return super()._class_names() | self.pattern_names | options | ({self.positions} & POSITION_BIASES.keys())

    @property
    def option_names(self) -> set[str]:
        """Names of those of ``OPTIONS`` that are used."""
        used = {
            "attention_groups": any(self.attention_groups(*kind) for kind in self._groupable),
            "reversible": self.reversible,
            "latents": self.latents is not None,
        }
        return {name for name, is_used in used.items() if is_used}

    def validate_fields(self) -> None:
        """Check ranges and combinations (run by ``@strict`` when the configuration is made)."""
        self._check_positive("hidden_size", "intermediate_size", "encoder_layers", "num_attention_heads")
        self._check_probability("dropout", "attention_dropout", "activation_dropout")
        if self.feed_forward_chunk is not None:
            self._check_positive("feed_forward_chunk")
        if self.embedding_dropout is not None:
            self._check_probability("embedding_dropout")
        self._check_choice("activation", ACTIVATION_NAMES)
        self._check_choice("norm", NORM_NAMES)
        self._check_choice("norm_type", NORM_TYPES)
        self._check_choice("initialization", INITIALIZATION_NAMES)
        self._check_above_zero("layer_norm_eps", example="1e-5")
        for name in ("final_norm", "embedding_norm"):
            if getattr(self, name) and self.norm == "none":
                raise ValueError(f'{name} is true and norm is "none"; write norm: pre or post, or leave {name} out.')
        if self.norm_type != "layer" and self.norm == "none":
            raise ValueError(
                f'norm_type is {self.norm_type!r} and norm is "none"; write norm: pre or post, or leave norm_type out.'
            )
        self._check_latents()
        self._check_widths()
        self._check_attention("self")
        self._check_attention("cross")
        if self.reversible and self.norm == "post":
            raise ValueError(
                'reversible is true and norm is "post", whose norm of a sum cannot be undone; write norm: pre or none, '
                "or leave reversible out."
            )
        self._check_groups("encoder", "encoder", self.encoder_layers)
        if {"reversible", "attention_groups"} <= self.option_names:
            raise ValueError(
                "reversible layers are computed again one by one, without the attention that other layers share; leave "
                "out either reversible or the attention_groups."
            )
        self._check_pattern("encoder", self.encoder_layers)

    def _check_widths(self) -> None:
        if self.head_dim is None:
            raise ValueError(
                f"hidden_size {self.hidden_size} does not divide into {self.num_attention_heads} heads; write another "
                "num_attention_heads, or the width of a head as head_dim."
            )
        self._check_positive("head_dim")
        if self.num_key_value_heads is not None:
            self._check_positive("num_key_value_heads")
        if self.num_attention_heads % self.key_value_heads:
            raise ValueError(
                f"num_key_value_heads {self.num_key_value_heads} does not divide num_attention_heads "
                f"{self.num_attention_heads}; write a divisor of it, such as 1, or leave num_key_value_heads out."
            )
        if self.positions in ("sinusoidal", "relative_sinusoidal") and self.hidden_size % 2:
            raise ValueError(
                f"{self.positions} positions are pairs of a sine and a cosine, but hidden_size is {self.hidden_size}; "
                "write an even hidden_size, or positions: learned."
            )

    def _check_attention(self, kind: str) -> None:
        parts = self.attention_parts(kind)
        if parts == STANDARD_ATTENTION:
            return
        self._check_estimator(f"{kind}_attention_distribution_options")
        # Imported here because the import takes seconds and is rarely needed.
        import torch

        from .attention import Attention

        with torch.device("meta"):
            Attention(self.head_width, self.head_width, **parts)  # checks names and options

    def _check_latents(self) -> None:
        self._check_positive("latent_rounds")
        if self.latents is None:
            if self.latent_rounds > 1 or self.share_rounds:
                name = "latent_rounds" if self.latent_rounds > 1 else "share_rounds"
                raise ValueError(f"{name} is given without latents; write their number, such as latents: 64.")
            return
        self._check_positive("latents")
        if self.positions == "rotary" or self.positions in POSITION_BIASES:
            raise ValueError(
                f"Latents have no positions that {self.positions!r} could compare; write positions: sinusoidal, "
                "learned or none, or leave latents out."
            )
        if self.norm == "none":
            raise ValueError(
                "The factors of T-Fixup (norm: none) do not bound the layers of latents; write norm: post or pre, or "
                "leave latents out."
            )

    def _check_groups(self, kind: str, stack: str, num_layers: int) -> None:
        groups = getattr(self, f"{kind}_attention_groups")
        if groups is None:
            return
        if not groups or min(groups) < 1 or sum(groups) != num_layers:
            raise ValueError(
                f"{kind}_attention_groups is {groups}, and the {stack} has {num_layers} layers; write sizes of at "
                f"least 1 whose sum is {num_layers}."
            )
        sizes = [size for size in groups for _ in range(size)]  # of the group of each layer
        for layer_idx, size in enumerate(sizes if kind == stack else []):
            pattern = getattr(self, f"{stack}_pattern")
            name = pattern[layer_idx] if isinstance(pattern, list) else pattern
            if size > 1 and name != "full":
                raise ValueError(
                    f"{kind}_attention_groups is {groups}, and layer {layer_idx} has the pattern {name!r}, whose "
                    f"weights cannot be shared; write 'full' for it in {stack}_pattern, or a group of size 1."
                )

    def _check_pattern(self, stack: str, num_layers: int) -> None:
        pattern, options = getattr(self, f"{stack}_pattern"), getattr(self, f"{stack}_pattern_options")
        if pattern == "full" and not options:
            return
        for field_name, value in {f"{stack}_pattern": pattern, **options}.items():
            if isinstance(value, list) and len(value) != num_layers:
                raise ValueError(
                    f"{field_name} has {len(value)} values and the {stack} {num_layers} layers; write one value, or "
                    "one for each layer."
                )
        import torch

        from .attention_scores import options_of
        from .modeling_vaswani import find_pattern, make_self_attention

        names = sorted(set(pattern)) if isinstance(pattern, list) else [pattern]
        known = {option for name in names if name != "full" for option in options_of(find_pattern(name))}
        for name in options:
            if name not in known:
                raise ValueError(unknown_message(name, sorted(known), f"an option of {stack}_pattern {pattern!r}"))
        with torch.device("meta"):
            for layer_idx in range(num_layers):
                make_self_attention(self, layer_idx, stack == "decoder", 1.0)  # checks the options
