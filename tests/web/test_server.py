"""The app over HTTP: who is let in, what is refused, and that nothing stays behind."""

import json
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.cli.helpers import assert_refused, run
from tests.web.conftest import Server, start_server, stop_server

from teccl.schedule import Schedule
from teccl.web.guard import MAX_BODY_BYTES
from teccl.web.job_table import MAX_RUNNING, MAX_WAITING
from teccl.web.server import _listen

RING = {"topology": "ring:gpus=4", "collective": "allgather", "size": "1MB", "method": "ring"}
# Nothing proves the best schedule of this problem, so a thorough search goes on until stopped.
ENDLESS = {
    "topology": "torus:dims=8x8",
    "collective": "alltoall",
    "size": "1MB",
    "effort": "thorough",
}


def post_job(client: Any, request: dict[str, Any]) -> dict[str, Any]:
    answer = client.post("/api/jobs", json=request)
    assert answer.status_code == 201, answer.text
    return answer.json()


def wait_for(client: Any, number: str, done: Any = None) -> dict[str, Any]:
    """Wait until a job is over, or until something holds."""
    for _ in range(1200):
        job = client.get(f"/api/jobs/{number}").json()
        if (done or (lambda j: j["state"] in ("done", "failed", "cancelled")))(job):
            return job
        time.sleep(0.05)
    raise AssertionError(job)


def test_the_token_is_needed(server: Server) -> None:
    """Without the token, or with a wrong one, nothing is shown or done."""
    paths = ["/", "/api/options", "/api/jobs", "/assets/app.js", "/start", "/start?token=wrong"]
    with server.stranger() as stranger:
        assert [stranger.get(path).status_code for path in paths] == [403] * len(paths)
        assert stranger.post("/api/jobs", json=RING).status_code == 403
    with server.stranger(Authorization="Bearer wrong") as liar:
        assert liar.get("/api/jobs").status_code == 403
    with server.stranger(Cookie=f"teccl-{server.port}=wrong") as liar:
        assert liar.get("/api/jobs").status_code == 403


