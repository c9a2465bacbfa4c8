"""Names: a process group in Python that keeps the name and the description that torch gives it.

Torch before version 2.6 sets and reads them in another way than later ones; both are served.
"""

import torch.distributed as dist


class NamedGroup(dist.ProcessGroup):
    """A process group with a name and a description."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self._name = self._desc = ""

    def getBackendName(self) -> str:  # noqa: N802, torch's name
        """Name of the back end."""
        return "teccl"

    def setGroupName(self, name: str) -> None:  # noqa: N802
        """Take the name that torch gives."""
        self._name = name

    def _set_group_name(self, name: str) -> None:
        """Take the name, also before torch 2.6, whose own method does not ask this class."""
        self.setGroupName(name)
        super()._set_group_name(name)

    def setGroupDesc(self, desc: str) -> None:  # noqa: N802
        """Take the description that torch gives."""
        self._desc = desc

    def _set_group_desc(self, desc: str) -> None:
        """Take the description, as `_set_group_name` the name."""
        self.setGroupDesc(desc)
        super()._set_group_desc(desc)

    def getGroupName(self) -> str:  # noqa: N802
        """Name of the group."""
        return self._name

    def getGroupDesc(self) -> str:  # noqa: N802
        """Description of the group."""
        return self._desc

    @property
    def group_name(self) -> str:
        """Name of the group."""
        return self._name

    @property
    def group_desc(self) -> str:
        """Description of the group."""
        return self._desc
