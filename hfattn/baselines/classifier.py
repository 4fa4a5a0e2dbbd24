"""Linear classifiers on features of texts."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from huggingface_hub.dataclasses import strict
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from ..errors import UserError
from ..extras import optional
from ..fields import at_least, number
from ..files import write_json
from ..models.strict_config import unknown_message
from .cleaning import Cleaner, CleaningConfig
from .counts import Counts, FeaturesConfig
from .encoder import EncoderConfig, EncoderFeatures
from .kernels import KERNELS, KernelMap
from .vectors import TextVectors, VectorsConfig

KINDS = ("naive_bayes", "svm", "logistic")
FOLDS = 5  # folds of the cross-validation that calibrates the probabilities of an SVM
SETTINGS, _VOCABULARY, _WEIGHTS = "baseline.json", "vocabulary.json", "model.safetensors"
_ENCODER = "encoder"  # folder of an encoder that is not on the Hub


@strict
@dataclass
class ClassifierConfig:
    """The section ``classifier`` of the recipe.

    Attributes:
        kind: "naive_bayes" (multinomial; McCallum & Nigam 1998), "svm" (squared hinge loss; Fan et al. 2008) or
            "logistic" (logistic regression).
        c: inverse strength of the L2 regularization of svm and logistic.
        alpha: smoothing of naive_bayes, added to each count (1: Laplace).
        kernel: of svm: "linear", or "rbf" or "poly" by the features of ``KernelMap``, which has the formulas.
        gamma: factor γ of rbf and poly.
        degree: degree of poly.
        landmarks: highest number of training texts that rbf and poly are approximated with.
    """

    kind: str = "svm"
    c: float | int = number(1.0, above=0)
    alpha: float | int = number(1.0, above=0)
    kernel: str = "linear"
    gamma: float | int = number(1.0, above=0)
    degree: int = at_least(1, 3)
    landmarks: int = at_least(1, 1000)

    def validate_classifier(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(unknown_message(self.kind, KINDS, "a kind of classifier"))
        if self.kernel not in KERNELS:
            raise ValueError(unknown_message(self.kernel, KERNELS, "a kernel"))
        if self.kernel != "linear" and self.kind != "svm":
            raise ValueError(f"kernel {self.kernel} is for an SVM; write kind: svm, or remove kernel.")


class BaselineClassifier:
    """A linear classifier on features of texts: logits x Wᵀ + b, and probabilities by the softmax.

    All three kinds of classifiers have this form. Naive Bayes has W = ln P(t | class) and b = ln P(class); with two
    classes, W is ∓w for an SVM and ∓w/2 for logistic regression. The margins of an SVM are multiplied by a factor so
    that their softmax gives calibrated probabilities (temperature scaling, Guo et al. 2017). The factor is fitted by
    cross-validation on the training texts and does not change predictions. With a kernel other than linear, the SVM is
    linear in the features of a ``KernelMap``.

    Args:
        cleaning, features, vectors, classifier, encoder: the sections of the recipe.

    Attributes:
        labels: (C,) names of the classes.
        weights: (C, F), bias: (C,) in float64; with a kernel, F is the number of landmarks.
        iterations: number of iterations of the solver in the last fit.
        threshold: probability of the best class below which the classifier can abstain, or None.

    Raises:
        UserError: the sections are incompatible, or a package is missing.
    """

    def __init__(
        self,
        cleaning: CleaningConfig,
        features: FeaturesConfig,
        vectors: VectorsConfig,
        classifier: ClassifierConfig,
        encoder: EncoderConfig | None = None,
    ) -> None:
        if classifier.kind == "naive_bayes" and features.kind in ("vectors", "encoder"):
            raise UserError(
                "Naive Bayes needs counts, and vectors have negative components; write classifier.kind: logistic."
            )
        self.cleaning, self.classifier = cleaning, classifier
        self.clean = Cleaner(cleaning)
        self.features: Counts | TextVectors | EncoderFeatures
        if features.kind == "encoder":
            if cleaning != CleaningConfig():
                raise UserError("An encoder reads the text as it is written; remove the section cleaning.")
            self.features = EncoderFeatures(encoder or EncoderConfig())
        else:
            self.features = TextVectors(vectors) if features.kind == "vectors" else Counts(features)
        self.kernel = None
        if classifier.kernel != "linear":
            self.kernel = KernelMap(classifier.kernel, classifier.gamma, classifier.degree, classifier.landmarks)
        self.threshold: float | None = None
        self.labels: list[str] = []
        self.weights, self.bias, self.iterations = np.zeros((0, 0)), np.zeros(0), 0

    def fit(self, texts: Sequence[str], right: Sequence[int], labels: Sequence[str], seed: int = 0) -> np.ndarray:
        """Fit the features and the classifier to texts (n,) and the indices of their classes (n,).

        Returns:
            The logits (n, C) of these texts; with doc2vec, from the vectors that were trained with the words.

        Raises:
            UserError: a class has no texts or too few to calibrate an SVM, or no feature remains.
        """
        counts = np.bincount(right, minlength=len(labels))
        needed = 2 if self.classifier.kind == "svm" else 1
        if counts.min() < needed:
            raise UserError(
                f"The class {labels[int(counts.argmin())]} has {counts.min()} training texts, and "
                f"{self.classifier.kind} needs {needed}; add texts, or remove the class from data.labels."
            )
        self.labels = list(labels)
        inputs = self.features.fit_transform(self._read(texts), seed)
        if self.kernel is not None:
            inputs = self.kernel.fit(inputs, seed).transform(inputs)
        self.weights, self.bias, self.iterations = self._linear(inputs, np.asarray(right), int(counts.min()), seed)
        return self._logits(inputs)

    def _linear(self, inputs: Any, right: np.ndarray, fewest: int, seed: int) -> tuple[np.ndarray, np.ndarray, int]:
        kind, c = self.classifier.kind, self.classifier.c
        if kind == "naive_bayes":
            bayes = (
                optional("baselines", "sklearn.naive_bayes")
                .MultinomialNB(alpha=self.classifier.alpha)
                .fit(inputs, right)
            )
            return bayes.feature_log_prob_, bayes.class_log_prior_, 1
        if kind == "logistic":
            model = (
                optional("baselines", "sklearn.linear_model").LogisticRegression(C=c, max_iter=1000).fit(inputs, right)
            )
            scale = 0.5 if len(self.labels) == 2 else 1.0
        else:
            svm = optional("baselines", "sklearn.svm").LinearSVC(C=c, random_state=seed)
            calibrated = optional("baselines", "sklearn.calibration").CalibratedClassifierCV(
                svm, method="temperature", cv=min(FOLDS, fewest), ensemble=False
            )
            (fitted,) = calibrated.fit(inputs, right).calibrated_classifiers_
            model, scale = fitted.estimator, float(fitted.calibrators[0].beta_)
        weights, bias = scale * model.coef_.astype(np.float64), scale * model.intercept_.astype(np.float64)
        if len(self.labels) == 2:
            weights, bias = np.vstack([-weights, weights]), np.concatenate([-bias, bias])
        return weights, bias, int(np.max(model.n_iter_))

    def _read(self, texts: Sequence[str]) -> Any:
        """Return the words of texts; an encoder has its own tokenizer."""
        return texts if isinstance(self.features, EncoderFeatures) else [self.clean(text) for text in texts]

    def logits(self, texts: Sequence[str]) -> np.ndarray:
        """Return the logits (n, C) of texts, in float64."""
        inputs = self.features.transform(self._read(texts))
        return self._logits(inputs if self.kernel is None else self.kernel.transform(inputs))

    def _logits(self, inputs: Any) -> np.ndarray:
        return inputs @ self.weights.T + self.bias

    def predict(self, texts: Sequence[str]) -> np.ndarray:
        """Return the class probabilities (n, C) of texts."""
        return optional("baselines", "scipy.special").softmax(self.logits(texts), axis=1)

    @property
    def parameters(self) -> int:
        """Number of learned parameters, with those of the vectors, without a frozen encoder and without landmarks.

        Two mirrored rows of weights count once.
        """
        linear = self.weights.size + self.bias.size
        if len(self.labels) == 2 and self.classifier.kind != "naive_bayes":
            linear //= 2
        return linear + (self.features.parameters if isinstance(self.features, TextVectors) else 0)

    def telling(self, number: int) -> dict[str, list[tuple[str, float]]]:
        """Return for each class the n-grams with the largest weight above the mean over the classes.

        Returns:
            For each class at most ``number`` n-grams with this difference, in nats per unit of the feature; empty if
            the features have no names, or the weights are those of landmarks.
        """
        if self.features.names is None or self.kernel is not None:
            return {}
        differences = self.weights - self.weights.mean(axis=0)
        return {
            label: [
                (self.features.names[i], float(row[i]))
                for i in np.argsort(-row, kind="stable")[:number].tolist()
                if row[i] > 0
            ]
            for label, row in zip(self.labels, differences, strict=True)
        }

    # Saving: safetensors, JSON, text and .npy; no pickle

    def save_pretrained(self, folder: str | Path) -> None:
        """Write ``baseline.json``, ``model.safetensors``, and ``vocabulary.json`` or the files of the vectors.

        An encoder from the Hub is written as its id and revision, an encoder from a local folder is copied.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {"weights": self.weights, "bias": self.bias}
        sections: dict[str, Any] = {"cleaning": self.cleaning, "classifier": self.classifier}
        if isinstance(self.features, TextVectors):
            sections["vectors"] = self.features.config
            tensors |= self.features.save(folder)
        elif isinstance(self.features, EncoderFeatures):
            sections["encoder"] = self.features.published
            self.features.save(folder / _ENCODER)
            tensors |= {"mean": self.features.mean, "scale": self.features.scale}
        else:
            sections["features"] = self.features.config
            tensors["idf"] = self.features.idf
            vocabulary = json.dumps(self.features.names, ensure_ascii=False)
            (folder / _VOCABULARY).write_text(vocabulary, encoding="utf-8")
        if self.kernel is not None:
            tensors |= self.kernel.tensors()
        settings: dict[str, Any] = {"labels": self.labels} | {
            name: dataclasses.asdict(each) for name, each in sections.items()
        }
        if self.threshold is not None:
            settings["threshold"] = self.threshold
        write_json(folder / SETTINGS, settings)
        save_file({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, folder / _WEIGHTS)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "BaselineClassifier":
        """Load a baseline from a folder that ``save_pretrained`` wrote.

        Raises:
            UserError: the folder has no baseline, or one of its files is damaged.
        """
        folder = Path(folder)
        if not (folder / SETTINGS).is_file():
            raise UserError(f"{folder} has no baseline ({SETTINGS}); give a run folder of recipes/baselines.")
        try:
            settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
            tensors = load_file(folder / _WEIGHTS)
            return cls._loaded(folder, settings, tensors)
        except (SafetensorError, ValueError, KeyError, TypeError, FileNotFoundError) as error:
            if isinstance(error, UserError):
                raise
            reason = " ".join(str(error).split())
            raise UserError(
                f"The baseline in {folder} is damaged ({type(error).__name__}: {reason}); copy all of its files again."
            ) from error

    @classmethod
    def _loaded(cls, folder: Path, settings: Mapping[str, Any], tensors: dict[str, np.ndarray]) -> "BaselineClassifier":
        other = "encoder" if "encoder" in settings else "vectors"
        features = FeaturesConfig(**settings.get("features", {"kind": other}))
        vectors = VectorsConfig(**settings.get("vectors", {}))
        encoder = EncoderConfig(**settings.get("encoder", {}))
        if (folder / _ENCODER).is_dir():
            encoder = dataclasses.replace(encoder, name=str(folder / _ENCODER))
        made = cls(
            CleaningConfig(**settings["cleaning"]),
            features,
            vectors,
            ClassifierConfig(**settings["classifier"]),
            encoder,
        )
        made.labels, made.weights, made.bias = settings["labels"], tensors["weights"], tensors["bias"]
        made.threshold = settings.get("threshold")
        if features.kind == "vectors":
            made.features = TextVectors.load(vectors, folder, tensors)
        elif isinstance(made.features, EncoderFeatures):
            made.features.mean, made.features.scale = tensors["mean"], tensors["scale"]
        else:
            names = json.loads((folder / _VOCABULARY).read_text(encoding="utf-8"))
            wanted = len(tensors["idf"]) if made.kernel is not None else made.weights.shape[1]
            if not len(names) == len(tensors["idf"]) == wanted:
                raise ValueError(f"{len(names)} n-grams for {wanted} weights")
            made.features = Counts(features, names, tensors["idf"])
        if made.kernel is not None:
            sparse = isinstance(made.features, Counts)
            width = (
                len(tensors["idf"]) if sparse else vectors.size if features.kind == "vectors" else len(tensors["mean"])
            )
            made.kernel.load(tensors, width, sparse)
        return made
