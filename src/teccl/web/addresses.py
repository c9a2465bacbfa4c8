"""The app's addresses and what each answers."""

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.resources import files as resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from teccl.errors import InputError, TecclError
from teccl.keywords import KEYWORDS
from teccl.web.guard import Guard
from teccl.web.job_process import Order
from teccl.web.job_table import Job, JobStore, TooManyJobsError
from teccl.web.requests import COLLECTIVES, read_job, read_upload_name

_ASSETS = {
    "app.js": ("teccl.web", "assets/app.js", "text/javascript"),
    "app.css": ("teccl.web", "assets/app.css", "text/css"),
    "theme.css": ("teccl.report", "assets/theme.css", "text/css"),
    "echarts.js": ("teccl.report", "assets/vendor/echarts.js", "text/javascript"),
}
# A report brings its own policy inside; the app shows it in a frame.
_REPORT_HEADERS = {"Content-Security-Policy": "frame-ancestors 'self'"}
_POLL_S = 0.1
_HEARTBEAT_S = 10.0


def build_app(*, port: int, token: str) -> Starlette:
    """Return the app for one start: its jobs live and end with it."""
    store = JobStore()

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await run_in_threadpool(store.close)

    pages = Pages(store, cookie=f"teccl-{port}", token=token)
    app = Starlette(
        routes=pages.routes(),
        middleware=[Middleware(Guard, port=port, token=token)],
        exception_handlers={InputError: _refused, TecclError: _failed, HTTPException: _missing},
        lifespan=lifespan,
    )
    app.state.store = store
    return app


