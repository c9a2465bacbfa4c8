"""Reading YAML and JSON safely, refusing unknown keys, writing atomically."""

import contextlib
import gzip
import io
import json
import reprlib
import secrets
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

from teccl._suggest import did_you_mean
from teccl.errors import InputError, UnitError

MAX_INPUT_BYTES = 64 * 2**20
MAX_SCHEDULE_BYTES = 4 * 2**30
_GZIP_MAGIC = b"\x1f\x8b"
# Real files compress by a factor of ten or twenty; one that grows by more is made to fill memory.
_MAX_EXPANSION = 100
_PIECE_BYTES = 2**22
_MAX_DEPTH = 100

ErrorType = type[InputError]


def read_document(path: Path, error: ErrorType, *, max_bytes: int = MAX_INPUT_BYTES) -> Any:
    """Parse a YAML or JSON file; JSON when the name says so, else YAML, which contains it.

    Raises
    ------
    InputError
        Of the given type, when the file cannot be read or parsed.
    """
    text = read_text(path, error, max_bytes=max_bytes)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if ".json" in suffixes:
        return parse_json(text, str(path), error)
    return _parse_yaml(text, str(path), error)


@contextlib.contextmanager
def naming(path: Path, error: ErrorType) -> Iterator[None]:
    """Put a file's name before errors that come from deeper down and do not have it."""
    try:
        yield
    except error as problem:
        if str(path) in str(problem):
            raise
        raise error(f"{path}: {problem}") from None


def read_text(path: Path, error: ErrorType, *, max_bytes: int = MAX_INPUT_BYTES) -> str:
    """Return the text of a UTF-8 file, unzipped if it is gzip, refusing what is too large."""
    try:
        if not path.is_file():
            kind = "is not a regular file" if path.exists() else "does not exist"
            raise error(f"file {path} {kind}; give the path of a readable file")
        raw = path.read_bytes() if path.stat().st_size <= max_bytes else None
        if raw is not None and raw[:2] == _GZIP_MAGIC:
            raw = _unzip(raw, path, error, max_bytes)
        if raw is None or len(raw) > max_bytes:
            raise error(f"file {path} is larger than {max_bytes // 2**20} MiB; give a smaller one")
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise error(f"file {path} is not UTF-8 text; save it as UTF-8") from None
    except (OSError, EOFError, ValueError, zlib.error) as problem:
        if isinstance(problem, InputError):
            raise
        reason = getattr(problem, "strerror", None) or "damaged gzip data"
        raise error(f"file {path} cannot be read: {reason}") from None


def read_head(path: Path, count: int = 200) -> str:
    """Return the first characters of a text file, unzipped if it is gzip.

    Nothing of what is no file, such as a pipe, or cannot be unzipped: reading it says why.

    Raises
    ------
    OSError
        If it may not be read.
    """
    if not path.is_file():
        return ""
    try:
        with path.open("rb") as raw:
            zipped = raw.read(2) == _GZIP_MAGIC
            raw.seek(0)
            head = gzip.GzipFile(fileobj=raw).read(count) if zipped else raw.read(count)
        return head.decode("utf-8", errors="replace")
    except (EOFError, gzip.BadGzipFile, zlib.error):
        return ""


def _unzip(raw: bytes, path: Path, error: ErrorType, max_bytes: int) -> bytes:
    """Return the content of gzip data, refusing what is larger than a real file would be."""
    limit = min(max_bytes, max(MAX_INPUT_BYTES, _MAX_EXPANSION * len(raw)))
    pieces: list[bytes] = []
    size = 0
    with gzip.open(io.BytesIO(raw)) as stream:
        while piece := stream.read(_PIECE_BYTES):
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise error(
                    f"file {path} unpacks to more than {limit // 2**20} MiB; "
                    "unpack it yourself if it is real"
                )
    return b"".join(pieces)


def parse_json(text: str, source: str, error: ErrorType) -> Any:
    """Parse JSON, refusing duplicate keys, NaN and infinities."""

    def no_constant(name: str) -> Any:
        raise error(f"{source}: {name} is not a number teccl takes; give a finite value")

    def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        document = dict(pairs)
        if len(document) != len(pairs):
            twice = _first_repeated(key for key, _ in pairs)
            raise error(f"{source}: key {shown(twice)} appears twice; keep one")
        return document

    try:
        return json.loads(text, parse_constant=no_constant, object_pairs_hook=no_duplicates)
    except json.JSONDecodeError as problem:
        reason = problem.msg.lower().removesuffix(" at").removesuffix(" starting")
        raise error(
            f"{source}: not valid JSON at line {problem.lineno}, column {problem.colno}: {reason}; "
            "mend it there, or write the file again"
        ) from None
    except RecursionError:
        raise error(f"{source}: nested too deeply; flatten it") from None
    except InputError:
        raise
    except ValueError:
        raise error(f"{source}: a number has too many digits; shorten it") from None


