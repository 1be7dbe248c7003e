"""Chooses tests of a build directory, and prints what must be built for them.

usage: choose.py BUILD_DIRECTORY WORD...

A WORD is the name of a suite or of a test, or ALL, PLAIN, REST and HOSTS (the three parts of ALL:
see `tests/run --help`), LIGHT (all but the suite heavy), or QUICK.
Prints a line "test\tNAME" for each test, "target\tFILE" for what ninja must build, and
"note\tSENTENCE" for the user. An unknown word is a sentence on stderr, and the exit code is 2.
"""

import difflib
import json
import pathlib
import sys
import textwrap

WORDS = {"ALL", "PLAIN", "REST", "HOSTS", "LIGHT", "QUICK"}
HEAVY = {"heavy"}
# The plain run leaves these out: packages, static checks of bindings, and other engines.
REST = {"packages", "checks"}
HOSTS = {"hosts"}
# QUICK leaves these out: they take nearly half of the time, and find few bugs that others do not.
NOT_QUICK = HEAVY | REST | HOSTS | {"bindings", "install", "redis"}
# Suites that sanitizer builds do not have.
NOT_SANITIZED = HEAVY | REST | HOSTS | {"lint", "abi", "install"}


def suites(test):
    return {suite.split(":", 1)[-1] for suite in test["suite"]}


def matches(word, test):
    if word == "ALL":
        return True
    if word == "PLAIN":
        return not suites(test) & (REST | HOSTS)
    if word == "REST":
        return bool(suites(test) & REST) and not suites(test) & HOSTS
    if word == "HOSTS":
        return bool(suites(test) & HOSTS)
    if word == "LIGHT":
        return not suites(test) & HEAVY
    if word == "QUICK":
        return "lint" in suites(test) or not suites(test) & NOT_QUICK
    return word == test["name"] or word in suites(test)


def unknown(words, tests):
    """An error sentence with all names, if a word names nothing."""
    names = sorted({test["name"] for test in tests})
    rooms = sorted(set().union(*map(suites, tests)) - {"pagedkv"})
    for word in words:
        if not any(matches(word, test) for test in tests):
            close = difflib.get_close_matches(word, names + rooms, 3)
            meant = f" (did you mean {' or '.join(close)}?)" if close else ""
            return (
                f'there is no suite or test "{word}"{meant}.\n'
                + textwrap.fill(f"Suites: {', '.join(rooms)}.", 100)
                + "\n"
                + textwrap.fill(f"Tests: {', '.join(names)}.", 100)
            )
    return None


def note(words, chosen):
    """A note about the other builds that run the named tests."""
    if WORDS & set(words):
        return None
    asan = sum(not suites(test) & NOT_SANITIZED for test in chosen)
    tsan = sum("threads" in suites(test) for test in chosen)
    if not asan and not tsan:
        return None
    return (
        f"Of these {len(chosen)} tests, up to {asan} also run under the address and undefined "
        f"behaviour sanitizers, and {tsan} under the thread sanitizer, in `bash tests/run "
        "everything` alone."
    )


def read(build, name):
    return json.loads((build / "meson-info" / name).read_text())


def main():
    build, words = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    try:
        tests, targets = read(build, "intro-tests.json"), read(build, "intro-targets.json")
    except (OSError, ValueError) as problem:
        sys.exit(f"choose.py: {problem}: is {sys.argv[1]} configured?")
    complaint = unknown(words, tests)
    if complaint:
        print(f"tests/run: {complaint}", file=sys.stderr)
        sys.exit(2)
    chosen = [test for test in tests if any(matches(word, test) for word in words)]
    needed = set().union(*(test["depends"] for test in chosen))
    sentence = note(words, chosen)
    if sentence:
        print(f"note\t{sentence}")
    for test in chosen:
        print(f"test\t{test['name']}")
    for target in targets:
        if target["id"] in needed:
            for file in target["filename"]:
                print(f"target\t{pathlib.Path(file).relative_to(build)}")


if __name__ == "__main__":
    main()