class Pages:
    """Handlers of all addresses, over one store of jobs."""

    def __init__(self, store: JobStore, *, cookie: str, token: str) -> None:
        self.store = store
        self.cookie = cookie
        self.token = token

    def routes(self) -> list[Route]:
        """Return the table of addresses."""
        table: list[tuple[str, str, Callable[[Request], Awaitable[Response]]]] = [
            ("GET", "/start", self.start),
            ("GET", "/", self.home),
            ("GET", "/assets/{name}", self.asset),
            ("GET", "/api/options", self.options),
            ("GET", "/api/drawing", self.drawing),
            ("POST", "/api/topologies", self.upload),
            ("GET", "/api/jobs", self.list_jobs),
            ("POST", "/api/jobs", self.submit),
            ("GET", "/api/jobs/{job}", self.show),
            ("DELETE", "/api/jobs/{job}", self.delete),
            ("GET", "/api/jobs/{job}/events", self.events),
            ("POST", "/api/jobs/{job}/cancel", self.cancel),
            ("POST", "/api/jobs/{job}/baselines", self.baselines),
            ("GET", "/api/jobs/{job}/report", self.report),
            ("GET", "/api/jobs/{job}/schedule", self.schedule),
            ("GET", "/api/jobs/{job}/export/{target}", self.export),
        ]
        return [Route(path, handler, methods=[method]) for method, path, handler in table]

    async def start(self, request: Request) -> Response:
        """Take the token from the address into a cookie, so that it stays in no history."""
        given = request.query_params.get("token", "")
        if not secrets.compare_digest(given.encode(), self.token.encode()):
            raise HTTPException(403, "no valid token; open the address that teccl ui printed")
        answer = RedirectResponse("/", status_code=303)
        answer.set_cookie(self.cookie, self.token, httponly=True, samesite="strict", path="/")
        return answer

    async def home(self, _: Request) -> Response:
        """Return the page."""
        return Response(_resource("teccl.web", "assets/app.html"), media_type="text/html")

    async def asset(self, request: Request) -> Response:
        """Return a script or style."""
        found = _ASSETS.get(request.path_params["name"])
        if found is None:
            raise HTTPException(404, "no such file")
        package, path, kind = found
        return Response(_resource(package, path), media_type=kind)

    async def options(self, _: Request) -> Response:
        """Return what there is to choose from."""
        from teccl.formats.registry import formats_that
        from teccl.topology.presets import list_presets

        presets = [
            {"name": p.name, "summary": p.summary, "parameters": dict(p.parameters)}
            for p in list_presets().values()
        ]
        targets = [{"name": n, "summary": t.writes} for n, t in formats_that("writes").items()]
        return JSONResponse(
            {
                "presets": presets,
                "collectives": list(COLLECTIVES),
                "methods": list(KEYWORDS["method"].choices),
                "efforts": list(KEYWORDS["effort"].choices),
                "targets": targets,
            }
        )

    async def drawing(self, request: Request) -> Response:
        """Return a picture of a preset or an uploaded topology."""
        from teccl.drawing import draw_svg
        from teccl.topology import Topology

        query = dict(request.query_params)
        _, topology, _, _ = read_job(
            {**query, "collective": "allgather", "size": "1MB"}, self.store
        )
        network = await run_in_threadpool(Topology.parse, topology)
        picture = await run_in_threadpool(draw_svg, network)
        return Response(picture, media_type="image/svg+xml")

    async def upload(self, request: Request) -> Response:
        """Take a topology file and say what is in it."""
        from teccl.topology import Topology

        name = read_upload_name(request.query_params.get("name", ""))
        key, path = self.store.keep_upload(name, await request.body())
        try:
            network = await run_in_threadpool(Topology.parse, path)
        except InputError as problem:
            self.store.forget_upload(key)
            # The path of our own folder says nothing to the user.
            raise InputError(str(problem).replace(str(path), name)) from None
        return JSONResponse(
            {
                "upload": key,
                "name": network.name,
                "file": name,
                "num_gpus": network.num_gpus,
                "num_switches": network.num_switches,
                "num_links": network.num_links,
            }
        )

    async def list_jobs(self, _: Request) -> Response:
        """Return all jobs, oldest first."""
        return JSONResponse({"jobs": [job.document() for job in self.store]})

    async def submit(self, request: Request) -> Response:
        """Queue a job."""
        title, topology, collective, keywords = read_job(await _json(request), self.store)

        def order(folder: Path) -> Order:
            return Order(topology=topology, collective=collective, folder=folder, keywords=keywords)

        job = await run_in_threadpool(self.store.submit, title, order)
        return JSONResponse(job.document(), status_code=201)

    async def show(self, request: Request) -> Response:
        """Return one job."""
        return JSONResponse(self._job(request).document())

    async def delete(self, request: Request) -> Response:
        """Forget a job."""
        await run_in_threadpool(self.store.delete, self._job(request))
        return Response(status_code=204)

    async def events(self, request: Request) -> Response:
        """Stream a job's progress, from its beginning to its end."""
        headers = {"X-Accel-Buffering": "no"}
        stream = _events(self._job(request))
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    async def cancel(self, request: Request) -> Response:
        """Stop a job; the best schedule so far is kept."""
        job = self._job(request)
        await run_in_threadpool(self.store.cancel, job)
        return JSONResponse(job.document())

    async def baselines(self, request: Request) -> Response:
        """Queue the baselines that serve a solved job's problem."""
        job = self._job(request)
        names = await run_in_threadpool(_serving, _existing(job, job.schedule_path))
        orders = []
        for name in names:

            def order(folder: Path, method: str = name) -> Order:
                kept = {
                    k: v for k, v in job.order.keywords.items() if k not in ("effort", "chunks")
                }
                return Order(
                    topology=job.order.topology,
                    collective=job.order.collective,
                    folder=folder,
                    keywords={**kept, "method": method},
                )

            orders.append((name, order))
        found = [
            await run_in_threadpool(self.store.submit, name, order, parent=job.number)
            for name, order in orders
        ]
        return JSONResponse({"jobs": [each.document() for each in found]}, status_code=201)

    async def report(self, request: Request) -> Response:
        """Return the report of a job, beside that of another if one is named."""
        job = self._job(request)
        path = _existing(job, job.report_path)
        other = self.store.get(request.query_params.get("against", ""))
        if other is None:
            return FileResponse(path, media_type="text/html", headers=_REPORT_HEADERS)
        page = await run_in_threadpool(_comparison, job, other)
        return Response(page, media_type="text/html", headers=_REPORT_HEADERS)

    async def schedule(self, request: Request) -> Response:
        """Return the schedule file."""
        path = _existing(self._job(request), self._job(request).schedule_path)
        return FileResponse(path, media_type="application/gzip", filename="schedule.json.gz")

    async def export(self, request: Request) -> Response:
        """Return the schedule in the form of another program."""
        job, target = self._job(request), request.path_params["target"]
        _existing(job, job.schedule_path)
        name, content = await run_in_threadpool(_exported, job, target)
        header = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(content, media_type="application/octet-stream", headers=header)

    def _job(self, request: Request) -> Job:
        job = self.store.get(request.path_params["job"])
        if job is None:
            raise HTTPException(404, "no such job; it may have been forgotten")
        return job