def test_the_printed_address_lets_the_browser_in(server: Server) -> None:
    """The address gives a cookie that scripts and other sites do not see, and a clean address."""
    with server.stranger() as visitor:
        answer = visitor.get(server.address)
        assert answer.status_code == 303
        assert answer.headers["location"] == "/"
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        page = visitor.get("/")
        assert page.status_code == 200
        assert "<title>teccl</title>" in page.text


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "example.org"},
        {"Host": "evil.localhost:1"},
        {"Host": "127.0.0.1"},
        {"Origin": "http://example.org"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
def test_foreign_requests_are_refused(server: Server, headers: dict[str, str]) -> None:
    """A request with a foreign Host or Origin is refused even with the token."""
    with server.client(**headers) as client:
        assert client.get("/api/jobs").status_code == 403
        assert client.post("/api/jobs", json=RING).status_code == 403


def test_own_origin_is_accepted(server: Server) -> None:
    """The page's own origin is let in, by either name of loopback."""
    for name in ("127.0.0.1", "localhost"):
        host = f"{name}:{server.port}"
        with server.client(Host=host, Origin=f"http://{host}") as client:
            assert client.get("/api/jobs").status_code == 200


def test_it_listens_on_loopback_only(server: Server) -> None:
    """No other address of the machine answers."""
    listening = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, state = line.split()[1], line.split()[3]
        address, port = local.split(":")
        if int(port, 16) == server.port and state == "0A":
            listening.append(address)
    assert listening == ["0100007F"]


def test_answers_carry_hard_headers(server: Server) -> None:
    """Answers are not cached, not sniffed, not framed by others, and run our scripts only."""
    with server.client() as client:
        headers = client.get("/").headers
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "script-src 'self'" in headers["content-security-policy"]
    assert "access-control-allow-origin" not in headers


def test_a_job_leads_to_schedule_and_report(server: Server, tmp_path: Path) -> None:
    """A job streams its progress and leaves a schedule file like any other, and a report."""
    with server.client() as client:
        job = post_job(client, RING)
        kinds = []
        with client.stream("GET", f"/api/jobs/{job['id']}/events") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            for line in stream.iter_lines():
                if line.startswith("event: "):
                    kinds.append(line.removeprefix("event: "))
                elif line.startswith("data: "):
                    last = json.loads(line.removeprefix("data: "))
        assert {"progress", "state"} <= set(kinds)
        assert last["state"] == "done"
        assert last["result"]["verified"] is True
        report = client.get(f"/api/jobs/{job['id']}/report")
        assert report.text.startswith("<!doctype html>")
        assert "frame-ancestors 'self'" in report.headers["content-security-policy"]
        content = client.get(f"/api/jobs/{job['id']}/schedule").content
    (tmp_path / "s.json.gz").write_bytes(content)
    assert Schedule.load(tmp_path / "s.json.gz").finish_time_s == last["result"]["finish_time_s"]
    assert run("verify", tmp_path / "s.json.gz").code == 0


def test_xml_is_exported(server: Server) -> None:
    """The MSCCL export is XML of the collective."""
    pytest.importorskip("teccl.formats.msccl.write")
    with server.client() as client:
        job = wait_for(client, post_job(client, RING)["id"])
        answer = client.get(f"/api/jobs/{job['id']}/export/msccl")
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-disposition"] == 'attachment; filename="schedule.xml"'
        assert b"<algo" in answer.content
        refused = client.get(f"/api/jobs/{job['id']}/export/nothing")
        assert refused.status_code == 400
        assert "choose" in refused.json()["error"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"topology": "rong"}, "did you mean"),
        ({"topology": "/etc/passwd.yaml"}, "upload it instead"),
        ({"topology": ""}, "choose a preset or upload"),
        ({"upload": "0" * 16}, "upload it again"),
        ({"collective": "allgatherr"}, "collective"),
        ({"size": ""}, "give for example 1MB"),
        ({"size": ["1MB"]}, "size"),
        ({"size": "9" * 1000}, "shorten"),
        ({"from_schedule": "x"}, "unknown key"),
    ],
    ids=str,
)
def test_bad_requests_are_answered_clearly(server: Server, change, reason) -> None:
    """What is wrong with a request is said in one line, at once or by the job."""
    with server.client() as client:
        answer = client.post("/api/jobs", json={**RING, **change})
        if answer.status_code == 201:
            job = wait_for(client, answer.json()["id"])
            assert job["state"] == "failed"
            assert reason in job["error"]
        else:
            assert answer.status_code == 400
            assert reason in answer.json()["error"]
        assert (
            client.post(
                "/api/jobs", content=b"{", headers={"content-type": "application/json"}
            ).status_code
            == 400
        )
        assert client.post("/api/jobs", content=b"{}").status_code == 415


def test_uploads_are_checked(server: Server) -> None:
    """A good topology is described, a bad one refused with its own name, not the server's path."""
    good = (
        "schema_version: 1\nname: mine\nnodes: 2\nlinks:\n"
        "- {src: gpu0, dst: gpu1, bandwidth: 1GB/s, alpha: 0, bidirectional: true}\n"
    )
    with server.client() as client:
        found = client.post("/api/topologies?name=a.yaml", content=good).json()
        assert (found["num_gpus"], found["num_links"]) == (2, 2)
        job = wait_for(
            client, post_job(client, {**RING, "topology": None, "upload": found["upload"]})["id"]
        )
        assert job["state"] == "done"
        bad = client.post("/api/topologies?name=../../x.yaml", content="nodes: [")
        assert bad.status_code == 400
        assert bad.json()["error"].startswith("x.yaml: ")
        for name in ("x.exe", "", ".yaml", "x.yaml\x00"):
            assert (
                client.post("/api/topologies", params={"name": name}, content=good).status_code
                == 400
            )


