"""Draw every preset for the page `presets.md`, into `img/presets/`.

Run as ``python docs/make_presets.py``; equal presets give equal bytes.
"""

from pathlib import Path

from teccl.drawing import save_drawing
from teccl.topology import Topology
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
    "dgx-b200": "dgx-b200:chassis=2",
    "dgx-b300": "dgx-b300:chassis=2,planes=2",
    "h800": "h800:chassis=2",
    "h20": "h20:chassis=2",
    "p5": "p5:chassis=2",
    "a3-ultra": "a3-ultra:chassis=2",
    "mi325x": "mi325x:chassis=2",
    "mi355x": "mi355x:chassis=2",
    "twisted-torus": "twisted-torus:dims=2x4x4",
}


def main(folder: Path = Path(__file__).parent / "img" / "presets") -> None:
    """Write one SVG per preset."""
    for name in PRESETS:
        save_drawing(Topology.parse(DRAWN.get(name, name)), folder / f"{name}.svg")


if __name__ == "__main__":
    main()