async def _events(job: Job) -> AsyncIterator[str]:
    """Yield server-sent events until the job is over."""
    told, state, quiet = 0, None, 0.0
    while True:
        is_over = job.is_over
        news = job.events[told:]
        told += len(news)
        for event in news:
            yield f"event: progress\ndata: {json.dumps(event)}\n\n"
        if job.state is not state or is_over:
            state = job.state
            yield f"event: state\ndata: {json.dumps(job.document())}\n\n"
        if is_over:
            return
        quiet = 0.0 if news else quiet + _POLL_S
        if quiet >= _HEARTBEAT_S:
            quiet = 0.0
            yield ": still there\n\n"
        await asyncio.sleep(_POLL_S)


def _serving(path: Path) -> list[str]:
    from teccl.construct.baselines import serving_baselines
    from teccl.schedule import Schedule

    return serving_baselines(Schedule.load(path).problem)


def _comparison(job: Job, other: Job) -> str:
    from teccl.report import report_page
    from teccl.schedule import Schedule

    schedules = [Schedule.load(_existing(each, each.schedule_path)) for each in (job, other)]
    labels = [_label(each) for each in (job, other)]
    return report_page(
        schedules[0],
        compare=schedules[1],
        labels=None if labels[0] == labels[1] else (labels[0], labels[1]),
    )


def _label(job: Job) -> str:
    return str((job.result or {}).get("method") or job.title)


def _exported(job: Job, target: str) -> tuple[str, bytes]:
    """Return name and content of an export."""
    from teccl.formats.registry import formats_that
    from teccl.formats.writing import export
    from teccl.schedule import Schedule

    known = formats_that("writes")
    if target not in known:
        raise InputError(f"no export {target[:40]!r}; choose {', '.join(known)}")
    name = f"schedule{known[target].suffixes[0]}"
    with TemporaryDirectory(dir=job.order.folder) as folder:
        path = Path(folder) / name
        export(Schedule.load(job.schedule_path), to=target, path=path)
        return name, path.read_bytes()


def _existing(job: Job, path: Path) -> Path:
    if not job.has_schedule:
        raise HTTPException(404, f"{job.title} has no schedule")
    return path


def _resource(package: str, path: str) -> bytes:
    return resources(package).joinpath(path).read_bytes()


async def _json(request: Request) -> Any:
    """Return the body of a request as JSON."""
    if not request.headers.get("content-type", "").startswith("application/json"):
        raise HTTPException(415, "send JSON")
    try:
        return json.loads(await request.body())
    except (ValueError, RecursionError):
        raise InputError("the request is not valid JSON") from None


async def _refused(_: Request, problem: Exception) -> Response:
    code = 429 if isinstance(problem, TooManyJobsError) else 400
    return JSONResponse({"error": str(problem)}, status_code=code)


async def _failed(_: Request, problem: Exception) -> Response:
    return JSONResponse({"error": str(problem)}, status_code=422)


async def _missing(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    if problem.status_code == 403:
        return PlainTextResponse(problem.detail, status_code=403)
    return JSONResponse({"error": problem.detail}, status_code=problem.status_code)
