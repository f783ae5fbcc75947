"""What a round of secure sums costs: bytes and processor time of a site and of the server.

python benchmarks/secure.py                  8 and 100 sites, messages of 30, 500, 1000 and 5000 numbers
python benchmarks/secure.py --sites 20 --lengths 100

Every round runs in this process, with all its exchanges. Time is processor time; of the sites the median and the
slowest one are told, of repeats the fastest. Beside it stands what an Ed25519 verification takes on the same machine at
the same time, of which a site makes about n + t and the server about 4n: on a busy machine all of it is slower alike.
The line "trusted" is the same round with a server that sees every message: a signed request with the point, a signed
reply with the message, both verified.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from hushpoint.federated import Reply, Request, decode, encode
from hushpoint.federated.keys import new_key
from hushpoint.noise import secure_source
from hushpoint.secure import Agreement, Encoding, Roster, Server, Site, Terms
from hushpoint.secure.primitives import is_signed, signature, signing_public


@dataclass
class Cost:
    """Seconds of processor time and bytes of one party."""

    seconds: float = 0.0
    up: int = 0
    down: int = 0

    def timed(self, work: Callable[[], bytes]) -> bytes:
        """Do a piece of work at the party's expense."""
        start = time.process_time()
        result = work()
        self.seconds += time.process_time() - start
        return result


@dataclass
class Round:
    """All parties of a round, and what it cost them."""

    sites: list[Site]
    terms: Terms
    costs: list[Cost] = field(default_factory=list)
    server: Cost = field(default_factory=Cost)
    exchanges: int = 1


def sites_of(n: int, survivors: int, colluders: int) -> list[Site]:
    """Sites that keep their state in memory."""
    keys = [np.random.default_rng(k).bytes(32) for k in range(n)]
    roster = Roster(tuple((f"site {k}", signing_public(key)) for k, key in enumerate(keys)))
    agreement = Agreement("benchmark", roster, survivors, colluders)
    kept: dict[int, bytes] = {}
    return [Site(agreement, k, key, lambda state, k=k: kept.update({k: state})) for k, key in enumerate(keys)]


def played(sites: list[Site], number: int, length: int, lost: int) -> Round:
    """One round in which some sites vanish before their message; an error unless the sum is right."""
    terms = Terms(sites[0].agreement, number, bytes(32), bytes(32), length)
    messages = np.random.default_rng(number).integers(0, 1 << 64, (len(sites), length), dtype=np.uint64)
    found = Round(sites, terms, [Cost() for _ in sites])
    server = Server(terms)

    def hand_in(k: int, letter: bytes) -> None:
        found.costs[k].up += len(letter)
        start = time.process_time()
        server.take(letter)
        found.server.seconds += time.process_time() - start

    for k, site in enumerate(sites):
        found.costs[k].down += 8 * length  # the public point, which every round is asked at
        hand_in(k, found.costs[k].timed(lambda site=site: site.advertise(terms)))
    while server.kind != "reveal":
        start = time.process_time()
        requests = server.requests()
        found.server.seconds += time.process_time() - start
        found.exchanges += 1
        for k, request in requests.items():
            site, cost = sites[k], found.costs[k]
            if server.kind == "masked" and k < lost:
                continue
            cost.down += len(request)
            answers = {
                "shares": lambda site=site, request=request: site.share(request),
                "masked": lambda site=site, request=request, k=k: site.mask(request, lambda: messages[k]),
                "survivors": lambda site=site, request=request: site.sign(request),
                "reveal": lambda site=site, request=request: site.reveal(request),
            }
            hand_in(k, cost.timed(answers[server.kind]))
    start = time.process_time()
    opened = server.opened()
    found.server.seconds += time.process_time() - start
    if not np.array_equal(opened.total, messages[lost:].sum(axis=0)):
        raise SystemExit("the sum is wrong.")
    return found


def trusted(n: int, length: int) -> tuple[int, int, float, float]:
    """Bytes up and down of a site, and seconds of the server and of a site, where the server sees every message."""
    own, key, point = new_key(), new_key(), np.zeros(length)
    server, site = Cost(), Cost()
    message = np.arange(length, dtype=np.int64)
    total = np.zeros(length, dtype=np.int64)
    for k in range(n):
        request = server.timed(lambda k=k: encode(Request("run", 1, k, "t", 0, "", point), own))
        site.down += len(request)

        def answer(request: bytes = request) -> bytes:
            asked = decode(request, Request, own.public_key())
            return encode(Reply("run", 1, asked.site, asked.name, "moved", message=message), key)

        reply = site.timed(answer)
        site.up += len(reply)

        def take(reply: bytes = reply) -> bytes:
            np.add(total, decode(reply, Reply, key.public_key()).message, out=total)
            return b""

        server.timed(take)
    return site.up // n, site.down // n, server.seconds, site.seconds / n


def verification() -> float:
    """Seconds of processor time of one Ed25519 verification, now."""
    key, text = bytes(range(32)), bytes(200)
    public, signed = signing_public(key), signature(key, text)
    start = time.process_time()
    for _ in range(200):
        is_signed(public, text, signed)
    return (time.process_time() - start) / 200


def encoding_seconds(n: int, honest: int, length: int) -> float:
    """Seconds to round, check and noise a message, after the first one."""
    encoding = Encoding(2.0**-30, 1.0, 2.0, length, 1 << 30, n, honest, whole=True)
    source, message = secure_source(), np.full(length, 0.9 / np.sqrt(length))
    encoding.encoded(message, source, 0, 1)
    start = time.process_time()
    for number in range(2, 12):
        encoding.encoded(message, source, 0, number)
    return (time.process_time() - start) / 10


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sites", type=int, nargs="+", default=[8, 100])
    options.add_argument("--lengths", type=int, nargs="+", default=[30, 500, 1000, 5000])
    options.add_argument("--repeats", type=int, default=3)
    chosen = options.parse_args()
    print(f"one verification of a signature: {1e6 * verification():.0f} us\n")
    print("  n   lost  length  exchanges   site up  site down  server ms  site ms (slowest)  encoding ms  verify us")
    for n in chosen.sites:
        colluders = max(1, n // 10)
        for length in chosen.lengths:
            up, down, server, site = trusted(n, length)
            print(f"{n:>4} trusted {length:>5} {1:>8} {up:>12,} {down:>10,} {1e3 * server:>10.0f} {1e3 * site:>9.1f}")
            for lost in (0, max(1, n // 20)):
                sites = sites_of(n, n - lost, colluders)
                rounds = [played(sites, number + 1, length, lost) for number in range(chosen.repeats)]
                best = rounds[-1]
                server = min(each.server.seconds for each in rounds)
                times = np.array([[cost.seconds for cost in each.costs[lost:]] for each in rounds]).min(axis=0)
                up = int(np.median([cost.up for cost in best.costs]))
                down = int(np.median([cost.down for cost in best.costs]))
                print(
                    f"{n:>4} {lost:>5} {length:>7} {best.exchanges:>8} {up:>12,} {down:>10,} {1e3 * server:>10.0f} "
                    f"{1e3 * np.median(times):>9.1f} ({1e3 * times.max():.1f}) "
                    f"{1e3 * encoding_seconds(n, n - lost - colluders, length):>12.2f} {1e6 * verification():>10.0f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
