"""Find pickles and compiled code in files and in archives, by name and by content."""

import ast
import bz2
import gzip
import io
import lzma
import pickle
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from numpy.lib.format import MAGIC_PREFIX, descr_to_dtype

from .manifest import COMPILED, PICKLES

_PROTOCOLS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_COMPRESSED: dict[bytes, Any] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
    b"\x5d\0": lzma.open,  # the format of LZMA before xz, which joblib writes
}
# 7z, rar, zstd, lz4, and the compressed pickles of joblib before version 0.10
_CLOSED = (b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"ZF0x")
_DEPTH = 3  # an archive, an archive in it, and the compression of either
_MEMBERS = 10_000
_LARGEST = 2**28  # bytes of a file in an archive
_OPERATIONS = 2**18  # of a pickle that are read
_WORD = 2**10  # bytes of a text in a pickle that are kept
_HEADER = 10_000  # bytes of the header of an array; numpy reads no longer one
_EXPANSION = 20  # a file may unpack to so many times its size, and a gigabyte


class _Call(Exception):
    """A pickle calls a function."""


class _TooLarge(Exception):
    """An archive unpacks to more than is looked into."""


class _Unpacked:
    """The bytes that an archive, and those in it, may still unpack to."""

    def __init__(self, size: int) -> None:
        self.left = 2**30 + _EXPANSION * size

    def read(self, content: IO[bytes]) -> bytes:
        data = content.read(_LARGEST + 1)
        self.left -= len(data)
        if len(data) > _LARGEST or self.left < 0:
            raise _TooLarge
        return data


def find_pickle(path: Path) -> str | None:
    """Return why a file must not be published because reading it can run code, or None.

    Found are pickles (also of numpy and torch), compiled Python, libraries and programs, and archives that have one of
    these or that cannot be looked into.
    """
    with path.open("rb") as file:
        return _found(path.name, file, _DEPTH, _Unpacked(path.stat().st_size))


def _found(name: str, file: IO[bytes], depth: int, unpacked: _Unpacked) -> str | None:
    if name.lower().endswith((*PICKLES, ".msgpack")):
        return "is a pickle, which runs code when it is read"
    if name.lower().endswith(COMPILED):
        return "is compiled code"
    start = file.read(512)
    # A safetensors file begins with the length of its JSON header, which can look like the first bytes of a pickle.
    weights = start[4:9] == b"\0\0\0\0{"
    if (start[:2] in _PROTOCOLS and not weights) or _calls(file):
        return "is a pickle, which runs code when it is read"
    if start.startswith(MAGIC_PREFIX) and _has_objects(start, file):
        return "has objects, which numpy stores as a pickle"
    if _is_compiled(start, file):
        return "is compiled code"
    try:
        return _found_inside(file, start, depth, unpacked)
    except _TooLarge:
        return f"is an archive with more than {_LARGEST // 2**20} MiB in a file, or unpacks to far more than its size"
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError) as error:
        return f"is an archive that cannot be read ({type(error).__name__})"
    except (MemoryError, RuntimeError, OSError):  # a password, an unknown compression, or a broken stream
        return "is an archive that cannot be looked into"


def _calls(file: IO[bytes]) -> bool:
    """Return whether a file is a pickle, which no first bytes tell in protocols 0 and 1, and names or calls a function.

    A pickle calls a function before its end is read, so what follows the call does not matter.
    """
    file.seek(0)
    reader = _Reader(_Skimmed(file))
    try:
        reader.load()
    except _Call:
        return True
    except Exception:  # any other file: an unknown operation, or an argument that is none
        return False
    return reader.names_function


