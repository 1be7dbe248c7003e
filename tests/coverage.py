"""Sums up an lcov file of llvm-cov: a table per source file and per room, and the list of what nobody reached.

Usage: coverage.py ALL.lcov MISSED.txt
"""
import collections
import os
import sys


def read(path):
    """{file: (lines {number: count}, branches {(line, branch): count})}; the same source in several programs counts once."""
    files = {}
    lines = branches = None
    with open(path, encoding="utf-8") as lcov:
        for record in lcov:
            kind, _, rest = record.strip().partition(":")
            if kind == "SF":
                name = os.path.relpath(rest)
                lines, branches = files.setdefault(name, ({}, {}))
            elif kind == "DA":
                number, count = rest.split(",")[:2]
                lines[int(number)] = max(lines.get(int(number), 0), int(count))
            elif kind == "BRDA":
                number, block, branch, count = rest.split(",")
                key = (int(number), block, branch)
                branches[key] = max(branches.get(key, 0), 0 if count == "-" else int(count))
    return files


def share(counts):
    reached = sum(count > 0 for count in counts)
    return f"{100 * reached / len(counts):6.1f} %  {reached:5} of {len(counts):5}" if counts else " " * 24


def main():
    files = {name: found for name, found in read(sys.argv[1]).items() if name.startswith("src" + os.sep)}
    if not files:
        sys.exit("coverage.py: no file of src/ in " + sys.argv[1])
    rooms = collections.defaultdict(lambda: ([], []))
    print(f"{'':36} {'lines':>24} {'branches':>26}")
    with open(sys.argv[2], "w", encoding="utf-8") as missed:
        for name in sorted(files):
            lines, branches = files[name]
            print(f"{name:36} {share(list(lines.values()))}   {share(list(branches.values()))}")
            room = "/".join(name.split(os.sep)[:2])
            rooms[room][0].extend(lines.values())
            rooms[room][1].extend(branches.values())
            for number in sorted(n for n, count in lines.items() if count == 0):
                missed.write(f"{name}:{number}: line\n")
            for number, block, branch in sorted(key for key, count in branches.items() if count == 0):
                if lines.get(number, 1) > 0:
                    missed.write(f"{name}:{number}: branch {block}.{branch}\n")
    print()
    for room, (lines, branches) in sorted(rooms.items()):
        print(f"{room:36} {share(lines)}   {share(branches)}")


if __name__ == "__main__":
    main()
