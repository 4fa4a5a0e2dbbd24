"""Check files that libraries open by themselves: weights, the index of their parts, and ONNX graphs.

Only headers are read, up to a limit. A file must not name others outside of its folder.
"""

import mmap
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from safetensors import SafetensorError, safe_open

from ..errors import UserError
from ..files import read_json_object

LARGEST = 4 * 2**20  # bytes of a configuration; larger ones hold data, or hide in it, and are copied many times
_LONGEST_HEADER = 2**25  # bytes; a header has about a hundred for each tensor
_MOST_PARTS = 100_000  # tensors of an ONNX graph whose values are in other files
_LOCATION = b"\n\x08location"  # the key of an external file in an ONNX graph, as a field of protobuf: tag, length, text


def check_data_files(folder: Path, names: Iterable[str]) -> str:
    """Check the weights, their indexes, the ONNX graphs and the size of the configurations of a folder.

    Returns:
        The number of files that were checked.

    Raises:
        AssertionError: the message names a file that is not what its name says, or that names a file outside.
    """
    checked = 0
    for name in names:
        for suffix, find in _CHECKS.items():
            if name.endswith(suffix):
                checked += 1
                why = find(folder / name)
                assert why is None, f"{name} {why}; copy it again"
    return f"{checked} files"


def _in_safetensors(path: Path) -> str | None:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        return f"is not a safetensors file: it has {size:,} bytes, and says that its header has {length:,}"
    if length > _LONGEST_HEADER:
        return f"has a header of {length:,} bytes, more than {_LONGEST_HEADER:,}"
    try:
        with safe_open(path, "np"):
            return None
    except SafetensorError as error:
        return f"is not a safetensors file ({' '.join(str(error).split())})"


def _in_index(path: Path) -> str | None:
    try:
        parts = read_json_object(path).get("weight_map")
    except UserError as error:
        return f"cannot be read ({str(error).rstrip('.')})"
    if not isinstance(parts, dict) or not all(isinstance(part, str) for part in parts.values()):
        return "is not the index of weights in several files"
    return next((f"names {part!r}, a file outside of the folder" for part in parts.values() if _is_outside(part)), None)


def _in_onnx(path: Path) -> str | None:
    if not path.stat().st_size:
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        place, count = data.find(_LOCATION), 0
        while place >= 0:
            if (count := count + 1) > _MOST_PARTS:
                return f"names external files more than {_MOST_PARTS:,} times"
            # The value follows its key: tag 0x12, the length in groups of seven bits, and the text.
            tag, *groups = data[place + len(_LOCATION) : place + len(_LOCATION) + 4] or [0]
            last = next((i for i, each in enumerate(groups) if each < 0x80), None)
            if tag != 0x12 or last is None:
                return "names an external file in a way that cannot be read"
            length = sum((each & 0x7F) << 7 * i for i, each in enumerate(groups[: last + 1]))
            start = place + len(_LOCATION) + last + 2
            name = data[start : start + length].decode("utf-8", "replace")
            if _is_outside(name):
                return f"names {name!r}, a file outside of the folder"
            place = data.find(_LOCATION, start + length)
    return None


def _is_outside(name: str) -> bool:
    path = PurePosixPath(name)
    return not name or path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or "\0" in name


def _in_config(path: Path) -> str | None:
    return f"has more than {LARGEST // 2**20} MiB" if path.stat().st_size > LARGEST else None


_CHECKS = {"config.json": _in_config, ".safetensors": _in_safetensors, ".index.json": _in_index, ".onnx": _in_onnx}
