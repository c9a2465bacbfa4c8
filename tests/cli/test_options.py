"""Every option of every command: obeyed, which its row shows, or refused in one line."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.cli.helpers import assert_refused, run
from tests.nccl.logs import END, head, modelled, table

from teccl import Topology
from teccl.cli.app import build_app
from teccl.nccl import shape_of

DATA = Path(__file__).parent.parent / "data" / "foreign"
TESTS = Path(__file__).parent.parent
# Commands that take little time, in words.
SOLVE = "solve ring:gpus=4 allgather --size 1MB --effort quick --chunks 1"
AUTO = "solve ring:gpus=4 allgather --size 1MB --effort quick"
MILP = "solve ring:gpus=4 allgather --size 1MB --method milp --chunks 1"
BOUND = "bound ring:gpus=4 allgather --size 1MB"
HERE = "--no-store --jobs 1"
SWEEP = f"sweep ring:gpus=4 allgather --sizes 1KB,1MB --effort quick --chunks 1 {HERE}"
LINE = f"sweep line:gpus=4 allgather --sizes 1MB --effort quick {HERE}"
COMPARE = f"compare ring:gpus=4 allgather --size 1MB --methods ring {HERE}"
WHATIF = f"whatif ring:gpus=4 allgather --size 1MB --effort quick --n-minus-1 gpus {HERE}"
EXPECT = "expect dgx-h100 allreduce --sizes 8MB --no-schedule"
DIAGNOSE = "diagnose log.txt --topology dgx-h100"
PROGRAM = "export ring.json --to msccl -o program.xml"
SMI = (
    f"topology import nvidia-smi {DATA / 'smi_four.txt'} --link-bandwidth 25GB/s --links direct "
    "-o t.json"
)
MACHINES = f"{SMI} --nodes 2 --nic-bandwidth 400Gb/s"
TACCL = f"topology import taccl {DATA / 'taccl_ring.json'} --chunk-size 1MB"
IMPORT = f"import te-ccl {DATA / 'te_ccl_ring_allgather.json'} --topology ring:gpus=4 --size 4MB"
HOT = "hot:tokens=32,hot=1,skew=2"
MOE = f"demand moe {HOT} --ranks 4 --per-node 2 --experts 8 --top-k 2 -o d.json"
PLACE = "place dgx1 --groups tp=4,dp=2 --work 1000"

# Modelling options, shown by what they do to a command on a star or a ring.
_ON_STAR = "broadcast --size 1MB --effort quick"


def _modelling(star: str, ring: str) -> dict[str, str]:
    return {
        "--switch": f"{star} + --switch no-copy",
        "--transit": f"{star} + --transit cut-through",
        "--without-link": f"{ring} + --without-link 0:1",
        "--degrade": f"{ring} + --degrade 0:1=10%",
        "--overhead": f"{ring} + --overhead 1us",
    }


def _working(base: str) -> dict[str, str]:
    """Where studies work; with other programs that is a matter of tests of their own."""
    return {
        "--jobs": f"- + {base} --jobs none",
        "--mpi": f"- + {base} --mpi",
        "--dask": f"- + {base} --dask nobody",
        "--store": f"- + {base} --store a.sqlite --no-store",
        "--no-store": f"- + {base} --store a.sqlite --no-store",
    }


# Rows "COMMAND + WHAT THE OPTION ADDS": both are run, and differ, or the second is refused; after
# "-" only the latter. What differs where nothing is printed or written is shown by a test of its
# own, whose file is named.
EFFECTS: dict[str, dict[str, str]] = {
    "solve": {
        **_modelling(f"solve star:gpus=4 {_ON_STAR} --chunks 2", SOLVE),
        "--size": f"{SOLVE} + --size 2MB",
        "--ranks": f"{SOLVE} + --ranks 0-2",
        "--root": "solve line:gpus=4 broadcast --size 1MB --effort quick + --root 2",
        "--demand": "solve ring:gpus=4 + --demand demand.yaml",
        "--chunks": f"{AUTO} + --chunks 3",
        "--max-chunks": f"{AUTO} + --max-chunks 1",
        "--chunk-tolerance": f"{AUTO} + --chunk-tolerance 50%",
        "--method": f"{SOLVE} + --method ring",
        "--effort": "solve dgx1 alltoall --size 1MB --effort quick + --effort normal",
        "--time-limit": f"{AUTO} + --time-limit 1ns",
        "--gap": f"{AUTO} + --gap 100%",
        "--objective": f"{SOLVE} + --objective paper",
        "--from": f"{SOLVE} + --from ring.json --method ring",
        "--no-warm-start": f"{SOLVE} + --no-warm-start --method ring",
        "--solver": f"{SOLVE} + --solver cpsat",
        "--threads": f"{SOLVE} + --threads 2 --method ring",
        "--seed": "tests/test_synthesis.py seed",
        "--grid": f"{SOLVE} + --grid",
        "--epoch": f"{SOLVE} + --epoch 1us",
        "--epoch-multiplier": f"{SOLVE} --grid + --epoch-multiplier 2",
        "--horizon": f"{MILP} + --horizon 1",
        "--buffer": "solve line:gpus=4 allgather --size 1MB --effort quick + --buffer none",
        "--no-copy": "solve line:gpus=4 allgather --size 1MB --effort quick + --no-copy",
        "--any-order": f"{SOLVE} + --any-order",
        "--orbit": "solve torus:dims=4x4 allgather --size 1MB --effort quick + --orbit --chunks 1",
        "--groups": "solve torus:dims=4x4 allgather --size 1MB --effort quick + --groups 4:4",
        "--output": f"{SOLVE} + -o out.json",
    },
    "bound": {
        **_modelling(
            "bound star:gpus=4 alltoall --size 1MB --chunks 1",
            "bound ring:gpus=4 allgather --size 1MB",
        ),
        "--switch": "bound star:gpus=4 broadcast --size 1MB --chunks 2 + --switch hyper-edge",
        "--size": f"{BOUND} + --size 2MB",
        "--ranks": f"{BOUND} + --ranks 0-2",
        "--root": "bound line:gpus=4 broadcast --size 1MB + --root 2",
        "--demand": "bound ring:gpus=4 + --demand demand.yaml",
        "--chunks": f"{BOUND} + --chunks 4",
        "--grid": f"{BOUND} + --grid",
        "--epoch": f"{BOUND} + --epoch 1us",
        "--epoch-multiplier": f"{BOUND} --grid + --epoch-multiplier 2",
        "--buffer": "tests/cli/test_bound.py --buffer",
        "--schedule": "tests/cli/test_bound.py --schedule",
        "--no-copy": f"{BOUND} + --no-copy",
    },
    "import": {
        "--topology": f"{IMPORT} + --topology ring:gpus=4,alpha=9us",
        "--size": f"{IMPORT} + --size 8MB",
        "--output": f"{IMPORT} + -o out.json",
    },
    "place": {
        "--groups": f"{PLACE} + --groups tp=2,dp=4",
        "--traffic": f"{PLACE} + --traffic tp=alltoall:8MB",
        "--demand": f"{PLACE} + --demand demand8.yaml",
        "--work": "tests/placement/test_place.py work",
        "--to": f"{PLACE} + --to torchrun",
        "-o": f"{PLACE} + -o ranks.txt",
        "--demand-out": f"{PLACE} + --demand-out all.json",
    },
    "verify": {"--runtime": "verify ring.json + --runtime msccl"},
    "simulate": {
        "--output": "simulate ring.json + -o out.json",
        "--rounds": "simulate ring.json + --rounds",
        "--round-overhead": "simulate ring.json --rounds + --round-overhead 1us",
    },
    "validate": {
        "--with": "tests/simulators/test_validate.py --with",
        "--program": "tests/simulators/test_validate.py --program",
        "--time-limit": "tests/simulators/test_validate.py time_limit",
    },
    "export": {
        "--to": "export ring.json --to msccl + --to perfetto",
        "--in-place": f"{PROGRAM} + --in-place",
        "--dtype": f"{PROGRAM} + --dtype double",
        "--channels": f"{PROGRAM} + --channels 4",
        "--instances": f"{PROGRAM} + --instances 2",
        "--protocol": f"{PROGRAM} + --protocol LL",
        "--min-bytes": f"{PROGRAM} + --min-bytes 1KB",
        "--max-bytes": f"{PROGRAM} + --max-bytes 1GB",
        "--with-config": f"{PROGRAM} + --with-config",
        "--rank": f"{PROGRAM} + --rank 0",
        "--output": "export ring.json --to msccl + -o out.xml",
    },
    "view": {
        "--compare": "view ring.json -o page.html + --compare ring.json",
        "--result": "view ring.json -o page.html + --result result.json",
        "--output": "view ring.json + -o page.html",
        "--open": "tests/cli/test_view.py --open",
    },
    "ui": {
        "--port": "tests/web/test_server.py --port",
        "--no-open": "tests/web/conftest.py --no-open",
    },
    "sweep": {
        **_modelling(f"sweep star:gpus=4 broadcast --sizes 1MB --effort quick {HERE}", SWEEP),
        **_working(SWEEP),
        "--sizes": f"{SWEEP} + --sizes 2KB",
        "--factor": f"{SWEEP.replace('1KB,1MB', '1KB:64KB')} + --factor 64",
        "--ranks": f"{SWEEP} + --ranks 0-2",
        "--root": f"sweep line:gpus=4 broadcast --sizes 1MB --effort quick {HERE} + --root 2",
        "--chunks": f"{SWEEP} + --chunks 3",
        "--chunk-tolerance": f"{SWEEP} + --chunk-tolerance 50%",
        "--methods": f"{SWEEP} + --methods ring",
        "--effort": f"{SWEEP} + --effort none",
        "--time-limit": f"sweep ring:gpus=4 allgather --sizes 1MB --effort quick {HERE} "
        "+ --time-limit 1ns",
        "--seed": f"{SWEEP} + --seed none",
        "--buffer": f"{LINE} + --buffer none",
        "--no-copy": f"{LINE} + --no-copy",
        "--plan": f"{SWEEP} + --plan plan",
        "--to": f"{SWEEP} + --to msccl",
        "--csv": f"{SWEEP} + --csv table.csv",
        "--plot": f"{SWEEP} + --plot figure.svg",
    },
    "compare": {
        **_modelling(
            f"compare star:gpus=4 broadcast --size 1MB --methods construct {HERE}", COMPARE
        ),
        **_working(COMPARE),
        "--size": f"{COMPARE} + --size 2MB",
        "--ranks": f"{COMPARE} + --ranks 0-2",
        "--root": f"compare line:gpus=4 broadcast --size 1MB --methods construct {HERE} + --root 2",
        "--demand": f"compare ring:gpus=4 --methods construct {HERE} + --demand demand.yaml",
        "--methods": f"{COMPARE} + --methods shortest-path",
        "--schedule": f"{COMPARE} + --schedule ring.json",
        "--effort": f"{COMPARE} + --effort none",
        "--chunk-tolerance": f"{COMPARE} + --chunk-tolerance 90%",
        "--model-limit": f"compare dgx1 allgather --size 1MB --methods milp {HERE} + "
        "--model-limit 1ns",
        "--seed": f"{COMPARE} + --seed none",
        "--plot": f"{COMPARE} + --plot figure.svg",
    },
    "whatif": {
        **_modelling(f"whatif star:gpus=4 {_ON_STAR} --fault late#1=5us {HERE}", WHATIF),
        **_working(WHATIF),
        "--size": f"{WHATIF} + --size 2MB",
        "--ranks": f"{WHATIF} + --ranks 0-2",
        "--root": f"whatif line:gpus=4 {_ON_STAR} --n-minus-1 links {HERE} + --root 2",
        "--demand": f"whatif ring:gpus=4 --effort quick --n-minus-1 links {HERE} "
        "+ --demand demand.yaml",
        "--fault": f"{WHATIF} + --fault late#0=5us",
        "--faults": f"{WHATIF} + --faults faults.txt",
        "--n-minus-1": f"{WHATIF} + --n-minus-1 links",
        "--effort": f"{WHATIF} + --effort none",
        "--seed": f"{WHATIF} + --seed none",
        "--save": f"{WHATIF} + --save plans",
    },
    "expect": {
        "--sizes": f"{EXPECT} + --sizes 2MB",
        "--factor": "expect dgx-h100 allreduce --sizes 1KB:1MB --no-schedule + --factor 1024",
        "--effort": f"{EXPECT} + --effort quick",
        "--no-schedule": "expect ring:gpus=4 allgather --sizes 1MB --effort quick + --no-schedule",
        "--overhead": f"{EXPECT} + --overhead 1us",
        "--gpu": f"{EXPECT} + --gpu volta",
        "--channels": f"{EXPECT} + --channels 1",
    },
    "diagnose": {
        "--topology": f"{DIAGNOSE} + --topology dgx-a100",
        "--collective": f"{DIAGNOSE} + --collective nonsense",
        "--overhead": "diagnose log.txt --topology ring:gpus=8 + --overhead 9us",
        "--gpu": f"{DIAGNOSE} + --gpu volta",
        "--channels": f"{DIAGNOSE} + --channels 2",
        "--output": f"{DIAGNOSE} + -o page.html",
    },
    "experiments": {
        **_working("experiments sccl-least-steps --quick"),
        "--quick": "tests/studies/test_experiments.py quick",
        "--list": "experiments nobody + --list",
        "-o": "tests/studies/test_experiments.py folder",
        "--seed": "- + experiments sccl-least-steps --quick --seed none",
    },
    "doctor": {},
    "run": {
        name: f"tests/runtime/test_commands.py {name}"
        for name in (
            *("--ranks", "--repeat", "--warmup", "--dtype", "--op", "--check", "--timeout"),
            *("--emulate", "--time-scale"),
        )
    }
    | {"--backend": "tests/torch/test_commands.py --backend"},
    "calibrate": {
        **{
            name: f"calibrate --log log.txt + {name} {value}"
            for name, value in (
                ("--sizes", "1KB:1MB"),
                ("--repeat", "3"),
                ("--groups", "2"),
                ("--timeout", "5s"),
                ("--emulate", "ring:gpus=2"),
                ("--time-scale", "3"),
                ("--backend", "mpi"),
            )
        },
        "--ranks": "calibrate --log log.txt + --ranks 3",
        "--log": "calibrate --log log.txt + --log missing.txt",
        "--collective": "- + calibrate --collective allreduce",
        "--output": "calibrate --log log.txt + -o out.yaml",
    },
    "topology list": {},
    "topology show": {
        "--all": "topology show dgx-h100:chassis=4 + --all",
        "--yaml": "topology show ring:gpus=4 + --yaml",
        "--output": "topology show ring:gpus=4 + -o out.yaml",
    },
    "topology check": {},
    "topology draw": {"--output": "topology draw ring:gpus=4 + -o ring.svg"},
    "topology import": {
        "--link-bandwidth": f"{SMI} + --link-bandwidth 50GB/s",
        "--links": f"{SMI} + --links switch",
        "--pcie-bandwidth": f"topology import nvidia-smi {DATA / 'smi_pcie.txt'} --pcie-bandwidth "
        "12GB/s + --pcie-bandwidth 24GB/s",
        "--socket-bandwidth": f"topology import nvidia-smi {DATA / 'smi_pcie.txt'} "
        "--pcie-bandwidth 12GB/s + --socket-bandwidth 1GB/s",
        "--alpha": f"{SMI} + --alpha 9us",
        "--nodes": f"{SMI} + --nodes 2 --nic-bandwidth 400Gb/s",
        "--fabric": f"{MACHINES} + --fabric flat",
        "--nic-bandwidth": f"{MACHINES} + --nic-bandwidth 200Gb/s",
        "--nic-alpha": f"{MACHINES} + --nic-alpha 9us",
        "--chunk-size": f"{TACCL} + --chunk-size 2MB",
        "--cost-unit": f"{TACCL} + --cost-unit 2us",
        "--name": f"{SMI} + --name mine",
        "--output": f"{SMI} + -o out.json",
    },
    "topology export": {
        "--to": "topology export ring:gpus=4 --to astra-sim -o out + --to simai",
        "--output": "topology export ring:gpus=4 --to astra-sim -o out + -o other",
    },
    "demand moe": {
        "--experts": f"{MOE} + --experts 16",
        "--top-k": f"{MOE} + --top-k 3",
        "--layer": f"{MOE} + --layer 7",
        "--token-bytes": f"{MOE} + --token-bytes 100B",
        "--result-bytes": f"{MOE} + --result-bytes 100B",
        "--topology": f"{MOE} + --topology dgx1",
        "--ranks": f"{MOE} + --ranks 8",
        "--per-node": f"{MOE} + --per-node 4",
        "--placement": f"{MOE} + --placement balanced",
        "--plain": f"{MOE} + --plain",
        "-o": f"{MOE} + -o e.json",
        "--combine": f"{MOE} + --combine c.json",
    },
}
# Said of every command that has them: one JSON value, and nothing at all.
COMMON = {"--json", "--quiet"}
# How long things took, which differs from run to run.
_CLOCK = re.compile(r"solve time .*|\"(solve|synthesis)_seconds\": .*|\d+\.\d+$", re.MULTILINE)


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command with its name."""

    def walk(command: Any, name: str) -> Iterator[tuple[str, Any]]:
        if not hasattr(command, "commands"):
            yield name.strip(), command
            return
        for word, each in command.commands.items():
            yield from walk(each, f"{name} {word}")

    yield from walk(typer.main.get_command(build_app()), "")


