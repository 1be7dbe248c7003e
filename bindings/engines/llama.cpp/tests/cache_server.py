"""llama-cpp-python's server with PromptCache: what a request begins with is recalled, also after a
restart, but not for another salt.

usage: cache_server.py MODEL DIRECTORY
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from slots import SECONDS, free_port

MODEL, DIRECTORY = sys.argv[1:]
SYSTEM = "The quick brown fox jumps over the lazy dog, and then runs back home. " * 8
OTHER = "Another text, which takes the place of what the context has."
BLOCKS = 96  # tokens of full blocks of SYSTEM, which has some more


class Server:
    def __init__(self, log):
        self.log = log
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        environment = os.environ | {"PAGEDKV_LLAMA_DIRECTORY": DIRECTORY}
        command = [sys.executable, "-B", "-m", "pagedkv_llama.server", "--model", MODEL]
        command += ["--port", str(port), "--n_ctx", "1024", "--n_threads", "1"]
        command += ["--n_threads_batch", "1", "--cache", "true", "--cache_type", "disk"]
        self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def __enter__(self):
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with urllib.request.urlopen(self.url + "/v1/models", timeout=SECONDS):
                    return self
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.2)
        raise TimeoutError(self.text())

    def __exit__(self, kind, *_):
        self.process.terminate()
        self.process.wait()
        if kind:
            sys.stderr.write(self.text())

    def text(self):
        self.log.seek(0)
        return self.log.read()

    def known(self, prompt, **more):
        """How many tokens of the prompt were not computed."""
        before = len(self.text())
        body = {"prompt": prompt, "max_tokens": 4, "temperature": 0} | more
        request = urllib.request.Request(
            self.url + "/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            assert answer.read()
        hit = re.search(r"generate: (\d+) prefix-match hit", self.text()[before:])
        return int(hit[1]) if hit else 0


def main():
    with tempfile.TemporaryFile("w+") as log, Server(log) as server:
        assert server.known(SYSTEM + "One") == 0
        assert server.known(OTHER) == 0
        assert server.known(SYSTEM + "Two") >= BLOCKS
        assert server.known(SYSTEM + "Three", cache_salt="b") == 0
        assert server.known(OTHER, cache_salt="b") == 0
        assert server.known(SYSTEM + "Four", prompt_cache_key="b") == 0
        assert server.known(SYSTEM + "Five", cache_salt="b", stream=True) >= BLOCKS
    with tempfile.TemporaryFile("w+") as log, Server(log) as server:
        assert server.known(SYSTEM + "Six", cache_salt="c") == 0
        assert server.known(SYSTEM + "Seven", cache_salt="b") >= BLOCKS
        assert server.known(SYSTEM + "Eight") >= BLOCKS
    print("its server recalls, also after a restart")


main()
