#!/usr/bin/env python3
"""Breaks the Lua scripts in one place after the other, and runs the tests that have to notice. cargo-mutants does not read Lua.

    tests/lua_mutants.py                          every place: hours
    tests/lua_mutants.py --file gcra.lua          the places of one script
    tests/lua_mutants.py --sample 40 --seed 7     as many of them, at random
    tests/lua_mutants.py --list                   the places, without running anything

A place is a comparison (flipped, or off by its equality), a whole number (one more, one less), `and` or `or`, or a statement (left out).
Prints what no test has noticed, and exits with 1 if there is something. Works on a copy of the working tree in target/lua-mutants."""

import argparse
import pathlib
import random
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
COPY = ROOT / "target/lua-mutants"
PARITY = ["test", "--quiet", "-p", "tollgate-redis", "--lib", "internal_tests::"]
CONFORMANCE = ["test", "--quiet", "-p", "tollgate-redis", "--test", "conformance", "--test", "prefilter"]
RULES = ["test", "--quiet", "-p", "tollgate-rules", "--features", "redis", "--test", "redis_rules"]
TESTS = {"crates/tollgate-redis/lua": [PARITY, CONFORMANCE], "crates/tollgate-rules/lua": [RULES]}

SWAPS = {"<=": ["<", ">"], ">=": [">", "<"], "<": ["<=", ">="], ">": [">=", "<="], "==": ["~="], "~=": ["=="], "and": ["or"], "or": ["and"]}
TOKEN = re.compile(r"""(?P<text>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")|(?P<comment>--.*)|(?P<swap><=|>=|==|~=|<|>|\b(?:and|or)\b)|(?<![\w.])(?P<number>\d+)(?![\w.])""")
STATEMENT = re.compile(r"\s*(?!local |return|if |for |while |else|end\b|function|until|repeat)[\w.\[\]+\- ,]+(=(?!=)|\().*[^,({]$")


def mutants(lines):
    """(line, what it becomes) of each place, in the order of the file."""
    for number, line in enumerate(lines):
        if STATEMENT.fullmatch(line) and not line.lstrip().startswith("--") and line.count("(") == line.count(")"):
            yield number, ""
        for token in TOKEN.finditer(line):
            if token["comment"]:
                break
            if token["swap"]:
                others = SWAPS[token["swap"]]
            elif token["number"]:
                value = int(token["number"])
                others = [str(value + 1)] + [str(value - 1)] * (value > 0)
            else:
                continue
            for other in others:
                yield number, line[: token.start()] + other + line[token.end() :]


def noticed_by(commands, seconds):
    """The first of these tests that fails; one that does not end has noticed it too."""
    for command in commands:
        try:
            run = subprocess.run(["cargo", *command], cwd=COPY, capture_output=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            return "time"
        if run.returncode != 0:
            return command[-1]
    return None


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--file", help="the name of one script")
    arguments.add_argument("--sample", type=int, help="how many places, at random")
    arguments.add_argument("--seed", type=int, default=1, help="of the sample")
    arguments.add_argument("--seconds", type=int, default=600, help="how long the tests of one place may run, the build included")
    arguments.add_argument("--list", action="store_true", help="print the places and run nothing")
    arguments = arguments.parse_args()

    places = []
    for folder, commands in TESTS.items():
        for file in sorted((ROOT / folder).glob(arguments.file or "*.lua")):
            lines = file.read_text().split("\n")
            places += [(file.relative_to(ROOT), lines, number, other, commands) for number, other in mutants(lines)]
    if not places:
        sys.exit(f"no script is named {arguments.file}: take one of {', '.join(TESTS)}")
    if arguments.sample:
        places = random.Random(arguments.seed).sample(places, min(arguments.sample, len(places)))
    if arguments.list:
        for file, lines, number, other, _ in places:
            print(f"{file}:{number + 1}: {lines[number].strip()}  =>  {other.strip() or '(left out)'}")
        return

    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for name in listed.split("\0")[:-1]:
        (COPY / name).parent.mkdir(parents=True, exist_ok=True)
        # With its time, so that cargo builds only what has changed.
        shutil.copy2(ROOT / name, COPY / name, follow_symlinks=True)
    for commands in TESTS.values():
        if noticed_by(commands, 3600):
            sys.exit("the tests fail before anything is broken")
    missed = 0
    for count, (file, lines, number, other, commands) in enumerate(places, 1):
        (COPY / file).write_text("\n".join(lines[:number] + [other] + lines[number + 1 :]))
        found = noticed_by(commands, arguments.seconds)
        (COPY / file).write_text("\n".join(lines))
        missed += found is None
        print(f"{count}/{len(places)} {'caught by ' + found if found else 'MISSED'}: {file}:{number + 1}: {other.strip() or '(left out) ' + lines[number].strip()}", flush=True)
    print(f"{len(places) - missed} caught, {missed} missed")
    sys.exit(missed > 0)


main()
