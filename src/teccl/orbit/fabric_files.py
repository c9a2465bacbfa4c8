"""Fabric files: a topology as orbits of nodes and links, for clusters too large to list."""

from pathlib import Path

from teccl import _files as files
from teccl.errors import ScheduleError, TopologyError
from teccl.orbit.fabric import Fabric
from teccl.orbit.recognition import FABRIC_FORMAT

SCHEMA_VERSION = 1
_KEYS = ("format", "schema_version", "fabric")


def save_fabric(fabric: Fabric, path: str | Path) -> None:
    """Write a fabric file; equal fabrics give equal bytes."""
    from teccl.orbit.files import fabric_to_dict

    document = {
        "format": FABRIC_FORMAT,
        "schema_version": SCHEMA_VERSION,
        "fabric": fabric_to_dict(fabric),
    }
    files.write_atomically(Path(path), files.to_json(document), TopologyError)


def load_fabric(path: str | Path) -> Fabric:
    """Read a fabric file.

    Raises
    ------
    TopologyError
        If the file is damaged, foreign or of another version.
    """
    from teccl.orbit.files import fabric_from_dict

    where = str(path)
    document = files.parse_json(files.read_text(Path(path), TopologyError), where, TopologyError)
    top = files.expect_mapping(document, where, TopologyError, known=_KEYS, required=_KEYS)
    version = top["schema_version"]
    if top["format"] != FABRIC_FORMAT or version != SCHEMA_VERSION or isinstance(version, bool):
        raise TopologyError(
            f"{where} is no fabric file that this teccl reads; give format {FABRIC_FORMAT!r} and "
            f"schema_version {SCHEMA_VERSION}"
        )
    try:
        return fabric_from_dict(top["fabric"], where=f"{where}: fabric")
    except ScheduleError as error:
        raise TopologyError(str(error)) from None
