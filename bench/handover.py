"""Measures prompts that are computed in one process and decoded in another, over a loopback link
and over links of limited rate between two network namespaces.

usage: handover.py [RATE...]      for example 1gbit 200mbit; needs root, ip and tc
       handover.py --often        prompts arrive while others are decoded

Runs bindings/python/examples/prefill_decode.py with a model of random weights, in this Python,
which needs NumPy; PAGEDKV_LIBRARY names the library. Each process computes with one thread.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

EXAMPLE = pathlib.Path(__file__).resolve().parents[1] / "bindings/python/examples/prefill_decode.py"
MODEL = ["--random", "12,512,1024", "--length", "448", "--tokens", "48", "--blocks", "512"]
NAMES = ("pkv-prefill", "pkv-decode")
ONE = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
KV_MB = 448 * 12 * 2 * 4 * 64 * 4 / 1e6  # keys and values of a prompt, in f32


@contextlib.contextmanager
def link(rate):
    """Two namespaces with a link of this rate in each direction; None: this machine."""
    if rate is None:
        yield [], [], "127.0.0.1"
        return
    remove()
    try:
        shape = f"tbf rate {rate} burst 128kb latency 200ms"
        for command in [
            *(f"ip netns add {name}" for name in NAMES),
            f"ip link add pkv0 netns {NAMES[0]} type veth peer name pkv0 netns {NAMES[1]}",
            *(
                f"ip netns exec {name} {command}"
                for name, address in zip(NAMES, ("10.77.0.1", "10.77.0.2"))
                for command in (
                    f"ip addr add {address}/24 dev pkv0",
                    "ip link set pkv0 up",
                    f"tc qdisc add dev pkv0 root {shape}",
                )
            ),
        ]:
            subprocess.run(command.split(), check=True)
        yield *(["ip", "netns", "exec", name] for name in NAMES), "10.77.0.1"
    finally:
        remove()


def remove():
    for name in NAMES:
        subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)


def run(prefix, folder, role, *options):
    path = pathlib.Path(folder, "figures.json")
    command = [*prefix, sys.executable, EXAMPLE, role, *MODEL, *options, "--json", path]
    environment = os.environ | ONE
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    return json.loads(path.read_text())[0]


def run_two(rate, folder, group, *options):
    with link(rate) as (there, here, address):
        listen = ["--listen", f"{address}:7079", "--group", str(group), *options]
        command = [*there, sys.executable, EXAMPLE, "prefill", *MODEL, *listen]
        with subprocess.Popen(command, env=os.environ | ONE, stdout=subprocess.PIPE) as server:
            try:
                server.stdout.readline()
                return run(here, folder, "decode", "--connect", f"{address}:7079", *options)
            finally:
                server.kill()


def show(name, chunk, result, tokens):
    same = "" if result["tokens"] == tokens else ", OTHER TOKENS"
    print(
        f"| {name} | {chunk} | {result['first_token_ms']:.0f} ms | "
        f"{result['longest_gap_ms']:.0f} ms | {result['total_s']:.1f} s{same} |",
        flush=True,
    )


def compare(folder, rates, *options):
    for chunk in (448, 64):
        more = ("--chunk", str(chunk), *options)
        alone = run([], folder, "alone", *more)
        show("one process", chunk, alone, alone["tokens"])
        for rate in rates if chunk == 448 else rates[:1]:
            for name, group in (("at the end", 0), ("by layers", 1)):
                result = run_two(rate, folder, group, *more)
                show(f"two, {rate or 'loopback'}, {name}", chunk, result, alone["tokens"])


def main():
    often = sys.argv[1:] == ["--often"]
    rates = [None] if often else [None, *sys.argv[1:]]
    print(f"prompts of 448 tokens with {KV_MB:.1f} MB of keys and values\n")
    print("| | chunk | first token | longest wait for a later one | all |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        if often:
            compare(folder, rates, "--requests", "6", "--every", "0.8", "--tokens", "128")
        else:
            compare(folder, rates, "--requests", "4", "--every", "2")


if __name__ == "__main__":
    main()
