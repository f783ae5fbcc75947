"""What stands before Flower's SuperLink: who reaches which part of it, and the counter where letters go whole."""

from __future__ import annotations

import asyncio
import hmac
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.proto.fleet_pb2 import PullMessagesRequest, PushMessagesRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree, PullObjectRequest, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PushAppMessagesRequest
from flwr.supercore.constant import TASK_TOKEN_HEADER
from flwr.supercore.dependencies.task import authenticate_task
from flwr.supercore.error import FlowerError
from flwr.supercore.inflatable.inflatable_object import get_object_id, iterate_object_tree
from flwr.superlink.routers.fleet.node_auth import authenticate_node
from flwr.superlink.servicer.fleet import fleet_handlers
from flwr.superlink.servicer.runtime import runtime_handlers
from google.protobuf.message import DecodeError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from hushpoint.federated.letters import FLEET, HEARTBEAT, HOLD, RUNTIME, TOKEN, opened, sealed
from hushpoint.secure.packing import Refused

_BEAT = 0.7 * HEARTBEAT
_LARGEST = 2**28  # bytes of a body
_PLENTY = 2**26  # bytes after which further letters of an answer come in pieces
_SERVER = Node(node_id=SUPERLINK_NODE_ID)

Result = TypeVar("Result")
Asgi = Callable[[Any, Any, Any], Awaitable[None]]


class Door:
    """Let everybody reach what sites need, and only the owner of the federation's folder the rest.

    Whoever reaches Flower's control interface can register nodes and start programs on the server, and Flower itself
    asks for no password; the interface shares its port with the one that sites use. Here it is closed to other
    machines, and on this one to whoever cannot read the token. What the server's process needs is guarded by tokens of
    Flower's.
    """

    def __init__(self, app: Asgi, counter: Asgi, token: str) -> None:
        self._app, self._counter, self._token = app, counter, token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http" and self._lets_in(scope):
            ours = scope["path"].startswith((FLEET, RUNTIME))
            await (self._counter if ours else self._app)(scope, receive, send)
        elif scope["type"] == "http":
            await _respond(send, 403)
        else:
            await send({"type": "websocket.close"})

    def _lets_in(self, scope: Any) -> bool:
        path = scope.get("path", "")
        if path.startswith("/v1/fleet/") and ".." not in path:
            return True
        if not _is_own_host(scope):
            return False
        if path.startswith("/v1/runtime/") and ".." not in path:
            return True
        given = dict(scope.get("headers", ())).get(TOKEN.encode(), b"")
        return hmac.compare_digest(given, self._token.encode())


def _is_own_host(scope: Any) -> bool:
    client, server = scope.get("client"), scope.get("server")
    if not client:
        return False
    return client[0] in ("127.0.0.1", "::1") or (server is not None and client[0] == server[0])


