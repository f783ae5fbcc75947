"""Whole letters between Flower's nodes and its SuperLink: a message and all that is in it in one request.

Flower carries a message in about nine requests, one for each object that it is made of, and a node that waits for one
asks again and again. With many sites those requests are what a round takes. Here one request brings a letter or takes
one, and a request for a letter is held back at the SuperLink until there is one. What a stock node sends piece by piece
is fetched as Flower does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import PullMessagesRequest, PullMessagesResponse, PushMessagesRequest, PushMessagesResponse
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import (
    PullAppMessagesRequest,
    PullAppMessagesResponse,
    PushAppMessagesRequest,
    PushAppMessagesResponse,
)
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_id,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    ObjectUnavailableError,
    inflate_object_from_contents,
)
from google.protobuf.wrappers_pb2 import BytesValue

from hushpoint.secure.packing import pack, unpack

if TYPE_CHECKING:
    from flwr.superlink.grid.http_grid import HttpGrid
    from flwr.supernode.fleet_http_client import FleetHttpClient

FLEET, RUNTIME = "/v1/fleet/hushpoint/", "/v1/runtime/hushpoint/"  # where the SuperLink takes whole letters
TOKEN = "x-hushpoint-token"  # the header by which the owner of the folder is known to the SuperLink
HOLD = 25.0  # seconds for which a node that waits for a letter is held; many routers forget a line after sixty
HEARTBEAT = 10.0  # seconds: the shortest that Flower allows, so that a dead site is known after twenty
_SLACK = 15.0  # seconds by which a held answer may be late
_PIECES = 30.0  # seconds for the pieces of a letter that comes in pieces; the rest of a killed sender's never come
_HANDFUL = 2**26  # bytes of letters that go in one request
_KIND = "letter"


def sealed(*parts: bytes) -> bytes:
    """A request or an answer, and the objects that go with it, as the body of an HTTP message."""
    return bytes(BytesValue(value=pack(_KIND, *parts)).SerializeToString())


def opened(body: bytes) -> list[bytes]:
    """What was sealed."""
    return unpack(_KIND, BytesValue.FromString(body).value)


# --- at a site


def take(client: FleetHttpClient, node: Node, seconds: float = HOLD) -> Message | None:
    """The next letter to a node; None if there is none within so many seconds.

    Of two requests for letters of the same node the later one counts: the earlier is answered at once.
    """
    asked = PullMessagesRequest(node=node).SerializeToString()
    parts = _sent(client, FLEET + "take", [asked, str(seconds).encode()], seconds + _SLACK)
    found = PullMessagesResponse.FromString(parts[0])
    if not found.messages_list:
        return None
    return _inflated(found.message_object_trees[0], _named(parts[1:]))


def give(client: FleetHttpClient, node: Node, reply: Message) -> None:
    """Send the reply to a letter."""
    protos, trees, contents = _deflated([reply])
    told = PushMessagesRequest(
        node=node,
        messages_list=protos,
        message_object_trees=trees,
        clientapp_runtime_list=[0.0],  # how long it took may tell of the data
    )
    PushMessagesResponse.FromString(
        _sent(client, FLEET + "give", [told.SerializeToString(), *contents], HOLD + _SLACK)[0]
    )


# --- at the server


class WholeGrid:
    """Flower's grid of a deployed run, with letters sent and fetched whole."""

    def __init__(self, grid: HttpGrid) -> None:
        self._grid: Any = grid
        self._coming: dict[str, tuple[ObjectTree, float]] = {}  # replies that are not whole yet, and for how long

    def get_node_ids(self) -> list[int]:
        """The nodes that are there."""
        return list(self._grid.get_node_ids())

    def push_messages(self, messages: Sequence[Message]) -> list[str | None]:
        """Send letters; the name of each, None where one could not be sent."""
        names: list[str | None] = []
        for some in _handfuls(messages):
            protos, trees, contents = _deflated(some)
            told = PushAppMessagesRequest(messages_list=protos, message_object_trees=trees).SerializeToString()
            taken = PushAppMessagesResponse.FromString(self._sent("push", told, *contents)[0])
            names += [name or None for name in taken.message_ids]
        return names

    def pull_messages(self, names: Iterable[str]) -> list[Message]:
        """The replies that are there, to letters of these names."""
        asked = PullAppMessagesRequest(message_ids=[name for name in names if name not in self._coming])
        first, *contents = self._sent("pull", asked.SerializeToString())
        found, until, here = PullAppMessagesResponse.FromString(first), time.monotonic() + _PIECES, _named(contents)
        for head, tree in zip(found.messages_list, found.message_object_trees, strict=True):
            self._coming[head.metadata.reply_to_message_id] = tree, until
        letters = []
        for name, (tree, until) in list(self._coming.items()):
            letter = _inflated(tree, here) if _is_whole(tree, here) else self._fetched(tree)
            if letter is not None:
                letters.append(letter)
            if letter is not None or time.monotonic() >= until:
                del self._coming[name]
        return letters

    def _fetched(self, tree: ObjectTree) -> Message | None:
        """A letter that comes in pieces; None while they are not all there, so that nobody waits for its sender."""
        client, run = self._grid._runtime_client, self._grid.run.run_id
        pull = make_pull_object_fn_protobuf(client.PullObject, self._grid.node, run)
        try:
            contents = {piece.object_id: pull(piece.object_id) for piece in iterate_object_tree(tree)}
        except (ObjectUnavailableError, ObjectPullError):
            return None
        make_confirm_message_received_fn_protobuf(client.ConfirmMessageReceived, self._grid.node, run)(tree.object_id)
        return _inflated(tree, contents)

    def _sent(self, way: str, *parts: bytes) -> list[bytes]:
        return _sent(self._grid._runtime_client, RUNTIME + way, parts, HOLD + _SLACK)


