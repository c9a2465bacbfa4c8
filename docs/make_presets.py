"""Draw every preset for the page `presets.md`, into `img/presets/`.

Run as ``python docs/make_presets.py``; equal presets give equal bytes.
"""

from pathlib import Path

from teccl.topology import Topology
from teccl.topology.drawing import save_drawing
from teccl.topology.presets import PRESETS

# Presets whose default hides what is worth seeing, with what is drawn instead.
DRAWN = {
    "ndv2": "ndv2:chassis=4",
    "dgx2": "dgx2:chassis=2",
    "internal1": "internal1:chassis=4",
    "internal2": "internal2:chassis=4",
    "dgx-a100": "dgx-a100:chassis=2",
    "dgx-h100": "dgx-h100:chassis=2",
    "dgx-h200": "dgx-h200:chassis=2",
    "mi300x": "mi300x:chassis=2",
}


def main(folder: Path = Path(__file__).parent / "img" / "presets") -> None:
    """Write one SVG per preset."""
    for name in PRESETS:
        save_drawing(Topology.parse(DRAWN.get(name, name)), folder / f"{name}.svg")


if __name__ == "__main__":
    main()
