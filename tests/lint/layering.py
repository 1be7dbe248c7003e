"""Who may include whom under src/.

    api -> engine -> kernels -> base          downward only
    store -> file -> session -> cache -> attention -> rows -> memory     within the engine;
                                                    prefix lies between cache and memory
    redis -> base                             a library of its own

The engine sees kernels/kernels.h, kernels/views.h and kernels/tile_layout.h only; oneTBB is for
base/parallel, headers of a system for base, vector instructions for kernels; what is compiled for
an instruction set keeps the standard library's inline functions out.

A room has a namespace of its name: pkv::memory, pkv::kernels, ... What all rooms know (base), and
the nouns that users know (cache and session), are in pkv itself.
"""

import re

import harness

NAMESPACE = re.compile(r"^namespace (pkv[\w:]*) \{", re.M)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)

# Room -> the rooms it may include. A file belongs to the longest room its path begins with.
ROOMS = {
    "base": {"base"},
    "kernels": {"kernels", "base"},
    "engine/memory": {"engine/memory", "kernels", "base"},
    "engine/rows": {"engine/rows", "engine/memory", "kernels", "base"},
    "engine/attention": {"engine/attention", "engine/rows", "engine/memory", "kernels", "base"},
    "engine/prefix": {"engine/prefix", "engine/memory", "kernels", "base"},
}
for above, below in (
    ("engine/cache", {"engine/attention", "engine/prefix"}),
    ("engine/session", {"engine/cache"}),
    ("engine/step", {"engine/session"}),
    ("engine/file", {"engine/session"}),
    ("engine/store", {"engine/file"}),
    ("api", {"engine/store", "engine/step"}),
):
    ROOMS[above] = {above}.union(*({room} | ROOMS[room] for room in below))
ROOMS["redis"] = {"redis", "base"}
NAMESPACES = {room: f"pkv::{room.removeprefix('engine/')}" for room in ROOMS} | {
    "base": "pkv",
    "engine/cache": "pkv",
    "engine/session": "pkv",
    "engine/step": "pkv",
}
# Rooms with a second namespace inside.
INNER = {"base": {"pkv", "pkv::os"}, "kernels": {"pkv::kernels", "pkv::kernels::scalar"}}
KERNELS_FACE = {"kernels/tile_layout.h", "kernels/kernels.h", "kernels/views.h"}
# Headers of POSIX, Linux, macOS and Windows, but for POSIX threads, which exist everywhere.
SYSTEM = re.compile(
    r"(sys|linux|asm|mach|arpa|netinet|net)/.*|(unistd|fcntl|dirent|dlfcn|signal|poll|netdb|sched|"
    r"windows|winsock2|io|psapi|sddl|aclapi|bcrypt)\.h"
)
VECTOR = re.compile(r"xsimd/|.*intrin\.h$|arm_neon\.h$|arm_sve\.h$")
ISA_ALLOWED = re.compile(
    r"xsimd/.*|.*intrin\.h|pagedkv/.*\.h|(arm_neon|arm_sve|stddef|stdint|stdbool|float|limits)\.h"
)


def room_of(path):
    rooms = [room for room in ROOMS if path.startswith(room + "/")]
    return max(rooms, key=len, default=None)


def includes_of(text):
    return [
        (quote, name, text.count("\n", 0, start) + 1)
        for quote, name, start in ((m[1], m[2], m.start()) for m in INCLUDE.finditer(text))
    ]


def check_include(path, quote, name):
    room = room_of(path)
    if quote == "<":
        if name.startswith(("tbb/", "oneapi/tbb")) and not path.startswith("base/parallel"):
            return "oneTBB is for base/parallel only"
        if name.startswith("openssl/") and room == "redis" and path != "redis/tls.cpp":
            return "OpenSSL is for redis/tls.cpp only, in redis"
        if VECTOR.match(name) and room != "kernels":
            return "vector instructions are for kernels only"
        if SYSTEM.fullmatch(name) and room not in ("base", "redis"):
            return "headers of a system are for base only"
        return None
    target = room_of(name)
    if target is None:
        return "includes of our own are written from src/ on"
    if target not in ROOMS[room]:
        return f"{room} may not see {target}"
    if target == "kernels" and room != "kernels" and name not in KERNELS_FACE:
        return f"{room} sees only {' and '.join(sorted(KERNELS_FACE))} of the kernels"
    return None


def check_namespaces(path, text):
    room = room_of(path)
    allowed = INNER.get(room, {NAMESPACES[room]})
    return [
        f"src/{path}: namespace {name}: that of {room} is {NAMESPACES[room]}"
        for name in NAMESPACE.findall(text)
        if name not in allowed
    ]


def check_isa(files):
    """Everything the files under kernels/isa reach: only headers without inline functions that a
    linker may merge.
    """
    seen, queue, found = set(), [p for p in files if p.startswith("kernels/isa/")], []
    while queue:
        path = queue.pop()
        if path in seen or path not in files:
            continue
        seen.add(path)
        for quote, name, line in includes_of(files[path]):
            if quote == '"':
                queue.append(name)
            elif not ISA_ALLOWED.fullmatch(name):
                found.append(
                    f"src/{path}:{line}: <{name}>: compiled per instruction set, so no standard "
                    "library here"
                )
    return sorted(found)


def check(root):
    files = {
        str(path.relative_to("src")): harness.strip_comments(text)
        for path, text in harness.sources(root, "src")
    }
    found = []
    for path, text in files.items():
        if room_of(path) is None:
            found.append(f"src/{path}: a file outside every room: {', '.join(ROOMS)}")
            continue
        found += check_namespaces(path, text)
        for quote, name, line in includes_of(text):
            complaint = check_include(path, quote, name)
            if complaint:
                found.append(f"src/{path}:{line}: {name}: {complaint}")
    return found + check_isa(files)


harness.run(check)
