"""Letters that go whole over the counter of a SuperLink, on Flower's own state and handlers, without a network."""

import asyncio
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'hushpoint[federated]'")

import httpx
from flwr.app import Message, MessageType
from flwr.common.constant import NOOP_ACCOUNT_NAME, NOOP_FLWR_AID, SUPERLINK_NODE_ID
from flwr.proto.fleet_pb2 import PullMessagesRequest, PushMessagesRequest
from flwr.proto.node_pb2 import Node
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID, TASK_TOKEN_HEADER, TaskType
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.servicer.fleet import fleet_handlers
from flwr.superlink.servicer.runtime import runtime_handlers
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from hushpoint.federated import door, letters
from hushpoint.federated.door import Counter, Door
from hushpoint.federated.flower import packed, unpacked
from hushpoint.federated.keys import new_key
from hushpoint.federated.letters import FLEET, RUNTIME, TOKEN, WholeGrid, give, opened, sealed, take


class Office:
    """The state of a SuperLink with a run and two sites, and its counter on an event loop of its own."""

    def __init__(self):
        manager = NoOpFederationManager()
        store = ObjectStoreFactory(FLWR_IN_MEMORY_DB_NAME)
        factory = LinkStateFactory(FLWR_IN_MEMORY_DB_NAME, manager, store)
        self.state = factory.state()
        self.counter = Counter(SimpleNamespace(state=SimpleNamespace(linkstate_factory=factory)))
        self.run = self.state.create_run("", "", "", {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP)
        task = self.state.get_run_info(run_ids=[self.run])[0].primary_task_id
        self.token = self.state.claim_task(task)
        assert self.state.activate_task(task)
        self.task = self.state.get_task_by_token(self.token)
        self.keys = [new_key() for _ in range(2)]
        self.nodes = [self._node(key) for key in self.keys]
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def _node(self, key):
        public = public_key_to_bytes(key.public_key())
        number = self.state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, public, 0)
        assert self.state.activate_node(number, 10.0)
        return Node(node_id=number)

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def headers(self, site):
        """What a site proves itself with."""
        context = SimpleNamespace(request=httpx.Request("POST", "https://server"))
        NodeAuthHttpInterceptor(self.keys[site], self.keys[site].public_key()).intercept(context, lambda made: made)
        return dict(context.request.headers)

    def post(self, path, body, headers, hang_up_after=None):
        """A request in a thread of its own, as it will be answered: status and body."""
        scope = {
            "type": "http", "method": "POST", "path": path, "query_string": b"",
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        }  # fmt: skip
        sent, bodies = [], [{"type": "http.request", "body": body, "more_body": False}]

        async def receive():
            if bodies:
                return bodies.pop()
            await asyncio.sleep(3600 if hang_up_after is None else hang_up_after)
            return {"type": "http.disconnect"}

        async def send(event):
            sent.append(event)

        async def answered():
            await self.counter(scope, receive, send)
            return sent[0]["status"], sent[1]["body"]

        return asyncio.run_coroutine_threadsafe(answered(), self.loop)

    def link(self, site):
        """The client of a site."""
        return Line(self, lambda: self.headers(site))

    def grid(self):
        """The grid of the server."""
        line = Line(self, lambda: {TASK_TOKEN_HEADER: self.token})
        node = Node(node_id=SUPERLINK_NODE_ID)
        return WholeGrid(SimpleNamespace(_runtime_client=line, node=node, run=SimpleNamespace(run_id=self.run)))


class Line:
    """Flower's client, without its network."""

    def __init__(self, office, headers):
        self.office, self.headers, self.calls = office, headers, []

    def _unary_unary(self, *, path, rpc_method, request, response_type, timeout):
        self.calls.append(path)
        status, body = self.office.post(path, request.SerializeToString(), self.headers()).result(timeout=timeout)
        if status != 200:
            request = httpx.Request("POST", "https://server")
            raise httpx.HTTPStatusError("", request=request, response=httpx.Response(status, request=request))
        return response_type.FromString(body)

    def PullObject(self, request):
        return runtime_handlers.pull_object(request, self.office.state, self.office.task)

    def ConfirmMessageReceived(self, request):
        return runtime_handlers.confirm_message_received(request, self.office.state, self.office.task)


@pytest.fixture
def office(monkeypatch):
    made = Office()
    for name, value in (("_task_id", made.task.task_id), ("_run_id", made.run), ("_node_id", SUPERLINK_NODE_ID)):
        monkeypatch.setattr(TaskIdentity, name, value)
    yield made
    made.close()


def letter(node, payload, ttl=60.0):
    return Message(content=packed(payload), message_type=MessageType.TRAIN, dst_node_id=node.node_id, ttl=ttl)


def in_thread(act, *arguments):
    found = []

    def run():
        began = time.monotonic()
        found.extend([act(*arguments), time.monotonic() - began])

    thread = threading.Thread(target=run)
    thread.start()
    return thread, found


