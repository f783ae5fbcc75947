"""The same federation in process, on Flower's simulation and deployed with TLS and keys; and who is not let in."""

import json
import os
import re
import ssl
import subprocess
import time

import deployment
import numpy as np
import pytest
from deployment import Deployment, federation, model_of

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'hushpoint[federated]'")

import httpx

from hushpoint.federated.folder import Federation
from hushpoint.federated.keys import make_certificates

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
        _check_that_control_is_closed(folder)
        assert there.wait("run") == 0, there.log("run") + (folder / "flower" / "run.log").read_text()
        assert there.wait(stranger) == there.wait(deceived) == 2
        np.testing.assert_allclose(model_of(folder / "run"), model_of(folder / "alone" / "run"), rtol=0, atol=1e-10)
        _check_the_strangers(there.log(stranger), there.log(deceived))
        _check_the_ledgers(folder)
        _check_the_sizes(folder)
        _check_the_table(there.log("run"))
        _check_the_logs(folder)
        for site in range(2):  # they wait for the next letter, and need not wait to the end
            began = time.monotonic()
            process = there.processes[f"site{site:02d}"]
            there.stop(f"site{site:02d}")
            assert (process.returncode, time.monotonic() - began < 10) == (0, True)


def _check_that_control_is_closed(folder):
    """On the server's own machine, to whoever cannot read the files of the federation's owner."""
    for name in ("control.token", "runner.secret"):
        assert os.stat(folder / "flower" / name).st_mode & 0o777 == 0o600
    trusted = ssl.create_default_context(cafile=folder / "keys" / "ca.crt")
    kind = {"content-type": "application/protobuf", "accept": "application/protobuf"}
    for path, status in (("control/list-runs", 403), ("control/register-node", 403), ("runtime/acquire-task", 401)):
        url = f"https://{Federation(folder).here}/v1/{path}"
        assert httpx.post(url, headers=kind, verify=trusted, timeout=30).status_code == status, path


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
