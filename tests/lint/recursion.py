"""No function of the libraries calls itself, directly or through others: the depth of the stack
must not depend on what a caller passes. The calls are read from the machine code, so functions
count as they were compiled: a call that became a jump needs no stack. Taking the address of a
function counts as a call, because callbacks are called by what takes them; calls through virtual
functions are not seen. Functions of the standard library may call themselves: sorts and trees are
as deep as the logarithm of their size.

usage: recursion.py TREE OBJDUMP LIBRARY..."""

import re
import subprocess
import sys

import harness

OBJDUMP = sys.argv[2]
FUNCTION = re.compile(r"[0-9a-f]+ <([^>]+)>:$")
REFERENCE = re.compile(r"\s+[0-9a-f]+:\s+(\w+)\s.*<([^>+@]+)(?:@plt)?(?:\+0x[0-9a-f]+)?>$")
JUMPS = re.compile(r"j|b(?!l)|[ct]bn?z")
STANDARD = re.compile(r"_ZN?K?St")
# A function, and why its depth is bounded.
ALLOWED = {
    "acquire_through_batch": "a session leases its batch, which is in no batch",
    "8TbbArena": "passes work on to a pool of threads; the compiler guesses that it is a TbbArena",
}


def calls(library):
    """{function: {function it calls or jumps to: whether it calls it}}"""
    command = [OBJDUMP, "-d", "--no-show-raw-insn", str(library)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    graph = {}
    for line in text.splitlines():
        if found := FUNCTION.match(line):
            here = graph.setdefault(found[1].removesuffix(".cold"), {})
            name = found[1].removesuffix(".cold")
        elif found := REFERENCE.match(line):
            target = found[2].removesuffix(".cold")
            call = not JUMPS.match(found[1])
            if call or target != name:
                here[target] = here.get(target, False) or call
    return graph


def circles(graph):
    """Returns the sets of functions that reach one another (Tarjan 1972), without recursion."""
    index, low, stack, waiting, found = {}, {}, [], set(), []
    for start in graph:
        path = [] if start in index else [(start, iter(graph[start]))]
        while path:
            name, targets = path[-1]
            if name not in index:
                index[name] = low[name] = len(index)
                stack.append(name)
                waiting.add(name)
            for target in targets:
                if target in graph and target not in index:
                    path.append((target, iter(graph[target])))
                    break
                if target in waiting:
                    low[name] = min(low[name], index[target])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[name])
                if low[name] == index[name]:
                    at = stack.index(name)
                    found.append(set(stack[at:]))
                    waiting -= found[-1]
                    del stack[at:]
    return found


def check_library(library):
    graph = calls(library)
    if not graph:
        return [f"{library} has no functions"]
    found = []
    for circle in circles(graph):
        grows = any(
            call and target in circle for name in circle for target, call in graph[name].items()
        )
        if not grows or all(STANDARD.match(name) for name in circle):
            continue
        if not any(allowed in name for name in circle for allowed in ALLOWED):
            found.append(f"{library}: the stack grows with each call: {', '.join(sorted(circle))}")
    return found


def check(_):
    return [finding for library in sys.argv[3:] for finding in check_library(library)]


harness.run(check)
