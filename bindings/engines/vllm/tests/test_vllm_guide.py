"""Runs the commands of the guide's page on vLLM, include/guide/vllm.md, unchanged except for
folders and the port, and checks that the container file has the same.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from helpers import free_port, output, run

ROOT = pathlib.Path(__file__).resolve().parents[4]
PAGE = ROOT / "include/guide/vllm.md"
CONTAINER = ROOT / "bindings/engines/vllm/Containerfile"
HANG_LIMIT = 1500  # seconds; a first start compiles the model
QUESTION = "Why is the sky blue?"

needs_vllm = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="vLLM is not installed (see ../setup)"
)


def blocks() -> dict[str, str]:
    """The commands of the page by the name before each."""
    found = re.findall(r"^<!-- vllm: (\w+) -->\n```sh\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    return dict(found)


def instructions(kind: str) -> list[str]:
    """The commands of the container file, in order."""
    text = CONTAINER.read_text().replace("\\\n", "")
    return re.findall(rf"^{kind} (.*)", text, re.M)


def test_the_container_file_has_the_commands_of_the_page() -> None:
    page = blocks()
    assert instructions("RUN") == (page["install"] + page["model"]).splitlines()
    (command,), (arguments,) = instructions("ENTRYPOINT"), instructions("CMD")
    variable, *shown = shlex.split(page["store"].replace("\\\n", ""))
    assert variable in instructions("ENV")[0].split()
    shown[0] = f"/pagedkv/{shown[0]}"
    shown[shown.index("127.0.0.1")] = "0.0.0.0"
    assert as_read(json.loads(command) + json.loads(arguments)) == as_read(shown)


def as_read(words: list[str]) -> list[Any]:
    return [json.loads(word) if word.startswith("{") else word for word in words]


class Guide:
    """A user who types the page's commands."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.page = folder, blocks()
        self.port = free_port()
        self.model = folder / "smollm2"
        self.environment = {
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CACHE_ROOT": str(pathlib.Path(sys.prefix) / "cache"),  # for compiled models
        }
        # The package that was installed runs, and no plugin but those that a command names.
        for name in ("PYTHONPATH", "VLLM_PLUGINS"):
            self.environment.pop(name, None)

    def commands(self, name: str) -> str:
        text = self.page[name]
        for shown, here in {
            "build/vllm/": f"{sys.prefix}/",
            "build/smollm2": str(self.model),
            "build/kv": str(self.folder / "kv"),
            "$PWD/build/src/libpagedkv.so.1": os.environ["PAGEDKV_LIBRARY"],
            "8000": str(self.port),
            "--num-prompts 16": "--num-prompts 2",
        }.items():
            text = text.replace(shown, here)
        return text

    def run(self, commands: str) -> str:
        return output("bash", "-ec", commands, cwd=ROOT, env=self.environment)

    @contextlib.contextmanager
    def server(self, name: str) -> Iterator[pathlib.Path]:
        """Runs the server of a block until Ctrl-C; yields its log."""
        log = self.folder / f"{name}-{time.monotonic_ns()}.log"
        with log.open("w") as file:
            where: dict[str, Any] = {"cwd": ROOT, "env": self.environment}
            where |= {"stdout": file, "stderr": file, "start_new_session": True}
            shell = subprocess.Popen(["bash", "-c", self.commands(name)], **where)
        try:
            self._wait(shell, log)
            yield log
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGINT)
            try:
                shell.wait(120)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(shell.pid, signal.SIGKILL)

    def _wait(self, shell: Any, log: pathlib.Path) -> None:
        begin = time.monotonic()
        while time.monotonic() < begin + HANG_LIMIT:
            assert shell.poll() is None, log.read_text()[-6000:]
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5)
                return
            time.sleep(1)
        raise TimeoutError(log.read_text()[-6000:])

    def ask(self) -> str:
        answer: str = json.loads(self.run(self.commands("ask")))["choices"][0]["message"]["content"]
        return answer

    def generate(self) -> str:
        """What transformers answers."""
        import torch
        import transformers

        tokenizer = transformers.AutoTokenizer.from_pretrained(self.model)
        model = transformers.AutoModelForCausalLM.from_pretrained(self.model, dtype=torch.float32)
        chat = [{"role": "user", "content": QUESTION}]
        options = {"add_generation_prompt": True, "return_tensors": "pt", "return_dict": True}
        inputs = tokenizer.apply_chat_template(chat, **options)
        tokens = model.generate(**inputs, max_new_tokens=32, do_sample=False)[0]
        answer = tokens[inputs["input_ids"].shape[1] :]
        found: str = tokenizer.decode(answer, skip_special_tokens=True)
        return found


@pytest.fixture(scope="module")
def guide(tmp_path_factory: pytest.TempPathFactory) -> Guide:
    """A user with the package and the model installed. The test runner provides the environment and
    the library.
    """
    found = Guide(tmp_path_factory.mktemp("guide"))
    found.run(found.commands("install").splitlines()[-1])
    found.run(found.commands("model"))
    return found


@needs_vllm
def test_a_server_answers_as_transformers_does(guide: Guide) -> None:
    assert QUESTION in guide.page["ask"]
    with guide.server("serve") as log:
        assert guide.ask() == guide.generate()
        assert re.search(r"Successful requests: +2\b", guide.run(guide.commands("bench")))
    text = log.read_text()
    assert text.count("attention by pagedkv") == 1
    assert f"from {os.environ['PAGEDKV_LIBRARY']}" in text


@needs_vllm
def test_a_server_that_was_restarted_reads_from_the_store(guide: Guide) -> None:
    with guide.server("store") as log:
        answer = guide.ask()
        assert guide.run(guide.commands("metrics")).split()[-1] == "0.0"
    assert "GB of weights in" in log.read_text()
    with guide.server("store"):
        assert guide.ask() == answer == guide.generate()
        found = guide.run(guide.commands("metrics"))
    (shown,) = re.findall(r"how many tokens came from the store: (\d+),", PAGE.read_text())
    assert float(found.split()[-1]) == float(shown)


@needs_vllm
def test_one_is_told_when_the_attention_is_vllms(guide: Guide) -> None:
    python = pathlib.Path(sys.prefix) / "vllm-python"
    wrong = run(python, "-c", "", env={**guide.environment, "VLLM_PLUGINS": "pagedkw"})
    assert wrong.returncode == 0, wrong.stderr
    assert "VLLM_PLUGINS=pagedkw lacks pagedkv: vLLM's own attention runs" in wrong.stderr

    program = f"""if __name__ == "__main__":
        from vllm import LLM
        LLM({str(guide.model)!r}, enforce_eager=True, max_model_len=64, dtype="float32",
            kv_cache_memory_bytes=2**28)
    """
    (guide.folder / "own.py").write_text(program)
    unset = run(python, guide.folder / "own.py", env=guide.environment)
    said = unset.stdout + unset.stderr
    assert unset.returncode == 0, said
    assert said.count("VLLM_PLUGINS=pagedkv chooses pagedkv's") == 1
    assert "attention by pagedkv" not in said