def options_of(command: Any) -> set[str]:
    """Return the long names of a command's options."""
    found = {max(each.opts, key=len) for each in command.params if each.param_type_name == "option"}
    return found - {"--help"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every file that a row names."""
    place: Path = tmp_path_factory.mktemp("options")
    ring = arguments("ring:gpus=4 allgather --size 1MB --method ring --chunks 1 --json")
    solved = run("solve", *ring, "-o", place / "ring.json")
    assert solved.code == 0
    (place / "result.json").write_text(solved.out)
    demand = "collective: allgather\nsize: 1MB\nranks: [{}]\n"
    (place / "demand.yaml").write_text(demand.format("0, 1, 2"))
    (place / "demand8.yaml").write_text(demand.format("0, 7"))
    (place / "faults.txt").write_text("late 0=5us\n")
    shape = shape_of(Topology.parse("dgx-h100"))
    (place / "log.txt").write_text(head(8) + "\n" + table(modelled(shape), 8) + END)
    return place


def arguments(words: str) -> list[str]:
    """Split a command; ``#`` stands for a space inside a word."""
    return [word.replace("#", " ") for word in words.split()]


def outcome(words: str, place: Path) -> tuple[int, str, dict[str, bytes]]:
    """Run a command and return its code, what it prints and the files that it leaves."""
    before = {path: path.stat().st_mtime_ns for path in place.rglob("*") if path.is_file()}
    ended = run(*arguments(words))
    files = {
        str(path.relative_to(place)): path.read_bytes()
        for path in place.rglob("*")
        if path.is_file()
        and path.suffix != ".sqlite"
        and before.get(path) != path.stat().st_mtime_ns
    }
    return ended.code, _CLOCK.sub("", ended.out) + ended.err, files


@cache
def plain(words: str, place: Path) -> tuple[int, str, dict[str, bytes]]:
    """Run a command that other rows vary, twice: what it does by itself never differs."""
    first = outcome(words, place)
    assert first == outcome(words, place)
    return first


def test_every_option_has_a_row() -> None:
    """An option that is new or gone is missing or left over here."""
    known = {name: set(rows) for name, rows in EFFECTS.items()}
    assert known == {name: options_of(command) - COMMON for name, command in commands()}


# Studies solve several problems for each row.
STUDIES = ("sweep", "compare", "whatif")
ROWS = [
    pytest.param(name, option, marks=[pytest.mark.slow] if name in STUDIES else [])
    for name, rows in EFFECTS.items()
    for option in rows
]


@pytest.mark.parametrize(("name", "option"), ROWS)
def test_options_are_obeyed_or_refused(
    name: str, option: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is printed or written differs, or the option is refused by name."""
    row = EFFECTS[name][option]
    base, _, extra = row.partition(" + ")
    monkeypatch.chdir(folder)
    if row.startswith("tests/"):
        path, _, mark = row.partition(" ")
        assert mark in (TESTS.parent / path).read_text()
    elif base == "-":
        assert_refused(run(*arguments(extra)))
    else:
        found = outcome(f"{base} {extra}", folder)
        assert found != plain(base, folder)
        if found[0] != 0:
            assert_refused(run(*arguments(f"{base} {extra}")), codes=(1, 2))
