"""Takes one unit of a budget that Rust services share: python3 take.py <port> <script.lua> <key>

`cargo run -p tollgate-redis --example script > script.lua` prints the script, whose first lines describe arguments and reply.
"""

import hashlib
import socket
import struct
import sys

port, path, key = int(sys.argv[1]), sys.argv[2], sys.argv[3].encode()
script = open(path, "rb").read()

# 60 an hour, 60 at once, by GCRA, which is algorithm 17: a unit takes 60 000 000 / 1 microseconds, and 60 fit.
quota = struct.pack("<BddI", 17, 60_000_000, 60, 1)
# Take (0) under an enforced rule (0), the last check of its request (0), on the first key (1): one unit.
check = struct.pack("<BBBHd", 0, 0, 0, 1, 1) + quota
# By the time of the server.
arguments = [b"", check]

server = socket.create_connection(("127.0.0.1", port))
answer = server.makefile("rb")


def ask(*words):
    server.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
    line = answer.readline().decode().strip()
    if line.startswith("-"):
        return line
    return [int(answer.readline()[1:]) for _ in range(int(line[1:]))]


sha1 = hashlib.sha1(script).hexdigest().encode()
reply = ask(b"EVALSHA", sha1, b"1", key, *arguments)
if isinstance(reply, str) and reply.startswith("-NOSCRIPT"):
    reply = ask(b"EVAL", script, b"1", key, *arguments)

now, retry, left, fresh = reply
if retry == -1:
    print(f"allowed, {left} left, full again in {fresh} us")
elif retry <= -4:
    print(f"allowed, {left} left, the next one fits in {-4 - retry} us")
elif retry == -2:
    print(f"denied for ever: it costs more than the limit; {left} are left")
elif retry == -3:
    print("the key has a value of another program")
else:
    print(f"denied, {left} left, it fits in {retry} us")