class Counter:
    """Where letters are handed over whole, by the rules of Flower's own handlers.

    A node that asks for a letter waits here until there is one. While it waits it counts as there, so it need not send
    heartbeats; a line that breaks is noticed, so that no letter is handed to nobody.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self._whole = threading.Lock()  # no letter is seen in part
        self._waiting: dict[int, asyncio.Event] = {}  # by node; of two requests of one node the later one is kept
        self._ways = {
            FLEET + "take": self._take,
            FLEET + "give": self._give,
            RUNTIME + "push": self._push,
            RUNTIME + "pull": self._pull,
        }

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request({**scope, "app": self._app}, receive)
        way = self._ways.get(scope["path"])
        if way is None or scope["method"] != "POST":
            await _respond(send, 404)
            return
        try:
            parts = await way(request, opened(await _body(request)))
        except HTTPException as error:
            await _respond(send, error.status_code)
        except (Refused, DecodeError, ValueError, IndexError):
            await _respond(send, 400)
        except FlowerError:  # a run that is over, a token that is not known
            await _respond(send, 409)
        except ClientDisconnect:
            pass
        else:
            await _respond(send, 200, sealed(*parts))

    def _at_once(self, act: Callable[..., Result], *arguments: Any) -> Result:
        with self._whole:
            return act(*arguments)

    @property
    def _state(self) -> Any:
        return self._app.state.linkstate_factory.state()

    # --- for sites

    async def _take(self, request: Request, parts: list[bytes]) -> list[bytes]:
        asked = PullMessagesRequest.FromString(parts[0])
        await self._authenticate(request, asked)
        node = asked.node.node_id
        until = asyncio.get_running_loop().time() + min(float(parts[1]), HOLD)
        news = asyncio.Event()
        with suppress(KeyError):
            self._waiting.pop(node).set()
        self._waiting[node] = news
        gone = asyncio.ensure_future(_hung_up(request))
        try:
            while True:
                news.clear()
                letter = await run_in_threadpool(self._at_once, self._next_letter, asked)
                left = until - asyncio.get_running_loop().time()
                if letter is not None or left <= 0:
                    return letter or [b""]
                await _first(gone, news.wait(), min(left, _BEAT))
                if gone.done() or self._waiting.get(node) is not news:
                    return [b""]
        finally:
            gone.cancel()
            if self._waiting.get(node) is news:
                del self._waiting[node]

    def _next_letter(self, asked: PullMessagesRequest) -> list[bytes] | None:
        state, node = self._state, asked.node
        if not state.acknowledge_node_heartbeat(node.node_id, HEARTBEAT):
            raise HTTPException(401)
        found = fleet_handlers.pull_messages(asked, state, state.object_store)
        if not found.messages_list:
            return None
        run, tree = found.messages_list[0].metadata.run_id, found.message_object_trees[0]

        def content(name: str) -> bytes:
            wanted = PullObjectRequest(node=node, run_id=run, object_id=name)
            return bytes(fleet_handlers.pull_object(wanted, state).object_content)

        contents = _contents(tree, content)
        if contents:
            done = ConfirmMessageReceivedRequest(node=node, run_id=run, message_object_id=tree.object_id)
            fleet_handlers.confirm_message_received(done, state, state.object_store)
        return [found.SerializeToString(), *contents]

    async def _give(self, request: Request, parts: list[bytes]) -> list[bytes]:
        told = PushMessagesRequest.FromString(parts[0])
        await self._authenticate(request, told)
        return await run_in_threadpool(self._at_once, self._given, told, parts[1:])

    def _given(self, told: PushMessagesRequest, contents: list[bytes]) -> list[bytes]:
        state, run = self._state, told.messages_list[0].metadata.run_id
        taken = fleet_handlers.push_messages(told, state)
        for name, content in _wanted(taken.objects_to_push, contents):
            piece = PushObjectRequest(
                node=told.node, run_id=run, object_id=name, object_content=content, session_id=taken.session_id
            )
            fleet_handlers.push_object(piece, state)
        return [taken.SerializeToString()]

    async def _authenticate(self, request: Request, asked: Any) -> None:
        request.state.protobuf_request = asked
        await run_in_threadpool(authenticate_node, request)

    # --- for the server

    async def _push(self, request: Request, parts: list[bytes]) -> list[bytes]:
        told = PushAppMessagesRequest.FromString(parts[0])
        taken = await run_in_threadpool(self._at_once, self._pushed, request, told, parts[1:])
        for message in told.messages_list:
            if (news := self._waiting.get(message.metadata.dst_node_id)) is not None:
                news.set()
        return taken

    def _pushed(self, request: Request, told: PushAppMessagesRequest, contents: list[bytes]) -> list[bytes]:
        state, task = self._state, self._task(request)
        taken = runtime_handlers.push_messages(told, state, task)
        for name, content in _wanted(taken.objects_to_push, contents):
            piece = PushObjectRequest(
                node=_SERVER,
                run_id=task.run_id,
                object_id=name,
                object_content=content,
                session_id=taken.session_id,
            )
            runtime_handlers.push_object(piece, state, task)
        return [taken.SerializeToString()]

    async def _pull(self, request: Request, parts: list[bytes]) -> list[bytes]:
        asked = PullAppMessagesRequest.FromString(parts[0])
        return await run_in_threadpool(self._at_once, self._pulled, request, asked)

    def _pulled(self, request: Request, asked: PullAppMessagesRequest) -> list[bytes]:
        state, task = self._state, self._task(request)
        found = runtime_handlers.pull_messages(asked, state, task)
        pieces: list[bytes] = []
        for tree in found.message_object_trees:
            if sum(map(len, pieces)) > _PLENTY:
                break

            def content(name: str) -> bytes:
                wanted = PullObjectRequest(node=_SERVER, run_id=task.run_id, object_id=name)
                return bytes(runtime_handlers.pull_object(wanted, state, task).object_content)

            if contents := _contents(tree, content):
                pieces += contents
                done = ConfirmMessageReceivedRequest(run_id=task.run_id, message_object_id=tree.object_id)
                runtime_handlers.confirm_message_received(done, state, task)
        return [found.SerializeToString(), *pieces]

    def _task(self, request: Request) -> Any:
        return authenticate_task(request, request.headers.get(TASK_TOKEN_HEADER), self._state)


def _contents(tree: ObjectTree, content: Callable[[str], bytes]) -> list[bytes]:
    """All that is in a message; nothing where a piece has not come yet."""
    contents = [content(piece.object_id) for piece in iterate_object_tree(tree)]
    return contents if all(contents) else []


def _wanted(names: Any, contents: list[bytes]) -> list[tuple[str, bytes]]:
    wanted = set(names)
    named = [(get_object_id(content), content) for content in contents]
    return [(name, content) for name, content in named if name in wanted]


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LARGEST:
            raise HTTPException(413)
    return bytes(body)


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _first(gone: asyncio.Future[None], news: Awaitable[Any], seconds: float) -> None:
    heard = asyncio.ensure_future(news)
    try:
        await asyncio.wait([gone, heard], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        heard.cancel()


async def _respond(send: Any, status: int, body: bytes = b"") -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [length]})
    await send({"type": "http.response.body", "body": body})
