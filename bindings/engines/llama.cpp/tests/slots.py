"""Prints what 8 slots of a llama-server answer at the same time, twice, so that prompts are also
found in slots. The third argument is how the plug-in gets into it:

usage: slots.py LLAMA_SERVER MODEL [LD_PRELOAD|GGML_BACKEND_PATH LIBGGML_PAGEDKV [MINUTES]]

With MINUTES it puts a server without the plug-in and then one with it under load instead: beside
these prompts there are texts that outgrow a slot, so that its context is shifted, requests whose
client goes away, and sequences that are copied or erased. It counts the answers that differ from
those of the first server, and fails if there are any.
"""

import concurrent.futures
import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

SLOTS, TOKENS, SECONDS = 8, 8, 600
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


def post(url, **body):
    request = urllib.request.Request(url, json.dumps(body).encode())
    return urllib.request.urlopen(request, timeout=SECONDS)


def ask(url, prompt, **more):
    fields = {"n_predict": TOKENS, "temperature": 0, "cache_prompt": True} | more
    with post(url + "/completion", prompt=prompt, **fields) as answer:
        return json.load(answer)


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


@contextlib.contextmanager
def serving(program, model, plugin, *options):
    """A server's URL, its log, which is printed if something fails, and its process."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = [program, "-m", model, "--host", "127.0.0.1", "--port", str(port)]
    command += ["-np", str(SLOTS), "-t", "1", "-tb", "1", *options]
    with tempfile.TemporaryFile("w+") as log:
        environment = os.environ | (dict([plugin]) if plugin else {})
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            wait_for(url, server)
            yield url, log, server
        finally:
            server.terminate()
            server.wait()
            if sys.exc_info()[0]:
                log.seek(0)
                sys.stderr.write(log.read())


class Load:
    """Random requests, of which the answers to PROMPTS are checked."""

    def __init__(self, url, expected, end):
        self.url, self.expected, self.end = url, expected, end
        self.done = dict.fromkeys(("asked", "copied", "shifted", "cancelled", "erased", "wrong"), 0)

    def run(self, seed):
        draw = random.Random(seed)
        acts = [self.ask] * 12 + [self.copy, self.shift, self.cancel, self.cancel, self.erase]
        while time.monotonic() < self.end:
            draw.choice(acts)(draw)

    def check(self, prompt, answer):
        if answer["content"] != self.expected[prompt]:
            self.done["wrong"] += 1
            print(f"{prompt!r}: {answer['content']!r}, not {self.expected[prompt]!r}", flush=True)

    def ask(self, draw):
        prompt = draw.choice(PROMPTS)
        self.check(prompt, ask(self.url, prompt, cache_prompt=draw.random() < 0.8))
        self.done["asked"] += 1

    def copy(self, draw):
        prompt = draw.choice(PROMPTS)
        answers = ask(self.url, prompt, n_cmpl=2)
        for answer in answers:
            self.check(prompt, answer)
        self.done["copied"] += len(answers) == 2

    def shift(self, draw):
        answer = ask(self.url, PREFIX, n_predict=300, ignore_eos=True, seed=draw.getrandbits(16))
        self.done["shifted"] += answer["tokens_predicted"] == 300

    def cancel(self, draw):
        with post(self.url + "/completion", prompt=draw.choice(PROMPTS), stream=True) as answer:
            answer.readline()
        self.done["cancelled"] += 1

    def erase(self, draw):
        with post(f"{self.url}/slots/{draw.randrange(SLOTS)}?action=erase"):
            self.done["erased"] += 1


def put_under_load(program, model, plugin, minutes):
    with serving(program, model, None, "-c", "2048") as (url, _, _):
        expected = {prompt: ask(url, prompt)["content"] for prompt in PROMPTS}
    wrong = 0
    for unified in ("-kvu", "-no-kvu"):
        options = (
            "-c",
            "2048",
            unified,
            "--context-shift",
            "--slot-save-path",
            tempfile.gettempdir(),
        )
        with (
            serving(program, model, plugin, *options) as (url, _, _),
            concurrent.futures.ThreadPoolExecutor(SLOTS + 2) as clients,
        ):
            load = Load(url, expected, time.monotonic() + 30 * minutes)
            running = [clients.submit(load.run, seed) for seed in range(SLOTS + 2)]
            # The server may forget a deferred request until another one ends.
            while concurrent.futures.wait(running, timeout=1).not_done:
                ask(url, PREFIX)
            for each in running:
                each.result()
        print(unified, *(f"{n} {what}" for what, n in load.done.items()), flush=True)
        wrong += load.done["wrong"]
    return wrong


def main():
    program, model, *plugin = sys.argv[1:]
    if len(plugin) == 3:
        sys.exit(put_under_load(program, model, plugin[:2], float(plugin[2])) > 0)
    with (
        serving(program, model, plugin, "-c", "4096", "-kvu", "-lv", "5") as (url, log, _),
        concurrent.futures.ThreadPoolExecutor(SLOTS) as clients,
    ):
        for _ in range(2):
            for answer in clients.map(lambda prompt: ask(url, prompt), PROMPTS):
                print(repr(answer["content"]))
        log.flush()
        computed = splits(log) - 1
    print(f"computed {computed}")


if __name__ == "__main__":
    main()
