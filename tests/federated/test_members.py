"""Who comes and goes: keys, numbers, folders and counts of sites stay together, and withdrawn keys stay away."""

import json
import shutil
import stat
import tomllib
from datetime import UTC, datetime, timedelta

import pytest
from deployment import command, federation

pytest.importorskip("cryptography", reason="needs the extra 'secure'")
pytest.importorskip("flwr", reason="Flower is not installed")

from test_secure_commands import ROWS, agreed, arrays, failing, place_of

from hushpoint.federated import keys, launch
from hushpoint.federated.disk import held
from hushpoint.federated.folder import Federation, Site
from hushpoint.federated.secure.folder import SecureFederation, SecureSiteFolder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A federation of each kind, with all keys and an agreement."""
    place = tmp_path_factory.mktemp("members")
    agreed(arrays(place / "secure"))
    federation(place / "local", testing="")
    return place


@pytest.fixture
def secure(made, tmp_path):
    return shutil.copytree(made / "secure", tmp_path / "secure")


@pytest.fixture
def local(made, tmp_path):
    return shutil.copytree(made / "local", tmp_path / "local")


@pytest.fixture(params=["secure", "local"])
def either(made, tmp_path, request):
    return shutil.copytree(made / request.param, tmp_path / request.param)


def settings(folder):
    return tomllib.loads((folder / "federation.toml").read_text())


def change(folder, old, new):
    text = (folder / "federation.toml").read_text()
    assert old in text
    (folder / "federation.toml").write_text(text.replace(old, new))


def require_keys_of_their_sites(folder):
    """The roster has at each number the key of the site whose folder and settings have that number."""
    whole = Federation(folder)
    for site, key in enumerate(whole.site_keys(whole.count)):
        here = Site(whole.site(site, whole.count))
        assert here.number == site
        assert here.own_key().public_key() == key
    if whole.is_secure:
        for site, (_, key) in enumerate(SecureFederation(whole).roster().sites):
            request = json.loads((whole.site(site, whole.count) / "request.json").read_text())
            assert key.hex() == request["sums"]


def kept_request(folder, site):
    """A request with the keys of a site as they are in the roster."""
    sums = folder / "roster" / f"{site:02d}.sums"
    record = {"site": site, "key": (folder / "roster" / f"{site:02d}.pub").read_text()}
    path = folder / "kept.json"
    path.write_text(json.dumps({**record, **({"sums": sums.read_text().strip()} if sums.exists() else {})}))
    return path


def accept_all(folder):
    fingerprint = SecureFederation(Federation(folder)).covenant().fingerprint
    for site in range(Federation(folder).count):
        assert "Accepted" in command("accept", place_of(folder, site), "--fingerprint", fingerprint)


def test_after_a_site_has_left_every_key_is_still_of_its_site(either):
    # catches: the key of one site at the number of another
    last = Site(place_of(either, 2)).own_key().public_key()
    rows = settings(either)["sites"]["rows"]
    said = command("leave", either, 1)
    assert "Site 2 is site 1 now" in said
    assert settings(either)["sites"]["rows"] == [rows[0], rows[2]]
    require_keys_of_their_sites(either)
    assert Site(place_of(either, 1)).own_key().public_key() == last
    assert not (either / "roster" / "02.pub").exists()
    assert not place_of(either, 2).exists()
    assert (either / "left" / "01" / "01" / "ledger.jsonl").exists()  # what it has spent is not lost
    assert (either / "left" / "01" / "01.pub").exists()
    command("plan", either)
    assert "one alone is no federation" in failing("leave", either, 0)


def test_the_next_agreement_is_another_run_that_sites_accept(secure):
    # catches: a covenant that stands though a site of it has left
    before = SecureFederation(Federation(secure)).covenant()
    command("leave", secure, 1)
    with pytest.raises(ValueError, match="have changed since"):
        SecureFederation(Federation(secure)).current()
    command("plan", secure)
    now = SecureFederation(Federation(secure)).current()
    assert now.run != before.run
    assert now.items == (ROWS[0], ROWS[2])
    with pytest.raises(ValueError, match="another covenant was accepted"):
        SecureSiteFolder(Site(place_of(secure, 1))).accepted()
    accept_all(secure)
    assert SecureSiteFolder(Site(place_of(secure, 1))).accepted() == now


def test_a_site_elsewhere_learns_its_new_number_from_its_key(secure, tmp_path):
    # catches: a site that takes part as another one, or that is told to make new keys
    away = shutil.move(place_of(secure, 2), tmp_path / "away")
    command("leave", secure, 1)
    command("plan", secure)
    shutil.copy(secure / "covenant.json", away / "covenant.json")
    assert "Write site = 1" in " ".join(failing("accept", away).split())
    text = (away / "site.toml").read_text()
    (away / "site.toml").write_text(text.replace("site = 2", "site = 1"))
    assert "Not accepted yet" in command("accept", away)


def test_a_site_that_joins_has_a_folder_a_number_and_keys_of_its_own(either):
    # catches: counts of rows, names and survivors that disagree; a newcomer without the server's certificate
    options = ("--name", "north") if Federation(either).is_secure else ()
    assert "Site 3 may join" in command("join", either, "--rows", 7, *options)
    place = place_of(either, 3)
    assert settings(either)["sites"]["rows"][3:] == [7]
    assert (place / "ca.crt").read_bytes() == (either / "keys" / "ca.crt").read_bytes()
    assert Federation(either).missing_keys() == [3]
    with pytest.raises(ValueError, match="site 3 are missing" if options else "has changed since plan"):
        launch._prepare(Federation(either))
    command("plan", either, code=2 if options else 0)
    command("keys", place)
    command("admit", either, place / "request.json")
    command("plan", either)
    require_keys_of_their_sites(either)
    if options:
        assert settings(either)["sites"]["names"] == ["site 0", "site 1", "site 2", "north"]
        assert SecureFederation(Federation(either)).current().sites == 4
        accept_all(either)
    else:
        assert Federation(either).agreed().plan.operator.blocks == 4
        assert Site(place).agreed().run == Federation(either).agreed().run


def test_a_newcomer_is_not_given_what_is_of_somebody_else(either):
    # catches: a key or a ledger that was left behind, taken for that of the new site
    shutil.copy(either / "roster" / "00.pub", either / "roster" / "03.pub")
    assert "there is no site 3" in failing("join", either, "--rows", 7)
    (either / "roster" / "03.pub").unlink()
    shutil.copytree(place_of(either, 0), place_of(either, 3))
    assert "there is no site 3" in failing("join", either, "--rows", 7)
    assert Federation(either).count == 3


@pytest.mark.parametrize(("survivors", "more", "fewer"), [(3, 4, 3), (2, 2, 2)])
def test_whoever_says_that_all_have_to_answer_says_so_of_the_new_number(secure, survivors, more, fewer):
    # catches: a round that goes on without a site because somebody has joined, or that none can complete
    text = f"[secure]  # sums\nsurvivors = {survivors}  # of all\n"
    change(secure, "[secure]\n", text)
    change(secure, "[sites]\n", '[evaluation]\nrows = [\n  4,\n  5,\n  6,\n]\n[sites]\nnames = ["a [1]", "b", "c"]\n')
    assert "--name" in failing("join", secure, "--rows", 9)
    assert "--held-out" in failing("join", secure, "--rows", 9, "--name", "d")
    assert "another site has" in failing("join", secure, "--rows", 9, "--name", "b", "--held-out", 2)
    assert "names = " in failing("join", secure, "--rows", 9, "--name", "d", "--held-out", 2)  # "]" within a name
    assert Federation(secure).count == 3
    change(secure, "a [1]", "a")
    command("join", secure, "--rows", 9, "--name", "d", "--held-out", 2)
    found = settings(secure)
    assert found["evaluation"]["rows"] == [4, 5, 6, 2]
    assert found["sites"] == {"names": ["a", "b", "c", "d"], "rows": [*ROWS, 9]}
    assert found["secure"]["survivors"] == more
    assert "# of all" in (secure / "federation.toml").read_text()
    command("leave", secure, 0)
    assert settings(secure)["secure"]["survivors"] == fewer
    assert settings(secure)["sites"]["names"] == ["b", "c", "d"]
    assert settings(secure)["evaluation"]["rows"] == [5, 6, 2]
    change(secure, '["b", "c", "d"]', '["b", "c"]')
    assert "there are 3 sites" in failing("leave", secure, 0)


def test_what_is_no_part_of_the_agreement_is_refused(local):
    assert "name is given" in failing("join", local, "--rows", 3, "--name", "x")
    assert "--rows" in failing("join", local)
    assert "held_out is given" in failing("join", local, "--rows", 3, "--held-out", 2)
    assert "site is 3" in failing("leave", local, 3)


def test_nobody_comes_or_goes_under_a_server_that_is_at_work(local):
    (local / "run").mkdir()
    with held(local / "run"):
        assert "at work" in failing("leave", local, 1)
        assert "at work" in failing("join", local, "--rows", 4)
    require_keys_of_their_sites(local)


def test_a_revoked_key_is_not_admitted_again(either):
    # catches: a SuperLink, a plan or an agreement that goes on with a stolen key; the same key written otherwise
    request = kept_request(either, 1)
    assert "end it now" in command("revoke", either, 1)
    assert [path.stem for path in sorted((either / "roster").glob("*.pub"))] == ["00", "02"]
    with pytest.raises(ValueError, match="site 1 are missing"):
        launch._prepare(Federation(either))
    record = json.loads(request.read_text())
    for told in (record["key"], record["key"].strip() + " somebody else\n"):
        request.write_text(json.dumps({**record, "key": told}))
        assert "was revoked" in failing("admit", either, request)
        assert "was revoked" in failing("admit", either, request, "--replace")
    command("rotate", place_of(either, 1))
    command("admit", either, place_of(either, 1) / "request.json")
    require_keys_of_their_sites(either)
    assert "no keys of site" not in command("revoke", either, 1)  # the second time beside the first
    assert sorted(path.name for path in (either / "roster" / "revoked").glob("*.pub")) == ["01.2.pub", "01.pub"]
    assert "no keys of site 1" in " ".join(failing("revoke", either, 1).split())


def test_new_keys_are_taken_on_request_alone_and_once(either):
    # catches: a key that whoever sends a file can exchange; an old one that comes back
    place = place_of(either, 1)
    before = (place / "site.key").read_bytes()
    key, old, secure = (place / "site.pub").read_text(), kept_request(either, 1), Federation(either).is_secure
    assert "--replace" in command("rotate", place)
    assert (place / "site.key.old").read_bytes() == before
    for name in ("site.key", "site.key.old", *(("sums.key", "sums.key.old") if secure else ())):
        assert stat.S_IMODE((place / name).stat().st_mode) == 0o600
    assert "has another key" in failing("admit", either, place / "request.json")
    for _ in range(2):  # once more changes nothing
        command("admit", either, place / "request.json", "--replace")
        require_keys_of_their_sites(either)
        assert (either / "roster" / "replaced" / "01.pub").read_text() == key
        assert not (either / "roster" / "replaced" / "01.2.pub").exists()
    assert "was replaced" in failing("admit", either, old, "--replace")
    other = either / "other.json"
    other.write_text(json.dumps({**json.loads((place / "request.json").read_text()), "site": 0}))
    assert "has a key of site 1" in " ".join(failing("admit", either, other, "--replace").split())


def test_a_new_key_is_none_of_an_old_covenant(secure):
    # catches: a run with secure sums in which a site signs with a key that nobody has compared
    place = place_of(secure, 1)
    before = SecureFederation(Federation(secure)).covenant()
    command("rotate", place)
    with pytest.raises(ValueError, match="another key for site 1"):
        SecureSiteFolder(Site(place)).accepted()
    command("admit", secure, place / "request.json", "--replace")
    with pytest.raises(ValueError, match="have changed since covenant"):
        SecureFederation(Federation(secure)).current()
    command("plan", secure)
    assert SecureFederation(Federation(secure)).current().digest != before.digest
    accept_all(secure)


def test_keys_that_are_not_there_cannot_be_renewed(secure):
    for name in ("site.key", "sums.key"):
        (place_of(secure, 0) / name).unlink()
    assert "no keys to renew" in failing("rotate", place_of(secure, 0))
    assert "neither site.toml nor federation.toml" in " ".join(failing("rotate", secure / "keys").split())


def test_a_certificate_is_renewed_before_it_expires_for_the_same_names(local):
    # catches: a server that sites cannot call any more by its name; a warning that comes too late, or never goes
    def expires():
        return keys.validity(local / "keys" / "server.crt")[1] - datetime.now(UTC)

    command("keys", local, "--host", "federation.example.org")
    names = keys.hosts_of(local / "keys" / "server.crt")
    assert "expires on" not in command("status", local)
    assert "restart the SuperLink" in " ".join(command("rotate", local, "--days", 29).split())
    assert timedelta(days=28) < expires() <= timedelta(days=29)
    assert "expires on" in command("status", local)
    assert "rotate DIR" in json.loads(command("status", local, "--json"))["certificate"]
    old = keys.load_public(local / "keys" / "signing.pub")
    command("rotate", local)
    assert expires() > timedelta(days=364)
    assert "expires on" not in command("status", local)
    assert keys.hosts_of(local / "keys" / "server.crt") == names
    assert keys.certificate_fault(local / "keys", "federation.example.org") == ""
    assert keys.load_public(local / "keys" / "signing.pub") == old  # which sites believe
    for site in range(3):
        assert (place_of(local, site) / "ca.crt").read_bytes() == (local / "keys" / "ca.crt").read_bytes()
    for name in ("server.key", "server.key.old"):
        assert stat.S_IMODE((local / "keys" / name).stat().st_mode) == 0o600


def test_names_of_files_grow_together_from_a_hundred_sites_on(tmp_path):
    # catches: keys that are looked for under longer names than they have
    options = [option for _ in range(100) for option in ("--rows", 2)]
    command("init", tmp_path / "f", *options, "--features", 2)
    (tmp_path / "f" / "roster").mkdir()
    for site in range(100):
        (tmp_path / "f" / "roster" / f"{site:02d}.pub").write_text(f"{site}\n")
    command("join", tmp_path / "f", "--rows", 2)
    whole = Federation(tmp_path / "f")
    assert whole.missing_keys() == [100]
    command("leave", tmp_path / "f", 4)
    found = [int(whole.roster(site, 100).read_text()) for site in range(99)]
    assert found == [site for site in range(100) if site != 4]
    assert [Site(whole.site(site, 100)).number for site in range(100)] == list(range(100))
