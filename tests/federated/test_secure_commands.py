"""Federations with secure sums by their commands: keys that sites make, a covenant that each accepts, Flower, kills."""

import json
import os
import stat
import subprocess
from pathlib import Path

import numpy as np
import pytest
from deployment import FEATURES, HUSHPOINT, Deployment, command, free_port, site_data

pytest.importorskip("cryptography", reason="needs the extra 'secure'")

from hushpoint.federated.folder import Federation, Site
from hushpoint.federated.ledger import SiteStore
from hushpoint.federated.secure.folder import SecureFederation, SecureSiteFolder
from hushpoint.federated.secure.store import SecureStore
from hushpoint.report import write
from hushpoint.tables.model_file import load_model

SCHEMA = """\
target = "sick"
[columns.age]
kind = "number"
low = 0
high = 100
[columns.ward]
kind = "category"
values = ["a", "b"]
[columns.sick]
kind = "category"
values = ["no", "yes"]
"""
ROWS = (40, 30, 50)
MODEL = 'name = "linear"\nrow_norm = 3.0\ntarget_range = [-4.0, 4.0]\n'
BUDGET = "[budget]\nepsilon = 20.0\ndelta = 1e-3\n"
ROUNDS = 6


def failing(*arguments):
    """What a command says that refuses."""
    return command(*arguments, code=2)


def arrays(folder, secure="", model=MODEL, budget=BUDGET, port=None):
    """A federation with arrays at its sites."""
    options = [option for count in ROWS for option in ("--rows", count)]
    address = f"127.0.0.1:{port or free_port()}"
    command("init", folder, *options, "--features", FEATURES, "--address", address)
    agreed = f"[model]\n{model}{budget}[secure]\nrounds = {ROUNDS}\n{secure}[sites]\nrows = {list(ROWS)}\n"
    (folder / "federation.toml").write_text(agreed)
    for site, (X, y) in enumerate(site_data(ROWS)):
        place = folder / "sites" / f"{site:02d}"
        np.savez(place / "data.npz", X=X, y=y)
        (place / "site.toml").write_text((place / "site.toml").read_text().replace("data.csv", "data.npz"))
    return folder


def place_of(folder, site):
    return folder / "sites" / f"{site:02d}"


def agreed(folder):
    """The same, with keys and a covenant that every site has accepted."""
    command("keys", folder)
    for site in range(len(ROWS)):
        command("keys", place_of(folder, site), "--own")
    command("admit", folder, *(place_of(folder, site) / "request.json" for site in range(len(ROWS))))
    command("plan", folder)
    fingerprint = SecureFederation(Federation(folder)).covenant().fingerprint
    for site in range(len(ROWS)):
        assert "Accepted" in command("accept", place_of(folder, site), "--fingerprint", fingerprint)
    return folder


def test_a_new_federation_trains_a_model_of_its_tables(tmp_path):
    # catches: a default that does not run; a model file that only the federation can read
    (tmp_path / "s.toml").write_text(SCHEMA)
    place = tmp_path / "hospitals"
    command("init", place, "--rows", 300, "--rows", 200, "--schema", tmp_path / "s.toml")
    rng = np.random.default_rng(0)
    for site, rows in enumerate((300, 200)):
        age, ward = rng.integers(0, 101, rows), rng.choice(["a", "b"], rows)
        sick = np.where(age + rng.normal(0, 5, rows) > 50, "yes", "no")
        lines = [",".join(map(str, row)) for row in zip(age, ward, sick, strict=True)]
        (place_of(place, site) / "data.csv").write_text("age,ward,sick\n" + "\n".join(lines) + "\n")
    shown = command("simulate", place, "--in-process")
    assert "an untrusted server included" in shown
    record = json.loads((place / "simulation" / "run" / "run.json").read_text())
    assert (record["status"], record["trusted"]) == ("finished", "nobody")
    assert record["rounds"] <= 20
    model = load_model(place / "simulation" / "run" / "model.json")
    assert model.guarantee.epsilon <= 1.0
    assert model.predict({"age": np.array([5, 95]), "ward": np.array(["a", "a"])}).tolist() == ["no", "yes"]
    page = write(place / "simulation" / "run")
    assert "Promised: at most 1." in page.read_text()
    handed = place / "simulation" / "sites" / "0001" / "model.json"
    assert handed.read_bytes() == (place / "simulation" / "run" / "model.json").read_bytes()
    assert not (place_of(place, 0) / "sums.key").exists()  # keys of a rehearsal are not those of the site


def test_sites_make_their_keys_and_accept_what_they_compared(tmp_path):
    # catches: a key that the server makes or sees, a covenant that is used without having been accepted
    folder = arrays(tmp_path / "f")
    assert "site" not in command("keys", folder)  # the server's own, and nobody else's
    assert "are missing" in failing("plan", folder)
    for site in range(len(ROWS)):
        command("keys", place_of(folder, site), "--own")
        assert stat.S_IMODE((place_of(folder, site) / "sums.key").stat().st_mode) == 0o600
        assert "never replaced" in failing("keys", place_of(folder, site), "--own")
    secrets = [(place_of(folder, site) / "sums.key").read_text().strip() for site in range(len(ROWS))]
    command("admit", folder, *(place_of(folder, site) / "request.json" for site in range(len(ROWS))))
    assert "no request" in failing("admit", folder, folder / "federation.toml")
    shown = command("plan", folder)
    for path in [path for path in folder.rglob("*") if path.is_file() and path.name != "sums.key"]:
        assert not any(secret in path.read_text(errors="replace") for secret in secrets), path
    fingerprint = SecureFederation(Federation(folder)).covenant().fingerprint
    assert fingerprint in shown
    here = place_of(folder, 0)
    assert "Not accepted yet" in command("accept", here)
    assert "not accepted here" in failing("site", here)
    assert "not the one that was given" in failing("accept", here, "--fingerprint", "0000 " + fingerprint[5:])
    command("accept", here, "--fingerprint", fingerprint.upper())
    SecureSiteFolder(Site(here)).secure_site()
    assert "secrets of secure sums" in failing("site", here, "--stock")
    os.chmod(here / "sums.key", 0o644)
    assert "can be read by others" in failing("site", here)


