import socket

with socket.socket(socket.AF_UNIX) as asking:
    asking.settimeout(8)
    asking.connect("/run/wirewatch/prober.sock")
    asking.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    if asking.recv(9) != b"HTTP/1.1 ":
        raise SystemExit("no prober answers")
