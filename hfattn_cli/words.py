"""The commands ``hfattn words``: nearest words and analogies of word vectors, and nearest uses of a word."""

from pathlib import Path
from typing import Annotated

import typer

from .common import Model, one_sentence

words_app = typer.Typer(
    help="Show nearest words and analogies of word vectors, and nearest uses of a word.", no_args_is_help=True
)

Vectors = Annotated[
    Path,
    typer.Argument(metavar="VECTORS", help="Run folder of recipes/baselines, text file of vectors, or .npy file."),
]
WordFile = Annotated[Path | None, typer.Option("--words", help="For a .npy file: the word of each row, one per line.")]


@words_app.command("nearest")
def nearest(
    vectors: Vectors,
    expression: Annotated[list[str], typer.Argument(metavar="WORD [+|- WORD]...", help="A word, or a sum of words.")],
    words: WordFile = None,
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="Number of words to print.")] = 10,
) -> None:
    """Print the words nearest to a word, or to a sum of words, with their cosines.

    Example: hfattn words nearest vectors.txt king - man + woman
    """
    from hfattn.extras import require

    with one_sentence():
        require("baselines", "gensim")
        from hfattn.baselines.words import load_words, nearest_words

        for word, cosine in nearest_words(load_words(vectors, words), " ".join(expression), number):
            print(f"{cosine:7.4f}  {word}")


@words_app.command("analogies")
def analogies(
    vectors: Vectors,
    questions: Annotated[
        Path, typer.Argument(metavar="FILE", help="Analogies in the format of word2vec's questions-words.txt.")
    ],
    words: WordFile = None,
    first: Annotated[
        int | None, typer.Option(min=1, help="Read only this many words, the first of the file; default: all.")
    ] = None,
) -> None:
    """Print the share of analogies that word vectors answer.

    Example: hfattn words analogies vectors.txt questions.txt
    """
    from hfattn.extras import require

    with one_sentence():
        require("baselines", "gensim")
        from hfattn.baselines.words import analogy_scores, load_words

        scores = analogy_scores(load_words(vectors, words), questions, first)
        width = max(len(row["section"]) for row in scores)
        print(f"{'section':{width}}  questions  answered  right  accuracy")
        for row in scores:
            accuracy = "–" if row["accuracy"] is None else f"{row['accuracy']:.4f}"
            numbers = f"{row['questions']:9,}  {row['answered']:8,}  {row['right']:5,}  {accuracy:>8}"
            print(f"{row['section']:{width}}  {numbers}")


@words_app.command("in-context")
def in_context(
    model: Model,
    word: Annotated[str, typer.Argument(metavar="WORD", help="The word.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A sentence with the word.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Text file with a sentence on each line.")],
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="Number of sentences to print.")] = 5,
) -> None:
    """Print the sentences in which a word is used most like in another one, with their cosines.

    DIR is an encoder or a language model of both directions (ELMo). The vector of a word in its context is the mean
    of the model's hidden states.

    Example: hfattn words in-context runs/causal_lm-wikitext2_bilm right "the right bank of the river" sentences.txt
    """
    with one_sentence():
        from hfattn.contextual_words import nearest_uses

        for use, cosine in nearest_uses(model, word, text, file, number):
            print(f"{cosine:7.4f}  {use}")
