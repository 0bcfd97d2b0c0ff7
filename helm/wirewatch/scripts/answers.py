"""Run by `helm test`: does every agent answer, and what does it say of its node.

Arguments: http or https, the port, the names of the Services. Ends with 0 when all that are found answer and
have ended their first poll; a node that is not well is said and fails nothing, since the installation is.
"""

import http.client
import json
import socket
import ssl
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

DEADLINE = 60
"""Seconds in which agents that have just been started may get ready."""
TIMEOUT = 5
AT_ONCE = 32
SHOWN = 10


def addresses(names: Iterable[str], port: int) -> set[str]:
    """Of all pods behind these Services; a name that nobody knows has none."""
    found = set()
    for name in names:
        try:
            found |= {str(one[4][0]) for one in socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)}
        except socket.gaierror as error:
            print(f"{name}: {error.strerror}")
    return found


def asked(scheme: str, address: str, port: int, path: str) -> tuple[int, bytes]:
    """Status and body. The certificate is not looked at: it names no address of a pod."""
    connection: http.client.HTTPConnection
    if scheme == "https":
        anybody = ssl.create_default_context()
        anybody.check_hostname = False
        anybody.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(address, port, timeout=TIMEOUT, context=anybody)
    else:
        connection = http.client.HTTPConnection(address, port, timeout=TIMEOUT)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def said(scheme: str, address: str, port: int) -> tuple[bool, str]:
    """Whether the agent is ready, and its word for the node, or what is in the way."""
    try:
        status, _ = asked(scheme, address, port, "/readyz")
        if status != http.HTTPStatus.OK:
            return False, f"not ready: {status}"
        status, body = asked(scheme, address, port, "/health")
        if status in {http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN}:
            return True, "ready, and asks for a password"
        return True, str(json.loads(body)["health"])
    except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
        return False, f"{type(error).__name__}: {error}"


def main() -> int:
    scheme, port, names = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    end = time.monotonic() + DEADLINE
    told: dict[str, tuple[bool, str]] = {}
    while True:
        found = addresses(names, port)
        told = {address: told[address] for address in found if told.get(address, (False, ""))[0]}
        with ThreadPoolExecutor(AT_ONCE) as pool:
            waiting = sorted(found - set(told))
            told |= dict(zip(waiting, pool.map(lambda one: said(scheme, one, port), waiting), strict=True))
        silent = [f"{address}: {word}" for address, (ready, word) in sorted(told.items()) if not ready]
        if (told and not silent) or time.monotonic() > end:
            break
        time.sleep(1)
    words = Counter(word for ready, word in told.values() if ready)
    print(f"{sum(words.values())} of {len(told)} agents answer:", dict(words))
    for line in (*silent[:SHOWN], *([f"and {len(silent) - SHOWN} more"] if silent[SHOWN:] else ())):
        print(line)
    if not told:
        print("no agent is there: see Troubleshooting in docs/kubernetes.md")
    return 0 if told and not silent else 1


if __name__ == "__main__":
    sys.exit(main())
