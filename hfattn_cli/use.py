"""The commands that use a trained model, such as ``predict`` and ``evaluate``."""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from .common import (
    AsJson,
    Engine,
    MaxNewTokens,
    Model,
    NumBeams,
    Quantization,
    one_sentence,
    require_text,
    require_utf8,
    require_vocabulary,
)

File = Annotated[
    str | None, typer.Option(metavar="FILE", help="Read the texts from a file, or - for lines, as hfattn predict does.")
]
Columns = Annotated[
    str | None,
    typer.Option(
        help="Columns to read, separated by commas: text, or text,pair, or question,context; default: those that "
        "the model was trained on."
    ),
]

TogetherWith = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="MODEL",
        help="Another classifier of the same classes: the probabilities are averaged. Can be repeated.",
    ),
]

Abstain = Annotated[
    bool | None,
    typer.Option(
        "--abstain/--no-abstain",
        help="Give no class below the threshold that is stored with the model; default: if one is stored.",
    ),
]


def generate(
    model: Model,
    prompt: Annotated[str, typer.Option(help="Text to continue.")],
    temperature: Annotated[
        float, typer.Option(min=0.0, help="Sampling temperature; 0 always takes the most probable token.")
    ] = 0.8,
    top_k: Annotated[int, typer.Option(min=0, help="Sample from the k most probable tokens; 0: from all.")] = 0,
    top_p: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Sample from the smallest set of tokens with this total probability."),
    ] = 1.0,
    num_beams: Annotated[int, typer.Option(min=1, help="Number of beams (with temperature 0).")] = 1,
    max_new_tokens: Annotated[
        int, typer.Option(min=1, help="Longest continuation, in tokens; less if the model has fewer positions.")
    ] = 300,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed of sampling.")] = 0,
    stream: Annotated[bool, typer.Option(help="Print each token as soon as it is generated.")] = False,
) -> None:
    """Continue a prompt with a language model, or answer it with one that was trained on messages.

    Example: hfattn generate runs/text --prompt "The " --max-new-tokens 20
    """
    from hfattn.errors import UserError

    with one_sentence():
        if not prompt:
            raise UserError("The prompt is empty; give at least one character.")
        require_utf8(prompt)
        if num_beams > 1 and temperature > 0:
            raise UserError("Beam search looks for the most probable text; write --temperature 0 with --num-beams.")
        if stream and num_beams > 1:
            raise UserError("Beam search cannot stream its text; remove --stream or --num-beams.")
        import torch
        from transformers import set_seed

        from hfattn.generation import TokenStreamer, is_chat, read_prompt, sampling_options, written_text
        from hfattn.loading import load_language_model, reads_backward

        language_model, tokenizer = load_language_model(model)
        if stream and reads_backward(language_model.config):
            raise UserError(f"{model} writes from the end of a text to its start; remove --stream.")
        require_vocabulary(tokenizer, prompt)
        set_seed(seed)
        inputs, max_new_tokens = read_prompt(language_model, tokenizer, prompt, max_new_tokens)
        streamer = TokenStreamer(tokenizer, sys.stdout, with_prompt=not is_chat(language_model)) if stream else None
        with torch.inference_mode():
            ids = language_model.generate(
                **inputs,
                num_beams=num_beams,
                max_new_tokens=max_new_tokens,
                streamer=streamer,
                **sampling_options(temperature, top_k, top_p),
            )
        if not stream:
            print(written_text(language_model, tokenizer, inputs, ids[0]))


def search(
    model: Model,
    text: Annotated[str, typer.Argument(help="What to look for.")],
    place: Annotated[
        Path,
        typer.Argument(
            help="Text file with a sentence on each line, or a folder with images, whose subfolders are searched too."
        ),
    ],
    number: Annotated[int, typer.Option(min=1, help="Number of sentences or images to show.")] = 5,
    index: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Keep the vectors of the sentences in this file, or read them from it if it exists."
        ),
    ] = None,
) -> None:
    """Find the sentences of a text file, or the images of a folder, that are nearest to a text.

    Each line has the cosine, and the sentence or the path of the image, the best first. The model is a sentence encoder
    for a file, and a dual encoder for a folder.

    Example: hfattn search runs/sentences "Where is the station?" sentences.txt
    """
    from hfattn.errors import UserError
    from hfattn.extras import require

    with one_sentence():
        require("recipes")
        found: Iterable[tuple[str | Path, float]]
        if place.is_dir():
            from hfattn.retrieval import search_images

            if index is not None:
                raise UserError("--index keeps the vectors of sentences, and the place is a folder of images; omit it.")
            found = search_images(model, text, place, number)
        else:
            from hfattn.text_search import search_sentences

            found = search_sentences(model, text, place, number, index)
        for each, cosine in found:
            print(f"{cosine:.3f}  {each}")