def test_large_bodies_are_refused(server: Server) -> None:
    """More than the limit is refused, also when the length is not announced."""
    with server.client() as client:
        content = b"x" * (MAX_BODY_BYTES + 1)
        assert client.post("/api/topologies?name=a.yaml", content=content).status_code == 413

        def pieces():
            for _ in range(MAX_BODY_BYTES // 2**20 + 1):
                yield b"x" * 2**20

        assert client.post("/api/topologies?name=a.yaml", content=pieces()).status_code == 413
        assert client.get("/api/jobs").status_code == 200


def test_a_running_job_is_cancelled(server: Server) -> None:
    """A cancelled job stops soon and keeps the best schedule it had."""
    with server.client() as client:
        number = post_job(client, ENDLESS)["id"]
        with client.stream("GET", f"/api/jobs/{number}/events") as stream:
            for line in stream.iter_lines():
                if line.startswith("data: ") and json.loads(line[6:]).get("incumbent_s"):
                    break
        client.post(f"/api/jobs/{number}/cancel")
        job = wait_for(client, number)
        assert job["state"] == "done"
        assert job["result"]["status"] == "interrupted"
        assert job["has_schedule"] is True
        assert client.delete(f"/api/jobs/{number}").status_code == 204
        assert client.get(f"/api/jobs/{number}").status_code == 404


def test_cancelling_twice_ends_at_once(server: Server) -> None:
    """The second request ends the job's process, and the next one runs."""
    with server.client() as client:
        number = post_job(client, ENDLESS)["id"]
        wait_for(client, number, lambda job: job["state"] == "running")
        client.post(f"/api/jobs/{number}/cancel")
        client.post(f"/api/jobs/{number}/cancel")
        assert wait_for(client, number)["state"] in ("cancelled", "done")
        assert wait_for(client, post_job(client, RING)["id"])["state"] == "done"


def test_fifty_parallel_requests(server: Server) -> None:
    """Fifty requests at once are all answered, and too many jobs are turned away politely."""
    with server.client() as client, ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda _: client.get("/api/options").status_code, range(50)))
        assert answers == [200] * 50
        posts = list(pool.map(lambda _: client.post("/api/jobs", json=ENDLESS), range(50)))
        codes = {answer.status_code for answer in posts}
        assert codes == {201, 429}
        accepted = [answer.json()["id"] for answer in posts if answer.status_code == 201]
        assert len(accepted) <= MAX_RUNNING + MAX_WAITING
        # Those that wait first, so that none of them starts.
        for number in reversed(accepted):
            assert client.delete(f"/api/jobs/{number}").status_code == 204
        assert wait_for(client, post_job(client, RING)["id"])["state"] == "done"


def test_nothing_stays_behind(tmp_path) -> None:
    """Ctrl-C ends the app, its jobs' processes and its files."""
    server = start_server(tmp_path)
    try:
        with server.client() as client:
            number = post_job(client, ENDLESS)["id"]
            wait_for(client, number, lambda job: job["state"] == "running")
        files = list(tmp_path.glob("teccl-ui-*/job-*"))
        children = child_processes(server.process.pid)
    finally:
        stop_server(server)
    assert len(files) == 1
    assert children
    assert list(tmp_path.iterdir()) == []
    # The last helper of Python's multiprocessing leaves when it sees that nobody needs it.
    end = time.monotonic() + 5
    while any(is_running(pid) for pid in children) and time.monotonic() < end:
        time.sleep(0.05)
    assert [pid for pid in children if is_running(pid)] == []


def child_processes(pid: int) -> list[int]:
    """Processes that any thread of a process has started."""
    files = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in files for child in path.read_text().split()]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state != "Z"


def test_the_address_is_open_when_it_is_told() -> None:
    """Whoever reads the address may call at once, before the server has started up."""
    listener = _listen(0)
    with listener, socket.create_connection(listener.getsockname(), timeout=5):
        pass


def test_a_taken_port_is_refused(server: Server) -> None:
    """A port in use is refused in one line."""
    outcome = run("ui", "--no-open", "--port", server.port)
    assert_refused(outcome)
    assert "give another --port" in outcome.err
