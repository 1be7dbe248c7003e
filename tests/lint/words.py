"""Prose and comments are in plain English: some phrases are refused in each text file."""

import re

import harness

SUFFIXES = set(".md .h .hpp .cpp .c .py .go .rs .js .java .lua .sh".split())
SUFFIXES |= {""}  # scripts
# Folders by name, files by path.
LEFT_OUT = {"generated", "corpus", "subprojects", "tests/lint/words.py"}

REFUSED = {
    r"so many": "this many, or at most n",
    r"(tell|tells|telling) of": "gives, lists, has",
    r"of late": "recently",
    # The tests of Redis have a function of this name.
    r"(mend|mends|mended|mending)(?!\()": "fix",
    r"(can|could|to) be had": "must be, or can be taken",
    r"(is|are) had": "has, keeps",
    r"\w*\d and \w*\d are known": "must be a or b",
    r"\d (and|to) %\w+ are known": "must be 0 to n",
    r"%\w+ to %\w+ are known": "must be a to b",
    r"memory of (the|a) caller's": "the caller's memory",
    r"resume nobody": "resume none",
    r"goes on alone": "continues alone",
    r"for ever": "forever",
    r"under way": "in progress",
    r"at hand": "available",
    r"begins? alike": "share a prefix",
    r"in rising order": "in ascending order",
    r"behind the end": "after the end",
    r"inside of": "inside",
    r"whoever": "a caller, a thread or a user that",
    r"(to|most) \S+ are possible": "must be a to b, or at most b",
    r"(?<!here\s)is no (array|list|multiple|number|string)": "is not a",
}
# Words may be on two lines, with the marks of a comment or the quotes of a string between them.
GAP = r"""(?:[\s"'*/#!;]+)"""


def word_of(phrase):
    """A word that each text with this phrase has, or ""."""
    words = re.findall(r"(?<![\\\w%])[a-z]+(?![\w?])", re.sub(r"\([^)]*\)", "(", phrase))
    return max(words, key=len, default="")


PATTERNS = [
    (re.compile(r"(?<!\w)" + phrase.replace(" ", GAP) + r"\b", re.I), word_of(phrase), better)
    for phrase, better in REFUSED.items()
]


def is_prose(path):
    if path.as_posix() in LEFT_OUT or not LEFT_OUT.isdisjoint(path.parts[:-1]):
        return False
    return path.suffix in SUFFIXES or path.name == "meson.build"


def check_text(name, text):
    lower = text.lower()
    for pattern, word, better in PATTERNS:
        # Finding the word takes a twentieth of the time.
        for match in pattern.finditer(text) if word in lower else ():
            line = text.count("\n", 0, match.start()) + 1
            words = " ".join(re.split(GAP, match[0]))
            yield f"{name}:{line}: '{words}'; write: {better}"


def check(root):
    found = []
    for path in harness.committed(root):
        name = path.relative_to(root)
        if is_prose(name):
            found += check_text(name, path.read_text(errors="replace"))
    return found


harness.run(
    check,
    [
        ("a.md:2: 'so many'", {"a.md": "# A\nA session of so many tokens.\n"}),
        ("a.h:1: 'So many'", {"a.h": "// The splits. So\n// many chunks read it.\n"}),
        ("a.h:2: 'tells of'", {"a.h": "/**\n * Tells\n * of how many.\n */\n".lower()}),
        ("'tell of'", {"a.cpp": 'fail("the tables tell "\n     "of %d bytes", n);\n'}),
        ("'of late'", {"a/b.py": '"""The traffic of late."""\n'}),
        ("'mend'", {"b.go": "const A = 1 // mend the call.\n"}),
        ("'Mended'", {"b.rs": "/// Mended.\n"}),
        ("'mending'", {"b.lua": "-- without the mending\n"}),
        ("'mends'", {"b.js": "// What mends it.\n"}),
        ("'can be had'", {"b.c": 'fail("1 to %d blocks can be had");\n'}),
        ("'is had'", {"b.java": "// What is had.\n"}),
        ("'0 and 1 are known'", {"b.hpp": 'fail("%d; 0 and 1 are known");\n'}),
        ("'Q4_0 and Q4_1 are known'", {"b.go": 'Errorf("%v; Q4_0 and Q4_1 are known")\n'}),
        ("'0 to %zu are known'", {"b.cpp": 'fail("%u; 0 to %zu "\n  "are known");\n'}),
        ("'%u to %d are known'", {"b.cpp": 'fail("%u to %d are known");\n'}),
        ("'memory of the caller", {"b.rs": "//! K and V in memory of the\n//! caller's.\n"}),
        ("'resume nobody'", {"b.cpp": 'fail("suspend some, and resume "\n  "nobody");\n'}),
        ("'goes on alone'", {"b.py": 'print(f"decode: goes on alone: {why}")\n'}),
        ("'for ever'", {"b.c": "/* Waits for ever. */\n"}),
        ("'under way'", {"b.h": "// The call is under\n// way.\n"}),
        ("'at hand'", {"b.md": "No machine was at hand.\n"}),
        ("'begin alike'", {"b.rs": "// Texts that begin alike.\n"}),
        ("'in rising order'", {"b.h": "// Indices in rising order.\n"}),
        ("'behind the end'", {"b.cpp": "// Slots behind the end.\n"}),
        ("'inside of'", {"b.go": "// A step begins inside of it.\n"}),
        ("'Whoever'", {"b.py": '"""Whoever comes second."""\n'}),
        ("'to %d are possible'", {"b.cpp": 'fail("%d; 1 to %d are possible");\n'}),
        ("'is no multiple'", {"b.rs": "// This is no multiple of 16.\n"}),
        ("'so many'", {"meson.build": "# so many\n"}),
        ("'so many'", {"tests/run": "#!/usr/bin/env bash\n# so many\n"}),
        (
            None,
            {
                "a.md": "Also many tokens, many of them latent; amend it.\nIt can have this.\n"
                "It is done for every session, at handles, inside offices.\n",
                "a.cpp": "void mend() { cluster_.mend(); }\n// The rest are known by name.\n",
                "generated/a.go": "// Tells of so many.\n",
                "corpus/a.c": "so many",
                "a.json": '{"doc": "so many"}',
            },
        ),
    ],
)
