"""Search files for keys, tokens and paths of a computer.

The rules are those of detect-secrets that have a pattern of their own, and the ones below for services that it lacks.
Its rules of entropy are not used: they report every hash, and manifests and cards are full of hashes.
"""

import os
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from huggingface_hub import get_token

from ..extras import require

# Rules of detect-secrets: module and class.
_PLUGINS = {
    "aws": "AWSKeyDetector",
    "basic_auth": "BasicAuthDetector",
    "jwt": "JwtTokenDetector",
    "npm": "NpmDetector",
    "sendgrid": "SendGridDetector",
    "slack": "SlackDetector",
    "square_oauth": "SquareOAuthDetector",
    "stripe": "StripeDetector",
    "twilio": "TwilioKeyDetector",
}
# Each begins with literal characters, which makes the search fast; what may stand before them is asked afterwards.
_RULES = [
    ("Hugging Face", r"hf_(?<![A-Za-z0-9]hf_)(?:oauth_|jwt_)?[A-Za-z0-9]{16}"),
    ("Hugging Face", r"api_org_[A-Za-z0-9]{16}"),
    ("OpenAI", r"sk-(?<!\wsk-)(?:[\w-]{20,}T3BlbkFJ|(?:proj|svcacct|admin)-[\w-]{40})"),
    ("Anthropic", r"sk-ant-[\w-]{40}"),
    ("Weights & Biases", r"wandb_v1_\w{20}"),
    # Older keys are 40 hexadecimal digits, as the id of a commit is: they are recognized by the words before them.
    ("Weights & Biases", r"WANDB_API_KEY[^\n]{0,20}?(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])"),
    ("Weights & Biases", r"wandb[. ]login[^\n]{0,60}?(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])"),
    ("Weights & Biases", r"api\.wandb\.ai\s[\s\S]{0,60}?(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])"),
    ("GitHub", r"gh[pousr]_(?<![A-Za-z0-9]gh._)[A-Za-z0-9]{36}"),
    ("GitHub", r"github_pat_\w{22}"),
    ("GitLab", r"gl(?:pat|dt|ft|soat|rt|ptt|oas)-[\w-]{20}"),
    ("PyPI", r"pypi-AgE[\w-]{60}"),
    ("Google", r"AIza(?<!\wAIza)[\w-]{35}\b"),
    ("Azure", r"AccountKey=[A-Za-z0-9+/]{86}=="),
    ("private key", r"BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY"),
]
_PATTERNS = [(kind, re.compile(rule)) for kind, rule in _RULES]

# In JSON, in an address and in a colored log, an escape stands before a word without a space.
_ESCAPES = re.compile(r"(?:\x1b|\\x1b|\\033|\\u001b)\[[0-9;]*m|\\[nrtbf]|\\u[0-9a-fA-F]{4}|%[0-9A-Fa-f]{2}")

_FOLDERS = "home|root|Users|tmp|mnt|media|scratch|Volumes|kaggle|content|workspace|teamspace|gpfs|lustre|dbfs"
_PATH = re.compile(
    # Not the addresses of a page on its own site, nor the middle of a longer path.
    r"/(?:(?<![\w./:~-]/)(?<!href=\"/)(?<!src=\"/)(?<!\]\(/)|(?<=file:///))"
    rf"(?:(?:{_FOLDERS})/[\w.-]+|var/folders/\w+|opt/ml/\w+)"
    r"|(?<![A-Za-z0-9])[A-Z]:(?:\\+Users\\+\w+|/Users/\w+)"
)
# On another drive or computer. In binary data, these few characters may stand by chance.
_DRIVE = re.compile(
    r"(?<![A-Za-z0-9])[A-Z]:(?:/(?!/)[\w.-]+/[\w.-]+|\\\\[\w. -]+\\\\[\w.-]+|\\(?![nrtbfu])\w[\w. -]*\\[\w.-]+)"
    r"|(?<![\\\w])(?:\\\\[\w.-]{2,}\\[\w$.-]{2,}|\\\\\\\\[\w.-]{2,}\\\\[\w$.-]{2,})"
)
# A vocabulary may contain any string from its training texts: it is searched for keys, not for paths.
_VOCABULARIES = ("tokenizer.json", "vocab.json", "vocab.txt", "merges.txt")
_VOCABULARY_SUFFIXES = (".model", ".vocab", ".bpe", ".spm", ".tiktoken")