def replied(message, payload):
    return Message(content=packed(payload), reply_to=message)


def test_a_letter_and_its_reply_take_one_request_each_and_leave_nothing_behind(office):
    # Catches: pieces that go by themselves, which is what many sites saturate a SuperLink with, and pieces that stay.
    grid, (here, there) = office.grid(), (office.link(0), office.link(1))
    names = grid.push_messages([letter(node, b"to %d" % site) for site, node in enumerate(office.nodes)])
    assert len(set(names)) == 2
    assert None not in names
    for site, link in enumerate((here, there)):
        message = take(link, office.nodes[site])
        assert unpacked(message) == b"to %d" % site
        give(link, office.nodes[site], replied(message, b"from %d" % site))
        assert link.calls == [FLEET + "take", FLEET + "give"]
    replies = {reply.metadata.reply_to_message_id: unpacked(reply) for reply in grid.pull_messages(names)}
    assert replies == {name: b"from %d" % site for site, name in enumerate(names)}
    assert grid._grid._runtime_client.calls == [RUNTIME + "push", RUNTIME + "pull"]
    assert len(office.state.object_store) == office.state.num_message_ins() == office.state.num_message_res() == 0


def test_a_request_for_a_letter_is_held_until_there_is_one(office):
    # Catches: a site that has to ask again and again, and one that learns of a round long after it began.
    waiting, found = in_thread(take, office.link(0), office.nodes[0], 20.0)
    time.sleep(0.3)
    assert not found
    office.grid().push_messages([letter(office.nodes[1], b"not yours")])
    time.sleep(0.3)
    assert not found
    office.grid().push_messages([letter(office.nodes[0], b"yours")])
    waiting.join(timeout=5.0)
    message, seconds = found
    assert unpacked(message) == b"yours"
    assert 0.5 < seconds < 5.0
    began = time.monotonic()
    assert take(office.link(0), office.nodes[0], 0.2) is None
    assert 0.15 < time.monotonic() - began < 5.0


def test_of_two_requests_of_a_site_the_later_one_counts(office):
    # Catches: a letter that goes to the site's life before a crash, and a site that cannot be stopped while it waits.
    first, found = in_thread(take, office.link(0), office.nodes[0], 20.0)
    time.sleep(0.3)
    second, late = in_thread(take, office.link(0), office.nodes[0], 20.0)
    first.join(timeout=5.0)
    assert found[0] is None
    assert not late
    office.grid().push_messages([letter(office.nodes[0], b"to the living")])
    second.join(timeout=5.0)
    assert unpacked(late[0]) == b"to the living"


def test_no_letter_is_handed_to_a_line_that_broke(office):
    body = sealed(PullMessagesRequest(node=office.nodes[0]).SerializeToString(), b"20")
    broken = office.post(FLEET + "take", body, office.headers(0), hang_up_after=0.2)
    time.sleep(0.6)
    office.grid().push_messages([letter(office.nodes[0], b"still here")])
    assert broken.result(timeout=5.0) == (200, sealed(b""))  # said to nobody
    assert unpacked(take(office.link(0), office.nodes[0], 1.0)) == b"still here"


def test_a_site_that_waits_counts_as_there_without_heartbeats(office, monkeypatch):
    monkeypatch.setattr(door, "_BEAT", 0.1)
    number = office.nodes[0].node_id

    def until():
        return office.state.get_node_info(node_ids=[number])[0].online_until

    waiting, _ = in_thread(take, office.link(0), office.nodes[0], 1.0)
    time.sleep(0.3)
    early = until()
    time.sleep(0.4)
    assert until() > early
    waiting.join(timeout=5.0)


@pytest.mark.parametrize(
    ("path", "change", "status"),
    [
        ("take", {}, 200),
        ("take", {"flwr-signature": "bm9uc2Vuc2U="}, 401),
        ("take", "another site", 401),
        ("take", None, 401),
        ("give", None, 401),
        ("elsewhere", {}, 404),
    ],
)
def test_only_sites_that_prove_who_they_are_are_served(office, path, change, status):
    headers = office.headers(1 if change == "another site" else 0) if change is not None else {}
    if isinstance(change, dict):
        name = next((name for name in headers if "signature" in name.lower()), "")
        headers |= dict.fromkeys([name] if change else [], *change.values())
    first = PullMessagesRequest(node=office.nodes[0]) if path == "take" else PushMessagesRequest(node=office.nodes[0])
    asked = sealed(first.SerializeToString(), b"0")
    assert office.post(FLEET + path, asked, headers).result(timeout=10.0)[0] == status


@pytest.mark.parametrize("way", ["push", "pull"])
def test_only_the_server_of_the_run_sends_and_fetches(office, way):
    for headers in ({}, {TASK_TOKEN_HEADER: "guess"}, office.headers(0)):
        assert office.post(RUNTIME + way, sealed(b""), headers).result(timeout=10.0)[0] == 409


