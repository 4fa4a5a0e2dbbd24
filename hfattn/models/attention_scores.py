"""Score functions f(q, k), which measure how well a key matches a query.

A score is a module with two methods. ``prepare`` computes what depends on the keys alone, once per source; ``compare``
computes the energies of any number of queries with prepared keys. At each step, a decoder therefore computes only the
part that depends on its query.

Shapes: ``…`` any batch dimensions, which broadcast; T queries, S keys, H hidden width. Energies are (…, T, S).
"""

import inspect
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar

import torch
from torch import nn
from transformers import initialization as init

from .score_kernels import additive_energies, broadcast, pairwise, widen
from .strict_config import by_name, unknown_message


def options_of(kind: type) -> list[str]:
    """Return the options of a score or a distribution: the keyword-only arguments of its constructor."""
    return [
        parameter.name
        for parameter in inspect.signature(kind).parameters.values()
        if parameter.kind == parameter.KEYWORD_ONLY
    ]


def required_options(kind: type) -> list[str]:
    """Return the options that have no default."""
    parameters = inspect.signature(kind).parameters
    return [name for name in options_of(kind) if parameters[name].default is inspect.Parameter.empty]


class Parametric(nn.Module):
    """Base class of formulas with parameters that they initialize themselves.

    A model's ``_init_weights`` calls ``initialize_`` on every module of this class. Parameters that were loaded from a
    checkpoint are kept.
    """

    def initialize_(self) -> None:
        """Initialize matrices and the vector v by Glorot & Bengio (2010), biases as zeros, and scales as ones."""
        for name, parameter in self.named_parameters(recurse=False):
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)
            elif name in ("u", "v", "v_p"):  # initialize it as a matrix with one row
                bound = math.sqrt(6 / (1 + parameter.numel()))
                init.uniform_(parameter, -bound, bound)
            elif name == "s":
                init.ones_(parameter)
            else:
                init.zeros_(parameter)

    def neutral_(self, given: Collection[str] = ()) -> None:
        """Set matrices to the identity, biases to zero, v and s to ones; parameters named in ``given`` are kept.

        Raises:
            ValueError: a matrix that is not in ``given`` is not square.
        """
        for name, parameter in self.named_parameters(recurse=False):
            if name in given:
                continue
            if parameter.ndim > 1:
                if parameter.shape[0] != parameter.shape[1]:
                    raise ValueError(
                        f"{name} of {type(self).__name__} has no neutral value of the shape {tuple(parameter.shape)}; "
                        f"pass parameters={{{name!r}: a tensor of that shape}}."
                    )
                init.eye_(parameter)
            elif name in ("v", "s"):
                init.ones_(parameter)
            else:
                init.zeros_(parameter)

    def substitute(self, parameters: Mapping[str, torch.Tensor]) -> None:
        """Replace parameters with tensors, which may be part of an autograd graph.

        Raises:
            ValueError: there is no parameter with such a name, or it has another shape.
        """
        own = dict(self.named_parameters(recurse=False))
        for name, tensor in parameters.items():
            if name not in own:
                raise ValueError(unknown_message(name, own, f"a parameter of {type(self).__name__}"))
            if tensor.shape != own[name].shape:
                raise ValueError(
                    f"{name} of {type(self).__name__} has the shape {tuple(tensor.shape)}; "
                    f"pass a tensor of the shape {tuple(own[name].shape)}."
                )
            delattr(self, name)
            setattr(self, name, tensor)

    def _parameter(self, name: str, *shape: int) -> None:
        if not all(isinstance(size, int) and size >= 1 for size in shape):
            raise ValueError(
                f"{name} of {type(self).__name__} would have the shape {shape}; write widths that are whole numbers of "
                "at least 1."
            )
        self.register_parameter(name, nn.Parameter(torch.empty(shape)))


