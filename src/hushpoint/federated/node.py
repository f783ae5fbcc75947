"""The node of a site: it joins Flower's SuperLink over TLS with the site's key, and answers with the site's own code.

A stock ``flower-supernode`` runs whatever program the SuperLink sends it, next to the data. Where the server is not
trusted that would undo every guarantee, so this node speaks the same protocol and takes nothing but messages: no
program is fetched, none is run.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hushpoint.federated.disk import held
from hushpoint.federated.flower import Answer, guarded, packed, unpacked
from hushpoint.federated.reach import Trouble, reach

try:
    import httpx
    from flwr.app import Message
    from flwr.app.message import remove_content_from_message
    from flwr.common.serde import message_to_proto
    from flwr.proto.fleet_pb2 import (
        ActivateNodeRequest,
        DeactivateNodeRequest,
        PullMessagesRequest,
        PushMessagesRequest,
    )
    from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
    from flwr.proto.message_pb2 import ObjectTree
    from flwr.proto.node_pb2 import Node
    from flwr.supercore.inflatable.inflatable_object import (
        get_all_nested_objects,
        get_object_tree,
        no_object_id_recompute,
    )
    from flwr.supercore.inflatable.inflatable_protobuf_utils import (
        make_confirm_message_received_fn_protobuf,
        make_pull_object_fn_protobuf,
        make_push_object_fn_protobuf,
    )
    from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree, push_objects
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
except ImportError:
    raise ValueError(
        "Flower is not installed, or not in a version that this one works with. Install it with: "
        "pip install 'hushpoint[federated]'"
    ) from None

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_HEARTBEAT = 10.0  # seconds: the shortest that Flower allows, so that a dead site is known after twenty
_PAUSE = 0.25  # seconds between two looks for messages
_CONTENT = 10.0  # seconds for the content of a message to follow: that of a server that was killed never does
_PATIENCE = 25.0  # seconds in which a SuperLink that refuses a node may yet take it: its earlier life ends by then


class NotAdmitted(ValueError):
    """The SuperLink does not know this site, or is not the one that the site knows."""


_SOON = 5.0  # seconds in which a SuperLink that was started just now learns whom to admit
_END_IT = "End the other process: of two copies of a ledger each knows half"
_DUPLICATE = f"duplicate: another process is there as this site, perhaps with a copy of this folder. {_END_IT}."
_NOT_ADMITTED = (
    "not admitted: its key is not registered there, or another process uses it. Send the public key to whoever runs "
    f"the server. {_END_IT}."
)


class SiteNode:
    """A node of Flower's deployment that answers messages in this process.

    Parameters
    ----------
    address : str
        The SuperLink, ``"host:port"``.
    authority : Path
        The certificate that the SuperLink's must be signed by.
    key : private key
        The site's; its public half is registered at the SuperLink.
    answer : callable
        Bytes in, bytes out.
    folder : Path
        Where the node keeps its number, so that after a crash it can take its place again at once.
    tell : callable
        Told what happens, in fixed words.
    """

    def __init__(
        self,
        address: str,
        authority: Path,
        key: EllipticCurvePrivateKey,
        answer: Answer,
        folder: Path,
        tell: Callable[[str], None] = lambda words: None,
        patience: float = _PATIENCE,
    ) -> None:
        self.stop = threading.Event()
        self._address, self._authority, self._key = address, authority, key
        self._answer, self._tell, self._patience = guarded(answer), tell, patience
        self._place = folder / "node"
        self._node: Node | None = None

    def serve(self) -> None:
        """Join, and answer until ``stop`` is set. A SuperLink that goes away is waited for."""
        logging.getLogger("flwr").setLevel(logging.CRITICAL)
        logging.getLogger("httpx").setLevel(logging.CRITICAL)
        self._place.mkdir(parents=True, exist_ok=True)
        with held(self._place), self._client() as client:
            try:
                while not self.stop.is_set():
                    self._join(client)
                    self._work(client)
            finally:
                self._leave(client)

    def _client(self) -> FleetHttpClient:
        return FleetHttpClient.from_server_address(
            self._address,
            insecure=False,
            root_certificates=self._authority.read_bytes(),
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="SuperNode"),
                NodeAuthHttpInterceptor(self._key, self._key.public_key()),
            ],
        )

    @property
    def _number(self) -> Path:
        return self._place / "number"

    @property
    def _here(self) -> str:
        return f"{socket.gethostname()} {self._place.resolve()}"

    # --- coming and going

    def _join(self, client: FleetHttpClient) -> None:
        request = ActivateNodeRequest(
            public_key=public_key_to_bytes(self._key.public_key()), heartbeat_interval=_HEARTBEAT
        )
        refused_since: float | None = None
        while not self.stop.is_set():
            try:
                number = client.ActivateNode(request).node_id
            except httpx.TransportError as error:
                trouble = self._trouble()
                if _is_wrong_certificate(error):
                    raise NotAdmitted(trouble or f"{self._address} shows a certificate that is not its own.") from None
                self._wait(trouble or "the server is not there yet")
            except httpx.HTTPStatusError as error:
                if error.response.status_code < 500 and self._take_place(client):
                    continue
                trouble = self._trouble() or (_DUPLICATE if self._number.exists() else _NOT_ADMITTED)
                refused_since = refused_since or time.monotonic()
                waited = time.monotonic() - refused_since
                if waited >= self._patience:
                    words = trouble.partition(": ")[2]
                    raise NotAdmitted(f"{self._address} does not admit this site: {words}") from None
                self._wait(trouble if waited > _SOON else "the server does not admit this site yet")
            else:
                self._node = Node(node_id=number)
                self._number.write_text(f"{number} {self._here}", encoding="utf-8")
                self._tell("joined")
                return

    def _trouble(self) -> str:
        """What keeps this site from the server, in words that begin with its name; empty where nothing is seen."""
        found = reach(self._address, self._authority)
        return str(found) if isinstance(found, Trouble) else ""

    def _take_place(self, client: FleetHttpClient) -> bool:
        """End the earlier life of this node, which may still count as there; whether there was one."""
        try:
            number, _, where = self._number.read_text(encoding="utf-8").partition(" ")
            if where != self._here:  # of a copy of this folder: its life may not be over
                return False
            client.DeactivateNode(DeactivateNodeRequest(node_id=int(number)))
        except (OSError, ValueError, httpx.HTTPError):
            return False
        return True

    def _leave(self, client: FleetHttpClient) -> None:
        if self._node is not None:
            with suppress(httpx.HTTPError):
                client.DeactivateNode(DeactivateNodeRequest(node_id=self._node.node_id))

    def _wait(self, words: str, seconds: float = 1.0) -> None:
        self._tell(words)
        self.stop.wait(seconds)

    # --- at work

    def _work(self, client: FleetHttpClient) -> None:
        """Answer messages while the SuperLink knows this node."""
        if self._node is None:
            return
        gone = threading.Event()
        beating = threading.Thread(target=self._beat, args=(client, self._node, gone), daemon=True)
        beating.start()
        try:
            away = False
            while not (self.stop.is_set() or gone.is_set()):
                try:
                    busy = self._answer_one(client, self._node)
                    if away:
                        self._tell("the server is there again")
                    away = False
                except httpx.TransportError:
                    away = True
                    self._wait(self._trouble() or "the server is not there")
                except httpx.HTTPStatusError as error:
                    if error.response.status_code == httpx.codes.UNAUTHORIZED:
                        self._wait("the server has forgotten this site")
                        return
                    self._wait("the server could not take an answer")  # a run that is over, or a full server
                except Exception:  # a message that Flower itself cannot read
                    self._wait("a message could not be read")
                else:
                    if not busy:
                        self.stop.wait(_PAUSE)
        finally:
            gone.set()
            beating.join()

    def _beat(self, client: FleetHttpClient, node: Node, gone: threading.Event) -> None:
        request = SendNodeHeartbeatRequest(node=node, heartbeat_interval=_HEARTBEAT)
        while not gone.wait(0.7 * _HEARTBEAT):
            try:
                if not client.SendNodeHeartbeat(request).success:
                    gone.set()
            except httpx.HTTPError:
                pass  # the loop above notices as well, and says so

    def _answer_one(self, client: FleetHttpClient, node: Node) -> bool:
        """Answer the next message, if there is one."""
        pulled = client.PullMessages(PullMessagesRequest(node=node))
        if not pulled.messages_list:
            return False
        run_id = pulled.messages_list[0].metadata.run_id
        message = self._opened(client, node, run_id, pulled.message_object_trees[0])
        reply = Message(content=packed(self._answer(unpacked(message) or b"")), reply_to=message)
        self._send(client, node, run_id, reply)
        self._tell("answered")
        return True

    def _opened(self, client: FleetHttpClient, node: Node, run_id: int, tree: ObjectTree) -> Message:
        message = pull_and_inflate_object_from_tree(
            tree,
            make_pull_object_fn_protobuf(client.PullObject, node, run_id),
            make_confirm_message_received_fn_protobuf(client.ConfirmMessageReceived, node, run_id),
            return_type=Message,
            max_time=_CONTENT,
            initial_backoff=_PAUSE,
            backoff_cap=1.0,
        )
        message.metadata.__dict__["_message_id"] = tree.object_id  # it is not in what was sent
        return message

    def _send(self, client: FleetHttpClient, node: Node, run_id: int, reply: Message) -> None:
        reply.metadata.__dict__["_message_id"] = reply.object_id
        with no_object_id_recompute():
            taken = client.PushMessages(
                PushMessagesRequest(
                    node=node,
                    messages_list=[message_to_proto(remove_content_from_message(reply))],
                    message_object_trees=[get_object_tree(reply)],
                    clientapp_runtime_list=[0.0],  # how long it took may tell of the data
                )
            )
            push_objects(
                get_all_nested_objects(reply),
                make_push_object_fn_protobuf(client.PushObject, node, run_id, taken.session_id),
                object_ids_to_push=set(taken.objects_to_push),
            )


def _is_wrong_certificate(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False
