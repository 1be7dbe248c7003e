"""Puts faults into the allocator's source, each of which the model checker must find: the headers
are copied with one change, the checker is compiled against the copy, and its run must end with a
finding. There are two kinds:

  seeded   the list below: an expression that must occur exactly once, and its replacement
  orders   every memory order in the source that is stronger than relaxed, weakened

A mutant that survives is an order that is stronger than necessary, listed with the reason in
justified.txt, or it shows a gap in the cases.

usage: mutants.py [--short] [--only WORDS] [--seconds S] [--tree TREE] --work DIRECTORY"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
SOURCES = ("engine/memory/pool*.cpp", "engine/memory/id_queue.h")
RUN_LIMIT = 300  # seconds; a checker that runs on has found nothing

SWAP = r"word\.compare_exchange_weak\(seen, pack\(state\), [^)]*\)"
# The name of a fault, what it replaces (a regular expression), and the replacement.
SEEDED = [
    ("no generation check", r"state\.generation != block_generation\(block\) \|\| ", ""),
    (
        "generation does not rise",
        r"\{state\.generation \+ 1, 0, 0\}",
        "{state.generation, 0, 0}",
    ),
    (
        "freed block keeps its fill",
        r"\{state\.generation \+ 1, 0, 0\}",
        "{state.generation + 1, 0, state.filled}",
    ),
    (
        "counter raised before the bit is set",
        r"(if \(count_ == 0\) return;\n) *set_bits\(\);\n((?: {4}.*\n)+)(  \}\n)",
        r"\1\2    set_bits();\n\3",
    ),
    (
        "changes are loads and stores",
        SWAP,
        "(word.store(pack(state), std::memory_order_release), true)",
    ),
    (
        "generation ignored in the compare",
        SWAP,
        "(seen = (word.load(std::memory_order_relaxed) >> 32 << 32) | (seen & 0xffffffff), "
        "word.compare_exchange_weak("
        "seen, pack(state), std::memory_order_acq_rel, std::memory_order_relaxed))",
    ),
    (
        "reserve without compare",
        r"([\w.]+)\.compare_exchange_weak\(free, ([\w -]+), [^)]*\)",
        r"(\1.store(\2, std::memory_order_acq_rel), true)",
    ),
    (
        "bits claimed by load and store",
        r"free_bits_\[word\]\.fetch_and\(~wanted, std::memory_order_acquire\) & wanted",
        "wanted; if (wanted != 0) "
        "free_bits_[word].store(free_bits_[word].load(std::memory_order_acquire) & ~wanted, "
        "std::memory_order_relaxed)",
    ),
    (
        "freed with a reference left, then again",
        r"after\.references != 0\) return PKV_OK",
        "after.references > 1) return PKV_OK",
    ),
    (
        "retired block is given out",
        r"if \(after\.generation == retired_generation\)",
        "if (after.generation == 0 && after.references == 1)",
    ),
    (
        "fork adds its reference by load and store",
        r"word\.fetch_add\(one_reference, std::memory_order_relaxed\)",
        "word.store(word.load(std::memory_order_relaxed) + one_reference, "
        "std::memory_order_relaxed)",
    ),
    (
        "a set flag is only read",
        r"queued_\[id\]\.exchange\(true, std::memory_order_acq_rel\)",
        "queued_[id].load(std::memory_order_acquire) || "
        "queued_[id].exchange(true, std::memory_order_acq_rel)",
    ),
    (
        "a flag is cleared before its link is read",
        r"( +taken_ = next_\[id\];\n)(.*\n)",
        r"\2\1",
    ),
    (
        "listed before the reference is gone",
        r"( *const pkv_status status = update\(block, PKV_NOT_HELD, (?:.*\n)+?)"
        r" *if \(after\.references == 1 && alone_\) alone_->add\(id\);\n",
        r"if (alone_ && references(block_id(block)) == 2) alone_->add(block_id(block));\n\1",
    ),
    ("refused list keeps its references", r"release_held\(\{blocks, i\}\);", ";"),
    (
        "alloc waits for a release",
        r"(uint64_t free = ([\w.]+)\.load\(std::memory_order_relaxed\);\s+"
        r"(?:do|for \(;;\)) \{\s+)if \(free < (\w+)\) return \w+;",
        r"\1while (free < \3) free = \2.load(std::memory_order_relaxed);",
    ),
]
SHORT = [
    "no generation check",
    "counter raised before the bit is set",
    "a set flag is only read",
    "shard_of(word_).free.fetch_add(release)",
    "fetch_and(acquire)",
]
WEAKER = {
    "acquire": ["relaxed"],
    "release": ["relaxed"],
    "acq_rel": ["relaxed", "acquire", "release"],
    "seq_cst": ["relaxed", "acq_rel"],
}


class Mutant:
    def __init__(self, name, file, text):
        self.name, self.file, self.text = name, file, text


def seeded(files):
    for name, anchor, replacement in SEEDED:
        places = [
            (file, match) for file, text in files.items() for match in re.finditer(anchor, text)
        ]
        if len(places) != 1:
            sys.exit(
                f'mutant "{name}": what it changes is there {len(places)} times, not once: {anchor}'
            )
        file, match = places[0]
        text = files[file]
        yield Mutant(
            name, file, text[: match.start()] + match.expand(replacement) + text[match.end() :]
        )


def orders(files):
    seen = {}
    for file, text in files.items():
        for match in re.finditer(r"std::memory_order_(\w+)", text):
            line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
            if match[1] == "relaxed" or "//" in line:
                continue
            call = re.findall(r"((?:[\w.\[\]]|\(\w*\))+)\.(\w+)\(", line)
            where, function = call[-1] if call else ("?", "?")
            for order in WEAKER[match[1]]:
                name = f"{file.rsplit('/', 1)[-1]} {where}.{function}({match[1]}) {order}"
                seen[name] = seen.get(name, 0) + 1
                if seen[name] > 1:
                    name += f" #{seen[name]}"
                yield Mutant(name, file, text[: match.start(1)] + order + text[match.end(1) :])


def justified():
    lines = (HERE / "justified.txt").read_text().splitlines()
    return {
        line.split(":", 1)[0].strip(): line.split(":", 1)[1].strip()
        for line in lines
        if ":" in line and not line.startswith("#")
    }


def build(tree, overlay, program):
    compiler = os.environ.get("CXX", "g++").split()
    include = [f"-I{path}" for path in (overlay, tree / "src", tree / "include") if path]
    command = [
        *compiler,
        "-std=c++20",
        "-O1",
        "-w",
        *include,
        str(HERE / "main.cpp"),
        str(tree / "src/base/status.cpp"),
        "-o",
        str(program),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stderr if done.returncode else ""


def hunt(mutant, tree, work, seconds):
    """Returns (caught, by which case, after how many executions, what was found)."""
    directory = work / re.sub(r"\W+", "_", mutant.name)
    shutil.rmtree(directory, ignore_errors=True)  # an older source may have been changed elsewhere
    overlay = directory / "headers"
    (overlay / mutant.file).parent.mkdir(parents=True, exist_ok=True)
    (overlay / mutant.file).write_text(mutant.text)
    program = directory / "schedules"
    error = build(tree, overlay, program)
    if error:
        return None, "does not compile", 0, error
    try:
        done = subprocess.run(
            [program, "--hunt", str(seconds)], capture_output=True, text=True, timeout=RUN_LIMIT
        )
    except subprocess.TimeoutExpired:
        return None, f"no end after {RUN_LIMIT} s", 0, ""
    (directory / "log").write_text(done.stdout)
    if done.returncode == 0:
        return False, "", sum(map(int, re.findall(r"(\d+) executions", done.stdout))), ""
    finding = re.search(
        r'^FINDING in case "([^"]*)" after (\d+) executions: (.*)', done.stdout, re.M
    )
    if done.returncode != 1 or not finding:
        return None, f"ends with {done.returncode}", 0, done.stderr
    return True, finding[1], int(finding[2]), finding[3]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true", help="a few mutants only")
    parser.add_argument("--only", default="", help="mutants whose names contain this")
    parser.add_argument(
        "--seconds",
        type=float,
        default=5,
        help="of random schedules for what the small cases do not find",
    )
    parser.add_argument("--tree", type=pathlib.Path, default=HERE.parent.parent)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    options = parser.parse_args()
    source = options.tree / "src"
    files = {
        path.relative_to(source).as_posix(): path.read_text()
        for pattern in SOURCES
        for path in sorted(source.glob(pattern))
    }
    mutants = [*seeded(files), *orders(files)]
    excused = justified()
    wrong = [
        f'justified.txt: there is no mutant "{name}"'
        for name in sorted(excused.keys() - {mutant.name for mutant in mutants})
    ]
    wrong += [
        f'there is no mutant "{name}"'
        for name in SHORT
        if not any(name in mutant.name for mutant in mutants)
    ]
    if options.short:
        mutants = [mutant for mutant in mutants if any(name in mutant.name for name in SHORT)]
    mutants = [mutant for mutant in mutants if options.only in mutant.name]

    def one(mutant):
        begin = time.monotonic()
        return (
            mutant,
            hunt(mutant, options.tree, options.work, options.seconds),
            time.monotonic() - begin,
        )

    print(f"{'mutant':<68} {'caught by':<36} {'executions':>10} {'s':>5}")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for mutant, (caught, case, executions, text), seconds in pool.map(one, mutants):
            verdict = (
                case
                if caught is not False
                else "(survives, see justified.txt)"
                if mutant.name in excused
                else "NOT CAUGHT"
            )
            print(f"{mutant.name:<68} {verdict:<36} {executions:>10} {seconds:>5.1f}", flush=True)
            if caught is None:
                wrong.append(f'"{mutant.name}": {case}\n{text}')
            elif caught == (mutant.name in excused):
                wrong.append(
                    f'"{mutant.name}" is caught, so its line in justified.txt is wrong'
                    if caught
                    else f'"{mutant.name}" is not caught'
                )
    print("\n".join(wrong) if wrong else f"{len(mutants)} mutants, as expected")
    return 1 if wrong or not mutants else 0


if __name__ == "__main__":
    sys.exit(main())