def score(
    model: Model,
    text: Annotated[str, typer.Argument(help="UTF-8 text file, Hub dataset id, or 'embedded'.")],
    skip: Annotated[float, typer.Option(min=0.0, max=0.999, help="Fraction of the text to skip at its start.")] = 0.0,
    window: Annotated[
        int | None,
        typer.Option(
            min=1, help="Length of the windows that are scored separately; default: the longest the model can read."
        ),
    ] = None,
    stride: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens from one window to the next; default: the window, without overlap."),
    ] = None,
    document_start: Annotated[
        str | None,
        typer.Option(
            metavar="REGEX",
            help="Score each document on its own, and also print the mean loss by position in the document. The "
            "expression matches the first line of each, such as '^ = [^=]' in WikiText; 'embedded' has documents "
            "already.",
        ),
    ] = None,
) -> None:
    """Compute the likelihood of a text.

    The model is a language model.

    Example: hfattn score runs/text my.txt
    """
    from hfattn.extras import require

    with one_sentence():
        require("recipes")
        from hfattn.data import open_text, read_documents
        from hfattn.errors import UserError
        from hfattn.likelihood import score_documents, score_opened
        from hfattn.loading import load_language_model

        if document_start is None:
            scores: dict[str, Any] = score_opened(*load_language_model(model), open_text(text), skip, window, stride)
        elif skip:
            raise UserError("--skip leaves out the start of one text; with --document-start, remove it.")
        else:
            documents = read_documents(text, document_start=document_start).contents
            scores = score_documents(*load_language_model(model), documents, window, stride)
        ranges = scores.pop("by_distance", [])
        for name, value in scores.items():
            print(f"{name:20}{value:.4f}" if isinstance(value, float) else f"{name:20}{value}")
        if ranges:
            print(f"\n{'tokens read before':20}{'nats_per_token':20}tokens")
        for each in ranges:
            print(
                f"{each['from']:,} to {each['to']:,}".ljust(20) + f"{each['nats_per_token']:<20.4f}{each['tokens']:,}"
            )


