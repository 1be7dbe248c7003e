"""Tests pkv-generate: demo_test.py CASE PROGRAM LIBRARY DATA_FOLDER. Exits with 0 if the case
passes. $PKV_EMULATOR is the command that runs a program for another machine.
"""

import json
import os
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

case, program, library, data = sys.argv[1:5]
MODEL = Path(data, "tiny-shakespeare.bin")
TOKENIZER = Path(data, "tiny-shakespeare.tokenizer.bin")
scratch_folder = tempfile.TemporaryDirectory()
scratch = Path(scratch_folder.name)
EMULATOR = os.environ.get("PKV_EMULATOR", "").split()
COMMON = ("--library", library, "--model", str(MODEL), "--tokenizer", str(TOKENIZER))


def run(*arguments, text="", timeout=300, common=COMMON):
    command = [*EMULATOR, program, *common, *arguments]
    # Wine takes arguments and names of files in the encoding of the locale.
    env = os.environ | {"LC_ALL": "C.UTF-8"}
    return subprocess.run(
        command, input=text.encode(), capture_output=True, timeout=timeout, env=env
    )


def generate(*arguments):
    """Returns the token ids of every session and the figures of the run."""
    tokens, figures = scratch / "tokens", scratch / "figures.json"
    result = run("--quiet", "--tokens-out", str(tokens), "--json", str(figures), *arguments)
    assert (
        result.returncode == 0
    ), f"{arguments}: exit {result.returncode}, {result.stderr.decode()}"
    sessions = [[int(t) for t in line.split()] for line in tokens.read_text().splitlines()]
    return sessions, json.loads(figures.read_text())["runs"][0]


def refused(status, *arguments):
    """Checks that the run ends with this status and exactly one sentence, without a crash."""
    result = run("--quiet", "--sessions", "1", "--max-tokens", "1", *arguments)
    lines = result.stderr.decode(errors="replace").splitlines()
    assert (
        result.returncode == status
    ), f"{arguments}: exit {result.returncode} instead of {status}, {lines}"
    assert len(lines) == 1 and len(lines[0]) > 20, f"{arguments}: not one sentence: {lines}"
    assert result.stdout == b"", f"{arguments}: wrote to stdout"
    return lines[0]


def expected_greedy_tokens():
    return json.loads(Path(data, "tiny-shakespeare.expected.json").read_text())["tokens"][
        1 + len("ROMEO:\n") :
    ]


def case_expected():
    """Compares the text with the greedy text computed in float64, for every instruction set
    and type. Plain arrays give the same text.
    """
    expected = expected_greedy_tokens()
    assert len(expected) == 160
    romeo = ("--prompt", "ROMEO:\n", "--max-tokens", "160")
    sessions, figures = generate(*romeo, "--compare")
    assert sessions == [expected], "other tokens than expected"
    assert figures["kv"] == "paged" and figures["generated_tokens"] == 160
    for isa in (
        "scalar",
        "sse2",
        "avx2",
        "avx_vnni",
        "avx512",
        "avx512_vnni",
        "avx512_bf16",
        "amx",
        "neon",
        "neon_dot",
        "neon_bf16",
    ):
        probe = run("--quiet", "--sessions", "1", "--max-tokens", "1", "--isa", isa)
        if probe.returncode != 0:
            assert b"UNSUPPORTED" in probe.stderr, probe.stderr
            print(f"{isa}: not on this processor")
            continue
        sessions, figures = generate(*romeo, "--isa", isa)
        assert figures["isa"] == isa
        assert sessions == [expected], f"{isa}: other tokens than expected"
    for dtype in ("f16", "bf16"):
        found = generate(*romeo, "--dtype", dtype, "--compare")[0][0]
        agreeing = next((i for i, (a, b) in enumerate(zip(found, expected)) if a != b), 160)
        print(f"{dtype}: the first {agreeing} of 160 tokens agree with float64")
        assert (
            agreeing >= 40
        ), f"{dtype}: deviates after {agreeing} tokens, more than rounding explains"


