"""What contextual vectors of a frozen language model add to word vectors, and which layers a task mixes (ELMo)."""

from pathlib import Path
from typing import Any

from .claim import Claim, Measurement, Panel, Statement
from .recipe_runs import QUIET, ROOT, sst2, train, wikitext2

RUNS = ROOT / "runs" / "claims" / "elmo"
GLOVE, BOTH, ALONE, MINILM = "GloVe", "GloVe + ELMo", "ELMo", "GloVe + MiniLM"
NAMES, NAMES_GLOVE, NAMES_BOTH = "names, ELMo", "names, GloVe", "names, GloVe + ELMo"
TAGGERS = (NAMES, NAMES_GLOVE, NAMES_BOTH)
VARIANTS = (GLOVE, BOTH, ALONE, MINILM, *TAGGERS)
ACCURACY, GAIN, TOP, MEAN_LAYER = "accuracy", "accuracy - accuracy with GloVe", "share of the top layer", "mean layer"
UNSEEN, UNSEEN_GAIN = "F1 on unseen forms", "F1 on unseen forms - F1 with GloVe"
POINT = 0.01


def language_model(data: Path) -> Path:
    """Return the run folder of the language model: WikiText-2, then the training reviews of IMDb."""
    first, second = RUNS / "wikitext2", RUNS / "imdb"
    train("causal_lm", "wikitext2_bilm", {**QUIET, **wikitext2(data)}, first)
    own = {"data.dataset": str(data / "imdb.train.jsonl"), "model.name": str(first)}
    train("causal_lm", "imdb_bilm", {**QUIET, **own}, second)
    return second


def fields(variant: str, seed: int, data: Path) -> tuple[str, str, dict[str, Any]]:
    """Return the recipe, the configuration and the fields of a run."""
    common = {**QUIET, "training.seed": seed}
    if variant == NAMES:
        return "token_classification", "names_elmo", {**common, "contextual.name": str(language_model(data))}
    vectors = {"data.vectors": str(data / "glove100d.f16.npy"), "data.words": str(data / "glove100d.words.txt")}
    if variant in TAGGERS:
        section = {} if variant == NAMES_GLOVE else {"contextual": {"name": str(language_model(data))}}
        return "token_classification", "names_glove", {**common, **vectors, **section}
    common |= {**sst2(data), **vectors, "evaluation.counterfactual_texts": 20}
    if variant == GLOVE:
        return "classification", "sst2_glove", common
    if variant == MINILM:
        return "classification", "sst2_elmo", {**common, "contextual.name": str(data / "models" / "all-MiniLM-L6-v2")}
    if variant == ALONE:  # beside an embedding of one number
        common |= {"data.vectors": None, "data.words": None, "model.embedding_size": 1}
    return "classification", "sst2_elmo", {**common, "contextual.name": str(language_model(data))}


def run(variant: str, seed: int, data: Path) -> dict[str, Any]:
    """Train and test one variant, and return the results of the run."""
    out = RUNS / variant.replace(" + ", "-").replace(", ", "-").lower() / str(seed)
    return train(*fields(variant, seed, data), out)


def measure(variant: str, seed: int, data: Path) -> Measurement:
    results = run(variant, seed, data)
    metrics, curves = results["metrics"]["test"], {}
    values = {ACCURACY: metrics["f1"] if variant in TAGGERS else metrics["accuracy"]}
    if variant in TAGGERS:
        values[UNSEEN] = results["metrics"]["unseen_forms"]["f1"]
    if variant in (NAMES, NAMES_BOTH):
        values[UNSEEN_GAIN] = values[UNSEEN] - run(NAMES_GLOVE, seed, data)["metrics"]["unseen_forms"]["f1"]
    if variant in (BOTH, ALONE, MINILM):
        values[GAIN] = values[ACCURACY] - run(GLOVE, seed, data)["metrics"]["test"]["accuracy"]
    if "contextual" in results["model"]:
        shares = results["model"]["contextual"]["mixtures"]["input"]["shares"]
        curves["share"] = [(float(layer), share) for layer, share in enumerate(shares)]
        values[TOP] = shares[-1]
        values[MEAN_LAYER] = sum(layer * share for layer, share in enumerate(shares))
    return Measurement(values, curves, results["training"]["steps"])


CLAIM = Claim(
    "Contextual vectors of a frozen language model improve a classifier with word vectors, and tasks differ in the "
    "layers that they take them from",
    "Peters et al. 2018, sections 4 and 5",
    "A bidirectional LSTM with max pooling on SST-2 (`sst2_glove` and `sst2_elmo` of the recipe classification), 6,000 "
    "steps, five seeds. *GloVe* has frozen word vectors; *GloVe + ELMo* also the mixed layers of a language model that "
    "read WikiText-2 and the training reviews of IMDb (`wikitext2_bilm`, `imdb_bilm`), which is trained once; *ELMo* "
    "has an embedding of one number in the place of GloVe; *GloVe + MiniLM* has a pretrained sentence encoder in the "
    "place of the language model. The gain over GloVe is paired by seed, which sets the split and the order. *Names* "
    "is a tagger of generated sentences, whose score is the entity F1: over the subwords of the same language model "
    "(`names_elmo`), over GloVe vectors of all words of their file (`names_glove`), or over both. Names, and on unseen "
    "forms the sentences around them, are not in training. The variants with GloVe and the statements about unseen "
    "forms were added after the other runs. The paper's language model read 500 times as much text; its "
    "lower layer served syntax, and its upper one meaning.",
    VARIANTS,
    measure,
    (
        Statement(GAIN, BOTH, "not below", POINT),
        Statement(GAIN, MINILM, "not below", POINT),
        Statement(ACCURACY, BOTH, "above", ALONE),
        Statement(UNSEEN_GAIN, NAMES, "above", 0.0),
        Statement(UNSEEN_GAIN, NAMES_BOTH, "above", 0.0),
        Statement(MEAN_LAYER, NAMES, "below", BOTH),
    ),
    (Panel("share", "layer (0: embeddings)", "share s of the layer"),),
)