class Score(Parametric):
    """A score function with two methods, ``prepare`` and ``compare``.

    Args:
        query_size, key_size: widths d_q and d_k.

    Raises:
        ValueError: the score requires equal widths, and the two differ.
    """

    one_width: ClassVar[bool] = False
    uses_mask: ClassVar[bool] = False  # whether an energy depends on the set of all keys that the query may attend to

    def __init__(self, query_size: int, key_size: int) -> None:
        super().__init__()
        if self.one_width and query_size != key_size:
            raise ValueError(
                f"{type(self).__name__} compares vectors of one width, and queries have {query_size} features and keys "
                f"{key_size}; take the score 'general' or 'additive', which learn what lies between them."
            )
        self.query_size, self.key_size = query_size, key_size

    def prepare(self, key: torch.Tensor) -> torch.Tensor:
        """Return a tensor (…, S, any width) of everything that depends only on the keys (…, S, d_k)."""
        return key

    def compare(self, query: torch.Tensor, prepared: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Return the energies (…, T, S) of queries (…, T, d_q) with prepared keys.

        ``mask``, boolean and broadcastable to (…, T, S), is used only by scores that depend on the set of all keys;
        they must ignore the keys that the query may not attend to. Energies are not masked here; the distribution masks
        them.
        """
        raise NotImplementedError

    def energies(self, query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Return the energies (…, T, S) of queries (…, T, d_q) with keys (…, S, d_k)."""
        return self.compare(query, self.prepare(key), mask)

    def forward(self, *inputs: Any, method: str = "energies", **named: Any) -> Any:
        """Call ``energies``, or another method by its name.

        ``Attention`` calls them in this way, as in ``score(key, method="prepare")``: offloaded weights are loaded, and
        adapters are applied, only around a call of the module.
        """
        return getattr(self, method)(*inputs, **named)

    def extra_repr(self) -> str:
        return f"query_size={self.query_size}, key_size={self.key_size}"

    @classmethod
    def options_from(cls, parameters: Mapping[str, torch.Tensor]) -> dict[str, Any]:
        """Return the options that the shapes of given parameters determine, so that a caller need not pass them."""
        return {}


class InnerProduct(Score):
    """A score that is an inner product of a function of the query and a function of the key.

    With softmax, the fused kernels of ``scaled_dot_product_attention`` compute it without a (T, S) matrix.
    """

    precise: ClassVar[bool] = False  # whether the products must be computed in full precision

    def factors(self, query: torch.Tensor, prepared: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return tensors (…, T, d) and (…, S, d) whose products are the energies, up to a constant per query."""
        return query, prepared

    def compare(self, query: torch.Tensor, prepared: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        left, right = self.factors(query, prepared)
        return left @ right.transpose(-1, -2)


class Dot(InnerProduct):
    """β q·k (Luong et al. 2015, section 3.1, with β = 1).

    Args:
        learn_beta: whether to learn the inverse temperature β > 0, with its logarithm as the parameter. By default, β
            is 1, which is also the initial value of a learned β.
    """

    one_width = True
    log_beta: torch.Tensor

    def __init__(self, query_size: int, key_size: int, *, learn_beta: bool = False) -> None:
        super().__init__(query_size, key_size)
        if learn_beta:
            self._parameter("log_beta", 1)
        self.learn_beta = learn_beta
        self.initialize_()

    @classmethod
    def options_from(cls, parameters: Mapping[str, torch.Tensor]) -> dict[str, Any]:
        return {"learn_beta": "log_beta" in parameters}

    def factors(self, query: torch.Tensor, prepared: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (query * self.log_beta.exp()).to(query.dtype) if self.learn_beta else query, prepared


class ScaledDot(Dot):
    """β q·k / √d_k (Vaswani et al. 2017, eq. 1, with β = 1); option as in ``Dot``.

    Independent components with variance 1 give energies with variance β².
    """

    def factors(self, query: torch.Tensor, prepared: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return super().factors(query / math.sqrt(self.key_size), prepared)


def unit(vectors: torch.Tensor) -> torch.Tensor:
    """Divide vectors by their norms; a zero vector stays zero, and its gradient passes unchanged."""
    norm = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / torch.where(norm > 0, norm, 1)


class Cosine(Dot):
    """β q·k / (‖q‖ ‖k‖): content-based addressing (Graves et al. 2014, eq. 5-6); option as in ``Dot``."""

    def prepare(self, key: torch.Tensor) -> torch.Tensor:
        return unit(widen(key)).to(key.dtype)

    def factors(self, query: torch.Tensor, prepared: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        left, prepared = super().factors(unit(widen(query)), prepared)
        return left.to(query.dtype), prepared


class General(InnerProduct):
    """q W k (Luong et al. 2015, section 3.1). Parameter: W (d_q, d_k).

    Args:
        scaled: whether to divide by √d_k, as ``ScaledDot`` does. The paper trains by SGD. Adam changes each weight by
            about the learning rate, whatever its gradient, so the energies of wide states grow faster than those of
            narrow ones, and the softmax can saturate: one position has all the weight, and the gradient is zero.
    """

    W: torch.Tensor

    def __init__(self, query_size: int, key_size: int, *, scaled: bool = False) -> None:
        super().__init__(query_size, key_size)
        self._parameter("W", query_size, key_size)
        self.scaled = scaled
        self.initialize_()

    def prepare(self, key: torch.Tensor) -> torch.Tensor:
        prepared = nn.functional.linear(key, self.W)  # (…, S, d_q)
        return prepared / math.sqrt(self.key_size) if self.scaled else prepared


class BiasedGeneral(InnerProduct):
    """k·(W q + b) (Sordoni et al. 2016). Parameters: W (d_k, d_q), b (d_k)."""

    W: torch.Tensor
    b: torch.Tensor

    def __init__(self, query_size: int, key_size: int) -> None:
        super().__init__(query_size, key_size)
        self._parameter("W", key_size, query_size)
        self._parameter("b", key_size)
        self.initialize_()

    def prepare(self, key: torch.Tensor) -> torch.Tensor:
        return key @ torch.cat([self.W, self.b[:, None]], dim=1)  # (…, S, d_q + 1): k W and k·b

    def factors(self, query: torch.Tensor, prepared: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return nn.functional.pad(query, (0, 1), value=1.0), prepared


class ActivatedGeneral(Score):
    """act(q W k + b) (Ma et al. 2017). Parameters: W (d_q, d_k), b (1).

    Args:
        activation: name of a function of ``transformers.activations``.
    """

    W: torch.Tensor
    b: torch.Tensor

    def __init__(self, query_size: int, key_size: int, *, activation: str = "tanh") -> None:
        super().__init__(query_size, key_size)
        self.activation = activation_by_name(activation)
        self._parameter("W", query_size, key_size)
        self._parameter("b", 1)
        self.initialize_()

    def prepare(self, key: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(key, self.W)  # (…, S, d_q)

    def compare(self, query: torch.Tensor, prepared: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return self.activation(query @ prepared.transpose(-1, -2) + self.b)


def activation_by_name(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    if name in ("linear", "tanh"):  # the defaults; the other activations take a second to import
        return nn.Identity() if name == "linear" else nn.Tanh()
    from transformers.activations import ACT2FN

    activation: nn.Module = by_name(ACT2FN, name, "an activation")
    if list(activation.parameters()):
        raise ValueError(f"The activation {name!r} has parameters, which no score trains; write another one.")
    return activation


class Additive(Score):
    """v·act(W_q q + W_k k [+ b]) (Bahdanau et al. 2015, A.1.2; "concat" in Luong et al. 2015; both with tanh).

    Parameters: W_q (H, d_q), W_k (H, d_k), v (H), b (H).

    Args:
        hidden_size: H; default d_q, as in the experiments of Bahdanau et al. (n' = n).
        bias: whether to add b, which is not in the paper; False by default.
        activation: name of a function of ``transformers.activations``.
    """

    W_q: torch.Tensor
    W_k: torch.Tensor
    v: torch.Tensor
    b: torch.Tensor

    def __init__(
        self,
        query_size: int,
        key_size: int,
        *,
        hidden_size: int | None = None,
        bias: bool = False,
        activation: str = "tanh",
    ) -> None:
        super().__init__(query_size, key_size)
        hidden_size = query_size if hidden_size is None else hidden_size
        self.activation = activation_by_name(activation)
        self._parameter("W_q", hidden_size, query_size)
        self._parameter("W_k", hidden_size, key_size)
        self._parameter("v", hidden_size)
        if bias:
            self._parameter("b", hidden_size)
        self.bias = bias
        self.initialize_()

    @classmethod
    def options_from(cls, parameters: Mapping[str, torch.Tensor]) -> dict[str, Any]:
        return {"bias": "b" in parameters, **_hidden_size(parameters, "W_q", "W_k", "v", "b")}

    def prepare(self, key: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(key, self.W_k, self.b if self.bias else None)  # (…, S, H)

    def compare(self, query: torch.Tensor, prepared: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        query = nn.functional.linear(query, self.W_q)
        if isinstance(self.activation, nn.Tanh):
            return additive_energies(query, prepared, self.v)  # the derivative of tanh is known, which saves memory
        return pairwise(lambda sums, v: self.activation(sums) @ v, query, prepared, self.v)


def _hidden_size(parameters: Mapping[str, torch.Tensor], *names: str) -> dict[str, int]:
    """Return the hidden width: the first dimension of the first of the named parameters that is given."""
    return next(({"hidden_size": parameters[name].shape[0]} for name in names if name in parameters), {})


class Deep(Score):
    """v·E^(L-1) + b_L, with E^1 = act(W_0 k + W_1 q + b_1) and E^l = act(W_l E^(l-1) + b_l) (Pavlopoulos et al. 2017).

    Parameters: W_0 (H, d_k), W_1 (H, d_q), W_2 … W_{L-1} (H, H), b_1 … b_{L-1} (H), v (H), b_L (1).

    Args:
        hidden_size: H; default d_k.
        num_layers: L, at least 2.
        activation: name of a function of ``transformers.activations``.
    """

    W_0: torch.Tensor
    W_1: torch.Tensor
    b_1: torch.Tensor
    v: torch.Tensor

    def __init__(
        self,
        query_size: int,
        key_size: int,
        *,
        hidden_size: int | None = None,
        num_layers: int = 3,
        activation: str = "relu",
    ) -> None:
        super().__init__(query_size, key_size)
        if num_layers < 2:
            raise ValueError(f"num_layers is {num_layers}; a deep score has at least 2, the last of which is v·E + b.")
        hidden_size = key_size if hidden_size is None else hidden_size
        self.num_layers = num_layers
        self.activation = activation_by_name(activation)
        self._parameter("W_0", hidden_size, key_size)
        self._parameter("W_1", hidden_size, query_size)
        self._parameter("b_1", hidden_size)
        for layer in range(2, num_layers):
            self._parameter(f"W_{layer}", hidden_size, hidden_size)
            self._parameter(f"b_{layer}", hidden_size)
        self._parameter("v", hidden_size)
        self._parameter(f"b_{num_layers}", 1)
        self.initialize_()

    @classmethod
    def options_from(cls, parameters: Mapping[str, torch.Tensor]) -> dict[str, Any]:
        # The last W has the number L - 1, and the last b has the number L.
        layers = [int(name[2:]) + (name[0] == "W") for name in parameters if name[:1] in "Wb" and name[2:].isdigit()]
        options: dict[str, Any] = _hidden_size(parameters, "W_0", "W_1", "b_1", "v")
        return {**options, "num_layers": max(2, *layers)} if layers else options

    def prepare(self, key: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(key, self.W_0, self.b_1)  # (…, S, H)

    def compare(self, query: torch.Tensor, prepared: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        hidden = [getattr(self, f"{kind}_{layer}") for layer in range(2, self.num_layers) for kind in "Wb"]
        query = nn.functional.linear(query, self.W_1)
        return pairwise(self._layers, query, prepared, *hidden, self.v, getattr(self, f"b_{self.num_layers}"))

    def _layers(self, sums: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        *hidden, v, bias = parameters
        activations = self.activation(sums)  # (…, t, S, H)
        for weight, shift in zip(hidden[::2], hidden[1::2], strict=True):
            activations = self.activation(nn.functional.linear(activations, weight, shift))
        return activations @ v + bias


class Location(Score):
    """act((W q)_i), independent of the key at position i (Luong et al. 2015, section 3.1, without act).

    Parameter: W (max_length, d_q).
    A position is an index into the source, so padding must be on the right.

    Args:
        max_length: largest number of keys; required.
        activation: name of a function of ``transformers.activations``; "linear", the default, is the identity.
    """

    W: torch.Tensor

    def __init__(
        self, query_size: int, key_size: int, *, max_length: int | None = None, activation: str = "linear"
    ) -> None:
        super().__init__(query_size, key_size)
        self.activation = activation_by_name(activation)
        if max_length is None:
            raise ValueError(
                "The score 'location' has one row of W for each position of a source; pass the largest number of "
                "positions as its option max_length, such as {'max_length': 100}, or the parameter W itself."
            )
        self._parameter("W", max_length, query_size)
        self.initialize_()

    def neutral_(self, given: Collection[str] = ()) -> None:
        if "W" not in given:
            raise ValueError(
                "The score 'location' has no neutral W; pass parameters={'W': a tensor (positions, query width)}."
            )

    @classmethod
    def options_from(cls, parameters: Mapping[str, torch.Tensor]) -> dict[str, Any]:
        return {"max_length": parameters["W"].shape[0]} if "W" in parameters else {}

    def prepare(self, key: torch.Tensor) -> torch.Tensor:
        if key.shape[-2] > self.W.shape[0]:
            raise ValueError(
                f"The source has {key.shape[-2]} positions and the score 'location' knows {self.W.shape[0]}; "
                f"make it with max_length={key.shape[-2]} or more, or cut the source."
            )
        return key[..., :0]  # only the number of keys matters

    def compare(self, query: torch.Tensor, prepared: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        energies = self.activation(nn.functional.linear(query, self.W[: prepared.shape[-2]]))  # (…, T, S)
        batch = broadcast(query.shape[:-2], prepared.shape[:-2])
        return energies.expand(*batch, -1, -1)


def _elu_above_zero(vectors: torch.Tensor) -> torch.Tensor:
    return nn.functional.elu(vectors) + 1


FEATURE_MAPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "identity": nn.Identity(),
    "elu": _elu_above_zero,  # linear attention (Katharopoulos et al. 2020)
    "relu": torch.relu,
    "softplus": nn.functional.softplus,
    "exp": torch.exp,
}


def _set_mean(key: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    share = mask.to(key.dtype) / mask.sum(-1, keepdim=True).clamp(min=1)
    return share @ key


def _set_std(key: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    centered = key[..., None, :, :] - _set_mean(key, mask)[..., None, :]  # (…, Tm, S, d)
    share = mask.to(key.dtype) / mask.sum(-1, keepdim=True).clamp(min=1)
    variance = (share[..., None] * centered.square()).sum(-2)
    # The derivative of the square root is infinite at zero. For equal keys, the deviation and its gradient are zero.
    return torch.where(variance > 0, torch.where(variance > 0, variance, 1).sqrt(), 0)


def _set_max(key: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    visible = key[..., None, :, :].masked_fill(~mask[..., None], torch.finfo(key.dtype).min)
    if not key.shape[-2]:  # amax raises for an empty dimension
        return visible.sum(-2)
    return visible.amax(-2).masked_fill(~mask.any(-1, keepdim=True), 0)


def _set_min(key: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return -_set_max(-key, mask)


def _set_sum(key: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return mask.to(key.dtype) @ key


SET_FEATURE_MAPS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "mean": _set_mean,
    "sum": _set_sum,
    "max": _set_max,
    "min": _set_min,
    "std": _set_std,
}


class Feature(Score):
    """v·act(W_0 φ₁(k) + W_1 φ₂(K) + b): compares a key with the set K of all keys, not with the query (Li et al. 2019).

    φ₂ depends only on the keys that the query may attend to; for an empty set, it is zero. Parameters: W_0 (H, d_k),
    W_1 (H, d_k), b (H), v (H).

    Args:
        hidden_size: H; default d_k.
        key_map: φ₁, a name of ``FEATURE_MAPS``.
        set_map: φ₂, a name of ``SET_FEATURE_MAPS``.
        activation: name of a function of ``transformers.activations``.
    """

    uses_mask = True
    W_0: torch.Tensor
    W_1: torch.Tensor
    b: torch.Tensor
    v: torch.Tensor

    def __init__(
        self,
        query_size: int,
        key_size: int,
        *,
        hidden_size: int | None = None,
        key_map: str = "identity",
        set_map: str = "mean",
        activation: str = "tanh",
    ) -> None:
        super().__init__(query_size, key_size)
        hidden_size = key_size if hidden_size is None else hidden_size
        self.key_map = by_name(FEATURE_MAPS, key_map, "a feature map of a key")
        self.set_map = by_name(SET_FEATURE_MAPS, set_map, "a feature map of the set of keys")
        self.activation = activation_by_name(activation)
        self._parameter("W_0", hidden_size, key_size)
        self._parameter("W_1", hidden_size, key_size)
        self._parameter("b", hidden_size)
        self._parameter("v", hidden_size)
        self.initialize_()

    @classmethod
    def options_from(cls, parameters: Mapping[str, torch.Tensor]) -> dict[str, Any]:
        return _hidden_size(parameters, "W_0", "W_1", "b", "v")

    def prepare(self, key: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.linear(self.key_map(key), self.W_0, self.b)
        return torch.cat([hidden, key.to(hidden.dtype)], dim=-1)  # (…, S, H + d_k); φ₂ needs the mask

    def compare(self, query: torch.Tensor, prepared: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        hidden, key = prepared.split([prepared.shape[-1] - self.key_size, self.key_size], dim=-1)
        if mask is None:
            mask = key.new_ones(1, key.shape[-2], dtype=torch.bool)
        mask = mask.expand(*mask.shape[:-1], key.shape[-2])
        of_set = nn.functional.linear(self.set_map(key, mask), self.W_1)  # (…, 1 or T, H)
        energies = pairwise(lambda sums, v: self.activation(sums) @ v, of_set, hidden, self.v)
        batch = broadcast(query.shape[:-2], energies.shape[:-2])
        return energies.expand(*batch, query.shape[-2], key.shape[-2])


class GeneralizedKernel(InnerProduct):
    """φ(q)·φ(k) (Choromanski et al. 2021). With ``normalize`` as the distribution, weights are φ(q)·φ(k) / Σ φ(q)·φ(k).

    Args:
        feature_map: φ, a name of ``FEATURE_MAPS``; with a positive one, the weights can be normalized.
    """

    one_width = True

    def __init__(self, query_size: int, key_size: int, *, feature_map: str = "elu") -> None:
        super().__init__(query_size, key_size)
        self.feature_map = by_name(FEATURE_MAPS, feature_map, "a feature map")

    def prepare(self, key: torch.Tensor) -> torch.Tensor:
        return self.feature_map(key)

    def factors(self, query: torch.Tensor, prepared: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.feature_map(query), prepared


SCORES: dict[str, type[Score]] = {
    "dot": Dot,
    "scaled_dot": ScaledDot,
    "cosine": Cosine,
    "general": General,
    "biased_general": BiasedGeneral,
    "activated_general": ActivatedGeneral,
    "additive": Additive,
    "concat": Additive,
    "deep": Deep,
    "location": Location,
    "feature": Feature,
    "generalized_kernel": GeneralizedKernel,
}

# These scores are defined in a separate file, which is saved with a model only if its configuration names one of them.
MORE_SCORES = {
    "gaussian": "attention_distances.Gaussian",
    "boxcar": "attention_distances.Boxcar",
    "euclidean": "attention_distances.Euclidean",
    "sq_euclidean": "attention_distances.SqEuclidean",
    "standardized_euclidean": "attention_distances.StandardizedEuclidean",
    "minkowski": "attention_distances.Minkowski",
    "manhattan": "attention_distances.Manhattan",
    "chebyshev": "attention_distances.Chebyshev",
    "mahalanobis": "attention_distances.Mahalanobis",
}

__all__ = [
    "FEATURE_MAPS",
    "SCORES",
    "SET_FEATURE_MAPS",
    "ActivatedGeneral",
    "Additive",
    "BiasedGeneral",
    "Cosine",
    "Deep",
    "Dot",
    "Feature",
    "General",
    "GeneralizedKernel",
    "InnerProduct",
    "Location",
    "Parametric",
    "ScaledDot",
    "Score",
    "pairwise",
]
