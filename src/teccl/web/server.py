"""Starting the app: a socket on loopback, a token, and an address to open."""

import secrets
import socket
from collections.abc import Callable

from teccl.errors import InputError

HOST = "127.0.0.1"


class ServerError(InputError):
    """The app cannot be started as asked."""


def serve(*, port: int = 0, ready: Callable[[str], None]) -> None:
    """Run the app until it is interrupted.

    Parameters
    ----------
    port
        Port on loopback, 0 for any free one.
    ready
        Called with the address to open, token included, when the app is about to answer.

    Raises
    ------
    ServerError
        If the port is taken, or the libraries of the extra ``ui`` are missing.
    """
    try:
        import uvicorn

        from teccl.web.addresses import build_app
    except ModuleNotFoundError as problem:
        raise ServerError(
            f"teccl ui needs {problem.name}; install it with: pip install 'teccl[ui]'"
        ) from None
    listener = _listen(port)
    port = listener.getsockname()[1]
    token = secrets.token_urlsafe(32)
    app = build_app(port=port, token=token)
    config = uvicorn.Config(
        app,
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=2,
        timeout_keep_alive=20,
        # More than this at once is no person's browser.
        limit_concurrency=256,
        backlog=256,
    )
    ready(f"http://{HOST}:{port}/start?token={token}")
    try:
        uvicorn.Server(config).run(sockets=[listener])
    except KeyboardInterrupt:
        # The server has cleaned up and passes the signal on.
        return
    finally:
        app.state.store.close()
        listener.close()


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        # Whoever reads the address may call at once: calls wait until the server takes them.
        listener.listen()
    except (OSError, OverflowError) as problem:
        listener.close()
        reason = getattr(problem, "strerror", None) or "it is out of range"
        raise ServerError(f"port {port} cannot be used: {reason}; give another --port") from None
    return listener
