"""Whether a translator with a fixed context loses more on long sentences than translators with attention."""

from pathlib import Path
from typing import Any

from hfattn.data import Pairs, choose_indices
from hfattn.evaluation import evaluate_translator
from hfattn.loading import load_translation_model
from hfattn.metrics.slices import length_groups
from hfattn.resources import load_recipe
from hfattn.training import load_config
from hfattn.yaml_values import override_words

from .claim import Claim, Measurement, Statement
from .recipe_runs import QUIET, ROOT, train

RECIPE = ROOT / "recipes" / "translation"
RUNS = ROOT / "runs" / "claims" / "sentence_length"
LONG = 13  # words, of a long source sentence
NUMBER = 1000  # shorter pairs that are translated
EPOCHS = 6
SHARE = 0.8  # of the BLEU of shorter sentences, which translators with attention keep

FIXED, ADDITIVE, INPUT_FEEDING = "fixed context", "Bahdanau", "Luong, input feeding"
# The configuration of each variant, and the widths that it alone has, halved.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    FIXED: ("spa_eng_sutskever", {"model.encoder_hidden_size": 256}),
    ADDITIVE: (
        "spa_eng_bahdanau",
        {
            "model.encoder_hidden_size": 128,
            "model.output_size": 128,
            "model.attention_score_options": {"hidden_size": 128},
        },
    ),
    INPUT_FEEDING: ("spa_eng_luong", {"model.encoder_hidden_size": 128}),
}
SHORT_BLEU, LONG_BLEU = f"BLEU, up to {LONG - 1} words", f"BLEU, {LONG} words and more"
RATIO = f"BLEU, {LONG} words and more / up to {LONG - 1}"


def fields(variant: str, seed: int, data: Path) -> dict[str, Any]:
    """Return the fields of a run that differ from its configuration."""
    return {
        **QUIET,
        "data.dataset": str(data / "spa-eng.txt"),
        "data.split_seed": 1,
        "tokenizer.vocab_size": 4000,
        "model.embedding_size": 128,
        "model.hidden_size": 256,
        **VARIANTS[variant][1],
        "training.num_train_epochs": EPOCHS,
        "training.seed": seed,
        "evaluation.examples": 100,
        "evaluation.num_beams": None,
        "sample.translations": 1,
        "sample.alignments": 1,
    }


def configuration(variant: str, seed: int, data: Path) -> Any:
    """Return the complete configuration of a run."""
    words = override_words(fields(variant, seed, data))
    return load_config(load_recipe(RECIPE / "train.py").Config, RECIPE / f"{VARIANTS[variant][0]}.yaml", words)


def measure(variant: str, seed: int, data: Path) -> Measurement:
    """Train with the command of the recipe, and translate all long test pairs and some of the others."""
    name = VARIANTS[variant][0]
    out = RUNS / f"{name}-{seed}"
    results = train("translation", name, fields(variant, seed, data), out)
    test = configuration(variant, seed, data).data.read_parts(seed)["test"]
    translator = load_translation_model(str(out))
    short, long = (mask.nonzero()[0] for *_, mask in length_groups([pair.source for pair in test], (1, LONG)))
    values = {}
    for value, numbers in ((SHORT_BLEU, short[choose_indices(len(short), NUMBER, 0)]), (LONG_BLEU, long)):
        pairs = Pairs(test.name, [test.items[i] for i in numbers])
        values[value] = evaluate_translator(*translator, pairs, num_beams=1)["bleu"]
    values[RATIO] = values[LONG_BLEU] / values[SHORT_BLEU]
    return Measurement(values, {}, results["training"]["steps"])


CLAIM = Claim(
    "On long sentences, a translator with a fixed context loses more than translators with attention",
    "Bahdanau et al. 2015, section 5.1 and figure 2; Sutskever et al. 2014; Luong et al. 2015, section 5.2",
    "English to Spanish, sentences of Tatoeba, with `spa_eng_sutskever`, `spa_eng_bahdanau` and `spa_eng_luong` of the "
    "recipe translation at half their width (decoders of 256 units, 4,000 subwords) and for the same "
    f"{EPOCHS} epochs. Cased BLEU with greedy search, on all test pairs whose English sentence has {LONG} words and "
    f"more, and on {NUMBER:,} of the others. The checkpoint is chosen by the loss on validation, and all runs have the "
    "same parts.",
    tuple(VARIANTS),
    measure,
    (
        *(Statement(LONG_BLEU, FIXED, "below", other) for other in (ADDITIVE, INPUT_FEEDING)),
        *(Statement(RATIO, FIXED, "below", other) for other in (ADDITIVE, INPUT_FEEDING)),
        *(Statement(RATIO, other, "above", SHARE) for other in (ADDITIVE, INPUT_FEEDING)),
    ),
    (),
)
