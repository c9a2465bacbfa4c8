"""Reading and proving programs: grammar, limits, matching, waiting, results."""

import pytest

from teccl.errors import ProgramError
from teccl.formats.msccl.prove import FindingKind, prove_text, read_program
from teccl.formats.msccl.prove.actions import actions_of
from teccl.formats.msccl.prove.finding import Findings
from teccl.formats.msccl.prove.flow import run_control
from teccl.formats.msccl.prove.machine import build_machine

HEAD = (
    '<algo name="t" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" coll="allgather" '
    'inplace="1" outofplace="0" minBytes="0" maxBytes="1048576">'
)


def step(number, kind, src, dst, *, cnt=1, dep=(-1, -1), hasdep=0):
    """One step; places are a letter and an offset."""
    return (
        f'<step s="{number}" type="{kind}" srcbuf="{src[0]}" srcoff="{src[1:]}" '
        f'dstbuf="{dst[0]}" dstoff="{dst[1:]}" cnt="{cnt}" depid="{dep[0]}" deps="{dep[1]}" '
        f'hasdep="{hasdep}"/>'
    )


def block(number, send, recv, *steps, chan=0):
    inside = "\n".join(steps)
    return f'<tb id="{number}" send="{send}" recv="{recv}" chan="{chan}">\n{inside}\n</tb>'


def gpu(rank, *blocks, i=1, o=2, s=0):
    inside = "\n".join(blocks)
    return f'<gpu id="{rank}" i_chunks="{i}" o_chunks="{o}" s_chunks="{s}">\n{inside}\n</gpu>'


def program(*gpus, head=HEAD):
    return "\n".join([head, *gpus, "</algo>"]) + "\n"


def exchange(first="s", second="r"):
    """Two GPUs that give each other their chunk, in place."""
    order = {"s": "o{own}", "r": "o{other}"}

    def steps(rank):
        own, other = rank, 1 - rank
        places = [order[k].format(own=own, other=other) for k in (first, second)]
        return [
            step(n, k, p, p) for n, (k, p) in enumerate(zip((first, second), places, strict=True))
        ]

    return program(gpu(0, block(0, 1, 1, *steps(0))), gpu(1, block(0, 0, 0, *steps(1))))


def kinds(text, runtime="rccl"):
    (proof,) = prove_text(text, runtime=runtime)
    return {finding.kind for finding in proof.findings}


def test_smallest_program_runs_on_both():
    """Two GPUs exchange a chunk in place."""
    proofs = prove_text(exchange())
    assert [proof.runtime.name for proof in proofs] == ["rccl", "msccl"]
    assert all(proof.ok for proof in proofs)


def test_receiving_first_on_both_sides_hangs():
    """Both wait for data that neither has sent."""
    assert kinds(exchange("r", "s")) == {FindingKind.DEADLOCK}


def test_findings_name_the_place():
    """A deadlock is reported at gpu, thread block and step."""
    (proof,) = prove_text(exchange("r", "s"), runtime="msccl")
    assert str(proof.findings[0]).startswith("deadlock at gpu 0, tb 0, step 0: r waits for data")


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda t: '<?xml version="1.0"?>\n' + t, FindingKind.SYNTAX),
        (lambda t: t.replace("\n<gpu", "\n\t<gpu"), FindingKind.SYNTAX),
        (lambda t: t.replace('id="0" i_', 'id="0"\n i_'), FindingKind.SYNTAX),
        (lambda t: t.replace('name="t"', "name='t'"), FindingKind.SYNTAX),
        (lambda t: t.replace('ngpus="2"', 'ngpus="3"'), FindingKind.ATTRIBUTE),
        (lambda t: t.replace("allgather", "allgathr"), FindingKind.ATTRIBUTE),
        (lambda t: t.replace("Simple", "simple"), FindingKind.ATTRIBUTE),
        (lambda t: t.replace('minBytes="0" ', ""), FindingKind.ATTRIBUTE),
        (lambda t: t.replace('inplace="1"', 'inplace="0"'), FindingKind.ATTRIBUTE),
        (lambda t: t.replace('chan="0"', 'chan="1"'), FindingKind.ATTRIBUTE),
        (lambda t: t.replace('chan="0"', 'chan="128"'), FindingKind.LIMIT),
        (lambda t: t.replace('cnt="1"', 'cnt="72"'), FindingKind.LIMIT),
        (lambda t: t.replace('cnt="1"', 'cnt="0"'), FindingKind.LIMIT),
        (lambda t: t.replace('o_chunks="2"', 'o_chunks="40000"'), FindingKind.LIMIT),
        (lambda t: t.replace('send="1"', 'send="0"'), FindingKind.PEER),
        (lambda t: t.replace('send="1"', 'send="7"'), FindingKind.PEER),
        (lambda t: t.replace('send="1"', 'send="-1"'), FindingKind.PEER),
        (lambda t: t.replace('dstoff="1"', 'dstoff="2"'), FindingKind.BOUNDS),
        (lambda t: t.replace('s="1"', 's="2"'), FindingKind.ATTRIBUTE),
        (lambda t: t.replace('depid="-1"', 'depid="3"', 1), FindingKind.DEPENDENCY),
    ],
)
def test_what_structure_shows(change, kind):
    """Each departure from the rules is a finding of its kind."""
    text = change(exchange())
    assert text != exchange()
    assert kind in kinds(text)


