"""Runs the jobs of all peers in turns, and prints a table. pagedkv_peer.cpp explains the jobs."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(1, str(HERE.parent))
import command  # noqa: E402
import table  # noqa: E402

BLOCKS_PER_UNIT = 32  # Capacities are counted in units of 512 tokens, as in prefix/trace.
UNLIMITED = 0
SECONDS = 1800  # for one job


class Peer:
    def __init__(self, name, engine, command_, threads=False):
        self.name, self.engine, self.command, self.threads = name, engine, command_, threads
        self.error = None

    def run(self, environment, *words):
        """The result of a job, or None if this peer fails."""
        if self.error:
            return None
        line = [str(word) for word in (*self.command, *words)]
        try:
            done = subprocess.run(
                line, capture_output=True, text=True, env=environment, timeout=SECONDS, check=True
            )
            return json.loads(done.stdout.splitlines()[-1])
        except subprocess.CalledProcessError as error:
            self.error = (error.stderr.strip().splitlines() or ["no message"])[-1]
        except (OSError, subprocess.TimeoutExpired) as error:
            self.error = str(error)
        command.note(f"{self.name}: {self.error}")
        return None


def peers(options):
    c = ROOT / "build/bench/serving/pkv-bookkeeping"
    rust = ROOT / "build/bookkeeping-rust/release/bookkeeping"

    def python(environment, name):
        return environment, "-B", HERE / "jobs.py", name

    vllm, sglang = (options.engines / host / "bin/python" for host in ("vllm", "sglang"))
    result = [
        Peer("pagedkv, C", "C", [c], threads=True),
        Peer("pagedkv, Rust", "Rust", [rust, "pagedkv"], threads=True),
    ]
    for policy in "lru", "multi-lru", "lineage", "lineage-fifo":
        result.append(Peer(f"kvbm-logical, {policy}", "kvbm-logical", [rust, policy], threads=True))
    return result + [
        Peer("pagedkv, Python, lists", "Python", python(sys.executable, "pagedkv"), threads=True),
        Peer("pagedkv, Python, arrays", "Python", python(sys.executable, "pagedkv-arrays"), True),
        Peer("vLLM", "vLLM", python(vllm, "vllm")),
        Peer("SGLang, Rust tree", "SGLang", python(sglang, "sglang")),
        Peer("SGLang, Python tree", "SGLang", python(sglang, "sglang-python")),
    ]


def write_requests(options, folder):
    """{name: file} of the traces."""
    data = pathlib.Path(os.environ.get("PAGEDKV_DATA", ROOT / "../shared/data"))
    sources = {"chats": "chats", "Mooncake": data / "mooncake_conversation_trace.jsonl"}
    files = {}
    for name, source in sources.items():
        if name == "Mooncake" and not source.exists():
            command.note(f"SKIP: there is no {source}; PAGEDKV_DATA names its folder")
            continue
        files[name] = folder / name
        program = ROOT / "build/bench/serving/pkv-bookkeeping"
        with files[name].open("w") as file:
            line = [program, "requests", source, str(options.requests)]
            subprocess.run(line, stdout=file, check=True)
    return files


def blocks_of(path, capacity):
    if capacity != UNLIMITED:
        return capacity * BLOCKS_PER_UNIT
    requests = (list(map(int, line.split()[1::2])) for line in path.open())
    return sum(sum(lengths) // 16 + 2 for lengths in requests)


def jobs(options, files):
    """{title: words of the job}"""
    result = {}
    for name, path in files.items():
        for capacity in options.capacities if name == "Mooncake" else [UNLIMITED]:
            room = "" if capacity == UNLIMITED else f", {capacity} x 512 tokens"
            for threads in options.threads if capacity == UNLIMITED else [1]:
                many = f", {threads} threads" if threads > 1 else ""
                words = ("trace", path, blocks_of(path, capacity), threads)
                result[f"{name}{room}{many}"] = words
    return result | {"match": ("match",), "append": ("append",), "memory": ("memory",)}


def better(first, second):
    """The faster of two results of a job."""
    if first is None or second is None:
        return first or second
    return min(first, second, key=lambda result: result.get("seconds") or result.get("us") or 0)


def measure(options, all_peers, work, environment):
    """{title: {peer: result}}"""
    results = {title: {} for title in work}
    for title, words in work.items():
        command.note(f"{title} ...")
        for _ in range(1 if words == ("memory",) else options.rounds):
            for peer in all_peers:
                if words[0] == "trace" and words[3] > 1 and not peer.threads:
                    continue
                found = peer.run(environment, *words)
                results[title][peer.name] = better(results[title].get(peer.name), found)
    return results


def value(result):
    """A number that is better if it is smaller."""
    if result is None:
        return None
    if "requests" in result:
        return result["seconds"] / result["requests"] * 1e6
    return result.get("us") or result["bytes"]


def cell(result):
    number = value(result)
    if number is None:
        return "-"
    hits = f" {result['hits']:6.1%}" if "hits" in result else ""
    return f"{number:.{1 if number < 100 else 0}f}{hits}"


def show(results, all_peers):
    print("Microseconds per request, and the part of prompt tokens that was cached; microseconds")
    print("per match of 32,768 tokens and per appended block; bytes per cached block.\n")
    titles = list(results)
    rows = []
    for peer in all_peers:
        rows.append([peer.name, *(cell(results[title].get(peer.name)) for title in titles)])
    table.show_aligned(["", *titles], rows)
    for peer in all_peers:
        if peer.error:
            print(f"{peer.name}: {peer.error}")


def best(results, title, engine, all_peers):
    found = [value(results[title].get(peer.name)) for peer in all_peers if peer.engine == engine]
    return min((number for number in found if number), default=None)


def show_ratios(results, all_peers):
    print("Their best over our best:\n")
    rows = []
    for ours, theirs in ("Rust", "kvbm-logical"), ("Python", "vLLM"), ("Python", "SGLang"):
        cells = []
        for title in results:
            their, our = (best(results, title, engine, all_peers) for engine in (theirs, ours))
            cells.append(f"{their / our:.1f}" if their and our else "-")
        rows.append([f"{theirs} over {ours}", *cells])
    table.show_aligned(["", *results], rows)


def parse():
    parser = argparse.ArgumentParser(prog="bench/bookkeeping")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", type=command.words, default=[""])
    parser.add_argument("--requests", type=int)
    parser.add_argument("--threads", type=command.words)
    parser.add_argument("--library", type=pathlib.Path, required=True)
    parser.add_argument("--engines", type=pathlib.Path, required=True)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    options.requests = options.requests or (1000 if options.quick else 3000)
    options.threads = [int(n) for n in options.threads or ("12" if options.quick else "128")]
    options.rounds = 1 if options.quick else 2
    options.capacities = [5000, UNLIMITED] if options.quick else [1000, 5000, UNLIMITED]
    return options


def main():
    options = parse()
    folders = (str(ROOT / "bindings/python"), os.environ.get("PYTHONPATH"))
    environment = os.environ | {
        "PAGEDKV_LIBRARY": str(options.library),
        "LD_LIBRARY_PATH": str(options.library.parent),
        "PYTHONPATH": os.pathsep.join(folder for folder in folders if folder),
    }
    chosen = [p for p in peers(options) if any(name in p.name for name in options.only)]
    with tempfile.TemporaryDirectory() as folder:
        files = write_requests(options, pathlib.Path(folder))
        results = measure(options, chosen, jobs(options, files), environment)
    show(results, chosen)
    show_ratios(results, chosen)
    options.threads = max(options.threads)
    command.save(command.report(options) | {"results": results}, options)


if __name__ == "__main__":
    main()
