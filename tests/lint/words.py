"""Prose and comments are in plain English: some phrases are refused in each text file. What users
read, Markdown outside code and the guide's examples, also has the words of the glossary with their
meaning there. Sentences in Markdown have few words from one mark to the next.
"""

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
# In what users read.
REFUSED_IN_PAGES = {
    # A sentence that begins with "Of a text: ..." hides its subject.
    r"(?-i:Of) \w+": "the subject first: For ..., In ..., Groups with ...",
    r"no use of": "does not use",
    r"(is|are) over(?=[.,;:)])": "has ended",
    r"goes next": "is the next, follows",
    r"\w+, too(?=[.,;:)])": "also",
    r"from (?!then|now|there|here)\S+( \S+){0,3} on(?=[.,;:)])": "since, after, all later ones",
    r"what (came|comes) of": "the result of",
    r"passe[sd] on what": "say what was written or copied",
    # What is no longer kept is released, evicted (memory is needed), expires (time), trimmed (the
    # end of a session), dropped (the caller said so) or cancelled (it has not begun).
    r"(give|gives|gave|given|giving) (up|way)": "release, evict, trim, drop or cancel",
    r"(lets?|letting) go": "release, evict, trim, drop or cancel",
    r"withdr(aw|aws|awing|awn|ew)": "release, evict, trim, drop or cancel",
    # Words with one meaning.
    r"(?<!slow\s)(?<!slow\s\s\s)tiers?": "store; a slow tier is a mapped file",
    r"tiles? of (?!16)\d+": "a tile has 16 tokens; queries choose together",
    r"blocks? of (rows|queries)": "rows, queries; a block has tokens",
    r"batch(es)? of (events|messages|items)": "message, list; a batch is a step",
    r"handle slots?": "entry; a slot has a token",
}
# The most words from one of . ! ? : ; to the next: one with more packs several rules.
LONGEST = 36

# Words may be on two lines, with the marks of a comment or the quotes of a string between them.
GAP = r"""(?:[\s"'*/#!;]+)"""


def word_of(phrase):
    """A word that each text with this phrase has, or ""."""
    words = re.findall(r"(?<![\\\w%])[a-z]+(?![\w?])", re.sub(r"\([^)]*\)", "(", phrase))
    return max(words, key=len, default="")


def compiled(phrases):
    return [
        (re.compile(r"(?<!\w)" + phrase.replace(" ", GAP) + r"\b", re.I), word_of(phrase), better)
        for phrase, better in phrases.items()
    ]


PATTERNS, PATTERNS_IN_PAGES = compiled(REFUSED), compiled(REFUSED_IN_PAGES)


def is_prose(path):
    if path.as_posix() in LEFT_OUT or not LEFT_OUT.isdisjoint(path.parts[:-1]):
        return False
    return path.suffix in SUFFIXES or path.name == "meson.build"


def without_code(text):
    """Empties blocks of code, and makes a word of code in a line, so that places stay the same."""
    text = re.sub(r"^```.*?^```$", lambda code: "\n" * code[0].count("\n"), text, 0, re.M | re.S)
    return re.sub(r"`[^`]+`", lambda code: re.sub(r"[^\n]", "x", code[0]), text)


# A paragraph or an item of a list; no table, heading, picture or comment.
PARAGRAPH = re.compile(r"^(?![|#<!]|\s*$).+(?:\n(?![|#<!]|\s*$|\s*(?:[*-]|\d+\.) ).+)*", re.M)


def check_lengths(name, text):
    for paragraph in PARAGRAPH.finditer(text):
        line = text.count("\n", 0, paragraph.start()) + 1
        prose = re.sub(r"\]\([^)]*\)", "]", paragraph[0])
        prose = re.sub(r"(?:[\w.-]+,\s){4,}", "", prose)  # a list of names is one thing
        for part in re.split(r"(?<=[.!?:;])[)*\"]*\s", prose):
            words = part.split()
            if len(words) > LONGEST:
                yield (
                    f"{name}:{line}: {len(words)} words from '{' '.join(words[:5])}' to the next "
                    f"mark, {LONGEST} are the limit: one rule per sentence"
                )


def check_page(path, text):
    if path.suffix == ".md":
        text = without_code(text)
        yield from check_lengths(path, text)
    if path.suffix == ".md" or path.is_relative_to("include/guide"):
        yield from check_text(path, text, PATTERNS_IN_PAGES)


def check_text(name, text, patterns):
    lower = text.lower()
    for pattern, word, better in patterns:
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
            text = path.read_text(errors="replace")
            found += check_text(name, text, PATTERNS)
            found += check_page(name, text)
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
        ("'Of several'", {"a.md": "* Of several ranges the later one wins.\n"}),
        ("'no use of'", {"a.md": "Which is no use\nof the text.\n"}),
        ("'is over'", {"a.md": "Until the duration is over, it stays.\n"}),
        ("'goes next'", {"a.md": "What goes next.\n"}),
        ("'cached, too'", {"a.md": "They stay cached,\ntoo. Then more.\n"}),
        ("'from the first one on'", {"a.md": "Cut from the first\none on, in order.\n"}),
        ("'what came of'", {"a.md": "It says what came of it.\n"}),
        ("'passed on what'", {"a.md": "It has passed on what it had.\n"}),
        ("'gives up'", {"a.md": "It gives\nup a block.\n"}),
        ("'let go'", {"a.md": "Nothing that is let go.\n"}),
        ("'withdrawn'", {"a.md": "A withdrawn block.\n"}),
        ("'tier'", {"a.md": "The slow tier\nis not this tier.\n"}),
        ("'tiles of 64'", {"a.md": "Cut into tiles of 64 tokens.\n"}),
        ("'blocks of queries'", {"a.md": "In blocks of queries.\n"}),
        ("'batch of events'", {"a.md": "It sends a batch of events.\n"}),
        ("'handle slots'", {"a.md": "Of 16 handle slots.\n"}),
        ("'Of dim'", {"include/guide/examples/a.c": "/* Of dim d. */\n"}),
        ("a.md:3: 37 words from 'word", {"a.md": "# A\n\n" + "word " * 37 + "\n"}),
        ("b.md:4: 37 words from 'to", {"b.md": "A\nb.\n\n* is\n  it. to " + "word " * 36 + "\n"}),
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
                "b.md": "From then on, 2 are over 1. A slow tier, a slow\ntier, `tier`, tiles of "
                "16 tokens.\n```sh\nOf a tier, too.\n```\n"
                + "word " * 20
                + "a: "
                + "word " * 30
                + "\n* "
                + "word " * 30
                + "\n| "
                + "word " * 40
                + "|\n\n"
                + "name, " * 40
                + "\n",
            },
        ),
    ],
)