def test_msccl_checks_buffer_sizes_and_rccl_does_not():
    """The NCCL fork compares buffer sizes with nchunksperloop."""
    text = exchange().replace('i_chunks="1"', 'i_chunks="2"')
    assert kinds(text, "msccl") == {FindingKind.ATTRIBUTE}
    assert kinds(text, "rccl") == set()


@pytest.mark.parametrize(("runtime", "most"), [("msccl", 256), ("rccl", 64)])
def test_steps_per_block(runtime, most):
    """A block may have as many steps as the runtime takes and no more."""
    for count, allowed in ((most, True), (most + 1, False)):
        copies = [step(n, "cpy", "s0", "s1") for n in range(count)]
        text = program(
            gpu(
                0,
                block(0, 1, 1, step(0, "s", "o0", "o0"), step(1, "r", "o1", "o1")),
                block(1, -1, -1, *copies),
                s=2,
            ),
            gpu(1, block(0, 0, 0, step(0, "s", "o1", "o1"), step(1, "r", "o0", "o0"))),
        )
        assert (FindingKind.LIMIT in kinds(text, runtime)) is not allowed


def test_nops_carry_dependencies():
    """Every nop and the step after it must have a dependency."""
    good = [step(0, "nop", "i-1", "i-1", cnt=0, dep=(1, 0)), step(1, "s", "o0", "o0", dep=(1, 1))]

    def text(steps):
        publishing = [step(n, "cpy", "s0", "s1", hasdep=1) for n in range(2)]
        return program(
            gpu(
                0,
                block(0, 1, 1, *steps, step(2, "r", "o1", "o1")),
                block(1, -1, -1, *publishing),
                s=2,
            ),
            gpu(1, block(0, 0, 0, step(0, "s", "o1", "o1"), step(1, "r", "o0", "o0"))),
        )

    assert kinds(text(good)) == set()
    alone = [good[0].replace('depid="1" deps="0"', 'depid="-1" deps="-1"'), good[1]]
    assert kinds(text(alone)) == {FindingKind.DEPENDENCY}
    bare = [good[0], good[1].replace('depid="1" deps="1"', 'depid="-1" deps="-1"')]
    assert kinds(text(bare)) == {FindingKind.DEPENDENCY}


def relay(dep, hasdep):
    """Three GPUs in a line; the middle one receives in one block and sends in another."""
    head = HEAD.replace('nchunksperloop="2" ngpus="2"', 'nchunksperloop="1" ngpus="3"')
    head = head.replace("allgather", "broadcast")
    return program(
        gpu(0, block(0, 1, -1, step(0, "s", "o0", "o0")), i=1, o=1),
        gpu(
            1,
            block(0, -1, 0, step(0, "r", "o0", "o0", hasdep=hasdep)),
            block(1, 2, -1, step(0, "s", "o0", "o0", dep=dep)),
            i=1,
            o=1,
        ),
        gpu(2, block(0, -1, 1, step(0, "r", "o0", "o0")), i=1, o=1),
        head=head,
    )


def test_a_dependency_orders_two_blocks():
    """Forwarding must wait for the arrival: else it races, and without hasdep it hangs."""
    assert kinds(relay((0, 0), 1)) == set()
    assert FindingKind.RACE in kinds(relay((-1, -1), 0))
    assert kinds(relay((0, 0), 0)) == {FindingKind.DEADLOCK}


def test_reductions_count_every_contribution_once():
    """A sum that misses or repeats a contribution is a wrong result."""
    head = HEAD.replace("allgather", "allreduce").replace('loop="2"', 'loop="1"')

    def text(kind):
        return program(
            gpu(0, block(0, 1, 1, step(0, "s", "o0", "o0"), step(1, kind, "o0", "o0")), o=1),
            gpu(1, block(0, 0, 0, step(0, "s", "o0", "o0"), step(1, kind, "o0", "o0")), o=1),
            head=head,
        )

    assert kinds(text("rrc")) == set()
    assert kinds(text("r")) == {FindingKind.WRONG_RESULT}


