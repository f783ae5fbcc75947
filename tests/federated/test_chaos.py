"""Processes killed while they work, files damaged, sites that send nonsense: nothing is uncounted, wrong or told."""

import json

import deployment
import numpy as np
import pytest
from deployment import federation, model_of, settle

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'hushpoint[federated]'")

from chaos import Chaos, check_all_are_back, check_blocks, check_counts, optimum, plant, secrets_of, traces, whole

from hushpoint.federated.disk import read_lines

ROWS = (60, 80, 70, 75)
AGAIN = {"resend_after": 3}
pytestmark = pytest.mark.timeout(deployment.LIMIT + 300)  # to end what it has started may take a while too


def test_a_run_of_kills_and_lies_ends_at_the_optimum_with_every_message_counted(tmp_path):
    # Noise from the operating system as in earnest, but so little that a wrong model would show.
    method = 'name = "federated_admm"\nrounds = 25\ngamma = 2.5\nrelaxation = 0.9\nnoise_std = 1e-9\ntolerance = 1e-9'
    three = {"quorum": 0.75, **AGAIN}
    folder = federation(tmp_path / "federation", ROWS, method, testing="", round_timeout=4, **three)
    lies = ("nan", "short", "wide", "long", "forged", "raises")
    plant(folder, 3)
    with Chaos(folder) as there:
        there.superlink()
        for site in range(4):
            there.site(site)
        for site in range(4):
            there.wait_for(f"site{site:02d}", "joined")
        there.run()
        there.wait_for_round()
        there.kill_site(2)
        state = folder / "sites" / "02" / "state.npz"
        state.write_bytes(state.read_bytes()[:-100] + b"nonsense")
        there.wait_for_round(lambda record: record["declined"].get("2") == "no answer")
        there.wait_for_a_message(0)
        there.kill_superlink()
        assert there.wait("run") == 1
        # From here on nobody is left out who is merely slow: a round ends when all have answered it, the liar too.
        settle(folder, **three)
        there.kill_site(1)
        there.kill_site(3)
        there.superlink()
        there.site(2)
        there.misbehaving(1, *["dies-recorded"] * 2)  # it may have recorded the open round already
        there.misbehaving(3, *lies)
        there.run()
        there.dies(1)
        there.misbehaving(1, "dies-sending")
        there.dies(1)
        there.site(1)
        assert there.wait("run") == 0, there.log("run") + (folder / "flower" / "run.log").read_text()
        _check_the_lies(folder, 3)
        check_all_are_back(folder)
        check_counts(folder, there.kills)
        check_blocks(folder)
        np.testing.assert_allclose(model_of(folder / "run"), optimum(whole(folder)), rtol=0, atol=1e-6)
        assert traces(folder, secrets_of(there.place(3))) == {"sites/03/data.npz"}


def test_a_run_with_a_trusted_server_gives_the_same_model_whatever_is_killed(tmp_path):
    # Everyone takes part in every round, so that the model must be that of a run in which nothing happened.
    method = 'name = "anchored_admm"\nrounds = 6\ngamma = 2.0\nnoise_std = 0.02'
    folder = federation(tmp_path / "federation", method=method, round_timeout=6, **AGAIN)
    deployment.command("simulate", folder, "--in-process", "--out", tmp_path / "alone")
    with Chaos(folder) as there:
        there.superlink()
        for site in range(3):
            there.site(site)
        there.run()
        there.wait_for_round()
        there.kill_site(0)
        (folder / "sites" / "00" / "state.npz").write_bytes(b"nonsense")
        there.misbehaving(0, "dies-saved")
        there.kill_server()
        assert there.wait("run") == 1
        there.run()
        there.dies(0)
        there.site(0)
        assert there.wait("run") == 0, there.log("run") + (folder / "flower" / "run.log").read_text()
        records = read_lines(folder / "run" / "rounds.jsonl")
        assert [record["answered"] for record in records] == [[0, 1, 2]] * 6
        np.testing.assert_allclose(model_of(folder / "run"), model_of(tmp_path / "alone" / "run"), rtol=0, atol=1e-10)
        check_counts(folder, there.kills)
        check_blocks(folder)


def _check_the_lies(folder, liar):
    """Each was refused, in a round of its own."""
    records = read_lines(folder / "run" / "rounds.jsonl")
    assert [record["round"] for record in records] == list(range(1, len(records) + 1))
    said = [
        {**record["refused"], **record["declined"]}.get(str(liar))
        for record in records
        if liar not in record["answered"]
    ]
    width = deployment.FEATURES + 1
    for reason in (
        "numbers that are not finite", f"{width - 1} numbers for {width}", f"{width + 1000} numbers for {width}",
        "longer than the method allows", "signature or form", "failed",
    ):  # fmt: skip
        assert reason in said, (reason, said)
    assert all(set(record["refused"]) <= {str(liar)} for record in records)  # and no one else was
    assert json.loads((folder / "run" / "run.json").read_text())["status"] == "finished"
