"""Mints, narrows and verifies macaroons with pymacaroons, for the tests of our own implementation.

Usage: reference.py COMMAND SECRET, with a macaroon or an identifier on the first line of the input and a
caveat on each line after it.
"""

import sys

from pymacaroons import MACAROON_V1, MACAROON_V2, Macaroon, Verifier

LOCATION = "asyncgate"
VERSIONS = {"v1": MACAROON_V1, "v2": MACAROON_V2}


def mint(secret, identifier, version):
    return Macaroon(location=LOCATION, identifier=identifier, key=secret, version=VERSIONS[version])


def verify(secret, macaroon, caveats):
    verifier = Verifier()
    for caveat in caveats:
        verifier.satisfy_exact(caveat)
    try:
        return verifier.verify(macaroon, secret)
    except Exception as error:
        print(error, file=sys.stderr)
        return False


def main():
    command, secret = sys.argv[1:]
    first, *caveats = sys.stdin.read().split("\n")
    if command == "verify":
        print("good" if verify(secret, Macaroon.deserialize(first), caveats) else "bad")
        return
    if command.startswith("third-party-"):
        macaroon = mint(secret, first, command.rpartition("-")[2])
        macaroon.add_third_party_caveat("http://elsewhere.example/", "a key of theirs", "who is it")
    else:
        narrowing = command == "narrow"
        macaroon = Macaroon.deserialize(first) if narrowing else mint(secret, first, command.rpartition("-")[2])
        for caveat in caveats:
            macaroon.add_first_party_caveat(caveat)
    print(macaroon.serialize())


main()
