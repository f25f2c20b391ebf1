"""Asks a server for one thing after the other with a client that waits as it is told when it is refused.

Reads from the standard input, and prints, JSON:

    {"client": "urllib3", "url": "http://127.0.0.1:1234", "requests": 5}
    {"statuses": [200, 200, 200, 200, 200], "waits": [20.0, 20.0]}

No time passes: for each wait the server is told to move its clock by as much, with GET /wait/<microseconds>.
"""

import json
import sys
import time
import urllib.request

asked = json.load(sys.stdin)
url, waits = asked["url"], []


def sleep(seconds):
    waits.append(seconds)
    urllib.request.urlopen(f"{url}/wait/{round(seconds * 1_000_000)}").read()


time.sleep = sleep

if asked["client"] == "urllib3":
    import urllib3

    # As its page says to retry: so many times, and all else as it is.
    http = urllib3.PoolManager(retries=urllib3.Retry(5))

    def get():
        return http.request("GET", f"{url}/").status

else:
    import httpx
    from httpx_retries import RetryTransport

    http = httpx.Client(transport=RetryTransport())

    def get():
        return http.get(f"{url}/").status_code


statuses = [get() for _ in range(asked["requests"])]
json.dump({"statuses": statuses, "waits": waits}, sys.stdout)
