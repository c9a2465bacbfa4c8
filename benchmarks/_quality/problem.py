"""One drawn problem: what it is, how `teccl.solve` is called for it, and the same as a command."""

import hashlib
import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# Keywords of `solve` and the flags that say the same.
_FLAGS = {
    "size": "--size",
    "ranks": "--ranks",
    "root": "--root",
    "without_links": "--without-link",
    "degrade": "--degrade",
    "chunks": "--chunks",
    "buffer": "--buffer",
    "switch": "--switch",
    "transit": "--transit",
    "epoch": "--epoch",
    "chunk_tolerance": "--chunk-tolerance",
    "threads": "--threads",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem with the labels it is reported under.

    Parameters
    ----------
    key
        Set, seed and index: ``plain-0-17``.
    options
        Labels of the options it has, none in the plain set.
    topology, demand
        A preset, or what a topology file holds; what a demand file holds, if it needs one.
    keywords
        The rest of what `solve` is given.
    """

    key: str
    set: str
    family: str
    collective: str
    decade: str
    num_gpus: int
    options: tuple[str, ...]
    topology: str | dict[str, Any]
    demand: dict[str, Any] | None
    keywords: dict[str, Any]

    @property
    def digest(self) -> str:
        """A hash of everything, which tells a changed drawing from an old one."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """What ``--only`` searches."""
        name = self.topology if isinstance(self.topology, str) else "file"
        size = self.keywords.get("size", "")
        words = (self.key, self.family, self.collective, self.decade, name, size, *self.options)
        return " ".join(words)

    def write_files(self, folder: Path) -> None:
        """Write the files that the command names, where they are not there yet."""
        for path, content in self._files(folder).items():
            text = json.dumps(content) + "\n"
            if not path.exists() or path.read_text() != text:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)

    def _files(self, folder: Path) -> dict[Path, Any]:
        files: dict[Path, Any] = {}
        if not isinstance(self.topology, str):
            files[folder / f"{self.key}.topology.json"] = self.topology
        if self.demand is not None:
            files[folder / f"{self.key}.demand.json"] = self.demand
        return files

    def call(self, folder: Path) -> dict[str, Any]:
        """Return all arguments of `solve` by name."""
        topology = self.topology
        if not isinstance(topology, str):
            topology = str(folder / f"{self.key}.topology.json")
        if self.demand is not None:
            asked = {"demand": str(folder / f"{self.key}.demand.json")}
        else:
            asked = {"collective": self.collective}
        return {"topology": topology, **asked, **self.keywords}


def command(call: Mapping[str, Any]) -> str:
    """Return the command line that makes the same call."""
    words = ["teccl", "solve", call["topology"]]
    words += ["--demand", call["demand"]] if "demand" in call else [call["collective"]]
    for name, flag in _FLAGS.items():
        value = call.get(name)
        for each in value if isinstance(value, list) else () if value is None else (value,):
            words += [flag, str(each)]
    words += ["--grid"] * bool(call.get("grid"))
    words += ["--no-copy"] * (not call.get("copy", True))
    return shlex.join(words)
