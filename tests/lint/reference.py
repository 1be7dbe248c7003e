"""What the reference needs, the comments say. Of each exported function, right before it: which
statuses it returns beside those that pagedkv.h names for all; shapes of the tensors that it
takes; how long a string it returns lives. Since which version: exports.py looks at that. Which
threads may call it stands there or, for all functions of the header, at the header's top."""

import re

import harness

FUNCTION = re.compile(
    r"/\*\*((?:(?!\*/).)*)\*/\s*(?:#define[^\n]*\n\s*)*PKV_(?:REDIS_)?API\s+([^;{]*?)\b(\w+)\s*\(([^;]*?)\);",
    re.S,
)
STATUSES = re.compile(r"Statuses: (.*?)(?=\bSince |\Z)", re.S)
STATUS = re.compile(r"^  PKV_([A-Z_]+) = \d+\b", re.M)
WORD = re.compile(r"\b[A-Z][A-Z_]+\b")
SHAPE = re.compile(r"\[[\w .]+\](?:\[\w+\])+")
LIFE = re.compile(r"Static storage|belongs to the library|\bpkv_last_error\(\)")
THREADS = re.compile(r"^ \* Threads: ", re.M)
OWN_THREADS = re.compile(r"[Aa]ny thread|each thread|this thread")


def check_function(comment, returns, name, parameters, statuses):
    text = re.sub(r"\s*\n\s*\*?\s*", " ", comment)
    if returns.strip() == "pkv_status":
        listed = STATUSES.search(text)
        if listed is None:
            yield "does not say which statuses"
        else:
            unknown = set(WORD.findall(re.sub(r"\([^)]*\)", "", listed[1]))) - statuses
            if unknown:
                yield f"names statuses that there are not: {', '.join(sorted(unknown))}"
    if "char*" in returns and not LIFE.search(text):
        yield "does not say how long the text lives"
    tensors = len(re.findall(r"\bpkv_tensor\*", parameters))
    if len(SHAPE.findall(text)) < tensors and "As pkv_" not in text:
        yield f"does not give the shapes of {tensors} tensors"


def check(root):
    headers = {path.name: text for path, text in harness.sources(root, "include/pagedkv")}
    statuses = set(STATUS.findall(headers.get("common.h", "")))
    found = []
    for header, text in headers.items():
        top = text[: text.find("*/")]
        for comment, returns, name, parameters in FUNCTION.findall(text):
            found += [
                f"{header}: the documentation of {name} {gap}"
                for gap in check_function(comment, returns, name, parameters, statuses)
            ]
            if not THREADS.search(top) and not OWN_THREADS.search(comment):
                found.append(
                    f"{header}: neither the documentation of {name} nor the top of the header "
                    "says 'Threads:'"
                )
    return found


COMMON = {
    "include/pagedkv/common.h": "typedef enum pkv_status {\n  PKV_OK = 0,\n"
    "  PKV_IO = 400, /**< x */\n} pkv_status;\n"
}


def header(function, top="/* a\n *\n * Threads: all. */\n"):
    return COMMON | {"include/pagedkv/a.h": top + function}


SAMPLES = [
    (
        None,
        header(
            "/** A. Statuses: IO (with NONE\n * and MORE). Since 0.1. */\nPKV_API pkv_status "
            "pkv_a(int x);\n"
        ),
    ),
    (
        None,
        header(
            "/** A. Any thread. Statuses: none of its own. */\nPKV_API pkv_status pkv_a(int x);\n",
            "/* a */\n",
        ),
    ),
    (
        None,
        header(
            "/** Rows [n][heads][dim]. Statuses: as pkv_b. */\nPKV_API pkv_status pkv_a(const "
            "pkv_tensor* x);\n"
        ),
    ),
    ("which statuses", header("/** A. Since 0.1. */\nPKV_API pkv_status pkv_a(int x);\n")),
    (
        "there are not: OI",
        header("/** A. Statuses: OI. Since 0.1. */\nPKV_API pkv_status\npkv_a(int x);\n"),
    ),
    ("how long the text lives", header("/** A. */\nPKV_API const char* pkv_a(int x);\n")),
    (
        "shapes of 2 tensors",
        header(
            "/** Rows [n][heads]. Statuses: IO. */\nPKV_API pkv_status pkv_a(const pkv_tensor* x, "
            "const pkv_tensor* y);\n"
        ),
    ),
    (
        "says 'Threads:'",
        header("/** A. Statuses: IO. */\nPKV_API pkv_status pkv_a(int x);\n", "/* a */\n"),
    ),
]

if __name__ == "__main__":
    harness.run(check, SAMPLES)