class _StrictLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The safe loader, refusing duplicate keys."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        mapping = super().construct_mapping(node, deep=deep)
        if len(mapping) != len(node.value):
            twice = _first_repeated(self.construct_object(key) for key, _ in node.value)
            raise yaml.YAMLError(f"key {shown(twice)} appears twice; keep one")
        return mapping


def _first_repeated(keys: Iterable[Any]) -> Any:
    counts = Counter(keys)
    return next(key for key, count in counts.items() if count > 1)


def _check_events(text: str) -> None:
    """Refuse aliases, which could expand without end, and nesting that could overflow a stack.

    The loader written in C checks neither, so its events are read before anything is built.
    """
    depth = 0
    for event in yaml.parse(text, Loader=_StrictLoader):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not supported; write the value out")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _MAX_DEPTH:
            raise yaml.YAMLError("nested too deeply; flatten it")


def _parse_yaml(text: str, source: str, error: ErrorType) -> Any:
    try:
        _check_events(text)
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506, a subclass of SafeLoader
    except yaml.MarkedYAMLError as problem:
        line = problem.problem_mark.line + 1 if problem.problem_mark else "?"
        raise error(
            f"{source}: not valid YAML at line {line}: {problem.problem}; mend it there, or write "
            "the file again"
        ) from None
    except yaml.YAMLError as problem:
        raise error(f"{source}: {' '.join(str(problem).split())}") from None
    except RecursionError:
        raise error(f"{source}: nested too deeply; flatten it") from None
    except (ValueError, TypeError, OverflowError):
        raise error(f"{source}: holds a value YAML cannot represent; quote it") from None


def expect_mapping(
    value: Any, where: str, error: ErrorType, *, known: Iterable[str], required: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the value as a dict after checking that its keys are known and complete."""
    known = tuple(known)
    if not isinstance(value, Mapping):
        found = "empty" if value is None else shown(value)
        raise error(f"{where} is {found}; give a mapping with keys {', '.join(known)}")
    for key in value:
        if not isinstance(key, str) or key not in known:
            nearest = did_you_mean(key if isinstance(key, str) else "", known)
            raise error(f"{where} has unknown key {shown(key)}{nearest}")
    for key in required:
        if key not in value:
            raise error(f"{where} lacks key {key!r}; add it")
    return dict(value)


def expect_list(value: Any, where: str, error: ErrorType) -> list[Any]:
    """Return the value as a list."""
    if not isinstance(value, list):
        raise error(f"{where} is {shown(value)}; give a list")
    return value


def expect_int(value: Any, where: str, error: ErrorType, *, low: int, high: int) -> int:
    """Return the value as an integer between `low` and `high`."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise error(f"{where} is {shown(value)}; give a whole number from {low} to {high}")
    return value


def expect_text(value: Any, where: str, error: ErrorType) -> str:
    """Return the value as text."""
    if not isinstance(value, str):
        raise error(f"{where} is {shown(value)}; give a text, quoted if it looks like a number")
    return value


def expect_bool(value: Any, where: str, error: ErrorType) -> bool:
    """Return the value as true or false."""
    if not isinstance(value, bool):
        raise error(f"{where} is {shown(value)}; give true or false")
    return value


def quantity(value: Any, parse: Callable[..., Fraction], where: str, error: ErrorType) -> Fraction:
    """Read a quantity from a file, where a number needs its unit unless it is zero."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value == 0:
        value = "0"
    if isinstance(value, int | float):
        value = shown(value)
        if len(value) > 30:
            raise error(f"{where} is {value}; write a number of fewer digits and its unit")
    try:
        return parse(value, what=where)
    except UnitError as problem:
        raise error(str(problem)) from None


def shown(value: object) -> str:
    """A value as an error message shows it: short and on one line."""
    try:
        text = _SHORT.repr(value)
    except ValueError:  # an integer of thousands of digits cannot be printed
        text = "a number of too many digits"
    return text if len(text) <= 60 else text[:57] + "..."


def _short_repr() -> reprlib.Repr:
    """Return a printer that looks at a few entries and levels only, however large a value is."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = 60
    short.maxlevel = 4
    return short


_SHORT = _short_repr()


def write_atomically(path: Path, data: str | bytes, error: ErrorType) -> None:
    """Write a file so that readers see the old or the new content, never a part.

    Text for a name ending in ``.gz`` is compressed without a time stamp, so equal input gives
    equal bytes.
    """
    payload = data.encode() if isinstance(data, str) else data
    if path.suffix == ".gz":
        payload = gzip.compress(payload, compresslevel=6, mtime=0)
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            # A device or pipe cannot be replaced, only written to.
            path.write_bytes(payload)
            return
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        temporary.write_bytes(payload)
        temporary.replace(path)
    except OSError as problem:
        raise error(f"file {path} cannot be written: {problem.strerror}; give another") from None
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def to_json(document: Any) -> str:
    """Render a document as JSON: stable, one top-level entry a line."""
    entries = [f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in document.items()]
    return "{\n" + ",\n".join(entries) + "\n}\n"
