"""Makes C programs from a few inputs of each corpus, compiles and runs them: they must make the
same calls and get the same statuses. A program with a wrong status written into it must notice; one
that was recorded from a crashing library must crash with it.

usage: reproduce_test.py TREE BUILD COMPILER..."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

TARGETS = ("arguments", "attention", "prefix", "sessions", "threads")
INPUTS = 2


def run(command, **environment):
    return subprocess.run(
        [str(part) for part in command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


def must(command, **environment):
    done = run(command, **environment)
    if done.returncode != 0:
        sys.exit(
            f"{' '.join(map(str, command))} ended with "
            f"{done.returncode}:\n{done.stdout}{done.stderr}"
        )
    return done.stderr


def build(source):
    program = source.with_suffix("")
    must(
        [
            *compiler,
            "-std=c99",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-I",
            tree / "include",
            source,
            "-ldl",
            "-rdynamic",
            "-o",
            program,
        ]
    )
    return program


def reproduce(target, file, source, *options, **environment):
    """Writes the program of an input, and returns the output."""
    return must(
        ["bash", tree / "fuzz/reproduce", *options, target, file, source],
        PKV_BUILD=str(build_root),
        **environment,
    )


def play(program, opened=None):
    return run([program], PAGEDKV_LIBRARY=str(opened or library))


def expect(done, status, sentence):
    if done.returncode != status or not re.search(sentence, done.stdout + done.stderr):
        sys.exit(
            f"{done.args}: {status} and {sentence!r} were expected, not "
            f"{done.returncode}:\n{done.stdout}{done.stderr}"
        )


def all_inputs(target):
    return sorted(
        (build_root / "fuzz/corpus" / target).iterdir(),
        key=lambda path: (path.stat().st_size, path.name),
    )


def middle_input(target):
    corpus = all_inputs(target)
    return corpus[len(corpus) // 2]


def has_store(source):
    return "left out: it needs threads" in source.read_text()


def check_statuses(target, work):
    """The programs of INPUTS inputs of several sizes, each the next one without a store."""
    corpus = all_inputs(target)
    source = work / f"{target}.c"
    for i in range(INPUTS):
        for file in corpus[(2 * i + 1) * len(corpus) // (2 * INPUTS) :]:
            warning = reproduce(target, file, source)
            if has_store(source) != ("has a store" in warning):
                sys.exit(f"{file}: the program and {warning!r} disagree about a store")
            if not has_store(source):
                break
        else:
            sys.exit(f"{target}: no input without a store")
        done = play(build(source))
        expect(done, 0, r"^[1-9]\d* calls, all with the recorded statuses\n$")
        print(f"{target} {file.name}: {done.stdout.strip()}")


def check_wrong_status(work):
    source = work / "wrong.c"
    reproduce("sessions", middle_input("sessions"), source)
    before, _, after = source.read_text().rpartition("  expect(PKV_OK);\n")
    source.write_text(f"{before}  expect(PKV_BUSY);\n{after}")
    expect(play(build(source)), 1, "PKV_OK, recorded was PKV_BUSY")


def check_brief(work):
    """Without the calls that only read, the others have the same statuses."""
    source = work / "brief.c"
    reproduce("sessions", middle_input("sessions"), source, "--brief")
    expect(play(build(source)), 0, "^[1-9]")
    names = re.findall(r'^  call\("(\w+)"\)', source.read_text(), re.M)
    if "cache_create" not in names or "cache_validate" in names[:-1]:
        sys.exit(f"{names} are the calls of a brief program")


def check_crash(work):
    """A library that crashes in one function: the program crashes, too, and with the good library
    it reports that the call returned.
    """
    (work / "dies.c").write_text(
        "#include <stdlib.h>\nint pkv_prefix_clear(void);\nint pkv_prefix_clear(void) { abort(); "
        "}\n"
    )
    dies = work / "libdies.so"
    must(
        [
            *compiler,
            "-shared",
            "-fPIC",
            work / "dies.c",
            "-Wl,--no-as-needed",
            library,
            f"-Wl,-rpath,{library.parent}",
            "-o",
            dies,
        ]
    )
    source = work / "crash.c"
    reproduce("prefix", middle_input("prefix"), source, LD_PRELOAD=str(dies))
    program = build(source)
    expect(play(program, dies), -signal.SIGABRT, "")
    expect(play(program), 1, "pkv_prefix_clear: it returned, which it did not when it was recorded")


def check_pool():
    """A target without calls at the C interface is refused."""
    done = run(["bash", tree / "fuzz/reproduce", "pool", middle_input("pool")])
    expect(done, 2, "not the C interface")


if __name__ == "__main__":
    tree, build_root, compiler = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
    library = build_root / "src/libpagedkv.so"
    with tempfile.TemporaryDirectory() as folder:
        for name in TARGETS:
            check_statuses(name, pathlib.Path(folder))
        check_wrong_status(pathlib.Path(folder))
        check_brief(pathlib.Path(folder))
        check_crash(pathlib.Path(folder))
    check_pool()
