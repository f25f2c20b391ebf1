"""Parses structured fields with http_sf, and prints what it has read with its types.

Reads from the standard input, and prints, JSON:

    [["list", "\\"a\\";q=1"], ["dictionary", "limit=1"]]
    [[["str", "a", {"q": ["int", 1]}]], {"limit": ["int", 1, {}]}]
"""

import json
import sys

import http_sf


def bare(value):
    return [type(value).__name__, value if isinstance(value, (int, str)) else repr(value)]


def item(member):
    value, parameters = member
    return [*bare(value), {name: bare(value) for name, value in parameters.items()}]


def parse(kind, text):
    read = http_sf.parse(text.encode("ascii"), tltype=kind)
    if kind == "list":
        return [item(member) for member in read]
    return {name: item(member) for name, member in read.items()}


json.dump([parse(kind, text) for kind, text in json.load(sys.stdin)], sys.stdout)
