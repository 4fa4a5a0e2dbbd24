"""Train, evaluate, predict, explain, verify and push from Python, as the commands do, in this process.

These functions are names of ``hfattn`` itself. They raise ``UserError`` where a command would print its one sentence.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import UserError
from .extras import require
from .files import read_json_object

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from .explaining import ScoredImage, ScoredText
    from .hub import PushPlan, Report
    from .models.alignment import AttentionRecord

ATTENTION = "attention"  # the method of ``explain`` that is not one of saliency
_PICTURES = ("*.png", "*.svg", "*.html")


class Run(PathLike[str]):
    """The folder of a finished run, which all functions take as a model.

    Args:
        folder: the folder that ``train`` or ``hfattn train`` wrote.

    Raises:
        UserError: the folder has no results.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = Path(folder)
        self.results: dict[str, Any] = read_json_object(self.folder / "results.json")

    def __fspath__(self) -> str:
        return str(self.folder)

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    @property
    def metrics(self) -> dict[str, Any]:
        """Scores by part of the data."""
        return self.results["metrics"]

    @property
    def figures(self) -> dict[str, Path]:
        """Pictures and pages, by the names of their files."""
        return {path.name: path for kind in _PICTURES for path in sorted(self.folder.glob(kind))}

    @property
    def model(self) -> "PreTrainedModel":
        """The trained model as it was saved, in evaluation mode."""
        return self._loaded[0]

    @property
    def tokenizer(self) -> "PreTrainedTokenizerBase":
        """Its tokenizer; a translator's tokenizer of the source."""
        return self._loaded[1]

    @cached_property
    def _loaded(self) -> tuple["PreTrainedModel", "PreTrainedTokenizerBase", "PreTrainedTokenizerBase | None"]:
        from .loading import load_any_model

        return load_any_model(str(self.folder))


def train(
    config: str | PathLike[str],
    fields: Mapping[str, Any] | None = None,
    *,
    datasets: "Dataset | DatasetDict | None" = None,
    output_dir: str | PathLike[str] | None = None,
    resume: bool = False,
    push_to: str | None = None,
    push_private: bool = False,
    search: str | PathLike[str] | None = None,
) -> Run:
    """Train a recipe in this process, as ``hfattn train`` does in another, and return its finished run.

        run = hfattn.train("classification/opinions", {"training.max_steps": 100}, output_dir="runs/opinions")

    Args:
        config: a configuration as ``hfattn recipes list`` shows it, or a YAML file that names its ``recipe`` or is
            beside its ``train.py``.
        fields: fields that differ from the configuration: by dotted names, or in sections as in the YAML file.
        datasets: data in memory instead of ``data.dataset``: a ``Dataset``, or a ``DatasetDict`` with the split train
            and, unless they are to be taken from it, validation and test.
        output_dir: the run folder; default ``runs/<recipe>-<config>``.
        resume: continue the run in that folder, or start it if there is none yet.
        push_to: repository on the Hub to push the finished run to.
        push_private: create that repository as private.
        search: ``search.json`` of ``hfattn tune``, whose best settings this run has.

    Raises:
        UserError: the configuration, the data or the folder cannot be used, or the loss is not finite.
    """
    require("recipes")
    from datasets import Dataset, DatasetDict

    from .data import GIVEN
    from .resources import find_configuration, load_recipe
    from .training import parse_command, restoring
    from .yaml_values import override_words

    if not isinstance(datasets, Dataset | DatasetDict | None):
        raise UserError(
            f"datasets is of the type {type(datasets).__name__}; give a Dataset, such as Dataset.from_list(rows), or a "
            "DatasetDict."
        )
    found = find_configuration(fspath(config))
    recipe = load_recipe(found.script)
    changed = _dotted(fields or {})
    if datasets is not None:
        changed["data.dataset"] = GIVEN
    argv = [str(found.script), "--config", str(found.path), *override_words(changed)]
    for name, value in (("output_dir", output_dir), ("push_to", push_to), ("search", search)):
        argv += [] if value is None else [f"--{name}", fspath(value)]
    argv += [f"--{name}" for name, given in (("resume", resume), ("push_private", push_private)) if given]
    command = replace(parse_command(recipe.RECIPE, "", argv), datasets=datasets)
    with restoring(command):
        recipe.main(command)
    return Run(command.run)


