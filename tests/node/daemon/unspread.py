"""`wirewatch`, as the only node that tells its API server: its requests need no spread of seconds."""

from wirewatch.__main__ import main
from wirewatch.kubernetes import apiserver

if __name__ == "__main__":
    apiserver.SPREAD = 0.5
    main()