def evaluate(
    model: Model,
    data: Annotated[
        str,
        typer.Argument(
            help="File of pairs, labeled texts or text, as data.dataset of a recipe; or a Hub dataset id. For a "
            "classifier also 'templates' or 'templates_es': English or Spanish sentences that differ in a country, a "
            "gender or a name; or a .yaml file of such sentences."
        ),
    ],
    split: Annotated[str, typer.Option(help="Split of a Hub dataset.")] = "test",
    config: Annotated[str | None, typer.Option(help="Configuration of a Hub dataset that has several.")] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            help="Columns, separated by commas: source,target or text,label or text,pair,label; for a sentence encoder "
            "text,pair or text,pair,score."
        ),
    ] = None,
    num_beams: NumBeams = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Evaluate a random sample of this many examples.")] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=1.0, help="A classifier abstains if the probability of the predicted class is lower."
        ),
    ] = None,
    together_with: TogetherWith = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a model on your own data.

    The model is a translator, a classifier, a language model or a sentence encoder.

    Example: hfattn evaluate runs/dates pairs.tsv
    """
    from hfattn.extras import require

    with one_sentence():
        require("recipes")
        from hfattn.evaluation import evaluate_folder, report_lines

        others = together_with or []
        scores = evaluate_folder(model, data, split, config, _names(columns), num_beams, limit, threshold, others)
        print(json.dumps(scores, indent=2, ensure_ascii=False) if as_json else "\n".join(report_lines(scores)))


def classify(
    model: Model,
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT...", help="Texts to classify.")] = None,
    file: File = None,
    columns: Columns = None,
    pair: Annotated[
        bool, typer.Option("--pair", help="Read two texts as one pair, such as premise, hypothesis.")
    ] = False,
    abstain: Abstain = None,
    together_with: TogetherWith = None,
    as_json: AsJson = False,
) -> None:
    """Classify texts, with the probability of the class.

    Print one line for each text. A classifier that was trained with evaluation.coverage abstains below its threshold.

    Example: hfattn classify runs/reviews "The actors were very convincing."
    """
    from hfattn.errors import UserError
    from hfattn.extras import require

    with one_sentence():
        given = _given(texts, file, columns)
        if pair and file is not None:
            raise UserError("--pair reads two texts of the command line; for a file, write --columns text,pair.")
        if pair and len(given) != 2:
            raise UserError(f"A pair has two texts, and {len(given)} are given; give two with --pair.")
        require("recipes")
        from hfattn.predicting import PredictOptions, open_predictor, predictions

        predictor = open_predictor(model, PredictOptions(abstain=abstain, together_with=tuple(together_with or ())))
        found = (
            predictions(predictor, [given] if pair else given) if file is None else _of_file(predictor, file, columns)
        )
        answers = list(found)
        if answers and not answers[0].keys() & {"label", "labels"}:
            raise UserError(f"{model} does not classify texts; use hfattn predict.")
        if as_json:
            print(json.dumps(answers, indent=2, ensure_ascii=False))
        else:
            for answer in answers:
                if "labels" in answer:
                    shown = (f"{answer['probabilities'][label]:.4f}  {label}" for label in answer["labels"])
                    print(",  ".join(shown) or "(no label)")
                    continue
                print(f"{answer['probability']:.4f}  {'(abstains)' if answer['label'] is None else answer['label']}")


def predict(
    model: Model,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Table (as data.dataset of a recipe), text file with a text on each line (.txt), - for such lines "
            "from the standard input, or an image or a folder of images.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to create: .jsonl, .csv or .parquet; default: print JSON lines."),
    ] = None,
    columns: Columns = None,
    abstain: Abstain = None,
    together_with: TogetherWith = None,
    hypotheses: Annotated[
        int, typer.Option(min=1, help="Give this many translations of each text, or captions of each image.")
    ] = 1,
    num_beams: NumBeams = None,
    max_new_tokens: MaxNewTokens = None,
    engine: Engine = "torch",
    quantization: Quantization = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Number of rows that the model reads at once.")] = 32,
    split: Annotated[str, typer.Option(help="Split of a Hub dataset.")] = "test",
    config: Annotated[str | None, typer.Option(help="Configuration of a Hub dataset that has several.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted command.")] = False,
) -> None:
    """Predict for each row of a file, with a model of any task.

    A classifier gives labels with probabilities, a translator translations with log-probabilities, a tagger entities,
    and so on. The output has the columns of the file too.

    Example: hfattn predict runs/dates dates.txt --output translated.csv
    """
    from hfattn.errors import UserError
    from hfattn.extras import require

    with one_sentence():
        require("recipes")
        from hfattn.predicted_files import check_new_file, open_inputs, predict_file, print_predictions
        from hfattn.predicting import PredictOptions, open_predictor

        if resume and output is None:
            raise UserError("--resume continues a file; give it with --output.")
        if output is not None:
            check_new_file(output, resume)
        others = tuple(together_with or ())
        options = PredictOptions(abstain, hypotheses, num_beams, max_new_tokens, engine, quantization, others)
        predictor = open_predictor(model, options)
        inputs = open_inputs(predictor, file, _names(columns), split=split, config=config)
        if output is None:
            print_predictions(predictor, inputs, batch_size)
        else:
            number = predict_file(predictor, inputs, output, batch_size, resume)
            print(f"Predicted {number:,} rows: {output}")


def translate(
    model: Model,
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT...", help="Texts to translate.")] = None,
    file: File = None,
    columns: Columns = None,
    num_beams: NumBeams = None,
    max_new_tokens: MaxNewTokens = None,
    engine: Engine = "torch",
    quantization: Quantization = None,
) -> None:
    """Translate texts with an encoder-decoder.

    Print one line for each text. hfattn predict writes a file that has the texts and log-probabilities too.

    Example: hfattn translate runs/dates "22 nov 1794"
    """
    from hfattn.errors import UserError
    from hfattn.extras import require

    with one_sentence():
        given = _given(texts, file, columns)
        if file is None:
            print("\n".join(_translated(model, given, num_beams, max_new_tokens, engine, quantization)))
            return
        require("recipes")
        from hfattn.predicting import PredictOptions, open_predictor

        options = PredictOptions(None, 1, num_beams, max_new_tokens, engine, quantization)
        predictor = open_predictor(model, options)
        for answer in _of_file(predictor, file, columns):
            if "translation" not in answer:
                raise UserError(f"{model} does not translate texts; use hfattn predict.")
            print(answer["translation"])


def _translated(
    model: str,
    texts: list[str],
    num_beams: int | None,
    max_new_tokens: int | None,
    engine: str,
    quantization: str | None,
) -> list[str]:
    """Return translations of texts, without what the data of recipes need."""
    if engine == "torch" and quantization is None:
        from hfattn.loading import load_translation_model
        from hfattn.pipelines import translations

        translator = load_translation_model(model)
        require_vocabulary(translator[1], *texts)
        return [each["translation_text"] for each in translations(*translator, texts, num_beams, max_new_tokens)]
    from hfattn.engine import check_engine, open_engine

    check_engine(engine, quantization)
    opened = open_engine(model, quantization)
    require_vocabulary(opened.tokenizer, *texts)
    return [found[0][0] for found in opened.translate(texts, num_beams, max_new_tokens)]


def _given(texts: list[str] | None, file: str | None, columns: str | None) -> list[str]:
    """Return the texts of the command line; none if a file is given instead."""
    from hfattn.errors import UserError

    if (not texts) == (file is None):
        raise UserError("Give texts, or a file of texts with --file.")
    if columns is not None and file is None:
        raise UserError("--columns names those of a file; give it with --file.")
    require_text(*texts or [])
    return texts or []


def _of_file(predictor: Any, file: str, columns: str | None) -> Iterator[dict[str, Any]]:
    """Yield what a model predicts for each row of a file."""
    from hfattn.predicted_files import open_inputs
    from hfattn.predicting import predictions

    inputs = open_inputs(predictor, file, _names(columns))
    return predictions(predictor, (inputs.parts(predictor, row) for row in inputs.rows))


def _names(columns: str | None) -> list[str] | None:
    return None if columns is None else columns.split(",")