def test_a_change_is_a_new_covenant_that_has_to_be_accepted(tmp_path):
    # catches: a roster, schema or budget that a server changes behind the sites' backs
    folder = agreed(arrays(tmp_path / "f"))
    before = SecureFederation(Federation(folder)).covenant()
    command("plan", folder)
    assert SecureFederation(Federation(folder)).covenant().digest == before.digest  # nothing has changed
    text = (folder / "federation.toml").read_text()
    (folder / "federation.toml").write_text(text.replace("epsilon = 20.0", "epsilon = 19.0"))
    command("plan", folder)
    after = SecureFederation(Federation(folder)).covenant()
    assert after.run != before.run
    assert "another covenant was accepted before" in failing("site", place_of(folder, 1))
    # a key of the server's choice in the place of a site's own
    forged = json.loads((folder / "covenant.json").read_text())
    forged["roster"][1][1] = "ab" * 32
    (place_of(folder, 1) / "covenant.json").write_text(json.dumps(forged))
    assert "another key for site 1" in failing("accept", place_of(folder, 1))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"secure": "colluders = 3\n"}, "colluders is 3"),
        ({"secure": "survivors = 2\ncolluders = 2\n"}, "Of 2 survivors"),
        ({"secure": "rounds = 3\n"}, "rounds is 3"),
        ({"model": 'name = "forest"\n'}, "name in [model] is 'forest'"),
        ({"model": 'name = "linear"\nrow_norm = 3.0\n'}, "target_range is not declared"),
        ({"model": f"{MODEL}depth = 3\n"}, "'depth'"),
        ({"budget": BUDGET.replace("20.0", "200.0")}, "epsilon is 200"),
        ({"budget": f'{BUDGET}unit = "user"\n'}, "[sites] needs users"),
    ],
)
def test_what_cannot_be_agreed_on_is_said_in_words(tmp_path, settings, said):
    folder = arrays(tmp_path / "f", **{"secure": "", **settings})
    if "rounds" in settings.get("secure", ""):
        path = folder / "federation.toml"
        path.write_text(path.read_text().replace(f"rounds = {ROUNDS}\n", "", 1))
    assert said in failing("simulate", folder, "--in-process")


@pytest.mark.timeout(600)
def test_the_simulation_of_flower_trains_the_same_way(tmp_path):
    pytest.importorskip("ray", reason="Flower's simulation needs ray")
    folder = arrays(tmp_path / "f")
    done = subprocess.run(
        [HUSHPOINT, "federated", "simulate", str(folder)], capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    _check_the_run(folder / "simulation" / "run", folder / "simulation" / "sites")


@pytest.mark.timeout(900)
def test_a_deployed_run_survives_kills_of_everybody(tmp_path):
    # One test, so that workers do not each deploy. Catches: a message that is not counted, a round that hangs.
    pytest.importorskip("flwr", reason="Flower is not installed")
    folder = agreed(arrays(tmp_path / "f", secure="spare = 3\n"))
    pace = "quorum = 1.0\nround_timeout = 15\nresend_after = 2\nstart_timeout = 120\nretries = 20\n"
    text = (folder / "server.toml").read_text().splitlines()[1]
    (folder / "server.toml").write_text(f"{text}\n{pace}")
    with Deployment(folder) as there:
        there.superlink()
        for site in range(len(ROWS)):
            there.site(site)
        there.run()
        there.wait_until(lambda: _rounds(folder) >= 1, "a round", "run")
        there.stop("site01", kill=True)
        there.site(1)
        there.wait_until(lambda: _rounds(folder) >= 3, "three rounds", "run")
        there.stop("run", kill=True)
        there.start("again", "run", folder)
        assert there.wait("again") == 0, there.log("again") + (folder / "flower" / "run.log").read_text()
        _check_the_run(folder / "run", folder / "sites")
        logs = [there.log(name) for name in ("superlink", "run", "again", "site00", "site01", "site02")]
        assert not any("Traceback" in log for log in logs)


def _rounds(folder):
    place = folder / "run" / "rounds.jsonl"
    return len(place.read_text().splitlines()) if place.exists() else 0


def _check_the_run(run, sites):
    record = json.loads((run / "run.json").read_text())
    assert record["status"] == "finished"
    assert record["rounds"] >= ROUNDS
    X, y = (np.concatenate(parts) for parts in zip(*site_data(ROWS), strict=True))
    model = json.loads((run / "model.json").read_text())
    found = X @ np.array(model["coefficients"]) + model["intercept"]
    assert np.corrcoef(found, y)[0, 1] > 0.5  # of 120 rows, with noise
    promised, spent = record["promised"][0]["epsilon"], record["spent"][0]["epsilon"]
    for site in sorted(Path(sites).iterdir()):
        lines = [json.loads(line) for line in (site / "ledger.jsonl").read_text().splitlines()][1:]
        assert ROUNDS <= len(lines) <= record["rounds"]
        assert len({line["round"] for line in lines}) == len(lines)  # one masked message for a round
        assert SecureStore(SiteStore(site)).open_round().state == b""  # its secrets are erased
        assert (site / "model.json").read_bytes() == (run / "model.json").read_bytes()
    assert spent <= promised <= 20.0
