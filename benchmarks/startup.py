"""Compare the start of a process until the first translated sentence with that of Marian in transformers.

    python -m benchmarks startup [--rounds 5] [--write]

The models are the translator of ``python -m benchmarks generation`` and a Marian of its sizes, in folders with the same
tokenizer. Each translates a sentence of eight words into 16 tokens. The two ways of hfattn have to give the same
translation; Marian, which computes its table of positions anew when it is loaded, gives another one of that length.
Every call is a process of its own, whose CPU time counts. Files are in the cache of the operating system, and nothing
is downloaded. ``--write`` writes docs/records/startup.json and the table of docs/speed.md.
"""

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from transformers import GenerationConfig, PreTrainedModel
from transformers.utils import logging

from benchmarks.generation import MARIAN, marian_of, transformer_model, word_tokenizer
from benchmarks.harness import ROOT, Benchmark, Function, Group, run, titled_tables

TRANSFORMERS, PYTHON, COMMAND = f"{MARIAN}, transformers", "hfattn, in Python", "hfattn, its command"
SENTENCE, WRITTEN = "w11 w12 w13 w14 w15 w16 w17 w18", 16
IMPORT = "from transformers import AutoModelForSeq2SeqLM, AutoTokenizer\n"
TRANSLATE = (
    "import sys\n"
    "tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])\n"
    "model = AutoModelForSeq2SeqLM.from_pretrained(sys.argv[1])\n"
    "ids = model.generate(**tokenizer(sys.argv[2], return_tensors='pt'))\n"
    "print(tokenizer.decode(ids[0], skip_special_tokens=True))\n"
)
CLI = "from hfattn_cli import app; app()"  # as the script hfattn does
PROGRAMS = {  # of each row: what it imports, and what it translates with
    TRANSFORMERS: (["-c", f"import torch\n{IMPORT}"], ["-c", IMPORT + TRANSLATE]),
    PYTHON: (["-c", "import hfattn"], ["-c", f"import hfattn\n{IMPORT}{TRANSLATE}"]),
    COMMAND: (["-c", CLI, "--help"], ["-c", CLI, "translate"]),
}


def started(*words: str) -> str:
    """Run Python with these arguments, and return what it prints."""
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def save(model: PreTrainedModel, folder: Path) -> str:
    model.generation_config = GenerationConfig(
        max_new_tokens=WRITTEN, pad_token_id=0, decoder_start_token_id=model.config.decoder_start_token_id
    )
    model.save_pretrained(folder)
    word_tokenizer().save_pretrained(folder)
    return str(folder)


def groups(device: torch.device) -> Iterator[Group]:
    with TemporaryDirectory() as scratch:
        model = transformer_model()
        marian = save(marian_of(model), Path(scratch) / "marian")
        ours = save(model, Path(scratch) / "ours")
        places = {TRANSFORMERS: marian, PYTHON: ours, COMMAND: ours}
        importing: dict[str, Function] = {row: partial(started, *words) for row, (words, _) in PROGRAMS.items()}
        translating: dict[str, Function] = {
            row: partial(started, *words, places[row], SENTENCE) for row, (_, words) in PROGRAMS.items()
        }

        def check() -> None:
            written = {row: function().strip() for row, function in translating.items()}
            assert written[PYTHON] == written[COMMAND], written
            assert all(len(text.split()) == WRITTEN for text in written.values()), written

        yield Group("import", importing, lambda: None)
        yield Group("first sentence", translating, check)


TITLES = {"startup": ("Start", "a process of")}
BENCHMARK = Benchmark("startup", ROOT / "docs" / "speed.md", {"startup": groups}, partial(titled_tables, titles=TITLES))

if __name__ == "__main__":
    logging.set_verbosity_error()
    run(BENCHMARK, __doc__)