class _Skimmed:
    """A file of which a pickle's reader gets no more than the start and the end of long texts.

    Where more operations follow one another than in any text by chance, the file is taken for a pickle.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.left = file, _OPERATIONS

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise _Call

    def read(self, number: int) -> bytes:
        self._count()
        if number <= _WORD:
            return self.file.read(number)
        self.file.seek(number, io.SEEK_CUR)
        return b""

    def readline(self) -> bytes:
        self._count()
        line = piece = self.file.readline(_WORD)
        while len(piece) == _WORD and not piece.endswith(b"\n"):
            piece = self.file.readline(_WORD)
            line = line[:_WORD] + piece
        return line


class _Reader(pickle._Unpickler):  # the one in C reserves gigabytes if a pickle says so
    """Read a pickle without importing or calling anything."""

    names_function = False
    # A frame is the length of many operations, which are read one by one here.
    dispatch = pickle._Unpickler.dispatch | {pickle.FRAME[0]: lambda self: self.read(8)}

    def find_class(self, module: str, name: str) -> Any:
        # Some texts begin like a pickle, such as "cats\nand dogs".
        if not re.fullmatch(r"[\w.]+ [\w.]+", f"{module} {name}"):
            raise pickle.UnpicklingError
        self.names_function = True
        return type("Named", (), {"__new__": _refuse, "__setstate__": _refuse})

    def persistent_load(self, pid: Any) -> Any:
        return None


def _refuse(*_: Any, **__: Any) -> None:
    raise _Call


def _has_objects(start: bytes, file: IO[bytes]) -> bool:
    width = 2 if start[6:7] == b"\x01" else 4
    length = int.from_bytes(start[8 : 8 + width], "little")
    file.seek(8 + width)
    if length > _HEADER:
        return True
    try:
        return bool(descr_to_dtype(ast.literal_eval(file.read(length).decode("latin-1"))["descr"]).hasobject)
    except (LookupError, MemoryError, RecursionError, SyntaxError, TypeError, ValueError):
        return True  # a header that numpy does not write


def _is_compiled(start: bytes, file: IO[bytes]) -> bool:
    if start[:4] in (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\0asm"):
        return True
    if start[2:4] == b"\r\n" and start[16:17] in (b"\xe3", b"\x63") and b"\0" in start[4:16]:  # Python's
        return True
    if start[:2] == b"MZ" and len(start) >= 64:
        file.seek(int.from_bytes(start[60:64], "little"))
        return file.read(4) == b"PE\0\0"
    return False


def _found_inside(file: IO[bytes], start: bytes, depth: int, unpacked: _Unpacked) -> str | None:
    opener = next((opener for magic, opener in _COMPRESSED.items() if start.startswith(magic)), None)
    is_tar = start[257:262] == b"ustar"
    if start[:1] in b"\x08\x18\x28\x38\x48\x58\x68\x78" and int.from_bytes(start[:2], "big") % 31 == 0:
        # What looks like the header of zlib can also be a text that begins with x^.
        inflated = _inflated(file)
        if inflated and (why := _found("", io.BytesIO(unpacked.read(io.BytesIO(inflated))), depth - 1, unpacked)):
            return why
    file.seek(0)
    is_zip = zipfile.is_zipfile(file)
    if not (opener or is_tar or is_zip or start.startswith(_CLOSED)):
        return None
    if not depth or start.startswith(_CLOSED):
        return "is an archive that cannot be looked into"
    if opener is not None:
        file.seek(0)
        with opener(file) as content:
            return _found("", io.BytesIO(unpacked.read(content)), depth - 1, unpacked)
    # A file can be both: one has its index at the start, the other at the end.
    for members in [_zip_members] * is_zip + [_tar_members] * is_tar:
        file.seek(0)
        for number, (name, member) in enumerate(members(file)):
            if number >= _MEMBERS:
                return "is an archive of too many files to look into"
            with member:
                if why := _found(name, io.BytesIO(unpacked.read(member)), depth - 1, unpacked):
                    return f"has {name}, which {why}"
    return None


def _inflated(file: IO[bytes]) -> bytes:
    """Return what zlib reads in a file before an error, as a program that loads a pickle would."""
    stream, data = zlib.decompressobj(), bytearray()
    file.seek(0)
    with suppress(zlib.error):
        while len(data) <= _LARGEST and not stream.eof and (piece := stream.unconsumed_tail or file.read(2**13)):
            data += stream.decompress(piece, 2**20)
    return bytes(data)


def _zip_members(file: IO[bytes]) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if not member.is_dir():
                yield member.filename, archive.open(member)


def _tar_members(file: IO[bytes]) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(fileobj=file, mode="r:") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None:
                yield member.name, content
