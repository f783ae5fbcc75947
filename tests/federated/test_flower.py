"""The same federation in process, on Flower's simulation and deployed with TLS and keys; and who is not let in."""

import json
import re
import subprocess

import deployment
import numpy as np
import pytest
from deployment import Deployment, federation, model_of

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'hushpoint[federated]'")

from hushpoint.federated.keys import make_certificates
from hushpoint.federated.launch import OwnHostOnly

ROUNDS, SITES = 2, 3
METHOD = f'name = "federated_admm"\nrounds = {ROUNDS}\ngamma = 2.0\nnoise_std = 0.05'
ANCHORED = METHOD.replace("federated_admm", "anchored_admm")  # deployed: in test_chaos
WHOLE = f"{ANCHORED}\nlattice = true"


@pytest.fixture
def folder(tmp_path, request):
    """A federation whose run in process is done, in ``alone``."""
    place = federation(tmp_path / "federation", method=getattr(request, "param", METHOD))
    deployment.command("simulate", place, "--in-process", "--out", place / "alone")
    assert np.abs(model_of(place / "alone" / "run")).max() > 0.1  # else to be equal would be cheap
    return place


@pytest.mark.parametrize(
    "folder", [METHOD, ANCHORED, WHOLE], indirect=True, ids=["local noise", "trusted server", "lattice"]
)
@pytest.mark.timeout(900)
def test_the_simulation_gives_the_model_of_the_run_in_process(folder):
    # In a process of its own: Ray leaves threads and settings behind.
    done = subprocess.run(
        [deployment.HUSHPOINT, "federated", "simulate", str(folder)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not for release" in done.stdout
    simulated = model_of(folder / "simulation" / "run")
    exact = "lattice = true" in (folder / "federation.toml").read_text()
    np.testing.assert_allclose(simulated, model_of(folder / "alone" / "run"), rtol=0, atol=0 if exact else 1e-10)
    ledger = folder / "sites" / "00" / "ledger.jsonl"
    assert len(ledger.read_text().splitlines()) == 1  # the ledger of runs in earnest is untouched


@pytest.mark.timeout(deployment.LIMIT + 300)
def test_a_deployed_run_gives_the_same_model_and_lets_no_stranger_in(folder, tmp_path):
    # One test, so that workers that share the tests do not each deploy: TLS, authentication, and among the sites one
    # that is a stock node of Flower.
    with Deployment(folder) as there:
        there.superlink()
        there.site(0)
        there.site(1)
        there.wait_for("superlink", "sites may join")  # a stock node does not wait for that
        there.site(2, "--stock")
        for site in range(SITES):
            there.wait_for(f"site{site:02d}", "SuperNode ID" if site == 2 else "joined")
        there.run()
        stranger, deceived = _unregistered(there, tmp_path), _deceived(there, tmp_path)
        assert there.wait("run") == 0, there.log("run") + (folder / "flower" / "run.log").read_text()
        assert there.wait(stranger) == there.wait(deceived) == 2
        np.testing.assert_allclose(model_of(folder / "run"), model_of(folder / "alone" / "run"), rtol=0, atol=1e-10)
        for site in (0, 1):  # a stock node is slow, and may be handed the model by the next run
            handed = folder / "sites" / f"{site:02d}" / "model.json"
            assert handed.read_bytes() == (folder / "run" / "model.json").read_bytes()
            there.wait_for(f"site{site:02d}", "The model is in model.json")
        _check_the_strangers(there.log(stranger), there.log(deceived))
        _check_the_ledgers(folder)
        _check_the_sizes(folder)
        _check_the_table(there.log("run"))
        _check_the_logs(folder)


def _unregistered(there, tmp_path):
    place = _copy_of_site(there, tmp_path / "stranger")
    (place / "site.key").unlink()
    (place / "site.pub").unlink()
    deployment.command("keys", place, "--own")
    there.start("stranger", "site", place, "--patience", 2)
    return "stranger"


def _deceived(there, tmp_path):
    place = _copy_of_site(there, tmp_path / "deceived")
    make_certificates(tmp_path / "other", ["127.0.0.1"])
    (place / "ca.crt").write_bytes((tmp_path / "other" / "ca.crt").read_bytes())
    there.start("deceived", "site", place)
    return "deceived"


def _check_the_strangers(unregistered, deceived):
    assert "does not admit this site" in unregistered
    assert "did not sign" in deceived
    assert "joined" not in unregistered + deceived


def _check_the_ledgers(folder):
    for site in range(SITES):
        place = folder / "sites" / f"{site:02d}"
        said = json.loads(deployment.command("status", place, "--json"))
        sent = [json.loads(line) for line in (place / "messages.jsonl").read_text().splitlines()]
        assert said["participations"] == ROUNDS == len({message["round"] for message in sent})
        assert all(np.isfinite(guarantee["epsilon"]) for guarantee in said["spent"])


def _check_the_sizes(folder):
    """A message is the numbers and a bounded rest."""
    numbers = 8 * (deployment.FEATURES + 1)
    records = [json.loads(line) for line in (folder / "run" / "rounds.jsonl").read_text().splitlines()]
    assert [record["answered"] for record in records] == [[0, 1, 2]] * ROUNDS
    for sizes in ([record[way] for record in records] for way in ("bytes_down", "bytes_up")):
        assert SITES * numbers < min(sizes) <= SITES * (numbers + 512)  # in another round something was sent twice


def _check_the_table(shown):
    assert [int(row) for row in re.findall(r"^ +(\d+) +3 +3 ", shown, flags=re.MULTILINE)] == [1, 2]
    assert "not for release" in shown


def _check_the_logs(folder):
    """No data, and no text of an exception."""
    values = [f"{abs(value):.6f}"[:8] for X, y in deployment.site_data((8, 11, 9)) for value in [*X.ravel(), *y]]
    logs = [*folder.glob("*.log"), *folder.rglob("*.jsonl"), folder / "flower" / "run.log"]
    assert len(logs) > 2 * SITES
    for log in logs:
        text = log.read_text(errors="replace")
        assert "Traceback" not in text, log.name
        assert not [value for value in values if value in text], log.name


def _copy_of_site(there, place):
    place.mkdir()
    for path in (there.folder / "sites" / "02").iterdir():
        if path.is_file():
            (place / path.name).write_bytes(path.read_bytes())
    return place


@pytest.mark.parametrize(
    ("path", "peer", "let_in"),
    [
        ("/v1/fleet/pull-messages", "192.0.2.9", True),
        ("/v1/control/start-run", "192.0.2.9", False),
        ("/v1/runtime/pull-messages", "192.0.2.9", False),
        ("/docs", "192.0.2.9", False),
        ("/v1/control/start-run", "127.0.0.1", True),
        ("/v1/control/start-run", "192.0.2.1", True),  # the server's own address
        ("/v1/fleet/../control/start-run", "192.0.2.9", False),
    ],
)
def test_other_machines_reach_only_what_sites_need(path, peer, let_in):
    # whoever reaches Flower's control interface can start a program on the server: it asks for no password
    import asyncio

    reached, sent = [], []

    async def inner(scope, receive, send):
        reached.append(scope["path"])

    async def send(event):
        sent.append(event)

    scope = {"type": "http", "path": path, "client": (peer, 1), "server": ("192.0.2.1", 9092)}
    asyncio.run(OwnHostOnly(inner)(scope, None, send))
    assert bool(reached) is let_in
    assert let_in or sent[0]["status"] == 403