# --- both


class WithToken:
    """Show the SuperLink the token by which it knows the owner of the federation's folder."""

    def __init__(self, token: str) -> None:
        self._token = token

    def intercept(self, context: Any, call_next: Callable[[Any], Any]) -> Any:
        """Send a request with the token."""
        context.request.headers[TOKEN] = self._token
        return call_next(context)


def _sent(client: Any, path: str, parts: Sequence[bytes], seconds: float) -> list[bytes]:
    sealed_parts = BytesValue(value=pack(_KIND, *parts))
    method = "/" + path.strip("/")
    answer = client._unary_unary(
        path=path, rpc_method=method, request=sealed_parts, response_type=BytesValue, timeout=seconds
    )
    return unpack(_KIND, answer.value)


def _handfuls(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Messages in groups that are no larger than they need be; small ones all together."""
    some: list[Message] = []
    size = 0
    for message in messages:
        length = sum(record.count_bytes() for record in message.content.values())
        if some and size + length > _HANDFUL:
            yield some
            some, size = [], 0
        some.append(message)
        size += length
    if some:
        yield some


def _deflated(messages: Sequence[Message]) -> tuple[list[Any], list[ObjectTree], list[bytes]]:
    """Messages as Flower sends them: their heads, the trees of what is in them, and the contents of those."""
    protos, trees, contents = [], [], {}
    for message in messages:
        message.metadata.__dict__["_message_id"] = message.object_id
        with no_object_id_recompute():
            protos.append(message_to_proto(remove_content_from_message(message)))
            trees.append(get_object_tree(message))
            contents.update({name: piece.deflate() for name, piece in get_all_nested_objects(message).items()})
    return protos, trees, list(contents.values())


def _named(contents: Sequence[bytes]) -> dict[str, bytes]:
    return {get_object_id(content): content for content in contents}


def _is_whole(tree: ObjectTree, contents: Mapping[str, bytes]) -> bool:
    return all(piece.object_id in contents for piece in iterate_object_tree(tree))


def _inflated(tree: ObjectTree, contents: Mapping[str, bytes]) -> Message:
    message = inflate_object_from_contents(tree.object_id, dict(contents), keep_object_contents=True)
    if not isinstance(message, Message):
        raise ValueError("the letter is no message.")
    message.metadata.__dict__["_message_id"] = tree.object_id  # it is not in what was sent
    return message
