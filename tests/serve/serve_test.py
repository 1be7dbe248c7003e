"""Tests pkv-serve: serve_test.py CASE PROGRAM. Exits with 0 if the case passes. Every run ends with
pkv_cache_validate and a check that no block is left in use, which set the exit code."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

case, program = sys.argv[1:3]
scratch_folder = tempfile.TemporaryDirectory()
scratch = pathlib.Path(scratch_folder.name)
SMALL = ("--layers", "1", "--query-heads", "2", "--kv-heads", "1", "--dim", "16")


def run(*arguments):
    return subprocess.run(
        [program, "--quiet", *map(str, arguments)], capture_output=True, text=True, timeout=300
    )


def figures(*arguments):
    path = scratch / "figures.json"
    result = run("--json", path, *arguments)
    assert result.returncode == 0, f"{arguments}: exit {result.returncode}, {result.stderr}"
    return json.loads(path.read_text())


def trace(lines, name="trace.jsonl"):
    path = scratch / name
    path.write_text("\n".join(lines) + "\n")
    return path


def line(timestamp, input_length, output_length, hash_ids=None):
    request = {"timestamp": timestamp, "input_length": input_length, "output_length": output_length}
    return json.dumps(request if hash_ids is None else {**request, "hash_ids": hash_ids})


def complete(report, single):
    """Every request finished with all tokens of its answer; each prompt token was computed or
    found.
    """
    assert single["finished"] == single["requests"] == report["requests"]
    assert single["generated_tokens"] == report["output_tokens"], (
        single["generated_tokens"],
        report["output_tokens"],
    )
    first_time = single["prefill_tokens"] - single["recomputed_tokens"]
    # Decode steps that are computed again count as prefill, so with preemptions there is only a
    # bound.
    if single["preemptions"] == 0:
        assert first_time + single["matched_tokens"] == report["input_tokens"]
    assert (
        first_time + single["matched_tokens"]
        <= report["input_tokens"] + single["recomputed_tokens"]
    )


def case_real():
    """Keys, values and attention: the same tokens with and without prefix reuse and
    reservations.
    """
    # Only a few run at once. Otherwise, on a slow machine, all would begin before anything is
    # cached.
    common = ("--requests", 40, "--time-scale", 50, "--running", 8, *SMALL)
    for variant in (
        ("--prefix", "on"),
        ("--prefix", "off"),
        ("--reserve", "longest"),
        ("--reserve", "oracle"),
    ):
        report = figures(*common, *variant)
        complete(report, report["runs"][0])
        assert (report["runs"][0]["matched_tokens"] > 0) == (variant[1] == "on"), variant


def case_pressure():
    """With hardly any memory, sessions are preempted and resumed, and all finish, with each policy,
    with tenants and for each block size.
    """
    large = ("--block-size", 64, "--blocks", 90)
    for variant in (
        (),
        ("--prefix", "off"),
        ("--policy", "lru"),
        ("--salts", 3),
        large,
        ("--watermark", 0),
    ):
        blocks = () if "--blocks" in variant else ("--blocks", 300)
        report = figures("--ids-only", "--requests", 150, "--time-scale", 20, *blocks, *variant)
        complete(report, report["runs"][0])
        assert report["runs"][0]["preemptions"] > 0, variant
    # Time is modelled, because a fast machine would never be short of memory.
    report = figures("--modelled", "--requests", 60, "--time-scale", 50, "--blocks", 250, *SMALL)
    complete(report, report["runs"][0])
    assert report["runs"][0]["preemptions"] > 0


def case_traces():
    """Equal hash ids are equal text, to the token. The text after them and texts without ids are
    unique.
    """
    prompts = [line(1000 * i, 1300, 5, [7, 8, 9 + i]) for i in range(4)]
    one = figures("--ids-only", "--trace", trace(prompts))["runs"][0]
    assert one["matched_tokens"] == 3 * 1024 and one["lookup_tokens"] == 4 * 1299, one[
        "matched_tokens"
    ]
    one = figures("--ids-only", "--salts", 1000, "--trace", trace(prompts))["runs"][0]
    assert one["matched_tokens"] == 0
    one = figures("--ids-only", "--trace", trace([line(1000 * i, 1300, 5, [7]) for i in range(4)]))[
        "runs"
    ][0]
    assert one["matched_tokens"] == 3 * 512
    rows = [
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        "2023-11-16 23:59:59.5000000,300,4",
        "2023-11-17 00:00:01.0000000,300,6",
    ]
    report = figures("--ids-only", "--trace", trace(rows, "trace.csv"))
    one = report["runs"][0]
    complete(report, one)
    assert one["matched_tokens"] == 0 and one["finished"] == 2 and 1.5 < one["seconds"] < 2, one[
        "seconds"
    ]
    # The cost model, by hand: one prefill step of 8 + 0.02 * 300 ms, five decode steps of 8 + 0.05.
    one = figures("--ids-only", "--trace", trace([line(0, 300, 6)]))["runs"][0]
    assert (
        abs(one["first_token_seconds"]["p50"] - 0.014) < 1e-6
        and abs(one["seconds"] - 0.05425) < 1e-6
    ), one["seconds"]


def case_compare():
    """One table with four columns, and the figures for pictures, in which no policy has more hits
    than the bound.
    """
    result = run(
        "--ids-only",
        "--requests",
        80,
        "--time-scale",
        20,
        "--blocks",
        600,
        "--pictures",
        scratch / "pictures",
    )
    assert result.returncode == 0, result.stderr
    table = result.stdout
    result = run("--compare", "--ids-only", "--requests", 80, "--time-scale", 20, "--blocks", 600)
    assert result.stdout == table, "the same run, another table"
    assert result.returncode == 0, result.stderr
    for row in (
        "sessions at once",
        "first token, p50",
        "prompt tokens found cached",
        "preemptions",
        "reserved, oracle",
    ):
        assert row in result.stdout, f"no {row!r} in\n{result.stdout}"
    report = json.loads((scratch / "pictures/serve.json").read_text())
    on, off, oracle, longest = report["runs"]
    for single in report["runs"]:
        complete(report, single)
    assert on["matched_tokens"] > 0 == off["matched_tokens"]
    assert (
        longest["peak_running"] <= oracle["peak_running"]
        and longest["utilization"] < off["utilization"]
    )
    hits = report["hits"]
    assert all(found <= bound for found, bound in zip(hits["lru"], hits["belady"]))
    # With room for everything, the policy and the bound find the same.
    assert hits["lru"][-1] == hits["belady"][-1] > 0


def lru_hits(texts, capacity):
    """The hits of a policy for texts of one block each."""
    queue, hits = [], 0
    for text in texts:
        if text in queue:
            hits += 1
            queue.remove(text)
        queue.append(text)
        del queue[:-capacity]
    return hits


def case_policies():
    """Policies find what their rules predict, none more than the bound."""
    dice = random.Random(1)
    # Half of the requests are for 60 popular blocks, and half for blocks that occur once.
    texts = [dice.randrange(60) if dice.random() < 0.5 else 1000 + i for i in range(3000)]
    single = trace([line(i, 512, 1, [text]) for i, text in enumerate(texts)])
    capacities = [20, 50, 100, 4000]
    sizes = ("--capacities", ",".join(map(str, capacities)))
    (compared,) = figures("--policies", "--trace", single, *sizes)["comparisons"]
    assert compared["asked_blocks"] == 3000 and compared["distinct_blocks"] == len(set(texts))
    rows = {row["policy"]: [tokens // 512 for tokens in row["tokens"]] for row in compared["rows"]}
    for name in ("default", "LRU"):
        assert all(0 < own <= most for own, most in zip(rows[name], rows["bound"])), (name, rows)
    assert all(row[-1] == 3000 - len(set(texts)) for row in rows.values()), rows
    assert rows["LRU"] == [lru_hits(texts, capacity) for capacity in capacities], rows
    # Blocks that occur once do not displace popular ones.
    assert rows["default"][1] > 1.2 * rows["LRU"][1], rows
    result = run("--policies", "--trace", single, *sizes)
    assert "default, by time" in result.stdout

    # Texts of several blocks: no policy finds a block without those before it.
    long = [[dice.randrange(8) if i < 3 else 10000 * j + i for i in range(6)] for j in range(600)]
    shared = trace([line(i, 6 * 512, 1, ids) for i, ids in enumerate(long)])
    (compared,) = figures("--policies", "--trace", shared, "--capacities", "6,60,600,4000")[
        "comparisons"
    ]
    rows = {row["policy"]: row["tokens"] for row in compared["rows"]}
    for name, tokens in rows.items():
        assert all(own <= most for own, most in zip(tokens, rows["bound"])), (name, rows)
        assert tokens[-1] == rows["bound"][-1] > 0, (name, rows)


def case_errors():
    """Bad input ends with one sentence and exit code 2."""
    good = line(0, 100, 10)
    cases = {
        ("--nonsense",): "nonsense",
        ("--blocks", "0"): "blocks",
        ("--blocks", "5", "--memory", "1M"): "memory",
        ("--block-size", "17"): "17",
        ("--policy", "fifo"): "policy",
        ("--trace", scratch / "none.jsonl"): "none.jsonl",
        ("--trace", scratch): str(scratch),
        ("--trace", trace([good, "{broken"], "a.jsonl")): "line 2",
        ("--trace", trace([good, "[1, 2]"], "b.jsonl")): "line 2",
        ("--trace", trace([good, good, line(0, 0, 3)], "c.jsonl")): "line 3",
        ("--trace", trace([line(-5, 10, 3)], "d.jsonl")): "line 1",
        ("--trace", trace([line(0, 100, 3, [1, 2])], "e.jsonl")): "line 1",
        ("--trace", trace([line(0, 100, 3, ["x"])], "f.jsonl")): "line 1",
        ("--trace", trace(["2023-11-16 18:15:46.68,374"], "a.csv")): "line 1",
        ("--trace", trace(["2023-13-16 18:15:46.68,374,3"], "b.csv")): "line 1",
        ("--trace", trace([""], "empty.jsonl")): "no requests",
        ("--blocks", "10"): "longest text",
        ("--context", "100"): "--context",
        ("--kv-heads", "3"): "heads",
        ("--json", scratch / "no/such/file"): "cannot write",
    }
    for arguments, expected in cases.items():
        result = run("--ids-only", *arguments)
        lines = result.stderr.splitlines()
        assert result.returncode == 2, f"{arguments}: exit {result.returncode}, {lines}"
        assert len(lines) == 1 and expected in lines[0], f"{arguments}: {lines}"
        assert result.stdout == ""
    result = run("--help")
    assert result.returncode == 0 and "Examples:" in result.stdout


def case_interrupt():
    """Ctrl-C prints the summary so far and ends with exit code 130."""
    # 200,000 requests take far longer than it takes to notice the signal.
    command = [program, "--quiet", "--ids-only", "--requests", "200000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    handled = f"/proc/{process.pid}/status"
    for _ in range(600):  # Until the handler is installed: SIGINT is 1 << 1.
        caught = next(
            row
            for row in pathlib.Path(handled).read_text().splitlines()
            if row.startswith("SigCgt")
        )
        if int(caught.split()[1], 16) & 1 << (signal.SIGINT - 1):
            break
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130 and "interrupted" in out and "of 200000 requests" in out, (
        process.returncode,
        out,
        err,
    )


globals()["case_" + case]()