@pytest.mark.parametrize("body", [b"", b"nonsense", sealed(), sealed(b"nonsense", b"0"), sealed(b"")[:-1]])
def test_nonsense_is_refused(office, body):
    assert office.post(FLEET + "take", body, office.headers(0)).result(timeout=10.0)[0] in (400, 401)


def test_a_reply_in_pieces_holds_up_nobody_and_comes_when_it_is_whole(office, monkeypatch):
    # Catches: a site that announces an answer and dies, for which all others would wait; a stock node's answer lost.
    grid = office.grid()
    names = grid.push_messages([letter(node, b"question") for node in office.nodes])
    first, second = (take(office.link(site), office.nodes[site]) for site in range(2))
    slow, contents = _announced(office, replied(first, b"slow"))
    give(office.link(1), office.nodes[1], replied(second, b"quick"))
    began = time.monotonic()
    assert [unpacked(reply) for reply in grid.pull_messages(names)] == [b"quick"]
    assert grid.pull_messages(names[:1]) == []
    assert time.monotonic() - began < 5.0
    for name, content in contents.items():
        office.state.store_object(office.run, slow.session_id, name, content)
    assert [unpacked(reply) for reply in grid.pull_messages(names[:1])] == [b"slow"]
    third = grid.push_messages([letter(office.nodes[0], b"once more")])
    _announced(office, replied(take(office.link(0), office.nodes[0]), b"never whole"))
    assert grid.pull_messages(third) == []
    monkeypatch.setattr(letters.time, "monotonic", lambda began=time.monotonic: began() + 3600)
    assert grid.pull_messages(third) == []
    assert not grid._coming


def _announced(office, reply):
    """As a stock node begins: the message first, what is in it not yet."""
    heads, trees, contents = letters._deflated([reply])
    told = PushMessagesRequest(node=office.nodes[0], messages_list=heads, message_object_trees=trees)
    return fleet_handlers.push_messages(told, office.state), letters._named(contents)


def test_large_letters_go_in_several_requests(office, monkeypatch):
    monkeypatch.setattr(letters, "_HANDFUL", 3000)
    grid = office.grid()
    names = grid.push_messages([letter(office.nodes[0], bytes([n]) * 1000) for n in range(7)])
    assert len(set(names)) == 7
    assert grid._grid._runtime_client.calls == [RUNTIME + "push"] * 4
    assert [unpacked(take(office.link(0), office.nodes[0]))[0] for _ in range(7)] == list(range(7))


def test_what_is_sealed_is_opened():
    assert opened(sealed(b"head", b"", b"content")) == [b"head", b"", b"content"]


# --- who gets as far as that


@pytest.mark.parametrize(
    ("path", "peer", "token", "reaches"),
    [
        ("/v1/fleet/pull-messages", "192.0.2.9", "", "flower"),
        ("/v1/fleet/hushpoint/take", "192.0.2.9", "", "counter"),
        ("/v1/runtime/hushpoint/push", "192.0.2.9", "", None),
        ("/v1/runtime/hushpoint/push", "127.0.0.1", "", "counter"),  # where a token of Flower's is asked for
        ("/v1/runtime/pull-messages", "192.0.2.9", "", None),
        ("/v1/runtime/pull-messages", "192.0.2.1", "", "flower"),  # the server's own address
        ("/v1/control/start-run", "192.0.2.9", "secret", None),
        ("/v1/control/start-run", "127.0.0.1", "", None),  # another account of this machine
        ("/v1/control/start-run", "127.0.0.1", "guess", None),
        ("/v1/control/start-run", "127.0.0.1", "secret", "flower"),
        ("/v1/fleet/../control/start-run", "127.0.0.1", "", None),
        ("/v1/runtime/../control/start-run", "127.0.0.1", "", None),
        ("/docs", "127.0.0.1", "", None),
    ],
)
def test_only_the_owner_of_the_folder_reaches_more_than_sites_need(path, peer, token, reaches):
    # whoever reaches Flower's control interface can start a program on the server: Flower asks for no password
    reached, sent = [], []

    def part(name):
        async def inner(scope, receive, send):
            reached.append(name)

        return inner

    async def send(event):
        sent.append(event)

    headers = [(TOKEN.encode(), token.encode())] if token else []
    scope = {"type": "http", "path": path, "client": (peer, 1), "server": ("192.0.2.1", 9092), "headers": headers}
    asyncio.run(Door(part("flower"), part("counter"), "secret")(scope, None, send))
    assert reached == ([reaches] if reaches else [])
    assert reaches or sent[0]["status"] == 403


def test_a_site_holds_in_memory_only_what_a_site_needs():
    # Catches: a site that needs Ray, or scikit-learn and pandas where it only sends a block's move.
    program = (
        "import sys\n"
        "import hushpoint.federated.apps, hushpoint.federated.node\n"
        "print(*sorted({'ray', 'sklearn', 'pandas', 'matplotlib', 'torch'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.stdout.strip(), done.returncode) == ("", 0), done.stderr