def _dotted(fields: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    dotted: dict[str, Any] = {}
    for name, value in fields.items():
        whole = f"{prefix}{name}"
        # {"data": {"rename_labels": {}}} empties a field, and {"data": {}} changes nothing.
        if isinstance(value, Mapping) and (value or "." not in whole):
            dotted |= _dotted(value, f"{whole}.")
        else:
            dotted[whole] = value
    return dotted


def evaluate(model: str | PathLike[str], data: str | PathLike[str], **options: Any) -> dict[str, Any]:
    """Return the scores of a model on your own data, as ``hfattn evaluate`` does.

    Args:
        model: run, folder or Hub id of a translator, a classifier, a language model or a sentence encoder.
        data: file or Hub id of pairs, labeled texts or text.
        options: ``split``, ``config``, ``columns``, ``num_beams``, ``limit``, ``threshold`` and ``together_with`` of
            ``evaluate_folder``.

    Raises:
        UserError: the model or the data cannot be read, or do not fit.
    """
    require("recipes")
    from .evaluation import evaluate_folder

    others = [fspath(each) for each in options.pop("together_with", ())]
    return evaluate_folder(fspath(model), fspath(data), together_with=others, **options)


def predict(
    model: str | PathLike[str],
    inputs: Iterable[str | Sequence[str] | Mapping[str, Any]],
    *,
    batch_size: int = 32,
    abstain: bool | None = None,
    hypotheses: int = 1,
    num_beams: int | None = None,
    max_new_tokens: int | None = None,
    engine: str = "torch",
    quantization: str | None = None,
    together_with: Sequence[str | PathLike[str]] = (),
) -> list[dict[str, Any]]:
    """Return what a model of any task predicts for each input, as ``hfattn predict`` does for a file.

        hfattn.predict(run, ["I was charged twice."])[0]["label"]

    Args:
        model: run, folder or Hub id.
        inputs: for each, its text, or its parts in order or by name: ``text`` and ``pair``, ``question`` and
            ``context``, or ``context`` and ``choices``.
        batch_size: inputs that the model reads at once.
        abstain, hypotheses, num_beams, max_new_tokens, engine, quantization, together_with: see
            ``hfattn.predicting.PredictOptions``.

    Returns:
        For a classifier ``label``, ``probability`` and ``probabilities``, and if a threshold applies ``rejected``; for
        one that gives a text several labels ``labels`` and ``probabilities``; for a regression ``number``; for a tagger
        ``entities``; for a question ``answer``, ``start`` and ``probability``; for choices ``choice``, ``answer`` and
        ``probabilities``; for a translator ``translation`` and ``score``, its log-probability in nats; for a language
        model ``continuation``; for a masked language model ``masks``.

    Raises:
        UserError: the model cannot be loaded, an option is not for its task, or an input lacks a part.
    """
    require("recipes")
    from .predicting import PredictOptions, open_predictor, predictions

    if isinstance(inputs, str):
        raise UserError("inputs is one text; give a list of texts.")
    others = tuple(fspath(each) for each in together_with)
    options = PredictOptions(abstain, hypotheses, num_beams, max_new_tokens, engine, quantization, others)
    return list(predictions(open_predictor(fspath(model), options), inputs, batch_size))


def explain(
    model: str | PathLike[str],
    text: str,
    method: str = ATTENTION,
    *,
    target: int | str | None = None,
    contrast: int | str | None = None,
) -> "AttentionRecord | ScoredText | ScoredImage":
    """Return what a model attends to in a text or image, or how much its answer depends on each word or patch.

    Args:
        model: run, folder or Hub id.
        text: the text; for a model of images, the path of the file of an image.
        method: "attention", or a method of ``hfattn.explaining.saliency``: "gradient_x_input", "integrated_gradients"
            or "occlusion".
        target, contrast: see ``hfattn.explaining.saliency``; not for attention.

    Returns:
        For "attention" an ``AttentionRecord``: of a translator's best translation and its source, or of the text
        itself, or of the patches of the image. Otherwise a ``ScoredText`` by word, or a ``ScoredImage``.

    Raises:
        UserError: the model cannot be loaded or has no attention, or the method does not exist.
    """
    from .explaining import METHODS, cross_attention, image_attention, image_saliency, saliency, self_attention
    from .loading import load_any_model, load_reading_model, reads_images

    name = fspath(model)
    if method == ATTENTION:
        if (target, contrast) != (None, None):
            raise UserError("target and contrast are for methods of saliency; choose one, or leave them out.")
        translator = load_reading_model(name)
        if reads_images(translator[0]):
            return image_attention(name, translator[0], _pixel_values(translator[1], text))
        if translator[0].config.is_encoder_decoder:
            return cross_attention(name, translator, text)[0].record
        return self_attention(name, translator[0], translator[1], text)
    if method not in METHODS:
        raise UserError(f"method is {method!r}; write one of {', '.join((ATTENTION, *METHODS))}.")
    loaded, tokenizer, target_tokenizer = load_any_model(name)
    if reads_images(loaded):
        pixels = _pixel_values(tokenizer, text)
        return image_saliency(loaded.float(), pixels, method=method, target=target, contrast=contrast)
    return saliency(
        loaded.float(),  # gradients overflow in float16
        tokenizer,
        text,
        method=method,
        target=target,
        contrast=contrast,
        target_tokenizer=target_tokenizer,
        by_word=True,
    )


def _pixel_values(processor: Any, file: str) -> Any:
    """Return the image of a file as the input of a model, (1, channels, height, width)."""
    from .data import open_image

    if not Path(file).is_file():
        raise UserError(f"The model reads images, and {file} is not a file; write the path of an image.")
    return processor(open_image(Path(file), place=file), return_tensors="pt")["pixel_values"]


def verify(
    model: str | PathLike[str],
    *,
    measure: Sequence[str] | None = None,
    signer: str | PathLike[str] | None = None,
    issuer: str | None = None,
    trust: bool = False,
) -> "Report":
    """Check that a folder loads and computes in a sandbox without hfattn what was recorded, as ``hfattn verify`` does.

    Args:
        model: run, folder or Hub id.
        measure: measure the scores again, on the data at these places; an empty list: on those that it names.
        signer: who must have signed the files: the file of a public key or, with ``issuer``, an identity.
        issuer: address of the OpenID Connect issuer that states the identity.
        trust: let unknown code run also where the kernel has no sandbox.

    Raises:
        UserError: the folder cannot be verified.
    """
    require("publish")
    from .hub import verify
    from .hub.fetching import model_files
    from .hub.signing import read_signer

    who = read_signer(signer, issuer)
    with model_files(fspath(model)) as (folder, _):
        return verify(folder, measure=measure, trust=trust, signer=who)


def push(
    model: str | PathLike[str],
    repo_id: str,
    *,
    private: bool = False,
    public: bool = False,
    sign: str | PathLike[str] | None = None,
    execute: bool = False,
) -> "PushPlan":
    """Push a run to the Hub, as ``hfattn push`` does: verify it, then upload the files of its manifest.

    Args:
        model: run, folder or Hub id.
        repo_id: repository, such as ``user/name``.
        private: make a new repository visible to its owner only.
        public: let a new repository be public although the data of the model are not.
        sign: file with the private key that signs the files, or "keyless" for the identity of the job that runs.
        execute: upload the files; otherwise, the plan lists them.

    Raises:
        UserError: the folder is not complete, a check failed, or the Hub refused.
    """
    require("publish")
    from .hub import PushOptions, push
    from .hub.fetching import model_files
    from .hub.signing import read_key

    options = PushOptions(private=private, public=public, execute=execute, sign=read_key(sign))
    with model_files(fspath(model)) as (folder, _):
        return push(folder, repo_id, options)


__all__ = ["Run", "evaluate", "explain", "predict", "push", "train", "verify"]
