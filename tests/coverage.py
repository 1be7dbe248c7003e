"""Sums up the output of llvm-cov: a table per source file and per room, or one line, and a list of
what was not reached. Functions and lines come from the lcov file; branches come from the JSON file
beside it, which has their place in the line.

Usage: coverage.py [--sum NAME] FILE.lcov MISSED.txt
"""

import collections
import json
import os
import sys

EXPANSION = 1  # the kind of a region where a macro is used


class File:
    """The counts of one source file: {what: how often it was reached}."""

    def __init__(self):
        self.functions, self.lines, self.branches = {}, {}, {}


def add(counts, key, count):
    """The same source in several programs counts once, and so do the instances of a template."""
    counts[key] = max(counts.get(key, 0), count)


def read(path):
    files = collections.defaultdict(File)
    file, starts = None, {}
    with open(path, encoding="utf-8") as lcov:
        for record in lcov:
            kind, _, rest = record.strip().partition(":")
            if kind == "SF":
                file, starts = files[os.path.relpath(rest)], {}
            elif kind == "FN":
                line, name = rest.split(",", 1)
                starts[name] = int(line)
            elif kind == "FNDA":
                count, name = rest.split(",", 1)
                add(file.functions, starts[name], int(count))
            elif kind == "DA":
                line, count = rest.split(",")[:2]
                add(file.lines, int(line), int(count))
    read_branches(os.path.splitext(path)[0] + ".json", files)
    return {name: file for name, file in files.items() if name.startswith("src" + os.sep)}


def read_branches(path, files):
    """Adds both outcomes of each condition, by place. A condition that is constant in an instance
    of a template is not a branch there.
    """
    with open(path, encoding="utf-8") as export:
        functions = json.load(export)["data"][0]["functions"]
    for function in functions:
        # A region is (line, column, line, column, count, file, expanded file, kind).
        uses = {region[6]: region for region in function["regions"] if region[7] == EXPANSION}
        for line, column, _, _, taken, not_taken, file, *_ in function["branches"]:
            place = (line, column)
            while file in uses:  # inside a macro: the place of its use
                place, file = (*uses[file][:2], *place), uses[file][5]
            counts = files[os.path.relpath(function["filenames"][file])].branches
            add(counts, (place, "true"), taken)
            add(counts, (place, "false"), not_taken)


def share(counts):
    reached = sum(count > 0 for count in counts)
    return (
        f"{100 * reached / len(counts):6.1f} % {reached:5} of {len(counts):5}"
        if counts
        else " " * 23
    )


def row(name, files):
    lines = [count for file in files for count in file.lines.values()]
    branches = [count for file in files for count in file.branches.values()]
    functions = [count for file in files for count in file.functions.values()]
    shares = f"functions {share(functions)}   lines {share(lines)}   branches {share(branches)}"
    return f"{name:34} {shares}"


def write_missed(files, path):
    with open(path, "w", encoding="utf-8") as missed:
        for name, file in sorted(files.items()):
            for what, counts in (("function", file.functions), ("line", file.lines)):
                missed.writelines(
                    f"{name}:{line}: {what}\n" for line in sorted(counts) if counts[line] == 0
                )
            # The branches of a line that was not reached are left out.
            missed.writelines(
                f"{name}:{place[0]}:{place[1]}: never {outcome}\n"
                for place, outcome in sorted(file.branches)
                if file.branches[place, outcome] == 0 and file.lines.get(place[0], 1) > 0
            )


def main():
    arguments = sys.argv[1:]
    total = arguments.pop(1) if arguments[0] == "--sum" else None
    path, missed = arguments[-2:]
    files = read(path)
    if not files:
        sys.exit("coverage.py: no file of src/ in " + path)
    if total:
        files = {
            name: file
            for name, file in files.items()
            if name.split(os.sep)[1] in ("api", "base", "engine")
        }
        print(row(total, files.values()))
    else:
        rooms = collections.defaultdict(list)
        for name in sorted(files):
            print(row(name, [files[name]]))
            rooms["/".join(name.split(os.sep)[:2])].append(files[name])
        print()
        for room, members in sorted(rooms.items()):
            print(row(room, members))
    write_missed(files, missed)


if __name__ == "__main__":
    main()
