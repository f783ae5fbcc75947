"""A server and its sites on two networks with addresses of their own, joined by one line."""

import os
import subprocess
import sys

import deployment
import pytest
from deployment import HUSHPOINT, Deployment, command, federation

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'hushpoint[federated]'")

from hushpoint.federated.disk import read_lines
from hushpoint.federated.folder import Federation

SERVER, SITES = "10.199.77.1", "10.199.77.2"
METHOD = 'name = "federated_admm"\nrounds = 2\ngamma = 2.0\nnoise_std = 0.05'


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, timeout=20)


@pytest.fixture
def networks():
    """Two network namespaces with a line between them, taken away at the end."""
    names = [f"hushpoint-{side}-{os.getpid()}" for side in ("server", "sites")]
    try:
        if ip("netns", "add", names[0]).returncode or ip("netns", "exec", names[0], "true").returncode:
            pytest.skip("network namespaces need root and the program ip")
        made = [ip("netns", "add", names[1])]
        made.append(
            ip("-n", names[0], "link", "add", "line", "type", "veth", "peer", "name", "line", "netns", names[1])
        )
        for name, address in zip(names, (SERVER, SITES), strict=True):
            made.append(ip("-n", name, "addr", "add", f"{address}/24", "dev", "line"))
            made += [ip("-n", name, "link", "set", link, "up") for link in ("line", "lo")]
        if any(done.returncode for done in made):
            pytest.skip("no line can be made between two network namespaces here")
        yield [("ip", "netns", "exec", name) for name in names]
    except FileNotFoundError:
        pytest.skip("network namespaces need the program ip")
    finally:
        for name in names:
            if os.path.exists(f"/run/netns/{name}"):
                ip("netns", "del", name)


@pytest.mark.timeout(deployment.LIMIT + 300)
def test_sites_call_a_server_on_another_network_by_its_address(tmp_path, networks):
    # Catches: a server that listens where it is not called, a site that calls where it was told at first, a certificate
    # for another name, and control that is open to whoever is not on the server's own machine.
    server, elsewhere = networks
    folder = federation(tmp_path / "federation", rows=(8, 11), method=METHOD)
    command("keys", folder, "--host", SERVER)
    there = Federation(folder)
    assert (there.address.split(":")[0], there.bind.split(":")[0]) == (SERVER, "0.0.0.0")
    with Deployment(folder) as running:
        running.start("superlink", "superlink", folder, program=(*server, HUSHPOINT, "federated"))
        for site in range(2):
            place = folder / "sites" / f"{site:02d}"
            program = (*elsewhere, HUSHPOINT, "federated")
            running.start(f"site{site:02d}", "site", place, "--patience", deployment.LIMIT, program=program)
        running.wait_for("superlink", "sites may join")
        for site in range(2):
            running.wait_for(f"site{site:02d}", "joined")
        assert f"site 0: {there.address}" in running.log("site00")
        assert _answers(elsewhere, folder, there.address) == ["401", "403", "403"]
        running.start("run", "run", folder, program=(*server, HUSHPOINT, "federated"))
        assert running.wait("run") == 0, running.log("run") + (folder / "flower" / "run.log").read_text()
    records = read_lines(folder / "run" / "rounds.jsonl")
    assert [record["answered"] for record in records] == [[0, 1]] * 2


def _answers(elsewhere, folder, address):
    """What a program that is not on the server's machine is answered, even if it has the token."""
    program = (
        "import ssl, sys, httpx\n"
        "trusted = ssl.create_default_context(cafile=sys.argv[2])\n"
        "for path in ('fleet/pull-messages', 'control/start-run', 'runtime/hushpoint/pull'):\n"
        "    headers = {'x-hushpoint-token': sys.argv[3], 'content-type': 'application/protobuf'}\n"
        "    print(httpx.post(f'https://{sys.argv[1]}/v1/{path}', headers=headers, verify=trusted).status_code)\n"
    )
    token = (folder / "flower" / "control.token").read_text()
    words = [sys.executable, "-c", program, address, str(folder / "keys" / "ca.crt"), token]
    return subprocess.run([*elsewhere, *words], capture_output=True, text=True, timeout=60).stdout.split()