_SECRET_NAMES = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD)$")
_SAMPLE = 2**13  # bytes that tell an encoding
_PIECE = 2**22  # characters that are searched at once
_OVERLAP = 2**12  # characters that are searched with the next piece, too: more than those of a key or a path


def find_secret(path: Path, local_paths: set[str]) -> str | None:
    """Return a description of the first key, token or local path in a file, or None.

    The description has the kind and the line, and for a path the path; it never has the key.

    Args:
        path: the file. Of safetensors, only the header is searched, whatever the name of the file.
        local_paths: further paths that must not occur.

    Raises:
        UserError: detect-secrets is not installed.
    """
    vocabulary = path.name in _VOCABULARIES or path.suffix in _VOCABULARY_SUFFIXES
    for line, text, binary in _pieces(path):
        found = _find_key(text)
        if found is None and not vocabulary:
            found = _find_path(text, local_paths, binary)
        if found is not None:
            what, position = found
            return what if binary else f"{what} in line {line + text.count(chr(10), 0, position)}"
    return None


def _find_key(text: str) -> tuple[str, int] | None:
    text = _ESCAPES.sub(" ", text)
    for secret in _own_secrets():
        if secret in text:
            return "a key or token of this computer", text.index(secret)
    for kind, pattern in _PATTERNS:
        if match := pattern.search(text):
            return f"what looks like a token or key ({kind})", match.start()
    for plugin in _plugins():
        if (found := next(plugin.analyze_string(text), None)) is not None:
            return f"what looks like a token or key ({plugin.secret_type})", text.index(found)
    return None


def _find_path(text: str, local_paths: set[str], binary: bool) -> tuple[str, int] | None:
    own = [re.compile(re.escape(path) + r"(?![\w.-])") for path in sorted(local_paths)]
    for pattern in (_PATH, *own, *(() if binary else (_DRIVE,))):
        if match := pattern.search(text):
            return f"a local path: {match[0]},", match.start()
    return None


def _own_secrets() -> set[str]:
    """Return the tokens and keys that this process knows; short ones may be words."""
    values = {value for name, value in os.environ.items() if _SECRET_NAMES.search(name)} | {get_token() or ""}
    return {value for value in values if len(value) >= 16}


@cache
def _plugins() -> list[Any]:
    require("publish", "detect_secrets")
    return [getattr(import_module(f"detect_secrets.plugins.{name}"), kind)() for name, kind in _PLUGINS.items()]


def _pieces(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield the first line number and the text of each piece of a file, and whether the file is binary."""
    with path.open("rb") as file:
        start = file.read(_SAMPLE)
    if start[4:9] == b"\0\0\0\0{":  # safetensors: the length of the header, and the header
        with path.open("rb") as file:
            header = file.read(8 + min(int.from_bytes(start[:8], "little"), 2**27))  # libraries read no longer one
        yield 1, header.decode("latin-1"), True
        return
    encoding = _encoding(start)
    line, rest = 1, ""
    with path.open(encoding=encoding or "latin-1", errors="replace") as text:
        while piece := text.read(_PIECE):
            piece = rest + piece
            yield line, piece, encoding is None
            again = max(0, len(piece) - _OVERLAP)
            again = piece.find("\n", again) + 1 or again  # a line that is longer than that is cut
            line += piece.count("\n", 0, again)
            rest = piece[again:]


def _encoding(start: bytes) -> str | None:
    """Return the encoding of a text, or None for binary data."""
    for mark, encoding in ((b"\xff\xfe\0\0", "utf-32"), (b"\0\0\xfe\xff", "utf-32")):
        if start.startswith(mark):
            return encoding
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    # In UTF-16 without a mark, every other byte of a Latin text is zero.
    for first, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        half, other = start[first::2], start[1 - first :: 2]
        if len(start) >= 4 and half.count(0) > 0.7 * len(half) and other.count(0) < 0.1 * len(other):
            return encoding
    return None if b"\0" in start else "utf-8"
