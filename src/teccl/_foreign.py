"""Other tools' files, of unknown origin: XML and JSON with limits on size, depth and number."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.parsers import expat

from teccl import _files as files

MAX_FOREIGN_BYTES = 16 * 2**20
MAX_ELEMENTS = 200_000
_MAX_DEPTH = 100
# Lists and objects of a JSON file. Real files hold thousands; each costs far more than its text.
_MAX_CONTAINERS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """An XML element; text between elements is dropped."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list["Element"] = field(default_factory=list)

    def named(self, *tags: str) -> Iterator["Element"]:
        """Children with one of some tags."""
        return (child for child in self.children if child.tag in tags)


class _Refused(Exception):  # noqa: N818, it carries a reason out of a callback
    """The reason why a document is not read further."""


class _TreeBuilder:
    """Collects elements as expat reports them, and stops at what no real file has."""

    def __init__(self, parser: expat.XMLParserType, max_elements: int) -> None:
        self._parser = parser
        self._max_elements = max_elements
        self._num_elements = 0
        self._open: list[Element] = []
        self.root: Element | None = None
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.StartDoctypeDeclHandler = self._refuse_doctype

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._num_elements += 1
        line = self._parser.CurrentLineNumber
        if self._num_elements > self._max_elements:
            raise _Refused(f"more than {self._max_elements} elements; no real file is that large")
        if len(self._open) >= _MAX_DEPTH:
            raise _Refused(f"elements nested deeper than {_MAX_DEPTH} at line {line}; flatten it")
        element = Element(tag=tag, attributes=attributes, line=line)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def _end(self, tag: str) -> None:  # noqa: ARG002, expat's signature
        self._open.pop()

    @staticmethod
    def _refuse_doctype(*_: object) -> None:
        raise _Refused("a document type declaration, which could define entities; remove it")


def read_xml(
    path: Path,
    error: files.ErrorType,
    *,
    max_bytes: int = MAX_FOREIGN_BYTES,
    max_elements: int = MAX_ELEMENTS,
) -> Element:
    """Parse an XML file without document types, entities and external files.

    Raises
    ------
    InputError
        Of the given type, when the file cannot be read, is no XML or passes a limit.
    """
    text = files.read_text(path, error, max_bytes=max_bytes)
    return parse_xml(text, str(path), error, max_elements=max_elements)


def parse_xml(
    text: str, source: str, error: files.ErrorType, *, max_elements: int = MAX_ELEMENTS
) -> Element:
    """Parse XML text; see `read_xml`."""
    parser = expat.ParserCreate()
    builder = _TreeBuilder(parser, max_elements)
    try:
        parser.Parse(text, True)
    except _Refused as reason:
        raise error(f"{source}: has {reason}") from None
    except expat.ExpatError as problem:
        what = expat.errors.messages.get(problem.code, "it cannot be parsed")
        raise error(f"{source}: not valid XML at line {problem.lineno}: {what}") from None
    except ValueError:
        raise error(f"{source}: not valid XML: it holds characters XML does not allow") from None
    assert builder.root is not None, "expat refuses a document without an element"
    return builder.root


def read_json(
    path: Path, error: files.ErrorType, *, max_bytes: int = MAX_FOREIGN_BYTES
) -> dict[str, Any]:
    """Parse a JSON file that holds one object.

    Raises
    ------
    InputError
        Of the given type, when the file cannot be read, is no JSON object or passes a limit.
    """
    text = files.read_text(path, error, max_bytes=max_bytes)
    if text.count("[") + text.count("{") > _MAX_CONTAINERS:
        raise error(
            f"{path}: has more than {_MAX_CONTAINERS} lists and objects; no real file is that large"
        )
    document = files.parse_json(text, str(path), error)
    if not isinstance(document, dict):
        raise error(f"{path}: holds {files.shown(document)}; give a file with one JSON object")
    return document


def expect_matrix(
    value: Any, where: str, error: files.ErrorType, *, size: int | None, max_size: int
) -> Sequence[Sequence[int | float]]:
    """Return the value as a square matrix of finite numbers of at least zero."""
    rows = files.expect_list(value, where, error)
    size = len(rows) if size is None else size
    if len(rows) != size or not 1 <= size <= max_size:
        wanted = f"{size}" if 1 <= size <= max_size else f"1 to {max_size}"
        raise error(f"{where} has {len(rows)} rows; give {wanted}")
    for i, row in enumerate(rows):
        entries = files.expect_list(row, f"{where}[{i}]", error)
        if len(entries) != size:
            raise error(f"{where}[{i}] has {len(entries)} entries; give {size}, one for each row")
        for j, entry in enumerate(entries):
            expect_number(entry, f"{where}[{i}][{j}]", error)
    return rows


def expect_number(value: Any, where: str, error: files.ErrorType) -> int | float:
    """Return the value as a finite number of at least zero."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= 1e30:
        raise error(f"{where} is {files.shown(value)}; give a number from 0 to 1e30")
    return value
