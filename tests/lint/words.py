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
    if path.suffix == ".md" or path.is_relative_to("include"):
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


harness.run(check)
