"""The web server: the page, the directories' names, answers to queries, and pins.

A request is admitted if its Host is an address or a name of this machine, so that no foreign name leads here, and if it has the token, if
there is one. A query that takes too long, or whose caller has gone, is stopped.
"""

import asyncio
import ipaddress
import json
import secrets
import socket
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.resources import files

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from loom_duckdb.explore import limits
from loom_duckdb.explore.database import RefusedError
from loom_duckdb.explore.workers import Query, QueryError, Workers
from loom_duckdb.pinning import PinError, may_pin, pin

PAGE = files("loom_duckdb.explore") / "page"
PIN_NAME = "explorer"
TOKEN_HEADER = "x-loom-token"  # noqa: S105 - the name of a header, not a secret

_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class Guard:
    """Middleware that admits or refuses a request, and adds `_HEADERS` to every response."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        """Require `token`, unless it is None."""
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: dict) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
            await send(message)

        refused = self._refusal(Request(scope))
        await (refused or self.app)(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        if not own_host(request.headers.get("host", "")):
            return _error(403, "the Host header names neither an address nor this machine; open the explorer by its address")
        given = request.headers.get(TOKEN_HEADER) or request.query_params.get("token", "")
        open_path = request.url.path.startswith("/static/")
        if self.token and not open_path and not secrets.compare_digest(given.encode(), self.token.encode()):
            return _error(401, "the token is missing or wrong; open the address that the explorer printed when it started")
        return None


def own_host(header: str) -> bool:
    """Whether a Host header holds an IP address or one of this machine's names."""
    host = header.rpartition(":")[0] if header.rpartition(":")[2].isdigit() else header
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return host.lower() in {"localhost", socket.gethostname().lower(), socket.getfqdn().lower()}
    return True


def application(workers: Workers, token: str | None, timeout_s: float, *, allow_pins: bool) -> Starlette:
    """Build the server for the directories of `workers`. A query is stopped after `timeout_s`, including its time in the queue."""
    pinning = asyncio.Lock()
    callers = ThreadPoolExecutor(limits.QUERIES_AT_ONCE, thread_name_prefix="query")
    waiting: set[Future[bytes]] = set()

    async def page(_: Request) -> Response:
        return FileResponse(str(PAGE / "index.html"))

    async def about(_: Request) -> Response:
        pins = [str(directory) for directory in workers.directories if allow_pins and may_pin(directory)]
        return JSONResponse({"directories": [str(directory) for directory in workers.directories], "pins": pins})

    async def pin_(request: Request) -> Response:
        if not allow_pins:
            return _error(403, "this explorer does not pin; start it with --allow-pins, or run 'ingestd pin' on its host")
        try:
            asked = await _asked(request)
        except BodyError as error:
            return error.response
        directory = next((directory for directory in workers.directories if str(directory) == asked.get("dir")), None)
        span = [asked.get(name) for name in ("from", "to")]
        if directory is None or not all(type(us) is int for us in span):
            return _error(
                400, 'the body is not a pin; send {"dir": "…", "from": …, "to": …} with a served directory, in microseconds since 1970'
            )
        if pinning.locked():
            return _error(503, "another pin is being written; try again when it is done")
        async with pinning:
            try:
                return JSONResponse(await asyncio.to_thread(pin, directory, *span, PIN_NAME, []))
            except PinError as error:
                return _error(400, str(error))

    async def query(request: Request) -> Response:
        try:
            sql = (await _asked(request)).get("sql")
        except BodyError as error:
            return error.response
        if not isinstance(sql, str):
            return _error(400, 'the body is not a query; send {"sql": "SELECT …"}')
        try:
            sql.encode()
        except UnicodeEncodeError as error:
            return _error(
                400, f"the query is not valid Unicode: character {error.start + 1} is a lone surrogate; send both halves or remove it"
            )
        if len(waiting) >= limits.QUERIES_AT_ONCE + limits.QUERIES_WAITING_MAX:
            return _error(503, "the explorer is busy: too many queries wait; try again")
        return await _answer(request, Query(sql))

    async def _answer(request: Request, asked: Query) -> Response:
        work = callers.submit(workers.run, asked)
        waiting.add(work)
        work.add_done_callback(waiting.discard)
        answer = asyncio.wrap_future(work)
        # An error after the caller was answered has been reported already.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        # A caller that goes makes room for the next at once.
        gone = asyncio.create_task(_gone(request))
        await asyncio.wait({answer, gone}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if not answer.done():
            asked.stop()
            work.cancel()
            return _error(504, f"the query took longer than {timeout_s:g} s and was stopped; choose a shorter window")
        try:
            return Response(answer.result(), media_type="application/json")
        except RefusedError as error:
            return _error(403, str(error))
        except (QueryError, RuntimeError) as error:
            return _error(400, str(error))

    return Starlette(
        routes=[
            Route("/", page),
            Route("/about", about),
            Route("/query", query, methods=["POST"]),
            Route("/pin", pin_, methods=["POST"]),
            Mount("/static", StaticFiles(directory=str(PAGE), check_dir=False)),
        ],
        middleware=[Middleware(Guard, token=token)],
    )


async def _gone(request: Request) -> None:
    """Wait until the caller of a request, whose body is read, has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class BodyError(Exception):
    """The body of a request is refused."""

    def __init__(self, status: int, message: str) -> None:
        """Make the response."""
        super().__init__(message)
        self.response = _error(status, message)


async def _asked(request: Request) -> dict:
    """Read the JSON object of a request; another value counts as an empty one. Raises BodyError."""
    # A page of another origin can send a form, but not JSON.
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise BodyError(415, "the body is not JSON; send content-type: application/json")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > limits.SQL_BYTES_MAX:
            raise BodyError(413, f"the query is longer than {limits.SQL_BYTES_MAX} bytes; send a shorter one")
    try:
        asked = json.loads(body)
    except RecursionError as error:
        raise BodyError(400, 'the body is nested too deeply; send {"sql": "SELECT …"}') from error
    except ValueError:
        asked = None
    return asked if isinstance(asked, dict) else {}


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status)