def case_schedules():
    """Texts are the same however the work is divided, and whatever runs beside a session."""
    short = ("--max-tokens", "80")
    reference, figures = generate(*short)
    assert len(reference) == 16 and all(len(s) == 80 for s in reference)
    assert (
        figures["preemptions"] == 0
        and figures["peak_saved_blocks"] > 0
        and figures["matched_tokens"] >= 16 * 64
    )
    assert 0 < figures["worst_case_utilization"] < figures["utilization"] <= 1
    for cut in (
        ["--chunk", "1", "--compare"],
        ["--chunk", "7"],
        ["--running", "3"],
        ["--block-size", "48"],
        ["--threads", "1", "--compare"],
    ):
        sessions, _ = generate(*short, *cut)
        assert sessions == reference, f"{cut}: other tokens"


def case_preemption():
    """With too few blocks, sessions wait and are preempted, but the texts are the same."""
    reference, _ = generate()
    for blocks in ("60", "27"):
        sessions, figures = generate("--blocks", blocks)
        assert figures["preemptions"] >= 5, f"{blocks} blocks: {figures['preemptions']} preemptions"
        assert figures["peak_blocks"] <= int(blocks)
        assert sessions == reference, f"{blocks} blocks: other tokens"
    # One block too few for a session alone, then exactly enough.
    alone = ("--prompt", "ROMEO:\n", "--max-tokens", "160")
    sentence = refused(1, *alone, "--blocks", "10")
    assert re.search(r"11 blocks.*has 10", sentence), sentence
    assert generate(*alone, "--blocks", "11")[0] == [expected_greedy_tokens()]


def case_sizes():
    """The scheduler ends with the same texts in a cache of any size, from the least to plenty."""
    short, preemptions = ("--sessions", "6", "--max-tokens", "40"), 0
    reference, _ = generate(*short)
    least = int(re.search(r"need (\d+) blocks", refused(1, *short, "--blocks", "1"))[1])
    for chunk, step in ((6, 7), (32, 2), (1000, 5)):
        for blocks in range(least, 3 * least, step):
            cut = ("--blocks", str(blocks), "--chunk", str(chunk))
            sessions, figures = generate(*short, *cut)
            assert sessions == reference, f"{cut}: other tokens"
            preemptions += figures["preemptions"]
    assert preemptions > 50, preemptions


def case_prefix():
    """Texts are the same with and without the prefix index, and with hardly any memory for it."""
    reference, figures = generate("--no-prefix")
    assert figures["lookup_tokens"] == figures["matched_tokens"] == 0, figures
    for blocks in ("60", "27"):
        sessions, figures = generate("--blocks", blocks)
        assert (
            figures["preemptions"] >= 5
            and figures["evicted_tokens"] >= 20 * figures["block_size"]
            and figures["matched_tokens"] >= 1000
        ), figures
        assert (
            sessions == reference
        ), f"{blocks} blocks: other tokens with the prefix index than without"
        sessions, figures = generate("--blocks", blocks, "--no-prefix")
        assert figures["preemptions"] >= 1 and figures["matched_tokens"] == 0, figures
        assert sessions == reference, f"{blocks} blocks, no index: other tokens"


def case_store():
    """Blocks of closed sessions outlive the process: a second run computes no prompt again, and a
    store with wrong bytes changes no text.
    """
    store = scratch / "store"
    reference, _ = generate("--max-tokens", "60", "--sessions", "6")
    first, figures = generate("--max-tokens", "60", "--sessions", "6", "--store", str(store))
    assert first == reference
    files = sorted(store.rglob("*.kv"))
    assert len(files) > 20, files
    again, later = generate("--max-tokens", "60", "--sessions", "6", "--store", str(store))
    assert again == reference
    assert (
        later["matched_tokens"] > figures["matched_tokens"] + 100
        and later["matched_tokens"] > 0.95 * later["lookup_tokens"]
    ), (figures, later)
    pressed, figures = generate(
        "--max-tokens", "60", "--sessions", "6", "--store", str(store), "--blocks", "30"
    )
    assert pressed == reference and figures["preemptions"] > 0, figures
    for i, file in enumerate(files):
        content = bytearray(file.read_bytes())
        content[i * 97 % len(content)] ^= 1 << i % 8
        file.write_bytes(content)
    damaged, figures = generate("--max-tokens", "60", "--sessions", "6", "--store", str(store))
    assert damaged == reference
    refused(1, "--store", "/dev/null")
    refused(2, "--store", str(store), "--no-prefix")


