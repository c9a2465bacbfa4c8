"""Reading a program file: the runtimes' own small grammar, with limits on everything.

The runtimes do not read XML. They know tags, double-quoted attributes and comments, and skip
elements they do not know; declarations, tabs, line ends inside tags and single quotes make them
fail. What can be understood all the same is read, with a remark.
"""

import re
from typing import NoReturn

from teccl.errors import ProgramError
from teccl.formats.msccl.prove.program_tree import Gpu, Program, ProgramStep, StepType, ThreadBlock

MAX_TEXT = 64 * 2**20
_MAX_DEPTH = 20
_MAX_TAG = 64 * 1024
_MAX_STEPS = 1_000_000
_MAX_ATTRIBUTES = 16
_MAX_VALUE = 255
_MAX_REMARKS = 5
_LARGEST = 2**31 - 1

_SPACE = re.compile(r"[ \t\r\n]*")
_TAG = re.compile(r"""<(/?)([A-Za-z_][\w.:-]*)((?:[^<>"']|"[^"]*"|'[^']*')*?)(/?)>""")
_ATTRIBUTE = re.compile(r"""\s+([A-Za-z_][\w.:-]*)=(?:"([^"]*)"|'([^']*)')""")
_ATTRIBUTES = re.compile(r"""(?:\s+[A-Za-z_][\w.:-]*=(?:"[^"]*"|'[^']*'))*\s*""")
# How nearly all files write a step; others take the longer way.
_PLAIN_STEP = re.compile(
    r'[ \r\n]*<step s="(-?[0-9]{1,9})" type="([a-z]+)" srcbuf="([ios])" srcoff="(-?[0-9]{1,9})" '
    r'dstbuf="([ios])" dstoff="(-?[0-9]{1,9})" cnt="(-?[0-9]{1,9})" depid="(-?[0-9]{1,9})" '
    r'deps="(-?[0-9]{1,9})" hasdep="(-?[0-9]{1,9})"(?: order="([0-9]{1,9})")? ?/>'
)
_NUMBER = re.compile(r"-?[0-9]{1,10}")
_PARENTS = {"algo": None, "gpu": "algo", "tb": "gpu", "step": "tb"}
_TYPES = {kind.code: kind for kind in StepType}
_STEP_NUMBERS = ("s", "srcoff", "dstoff", "cnt", "depid", "deps", "hasdep")


def read_program(text: str) -> Program:
    """Read the text of a program file.

    Raises
    ------
    ProgramError
        If the text is no program, or lacks something without which it means nothing.
    """
    if len(text) > MAX_TEXT:
        raise ProgramError(f"program is larger than {MAX_TEXT // 2**20} MiB; no runtime reads it")
    return _Reader(text).run()


