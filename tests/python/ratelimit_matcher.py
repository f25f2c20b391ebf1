"""A second reading of envoyproxy/ratelimit: random configurations, random requests, and which limit each of them meets.

The tree and its matcher are as the README there describes them, with one text `key_value` for each entry. Prints a line of JSON for each
configuration: the files in YAML, and for each descriptor the limit that it meets and whether it passes, counted in one window.
"""

import json
import random
import re
import sys

UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800, "month": 2592000, "year": 31536000}
KEYS = ["path", "to_number", "kind", "x-tenant", "generic_key"]
VALUES = ["a", "ab", "aba", "b", "b_a", "a b", "12", "true", "A\"q\\"]
STARS = ["a*", "*a", "a*a", "*", "b*_*a", "ab*"]


def node(rng, depth, above, siblings):
    while True:
        key = rng.choice(KEYS)
        value = rng.choice([None, rng.choice(VALUES), rng.choice(VALUES), rng.choice(STARS)])
        if (key, value) not in siblings:
            break
    siblings.add((key, value))
    made = {"key": key}
    if value is not None:
        made["value"] = value
    counts = value is None or "*" in value
    # The import refuses a key that counts apart in one place and together in another.
    shared_above = {share for other, share in above if other == key and share is not None}
    share = counts and value is not None and rng.random() < 0.4
    if counts and shared_above:
        share = shared_above.pop()
        if share and value is None:
            return None
    if share:
        made["share_threshold"] = True
    if rng.random() < 0.2:
        made["shadow_mode"] = True
    if rng.random() < 0.1:
        made["detailed_metric"] = True
    if rng.random() < 0.7:
        if rng.random() < 0.15:
            made["rate_limit"] = {"unlimited": True}
        else:
            unit = rng.choice(["minute", "minute", rng.choice(list(UNITS))])
            made["rate_limit"] = {"unit": rng.choice([unit, unit.upper()]), "requests_per_unit": rng.choice([1, 2, 3, 4, 4, 3, 2, 0])}
        if rng.random() < 0.1:
            made["rate_limit"]["name"] = rng.choice(["named", "9 named"])
    if depth < 3 and rng.random() < 0.5:
        made["descriptors"] = nodes(rng, depth + 1, above + [(key, share if counts else None)])
    return made


def nodes(rng, depth, above, siblings=None):
    siblings = set() if siblings is None else siblings
    made = (node(rng, depth, above, siblings) for _ in range(rng.randint(1, 5)))
    return [one for one in made if one is not None]


def yaml(tree, indent=0):
    """Block style, with texts in quotes where they need them."""
    lines, space = [], " " * indent
    for name, value in tree.items():
        if isinstance(value, dict):
            lines += [f"{space}{name}:"] + yaml(value, indent + 2)
        elif isinstance(value, list):
            lines.append(f"{space}{name}:" if value else f"{space}{name}: []")
            for entry in value:
                of_entry = yaml(entry, indent + 4)
                of_entry[0] = f"{space}  - {of_entry[0].strip()}"
                lines += of_entry
        elif isinstance(value, str) and not re.fullmatch(r"[A-Za-z0-9_-]+", value):
            lines.append(f"{space}{name}: {json.dumps(value)}")
        else:
            lines.append(f"{space}{name}: {str(value).lower() if isinstance(value, bool) else value}")
    return lines


def load(tree):
    """By `key_value`, or `key`; and the texts with stars, in their order."""
    level, stars = {}, []
    for one in tree:
        text = one["key"] + ("_" + one["value"] if one.get("value") else "")
        assert text not in level
        level[text] = (one, load(one.get("descriptors", [])))
        if "*" in text:
            stars.append(text)
    return level, stars


def match(level, entries):
    """The limit, whether it only watches, and the name of its counter."""
    limit, shadow, counter = None, False, []
    for place, (key, value) in enumerate(entries):
        nodes_here, stars = level
        text = f"{key}_{value}"
        found, counted = nodes_here.get(text), value
        if found is None:
            for star in stars:
                if re.fullmatch(".*".join(map(re.escape, star.split("*"))), text, re.DOTALL):
                    found = nodes_here[star]
                    if found[0].get("share_threshold"):
                        counted = star[len(key) + 1:]
                    break
        if found is None:
            found = nodes_here.get(key)
        if found is None:
            return None, False, None
        counter.append((key, counted))
        one, level = found
        if place == len(entries) - 1 and "rate_limit" in one:
            limit, shadow = one["rate_limit"], one.get("shadow_mode", False)
        if not level[0] and place < len(entries) - 1:
            return None, False, None
    return limit, shadow, tuple(counter)


def ask(rng, tree):
    """Entries that lead to a node, mostly."""
    entries = []
    while tree and (not entries or rng.random() < 0.7):
        one = rng.choice(tree)
        value = one.get("value", rng.choice(VALUES)).replace("*", rng.choice(["", "b", "_", "aba"]))
        entries.append([one["key"], value or "a"])
        tree = one.get("descriptors", [])
    if rng.random() < 0.2:
        entries.append([rng.choice(KEYS), rng.choice(VALUES)])
    if rng.random() < 0.1:
        rng.shuffle(entries)
    return entries


def configuration(seed):
    rng = random.Random(seed)
    files, trees = [], {}
    for _ in range(rng.randint(1, 3)):
        domain = rng.choice(["edge", "9 lives", "a_b"])
        tree, siblings = trees.setdefault(domain, ([], set()))
        more = nodes(rng, 1, [], siblings)
        tree += more
        files.append("\n".join(yaml({"domain": domain, "descriptors": more})) + "\n")
    used, requests = {}, []
    for _ in range(80):
        domain = rng.choice(list(trees))
        tree = trees[domain][0]
        entries = ask(rng, tree)
        domain = rng.choice([domain] * 20 + ["other"])
        limit, shadow, counter = match(load(trees[domain][0]), entries) if domain in trees else (None, False, None)
        answer = None
        if limit is not None and not limit.get("unlimited"):
            counter = (domain, counter)
            units, seconds = limit["requests_per_unit"], UNITS[limit["unit"].lower()]
            used[counter] = used.get(counter, 0) + 1
            passes = shadow or used[counter] <= units
            # A limit of nothing has no window.
            answer = {"units": units, "seconds": seconds if units else 0, "shadow": shadow, "passes": passes}
        requests.append({"domain": domain, "entries": entries, "answer": answer})
    return {"files": files, "requests": requests}


if __name__ == "__main__":
    for number in range(int(sys.argv[1])):
        print(json.dumps(configuration(number)))
