"""The comments of the public headers say what the reference needs. The comment right before an
exported function has one line `@param NAME  text` for each of its parameters, in their order:
pointers with the direction [in], [out] or [in,out], tensors with their shape. It lists the
statuses that the function returns beside those that pagedkv.h names for all, and says how long a
string that it returns lives. Which threads may call it stands there or, for all functions of the
header, at the header's top. A `*name` in the comment is the value of a pointer parameter. Since
which version a function is there: exports.py looks at that."""

import re

import harness

FUNCTION = re.compile(
    r"/\*\*((?:(?!\*/).)*)\*/\s*(?:#define[^\n]*\n\s*)*"
    r"PKV_(?:REDIS_)?API\s+([^;{]*?)\b(\w+)\s*\(([^;]*?)\);",
    re.S,
)
STATUSES = re.compile(r"Statuses: (.*?)(?=\bSince |\Z)", re.S)
STATUS = re.compile(r"^  PKV_([A-Z_]+) = \d+\b", re.M)
WORD = re.compile(r"\b[A-Z][A-Z_]+\b")
SHAPE = re.compile(r"\[[\w .]+\](?:\[\w+\])+")
LIFE = re.compile(r"Static storage|belongs to the library|\bpkv_last_error\(\)")
THREADS = re.compile(r"^ \* Threads: ", re.M)
OWN_THREADS = re.compile(r"[Aa]ny thread|each thread|this thread")


PARAM = re.compile(r"^ \* @param(?:\[([^\]]*)\])? +(\w+) *(.*(?:\n \*   .*)*)", re.M)
PARAMETER = re.compile(r"(.*?)(\w+)$", re.S)
VALUE_OF = re.compile(r"(?<![\w)\]])\*(\w+)")
DIRECTIONS = ("in", "out", "in,out")


def check_direction(name, kind, direction):
    """A pointer says where data goes; what is const is written only through a pkv_tensor, and a
    list of pointers to what is const is no const list."""
    if "*" not in kind:
        return f"gives {name} a direction, but it is no pointer" if direction else None
    if direction not in DIRECTIONS:
        return f"does not say whether {name} is [in], [out] or [in,out]"
    target = kind.rpartition("*")[0].strip()
    const = target.endswith("const") or (target.startswith("const ") and "*" not in target)
    if direction == "in" and not const:
        return f"calls {name} [in], but it is not const"
    if "out" in direction and const and "pkv_tensor" not in kind:
        return f"calls {name} [{direction}], but it is const"
    return None


def check_parameters(comment, parameters):
    declared = {}
    for parameter in "" if parameters.strip() == "void" else parameters.split(","):
        kind, name = PARAMETER.fullmatch(parameter.strip()).groups()
        declared[name] = kind.strip()
    described = PARAM.findall(comment)
    names = [name for _, name, _ in described]
    for name in sorted(set(names) - declared.keys()):
        yield f"describes {name}, which is no parameter"
    for name in declared.keys() - set(names):
        yield f"does not describe {name}"
    if set(names) == declared.keys() and names != list(declared):
        yield "describes the parameters in another order than they have, or one twice"
    for direction, name, text in described:
        kind = declared.get(name, "")
        if not re.search(r"\w", text):
            yield f"says nothing of {name}"
        if name in declared and (gap := check_direction(name, kind, direction)):
            yield gap
        if "pkv_tensor*" in kind and not SHAPE.search(text):
            yield f"does not give the shape of {name}"
    for name in VALUE_OF.findall(re.sub(r"^ \*", "", comment, flags=re.M)):
        if "*" not in declared.get(name, ""):
            yield f"speaks of *{name}, which is no parameter"


def check_function(comment, returns, name, parameters, statuses):
    yield from check_parameters(comment, parameters)
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
                    f"{header}: neither the documentation of {name} nor the top says 'Threads:'"
                )
    return found


harness.run(check)