class _Reader:
    """Walks over the text once, building elements as their tags close."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.open: list[str] = []
        self.remarks: list[str] = []
        self.algo: dict[str, str] | None = None
        self.num_steps = 0
        self.numbers: dict[str | None, int] = {}
        self.gpus: list[Gpu] = []
        self.gpu: tuple[int, dict[str, int]] = (0, {})
        self.blocks: list[ThreadBlock] = []
        self.block: dict[str, int] = {}
        self.steps: list[ProgramStep] = []

    def run(self) -> Program:
        """Return the program that the whole text is."""
        while self._to_next_tag():
            if self.open and self.open[-1] == "tb" and self._plain_steps():
                continue
            match = _TAG.match(self.text, self.at, self.at + _MAX_TAG)
            if match is None:
                self._fail("a tag is broken, not closed or too long")
            self.at = match.end()
            closing, name, attributes, alone = match.groups()
            if closing:
                self._close(name)
                continue
            self._enter(name, attributes)
            if alone:
                self._close(name)
        if self.open:
            self._fail(f"<{self.open[-1]}> is not closed")
        if self.algo is None:
            raise ProgramError("there is no <algo>; give an MSCCL or RCCL program")
        return Program(attributes=self.algo, gpus=tuple(self.gpus), remarks=tuple(self.remarks))

    def _to_next_tag(self) -> bool:
        """Skip spaces, comments and declarations; say whether a tag follows."""
        while True:
            space = _SPACE.match(self.text, self.at)
            assert space is not None
            if "\t" in space.group():
                self._remark("a tab stands between tags; use spaces")
            self.at = space.end()
            if self.at == len(self.text):
                return False
            if self.text.startswith("<!--", self.at):
                self._skip_to("-->", "a comment")
            elif self.text.startswith("<?", self.at):
                self._remark("there is a declaration <?...?>; drop it")
                self._skip_to("?>", "a declaration")
            elif self.text.startswith("<!", self.at):
                self._fail("document types and their entities are not read; drop them")
            elif self.text[self.at] == "<":
                return True
            else:
                self._fail("there is text outside of tags")

    def _skip_to(self, end: str, what: str) -> None:
        found = self.text.find(end, self.at)
        if found < 0:
            self._fail(f"{what} is not closed")
        self.at = found + len(end)

    def _enter(self, name: str, attribute_text: str) -> None:
        if len(self.open) >= _MAX_DEPTH:
            self._fail(f"elements are nested deeper than {_MAX_DEPTH}")
        parent = self.open[-1] if self.open else None
        if self.open and "step" in self.open:
            self._fail("a <step> has an element inside; it must be empty")
        known = name in _PARENTS and _PARENTS[name] == parent
        self.open.append(name if known else f"({name})")
        if not known:
            if parent is None:
                self._fail(f"the root is <{name[:40]}>; an MSCCL or RCCL program has <algo>")
            return
        attributes = self._attributes(name, attribute_text)
        if name == "step":
            self._step(attributes)
        elif name == "tb":
            self.block = {k: self._int(attributes, k, "tb") for k in ("id", "send", "recv", "chan")}
            self.steps = []
        elif name == "gpu":
            sizes = {b: self._int(attributes, f"{b}_chunks", "gpu") for b in "ios"}
            self.gpu = (self._int(attributes, "id", "gpu"), sizes)
            self.blocks = []
        else:
            if self.algo is not None:
                self._fail("there are two <algo>; keep one")
            self.algo = attributes

    def _close(self, name: str) -> None:
        if not self.open or self.open[-1].strip("()") != name:
            self._fail(f"</{name[:40]}> closes nothing")
        if self.open.pop() != name:
            return
        if name == "tb":
            self.blocks.append(ThreadBlock(steps=tuple(self.steps), **self.block))
        elif name == "gpu":
            rank, sizes = self.gpu
            self.gpus.append(Gpu(id=rank, chunks=sizes, blocks=tuple(self.blocks)))

    def _attributes(self, name: str, text: str) -> dict[str, str]:
        whole = _ATTRIBUTES.fullmatch(text)
        if whole is None:
            self._fail(f"the attributes of <{name}> cannot be read")
        if "\n" in text or "\t" in text or "\r" in text:
            self._remark(f"a tab or line end stands inside <{name}>; use spaces")
        found: dict[str, str] = {}
        for key, double, single in _ATTRIBUTE.findall(text):
            if single:
                self._remark(f"{key} of <{name}> is in single quotes; use double ones")
            if key in found:
                self._fail(f"<{name}> has {key[:40]} twice")
            found[key] = double or single
        if len(found) > _MAX_ATTRIBUTES:
            self._remark(f"<{name}> has {len(found)} attributes; the runtimes take 16")
        if len(text) > _MAX_VALUE and any(len(v) > _MAX_VALUE for v in found.values()):
            self._fail(f"an attribute of <{name}> is longer than {_MAX_VALUE} characters")
        return found

    def _plain_steps(self) -> bool:
        """Read as many steps as are written the usual way; say whether there were any."""
        before = self.at
        while (match := _PLAIN_STEP.match(self.text, self.at)) is not None:
            s, kind, srcbuf, srcoff, dstbuf, dstoff, cnt, depid, deps, hasdep, order = match.groups(
                "-1"
            )
            if kind not in _TYPES:
                break
            self._add_step(
                ProgramStep(
                    int(s),
                    _TYPES[kind],
                    srcbuf,
                    int(srcoff),
                    dstbuf,
                    int(dstoff),
                    int(cnt),
                    int(depid),
                    int(deps),
                    int(hasdep),
                    int(order),
                )
            )
            self.at = match.end()
        return self.at > before

    def _add_step(self, step: ProgramStep) -> None:
        self.num_steps += 1
        if self.num_steps > _MAX_STEPS:
            self._fail(f"there are more than {_MAX_STEPS} steps")
        self.steps.append(step)

    def _step(self, attributes: dict[str, str]) -> None:
        kind = _TYPES.get(attributes.get("type", ""))
        if kind is None:
            self._fail(f"a step has type {attributes.get('type', '(none)')[:20]!r}; use {_KINDS}")
        for key in ("srcbuf", "dstbuf"):
            if attributes.get(key) not in ("i", "o", "s"):
                self._fail(
                    f"a step has {key} {attributes.get(key, '(none)')[:20]!r}; use i, o or s"
                )
        s, srcoff, dstoff, cnt, depid, deps, hasdep = (
            self._int(attributes, key, "step") for key in _STEP_NUMBERS
        )
        order = self._int(attributes, "order", "step") if "order" in attributes else -1
        self._add_step(
            ProgramStep(
                s,
                kind,
                attributes["srcbuf"],
                srcoff,
                attributes["dstbuf"],
                dstoff,
                cnt,
                depid,
                deps,
                hasdep,
                order,
            )
        )

    def _int(self, attributes: dict[str, str], key: str, name: str) -> int:
        text = attributes.get(key)
        # The same few numbers occur again and again; each is understood once.
        number = self.numbers.get(text)
        if number is not None:
            return number
        if text is None:
            self._fail(f"<{name}> lacks {key}")
        if _NUMBER.fullmatch(text) is None or abs(int(text)) > _LARGEST:
            self._fail(f"{key} of <{name}> is {text[:20]!r}; give a whole number")
        return self.numbers.setdefault(text, int(text))

    def _remark(self, text: str) -> None:
        if len(self.remarks) < _MAX_REMARKS:
            self.remarks.append(f"line {self._line()}: {text}")

    def _fail(self, reason: str) -> NoReturn:
        raise ProgramError(f"line {self._line()}: {reason}")

    def _line(self) -> int:
        return self.text.count("\n", 0, self.at) + 1


_KINDS = ", ".join(_TYPES)
