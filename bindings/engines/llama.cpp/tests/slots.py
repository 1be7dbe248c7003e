"""Prints what 8 slots of a llama-server answer at the same time, twice, so that prompts are also
found in slots. The second argument is how the plug-in gets into it:

usage: slots.py LLAMA_SERVER MODEL [LD_PRELOAD|GGML_BACKEND_PATH LIBGGML_PAGEDKV]
"""

import concurrent.futures
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

SLOTS, TOKENS, SECONDS = 8, 8, 120
PREFIX = "Well-known lists, in their usual order, without any mistake.\n"
# What follows is much likelier than anything else, since the last bits of a result depend on what
# other slots compute at the same time.
PROMPTS = [
    PREFIX + beginning
    for beginning in (
        "1, 2, 3, 4, 5, 6, 7,",
        "Mercury, Venus, Earth,",
        "10, 20, 30, 40, 50,",
        "red, orange, yellow, green,",
        "Monday, Tuesday, Wednesday,",
        "January, February, March, April,",
        "one, two, three, four, five,",
        "first, second, third, fourth,",
    )
]


def free_port():
    with socket.socket() as any_socket:
        any_socket.bind(("127.0.0.1", 0))
        return any_socket.getsockname()[1]


def ask(url, prompt):
    body = {"prompt": prompt, "n_predict": TOKENS, "temperature": 0, "cache_prompt": True}
    request = urllib.request.Request(url + "/completion", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return json.load(answer)["content"]


def wait_for(url, server):
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(url + "/health", timeout=SECONDS):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
    raise TimeoutError(f"the server did not begin: {server.poll()}")


def splits(log):
    """The largest number of parts of a graph: one without the plug-in."""
    log.seek(0)
    lines = [line for line in log.read().splitlines() if "graph splits = " in line]
    return max(int(line.rsplit("=", 1)[1].split()[0]) for line in lines)


def main():
    program, model, *plugin = sys.argv[1:]
    environment = os.environ | (dict([plugin]) if plugin else {})
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = [program, "-m", model, "--host", "127.0.0.1", "--port", str(port)]
    command += ["-c", "4096", "-np", str(SLOTS), "-kvu", "-t", "1", "-tb", "1", "-lv", "5"]
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            wait_for(url, server)
            with concurrent.futures.ThreadPoolExecutor(SLOTS) as clients:
                for _ in range(2):
                    for text in clients.map(lambda prompt: ask(url, prompt), PROMPTS):
                        print(repr(text))
        finally:
            server.terminate()
            server.wait()
            if sys.exc_info()[0]:
                log.seek(0)
                sys.stderr.write(log.read())
        print(f"computed {splits(log) - 1}")


if __name__ == "__main__":
    main()
