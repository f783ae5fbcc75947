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
    from flwr.proto.fleet_pb2 import ActivateNodeRequest, DeactivateNodeRequest
    from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
    from flwr.proto.node_pb2 import Node
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    from hushpoint.federated.letters import HEARTBEAT, HOLD, give, take
except ImportError:
    raise ValueError(
        "Flower is not installed, or not in a version that this one works with. Install it with: "
        "pip install 'hushpoint[federated]'"
    ) from None

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_PAUSE = 1.0  # seconds between two requests for letters that are not held back
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
        self._at_work = False

    def serve(self) -> None:
        """Join, and answer until ``stop`` is set. A SuperLink that goes away is waited for."""
        logging.getLogger("flwr").setLevel(logging.CRITICAL)
        logging.getLogger("httpx").setLevel(logging.CRITICAL)
        self._place.mkdir(parents=True, exist_ok=True)
        with held(self._place), self._client() as client:
            leaving = threading.Thread(target=self._release, args=(client,), daemon=True)
            leaving.start()
            try:
                while not self.stop.is_set():
                    self._join(client)
                    self._work(client)
            finally:
                self.stop.set()
                leaving.join()
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
            public_key=public_key_to_bytes(self._key.public_key()), heartbeat_interval=HEARTBEAT
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

    def _release(self, client: FleetHttpClient) -> None:
        """When it is time to stop, end the wait for the next letter: a second request for it ends the first."""
        self.stop.wait()
        if self._node is not None and not self._at_work:
            with suppress(httpx.HTTPError, ValueError):
                take(client, self._node, seconds=0.0)

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
                    self._answer_one(client, self._node, 0.0 if away else HOLD)
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
                    if error.response.status_code == httpx.codes.NOT_FOUND:
                        self._wait("the server has another version of hushpoint, or Flower's own SuperLink", 10.0)
                        continue
                    self._wait("the server could not take an answer")  # a run that is over, or a full server
                except Exception:  # a message that Flower itself cannot read
                    self._wait("a message could not be read")
        finally:
            gone.set()
            beating.join()

    def _beat(self, client: FleetHttpClient, node: Node, gone: threading.Event) -> None:
        """Say that the site is there while it works; while it waits for a letter, that it waits says so."""
        request = SendNodeHeartbeatRequest(node=node, heartbeat_interval=HEARTBEAT)
        while not gone.wait(0.7 * HEARTBEAT):
            try:
                if self._at_work and not client.SendNodeHeartbeat(request).success:
                    gone.set()
            except httpx.HTTPError:
                pass  # the loop above notices as well, and says so

    def _answer_one(self, client: FleetHttpClient, node: Node, seconds: float) -> None:
        """Answer the next message, if there is one within so many seconds."""
        asked = time.monotonic()
        message = take(client, node, seconds)
        if message is None or self.stop.is_set():
            if seconds:  # sent away early, as where another process has the same key: do not insist
                self.stop.wait(max(0.0, _PAUSE - (time.monotonic() - asked)))
            return
        self._at_work = True
        try:
            give(client, node, Message(content=packed(self._answer(unpacked(message) or b"")), reply_to=message))
        finally:
            self._at_work = False
        self._tell("answered")


def _is_wrong_certificate(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False