def case_compare():
    """Runs in little memory, and then with plain arrays; the program itself checks that the tokens
    are the same.
    """
    figures = scratch / "both.json"
    result = run(
        "--compare",
        "--quiet",
        "--max-tokens",
        "50",
        "--blocks",
        "40",
        "--dtype",
        "bf16",
        "--json",
        str(figures),
    )
    assert result.returncode == 0, result.stderr.decode()
    assert b"The tokens of all sessions are the same." in result.stdout
    runs = json.loads(figures.read_text())["runs"]
    assert [r["kv"] for r in runs] == ["paged", "arrays"] and all(
        r["generated_tokens"] == 16 * 50 for r in runs
    )
    assert runs[0]["preemptions"] > 0, runs
    assert runs[0]["peak_saved_blocks"] > 0 == runs[1]["peak_saved_blocks"], runs


def case_sampling():
    """Samples depend only on the seed and the session."""
    warm = ("--prompt", "ROMEO:\n", "--max-tokens", "60", "--temperature", "0.9", "--sessions", "4")
    first, _ = generate(*warm)
    assert len({tuple(s) for s in first}) == 4, "sessions of one prompt sampled the same"
    assert generate(*warm)[0] == first
    assert generate(*warm, "--running", "1")[0] == first
    assert generate(*warm, "--seed", "2")[0] != first
    assert generate(*warm, "--top-p", "0")[0] == [expected_greedy_tokens()[:60]] * 4


def case_paths():
    """Paths and texts with letters beyond ASCII, in arguments and in variables, and a tokenizer
    that is found in the model's folder.
    """
    folder = scratch / "Blöcke データ"
    folder.mkdir()
    model, tokenizer = folder / "modèle.bin", folder / "tokenizer.bin"
    model.write_bytes(MODEL.read_bytes())
    tokenizer.write_bytes(TOKENIZER.read_bytes())
    own_library = folder / Path(library).name
    own_library.write_bytes(Path(library).read_bytes())
    os.environ["PAGEDKV_LIBRARY"] = str(own_library)
    files = {name: folder / f"{name} é" for name in ("tokens-out", "json", "save")}

    def run_there(*arguments):
        result = run("--model", str(model), *arguments, common=())
        assert result.returncode == 0, result.stderr.decode()
        return result.stdout

    short = ("--prompt", "Où est ROMÉO?\n", "--max-tokens", "20")
    outputs = [part for name, path in files.items() for part in (f"--{name}", str(path))]
    run_there(*short, *outputs)
    assert all(path.stat().st_size > 0 for path in files.values()), list(folder.iterdir())
    assert b"\r" not in files["tokens-out"].read_bytes() + files["json"].read_bytes()
    text = run_there(*short, "--load", str(files["save"]))
    assert "Où est ROMÉO?\n".encode() in text, text
    store = folder / "Speicher ß"
    run_there(*short, "--store", str(store))
    assert list(store.rglob("*.kv")), list(folder.rglob("*"))
    assert not list(folder.parent.glob("*.kv"))
    backslashes = str(model).replace("/", "\\")
    if EMULATOR and "wine" in EMULATOR[0]:
        assert run("--model", backslashes, *short, common=()).returncode == 0, backslashes


def case_options():
    for arguments in (
        ["--nonsense"],
        ["--sessions"],
        ["--sessions", "0"],
        ["--sessions", "-1"],
        ["--sessions", "4097"],
        ["--sessions", "3x"],
        ["--sessions", "99999999999999999999"],
        ["--dtype", "f8"],
        ["--block-size", "20"],
        ["--temperature", "nan"],
        ["--temperature", "-1"],
        ["--top-p", "1.5"],
        ["--seed", "x"],
        ["stray"],
        ["--prompt", "a", "--prompt", "b"],
        ["--chat", "--compare"],
        ["--chat", "--prompt", "a"],
        ["--isa", "mmx"],
        ["--max-tokens", ""],
    ):
        refused(2, *arguments)
    assert run("--help").returncode == 0
    assert run("--quiet", "--sessions", "1", "--max-tokens", "1").returncode == 0
    refused(1, "--prompt", "x" * 600)
    refused(1, "--library", "/nonexistent.so")
    refused(1, "--library", str(MODEL))
    refused(1, "--tokens-out", str(scratch / "no folder" / "tokens"))