def test_out_of_place_input_must_not_be_written():
    """The caller's input is not a place for sums."""
    head = HEAD.replace("allgather", "allreduce").replace('loop="2"', 'loop="1"')
    head = head.replace('inplace="1" outofplace="0"', 'inplace="0" outofplace="1"')
    steps = [step(0, "s", "i0", "i0"), step(1, "rrc", "i0", "i0"), step(2, "cpy", "i0", "o0")]
    text = program(
        gpu(0, block(0, 1, 1, *steps), o=1), gpu(1, block(0, 0, 0, *steps), o=1), head=head
    )
    assert kinds(text) == {FindingKind.INPUT_OVERWRITTEN}


def test_a_step_of_many_chunks_may_be_cut():
    """An exchange of more chunks than the queue holds can hang, because steps may be cut."""
    head = HEAD.replace('nchunksperloop="2"', 'nchunksperloop="6"')

    def text(cnt):
        head_n = head.replace('loop="6"', f'loop="{2 * cnt}"')
        return program(
            *[
                gpu(
                    rank,
                    block(
                        0,
                        1 - rank,
                        1 - rank,
                        step(0, "s", f"o{rank * cnt}", "o0", cnt=cnt),
                        step(1, "r", "o0", f"o{(1 - rank) * cnt}", cnt=cnt),
                    ),
                    i=cnt,
                    o=2 * cnt,
                )
                for rank in range(2)
            ],
            head=head_n,
        )

    assert kinds(text(2)) == set()
    assert kinds(text(3)) == {FindingKind.DEADLOCK}
    assert kinds(text(3).replace("Simple", "LL")) == set()


def test_unequal_counts_and_numbers():
    """Counts must agree pair by pair, and every send needs its receive."""
    text = exchange().replace('dstoff="1" cnt="1"', 'dstoff="0" cnt="2"', 1)
    assert FindingKind.COUNT_MISMATCH in kinds(text.replace('srcoff="1"', 'srcoff="0"', 1))
    lines = exchange().splitlines()
    del lines[next(i for i, line in enumerate(lines) if 'type="r"' in line)]
    assert FindingKind.UNMATCHED in kinds("\n".join(lines))


def test_all_orders_end_alike():
    """Whatever the depth, the same steps complete in a program that does not hang."""
    actions = actions_of(build_machine(read_program(exchange()), Findings()))
    assert len(run_control(actions, 1).order) == len(run_control(actions, None).order) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no <algo>"),
        ("hello", "text outside of tags"),
        ("<algo>", "not closed"),
        ("<a><b></a>", "the root is <a>"),
        ("<algo></gpu>", "closes nothing"),
        ("<algo><gpu", "broken, not closed"),
        ("<algo" + ' a="0"' * 20_000 + ">", "too long"),
        ('<!DOCTYPE x [<!ENTITY a "b">]><algo/>', "entities are not read"),
        ("<algo/><algo/>", "two <algo>"),
        ("<algo>" + "<x>" * 100, "nested deeper"),
        ('<algo><gpu id="0"/></algo>', "lacks i_chunks"),
        ('<algo><gpu id="1e9" i_chunks="1" o_chunks="1" s_chunks="0"/></algo>', "whole number"),
        ('<algo a="' + "x" * 300 + '"/>', "longer than 255"),
        ('<algo a="1" a="2"/>', "twice"),
        ("<!-- never closed", "comment is not closed"),
    ],
)
def test_what_is_no_program(text, message):
    """Damaged and foreign text is refused on one line."""
    with pytest.raises(ProgramError, match=message):
        read_program(text)


def test_unknown_elements_are_skipped():
    """Elements and attributes that the runtimes do not know change nothing."""
    text = exchange().replace("<tb", "<copy><inner a='1'/></copy>\n<tb", 1)
    assert kinds(text) == set()
    assert kinds(exchange().replace('ngpus="2"', 'ngpus="2" redop="sum"')) == set()


def test_a_huge_loop_is_refused_quickly():
    """A count that no offset could reach is a limit, not a computation."""
    text = exchange().replace('nchunksperloop="2"', 'nchunksperloop="2000000000"')
    assert FindingKind.LIMIT in kinds(text)


def test_a_program_of_one_rank_waits_for_nobody():
    """Blocks without a peer are no one's partners."""
    text = """
    <algo name="one" proto="Simple" nchannels="1" nchunksperloop="1" ngpus="1" coll="allgather"
          inplace="0" outofplace="1" minBytes="0" maxBytes="0">
      <gpu id="0" i_chunks="1" o_chunks="1" s_chunks="0">
        <tb id="0" send="-1" recv="-1" chan="0">
          <step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1"
                depid="-1" deps="-1" hasdep="0"/>
        </tb>
      </gpu>
    </algo>
    """
    for proof in prove_text(text):
        assert {FindingKind.DEADLOCK, FindingKind.RACE}.isdisjoint(f.kind for f in proof.findings)
        assert proof.facts
