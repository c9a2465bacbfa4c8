"""What the page may ask for, read and checked before anything is started."""

from pathlib import PurePosixPath
from typing import Any

from teccl import _files as files
from teccl.errors import InputError
from teccl.keywords import KEYWORDS, NAMED_COLLECTIVES, Collective
from teccl.topology.topology_files import is_file_name
from teccl.web.job_table import JobStore

# An AllToAllv takes a matrix, for which the page has no field.
COLLECTIVES = tuple(name for name in NAMED_COLLECTIVES if name != Collective.ALLTOALLV)
TOPOLOGY_SUFFIXES = (".yaml", ".yml", ".json")
_OPTIONS = tuple(name for name, entry in KEYWORDS.items() if entry.in_app)
_KEYS = ("topology", "upload", "collective", *_OPTIONS)
_MAX_TEXT = 500


class RequestError(InputError):
    """A request of the page is wrong."""


def read_job(value: Any, store: JobStore) -> tuple[str, str, str, dict[str, Any]]:
    """Return title, topology, collective and keywords of a job that the page asks for."""
    entry = files.expect_mapping(
        value, "request", RequestError, known=_KEYS, required=("collective", "size")
    )
    texts = {
        key: _text(entry[key], key) for key in entry if entry[key] is not None and entry[key] != ""
    }
    collective = texts.get("collective", "")
    if collective not in COLLECTIVES:
        raise RequestError(f"collective {files.shown(collective)}; choose {', '.join(COLLECTIVES)}")
    if "size" not in texts:
        raise RequestError("size is empty; give for example 1MB")
    topology, name = _topology(texts, store)
    keywords = {key: texts[key] for key in _OPTIONS if key in texts}
    title = f"{collective} {keywords['size']} on {name}"
    if keywords.get("method", "auto") != "auto":
        title += f" by {keywords['method']}"
    return title, topology, collective, keywords


def read_upload_name(name: str) -> str:
    """Return the bare file name of an upload, of a kind that is read."""
    bare = PurePosixPath(name.replace("\\", "/")).name[-100:]
    if not bare.lower().endswith(TOPOLOGY_SUFFIXES) or bare.startswith("."):
        raise RequestError(
            f"file {files.shown(bare)} is no topology file; give a .yaml, .yml or .json file"
        )
    if not bare.isprintable():
        raise RequestError("the file's name has control characters; rename it")
    return bare


def _topology(texts: dict[str, str], store: JobStore) -> tuple[str, str]:
    """Return what solve takes and what people call it: an upload, or a preset by name."""
    if "upload" in texts:
        path = store.upload(texts["upload"])
        if path is None:
            raise RequestError("the uploaded topology is gone; upload it again")
        return str(path), path.name
    text = texts.get("topology", "")
    if not text:
        raise RequestError("no topology; choose a preset or upload a file")
    if is_file_name(text):
        raise RequestError(f"topology {files.shown(text)} names a file; upload it instead")
    return text, text


def _text(value: Any, key: str) -> str:
    text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    text = files.expect_text(text, f"request: {key}", RequestError).strip()
    if len(text) > _MAX_TEXT:
        raise RequestError(f"request: {key} has {len(text)} characters; shorten it")
    return text
