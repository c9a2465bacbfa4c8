"""Who may talk to the app: this machine's browser that was given the token, and nobody else.

The app has no login because it listens on loopback only. Any page in the user's browser can reach
loopback too, so every request must name this host and port (a foreign name that resolves to
loopback does not), must not come from a page of another origin, and must carry the token that was
made when the app started.
"""

import secrets
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# A topology file of a thousand GPUs has about a megabyte.
MAX_BODY_BYTES = 8 * 2**20
_METHODS = ("GET", "HEAD", "POST", "DELETE")
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; frame-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)


class BodyTooLargeError(Exception):
    """A request sent more than is taken."""


class Guard:
    """Refuses requests that do not come from the page that the user opened."""

    def __init__(self, app: ASGIApp, *, port: int, token: str) -> None:
        self.app = app
        self.hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}
        self.cookie = f"teccl-{port}"
        self.token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer why not."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            # There are no websockets.
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await JSONResponse({"error": refusal[1]}, refusal[0], _HEADERS)(scope, receive, send)
            return
        try:
            await self.app(scope, _limited(receive), _hardened(send))
        except BodyTooLargeError:
            reason = f"the request is larger than {MAX_BODY_BYTES // 2**20} MiB; send less"
            await JSONResponse({"error": reason}, 413, _HEADERS)(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        """Return status and reason if a request may not pass."""
        if scope["method"] not in _METHODS:
            return 405, "unknown method"
        if headers.get("host", "") not in self.hosts:
            return 403, "wrong host; open the address that teccl ui printed"
        origin = headers.get("origin")
        if origin is not None and origin not in {f"http://{host}" for host in self.hosts}:
            return 403, "requests from other pages are refused"
        if headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return 403, "requests from other pages are refused"
        if not self._has_token(scope, headers):
            return 403, "no valid token; open the address that teccl ui printed"
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > MAX_BODY_BYTES:
            return 413, f"the request is larger than {MAX_BODY_BYTES // 2**20} MiB; send less"
        return None

    def _has_token(self, scope: Scope, headers: Headers) -> bool:
        if scope["path"] == "/start":
            # The first visit brings the token in the address and takes it away as a cookie.
            return True
        given = [_cookies(headers).get(self.cookie, "")]
        scheme, _, value = headers.get("authorization", "").partition(" ")
        given += [value] if scheme == "Bearer" else []
        return any(secrets.compare_digest(self.token.encode(), each.encode()) for each in given)


def _cookies(headers: Headers) -> Mapping[str, str]:
    try:
        jar = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return {}
    return {name: morsel.value for name, morsel in jar.items()}


def _limited(receive: Receive) -> Receive:
    """Count what a request brings, whatever length it claims."""
    total = 0

    async def take() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > MAX_BODY_BYTES:
            raise BodyTooLargeError
        return message

    return take


def _hardened(send: Send) -> Send:
    """Add the headers that keep other pages out; an answer's own policy stays."""

    async def give(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            headers.setdefault("Content-Security-Policy", _POLICY)
        await send(message)

    return give