def hostile(original, option, truncations, flips):
    """Runs with truncated copies of a file, and with copies with a flipped bit. Returns how many of
    the latter were accepted.
    """
    content = original.read_bytes()
    bad = scratch / "bad.bin"
    bad.write_bytes(content)
    short = ("--quiet", "--prompt", "a", "--max-tokens", "1", "--threads", "1", option, str(bad))
    assert run(*short).returncode == 0, "refused the good file"
    for size in sorted(truncations, reverse=True):
        os.truncate(bad, size)
        refused(1, option, str(bad))
    bad.write_bytes(content)
    taken = 0
    with open(bad, "r+b") as file:
        for bit in flips:

            def put(byte):
                file.seek(bit // 8)
                file.write(bytes([byte]))
                file.flush()

            put(content[bit // 8] ^ 1 << bit % 8)
            result = run(*short)
            assert result.returncode in (
                0,
                1,
            ), f"{option}, bit {bit}: exit {result.returncode}, {result.stderr.decode()}"
            assert (result.returncode == 1) == (
                len(result.stderr) > 0
            ), f"{option}, bit {bit}: {result.stderr.decode()}"
            taken += result.returncode == 0
            put(content[bit // 8])
    return taken


def case_hostile_model():
    size = MODEL.stat().st_size
    taken = hostile(
        MODEL, "--model", [*range(29), *range(100, size, size // 60), size - 1], range(28 * 8)
    )
    assert taken == 0, f"{taken} flipped bits of the header went unnoticed"
    extended = scratch / "extended.bin"
    extended.write_bytes(MODEL.read_bytes() + b"\0")
    refused(1, "--model", str(extended))
    for header in (
        [2**31 - 1] * 7,
        [-(2**31)] * 7,
        [-1] * 7,
        [0] * 7,
        [1] * 7,
        [192, 512, 4, 6, 0, 259, 512],
        [16, 1, 1, 1, 1, -(2**31), 1],
    ):
        extended.write_bytes(struct.pack("<7i", *header) + bytes(1000))
        refused(1, "--model", str(extended))
    extended.write_bytes(b"")
    os.mkfifo(scratch / "fifo")
    for path in (extended, scratch / "fifo", scratch, "/dev/null", "/nonexistent"):
        refused(1, "--model", str(path))


def case_hostile_tokenizer():
    size = TOKENIZER.stat().st_size
    # Flipped bits of scores and spellings make another valid tokenizer; it only must not crash.
    hostile(TOKENIZER, "--tokenizer", range(0, size, 61), [*range(8 * 8), *range(12 * 8, 21 * 8)])
    length_bits = [*range(8 * 8, 12 * 8), *range(21 * 8, 25 * 8)]
    taken = hostile(TOKENIZER, "--tokenizer", [], length_bits)
    assert taken == 0, f"{taken} flipped bits of a length went unnoticed"
    extended = scratch / "extended.bin"
    extended.write_bytes(TOKENIZER.read_bytes() + b"\0")
    refused(1, "--tokenizer", str(extended))


def case_chat():
    """Two turns through a pipe. The second continues the kept session, with the result of one long
    prompt.
    """
    result = run(
        "--chat",
        "--quiet",
        "--max-tokens",
        "200",
        text="ROMEO:\nJULIET:\n/stats\n/reset\n/stats\nROMEO:\n/bogus\n/quit\nROMEO:\n",
    )
    assert result.returncode == 0, result.stderr.decode()
    parts = re.split(r"^\[(.*)\]\n", result.stdout.decode(), flags=re.M)
    answers, stats, reset_notice, stats_after, again, bogus = (
        parts[0],
        parts[1],
        parts[3],
        parts[5],
        parts[6],
        parts[7],
    )
    greedy = bytes(t - 3 for t in expected_greedy_tokens()).decode()
    speech = greedy[: greedy.index("\n\n") + 2]
    assert answers.startswith(speech), answers
    assert again == speech, again
    second = answers[len(speech) :]
    tokens, _ = generate("--prompt", "ROMEO:\n" + speech + "JULIET:\n", "--max-tokens", "200")
    assert second and bytes(t - 3 for t in tokens[0]).decode().startswith(second), second
    in_context, computed = (
        int(re.match(r"(\d+) of 512", stats)[1]),
        int(re.search(r"(\d+) computed", stats)[1]),
    )
    assert (
        computed == in_context - 1
    ), f"history was computed again: {stats}"  # the last sampled token is not cached yet
    assert "forgotten" in reset_notice and stats_after.startswith("0 of") and "/reset" in bogus


def case_chat_sentence():
    """A plain sentence gets an answer, although the model continues it with an empty line."""
    sentence = "My lord, I will go home.\n"
    result = run("--chat", "--quiet", "--max-tokens", "60", text=sentence)
    assert result.returncode == 0, result.stderr.decode()
    answer = result.stdout.decode()
    tokens, _ = generate("--prompt", sentence, "--max-tokens", "60")
    text = bytes(t - 3 for t in tokens[0]).decode()
    assert text.startswith("\n"), text
    assert len(answer.strip()) > 10 and text.lstrip("\n").startswith(answer.strip()), answer


def case_save():
    """A chat continues after a restart without computing anything again, and cached prompts
    survive, too.
    """
    file = scratch / "chat.pkv"
    turns = ["ROMEO:\n", "JULIET:\n", "NURSE:\n"]
    whole = run("--chat", "--quiet", "--max-tokens", "80", text="".join(turns))
    parts = []
    for i, turn in enumerate(turns):
        loads = ["--load", str(file)] if i > 0 else []
        result = run(
            "--chat",
            "--quiet",
            "--max-tokens",
            "80",
            "--save",
            str(file),
            *loads,
            text="/stats\n" + turn + "/stats\n",
        )
        assert result.returncode == 0, result.stderr.decode()
        before, said, after = re.fullmatch(
            r"\[(.*?)\]\n(.*)\[(.*?)\]\n", result.stdout.decode(), re.S
        ).groups()
        parts.append(said)
        known, now = (int(re.match(r"(\d+) of", stats)[1]) for stats in (before, after))
        computed = int(re.search(r"(\d+) computed", after)[1])
        assert (known > 0) == (
            i > 0
        ) and computed == now - known - 1, f"turn {i}: {before}; {after}"
    assert "".join(parts) == whole.stdout.decode(), parts
    for dtype, size in (("f16", "32"), ("bf16", "64")):
        result = run(
            "--chat",
            "--quiet",
            "--max-tokens",
            "20",
            "--load",
            str(file),
            "--dtype",
            dtype,
            "--block-size",
            size,
            text="ROMEO:\n",
        )
        assert result.returncode == 0 and len(result.stdout) > 5, result.stderr.decode()

    cached = scratch / "cached.pkv"
    romeo = (
        "--prompt",
        "ROMEO:\nBut soft, what light through yonder window breaks? It is the east.\n",
    )
    whole, _ = generate(*romeo, "--max-tokens", "160")
    generate(*romeo, "--max-tokens", "60", "--save", str(cached))
    again, figures = generate(*romeo, "--max-tokens", "160", "--load", str(cached))
    assert again == whole
    assert figures["matched_tokens"] > 40, figures
    assert "MISMATCH" in refused(
        1, "--load", str(cached), "--dtype", "f32", "--model", str(other_model())
    )
    refused(1, "--load", str(scratch / "none"))
    refused(1, "--load", str(MODEL))
    refused(1, "--save", str(scratch / "no folder" / "file"))
    refused(2, "--load", str(cached), "--compare")


def other_model():
    """Returns the path of a model that differs in one weight."""
    path = scratch / "other.bin"
    content = bytearray(MODEL.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    return path


def case_chat_full():
    """A conversation longer than the context continues, and says what it forgets."""
    lines = "".join(f"LINE {i}: I pray you, tell me more of it.\n" for i in range(12))
    for capacity in (["--context", "128"], ["--blocks", "8"]):
        result = run(
            "--chat",
            "--quiet",
            "--max-tokens",
            "40",
            *capacity,
            text=lines + "x" * 200 + "\n/stats\n",
        )
        assert result.returncode == 0, result.stderr.decode()
        output = result.stdout.decode()
        assert output.count("the context of 128 tokens is full") >= 3, output
        assert output.count("not sent") == 1, output
        assert int(re.search(r"\[(\d+) of 128", output)[1]) <= 128


globals()["case_" + case]()
