"""The page of a federated run: its numbers are the log's, and a secret sample stays one."""

import pytest
from federations import Federation, anchored, local, problem

import hushpoint as hp
from hushpoint import report
from hushpoint.federated import run_in_process


@pytest.mark.parametrize("make", [local, anchored])
def test_the_page_says_what_was_spent_and_by_whom(tmp_path, make):
    data = problem()
    result = run_in_process(make(data, rounds=3), data, seed=1, directory=tmp_path, validation=data)
    page = report.write(tmp_path / "run").read_text()
    assert "is finished" in page
    assert ("Nobody needs to be trusted" in page) == (make is local)
    assert "Not for release" in page  # a seed
    for guarantee in result.guarantees:
        assert report.words.rounded_up(guarantee.epsilon) in page
    assert f"{result.rounds[-1].bytes_up:,}" in page
    assert f"{result.rounds[-1].objective:.4g}" in page
    assert "seconds" not in page  # how long sites take may tell of their data, and no guarantee covers it
    assert page == report.write(tmp_path / "run", force=True).read_text()


def test_a_secret_sample_is_not_on_the_page(tmp_path):
    # the time of a round is a part of the secret: it grows with the number of sites asked, and with the slowest of them
    data = problem()
    plan = hp.methods.dp_sgd(data, 4, 0.3, sample_prob=0.5, noise_std=0.5)
    result = run_in_process(plan, data, seed=1, directory=tmp_path)
    page = report.write(tmp_path / "run").read_text()
    assert "seconds" not in page
    assert "The sample is a secret" in page
    assert "answered" not in page
    assert "bytes" not in page
    for line in result.rounds:
        assert f"{line.bytes_up:,}" not in page


def test_an_unfinished_run_has_a_page_with_its_troubles(tmp_path):
    data = problem()
    federation = Federation(local(data), data, tmp_path, quorum=0.5)
    federation.round(lambda site, reply: reply[:-3] if site == 2 else None if site == 3 else reply)
    page = report.write(tmp_path / "server").read_text()
    assert "not finished" in page
    assert "signature or form (1)" in page
    assert "no answer (1)" in page
