"""One process computes prompts and another one decodes: the tokens are those of a single process,
even if one of them dies or a stranger sends anything.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import helpers
import pytest
from helpers import connect, free_port

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples"
SMALL = ["--requests", "3", "--length", "100", "--tokens", "12", "--chunk", "48"]

Command = list[str]


def python(role: str, *arguments: str) -> Command:
    return [sys.executable, str(EXAMPLES / "prefill_decode.py"), role, *SMALL, *arguments]


def run(command: Command, prefix: Command | None = None) -> str:
    done = helpers.run(*(prefix or []), *command, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def tokens_in(file: pathlib.Path) -> Any:
    """What the Python program wrote."""
    return json.loads(file.read_text())[0]["tokens"]


def started(command: Command, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)


@contextlib.contextmanager
def prefill(command: Command, prefix: Command | None = None) -> Iterator[subprocess.Popen[str]]:
    """A process that computes prompts, once it listens."""
    server = started([*(prefix or []), *command])
    try:
        assert server.stdout is not None
        assert "listen" in server.stdout.readline()
        yield server
    finally:
        if not helpers.ON_WINDOWS:
            with contextlib.suppress(ProcessLookupError):
                server.send_signal(signal.SIGCONT)
        server.kill()
        server.communicate()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The tokens of one process, by stored type."""
    folder, found = tmp_path_factory.mktemp("alone"), {}
    for dtype in ("f32", "f16", "int8"):
        run(python("alone", "--dtype", dtype, "--json", str(folder / dtype)))
        found[dtype] = tokens_in(folder / dtype)
    assert len({token for text in found["f32"] for token in text}) > 3
    return found


@pytest.mark.parametrize(("dtype", "group"), [("f32", 1), ("f32", 0), ("f16", 2), ("int8", 1)])
def test_the_tokens_are_those_of_one_process(
    dtype: str, group: int, alone: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    at = f"127.0.0.1:{free_port()}"
    options = ["--dtype", dtype, "--group", str(group)]
    with prefill(python("prefill", "--listen", at, *options)):
        for _ in range(2):  # the second time its prompts are cached
            more = ["--connect", at, "--dtype", dtype, "--json", str(tmp_path / "x")]
            assert "alone" not in run(python("decode", *more))
            assert tokens_in(tmp_path / "x") == alone[dtype]


def namespaces(rate: str) -> tuple[str, str]:
    """Two network namespaces with a link of a limited rate between them."""
    names = f"pkv-p{os.getpid()}", f"pkv-d{os.getpid()}"
    commands = [f"ip netns add {name}" for name in names]
    commands += [f"ip link add pkvp netns {names[0]} type veth peer name pkvd netns {names[1]}"]
    for name, device, address in zip(names, ("pkvp", "pkvd"), ("1", "2"), strict=True):
        inside = f"ip netns exec {name}"
        commands += [
            f"{inside} ip addr add 10.77.0.{address}/24 dev {device}",
            f"{inside} ip link set {device} up",
            f"{inside} tc qdisc add dev {device} root tbf rate {rate} burst 64kb latency 100ms",
        ]
    for command in commands:
        done = helpers.run(*command.split())
        if done.returncode:
            remove(names)
            pytest.skip(f"two machines were NOT tried: {command}: {done.stderr.strip()}")
    return names


def remove(names: tuple[str, str]) -> None:
    for name in names:
        helpers.run("ip", "netns", "del", name)


def test_two_machines(alone: dict[str, Any], tmp_path: pathlib.Path) -> None:
    """Runs the two processes at separate addresses with a slow link between them."""
    try:
        names = namespaces("50mbit")
    except FileNotFoundError as error:
        pytest.skip(f"two machines were NOT tried: {error}")
    try:
        inside = [["ip", "netns", "exec", name] for name in names]
        with prefill(python("prefill", "--listen", "10.77.0.1:7079"), inside[0]):
            more = ["--connect", "10.77.0.1:7079", "--json", str(tmp_path / "x")]
            assert "alone" not in run(python("decode", *more), inside[1])
        assert tokens_in(tmp_path / "x") == alone["f32"]
    finally:
        remove(names)


def test_nobody_computes_prompts(alone: dict[str, Any], tmp_path: pathlib.Path) -> None:
    """No process listens, or the listener sends no HELLO."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        for port in (free_port(), server.getsockname()[1]):
            more = ["--connect", f"127.0.0.1:{port}", "--json", str(tmp_path / "x")]
            with started(python("decode", *more)) as decode:
                if port == server.getsockname()[1]:
                    server.accept()[0].close()
                shown, _ = decode.communicate(timeout=60)
            assert decode.returncode == 0
            assert "continues alone" in shown
            assert tokens_in(tmp_path / "x") == alone["f32"]


@pytest.mark.skipif(helpers.ON_WINDOWS, reason="no signal stops a process of Windows")
@pytest.mark.parametrize("how", ["SIGKILL", "SIGSTOP"])
def test_the_process_that_computes_prompts_dies(
    how: str, alone: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    """Prefill dies in the middle of prompts or falls silent, and decode computes the rest
    itself."""
    at = f"127.0.0.1:{free_port()}"
    more = ["--connect", at, "--timeout", "3", "--json", str(tmp_path / "x")]
    with (
        prefill(python("prefill", "--listen", at)) as server,
        started(python("decode", *more)) as decode,
    ):
        port = f"{int(at.split(':')[1]):04X}"
        while decode.poll() is None and port not in established():
            time.sleep(0.001)
        server.send_signal(signal.Signals[how])  # decode may have ended already
        decode.communicate(timeout=100)
    assert decode.returncode == 0
    assert tokens_in(tmp_path / "x") == alone["f32"]


def established() -> str:
    """Local ports of connections, in hexadecimal digits."""
    lines = pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    return " ".join(field[1].split(":")[1] for field in fields if field[3] == "01")


def head(kind: int, size: int, magic: bytes = b"pkvH", version: int = 1) -> bytes:
    return struct.pack("<4sHHQ", magic, version, kind, size)


def frame(kind: int, body: bytes) -> bytes:
    return head(kind, len(body)) + body


def hello_of(port: int) -> bytes:
    with connect(port) as connection:
        data = b""
        while len(data) < 16 + 24:
            data += connection.recv(100)
    return data[:40]


PROMPT = struct.pack("<IIQQ", 0, 2, 0, 0) + struct.pack("<2i", 5, 6)
BAD_REQUESTS = [
    b"GET / HTTP/1.1\r\n\r\n" * 4,
    head(2, 2**40),
    head(9, 0),
    head(2, 8, version=2),
    frame(2, b""),
    frame(2, struct.pack("<IIQQ", 0, 2**31, 0, 0)),
    frame(2, struct.pack("<IIQQ", 0, 0, 0, 0)),
    frame(2, struct.pack("<IIQQ", 0, 2, 2, 0) + PROMPT[-8:]),
    frame(2, struct.pack("<IIQQ", 0, 2, 2**63, 0) + PROMPT[-8:]),
    frame(2, PROMPT[:-8] + struct.pack("<2i", 5, -1)),
    frame(2, PROMPT[:-8] + struct.pack("<2i", 5, 2**30)),
    frame(2, PROMPT + b"more"),
    frame(3, PROMPT),
    frame(1, b"again"),
    head(2, 100) + b"cut",
]


def test_strangers_ask_for_prompts() -> None:
    """Each stranger gets a refusal or a closed connection, and the next client is served."""
    port = free_port()
    with prefill(python("prefill", "--listen", f"127.0.0.1:{port}")):
        hello = hello_of(port)
        others = [hello[:-1] + bytes([hello[-1] ^ 1]), hello[:16] + bytes(24), b""]
        for sent in [*(hello + bad for bad in BAD_REQUESTS), *others]:
            with connect(port) as connection:
                with contextlib.suppress(OSError):  # it may have closed the connection
                    connection.sendall(sent)
                    connection.shutdown(socket.SHUT_WR)
                with contextlib.suppress(OSError):
                    while connection.recv(1 << 16):
                        pass
        with connect(port) as connection:
            connection.sendall(hello + frame(2, PROMPT))
            received = b""
            while head(4, 8) not in received:
                part = connection.recv(1 << 16)
                assert part, received[-100:]
                received += part


def prompt_of(request: int, tokens: list[int]) -> bytes:
    head = struct.pack("<IIQQ", request, len(tokens), 0, 0)
    return frame(2, head + struct.pack(f"<{len(tokens)}i", *tokens))


@pytest.mark.skipif(helpers.ON_WINDOWS, reason="sizes of its buffers differ")
def test_one_that_does_not_read_stops_nobody() -> None:
    """It asks for more rows than the system's buffers hold."""
    port = free_port()
    model = ("--random", "2,256,1024", "--blocks", "4096", "--timeout", "1")
    with prefill(python("prefill", "--listen", f"127.0.0.1:{port}", *model)) as server:
        hello, ended = hello_of(port), threading.Event()

        def read_lines() -> None:
            assert server.stdout is not None
            if any("a connection ends: cannot send" in line for line in server.stdout):
                ended.set()

        reader = threading.Thread(target=read_lines)
        reader.start()
        with connect(port) as silent:
            silent.sendall(hello)
            for request in range(16):  # 2 MB of rows for each
                silent.sendall(prompt_of(request, [request + 1] * 1000))
            while not ended.is_set():
                with connect(port) as connection:
                    connection.sendall(hello + prompt_of(5, [30] * 30))
                    connection.settimeout(60)
                    received = b""
                    while head(4, 8) not in received:
                        part = connection.recv(1 << 16)
                        assert part, received[-100:]
                        received += part
        reader.join()


def lie(server: socket.socket, hello: bytes, said: bytes) -> None:
    """Sends HELLO and the given frames to each client."""
    connection, _ = server.accept()
    with connection, contextlib.suppress(OSError):
        connection.sendall(hello + said)
        connection.settimeout(0.3)
        while connection.recv(1 << 16):
            pass


def rows(request: int, count: int, first: int, layer: int, layers: int, floats: int) -> bytes:
    return frame(3, struct.pack("<IIQII", request, count, first, layer, layers) + bytes(4 * floats))


def bad_rows(one: int) -> list[bytes]:
    """Returns invalid answers; a row has `one` floats."""
    return [
        b"nothing of this kind" * 4,
        head(3, 2**60),
        rows(0, 0, 0, 0, 1, 0),
        rows(0, 2**31, 0, 0, 1, 16),
        rows(0, 1, 0, 7000, 1, 16),
        rows(0, 1, 0, 0, 2**32 - 1, 16),
        rows(99, 1, 0, 0, 1, one),
        rows(0, 1, 2**60, 0, 1, one),
        rows(0, 1, 5, 0, 1, one),
        rows(0, 1, 0, 1, 1, one),
        rows(0, 1, 0, 0, 1, one) + rows(0, 1, 0, 0, 1, one),
        rows(0, 1, 0, 0, 1, one) + frame(4, struct.pack("<2i", 0, 5)),
        frame(4, struct.pack("<2i", 0, 5)),
        frame(4, struct.pack("<2i", -1, 5)),
        frame(4, b"x"),
        frame(5, b"\xff no \x1b[31m" * 100),
        frame(2, PROMPT),
        rows(0, 1, 0, 0, 1, one)[:-7],
    ]


# Decodes as a program does, once for each address, in one process: starting it takes longest.
DECODE = """
import sys
import prefill_decode
for at in sys.argv[1].split():
    options = prefill_decode.parse(["decode", *sys.argv[2:], "--connect", at])
    print("tokens", prefill_decode.run(options, "decode")["tokens"], flush=True)
"""


def test_strangers_answer(alone: dict[str, Any]) -> None:
    """Rows of a broken transfer leave no trace."""
    with prefill(python("prefill", "--listen", f"127.0.0.1:{(port := free_port())}")):
        hello = hello_of(port)
    _, heads, dim = struct.unpack("<3I", hello[16:28])
    lies = bad_rows(2 * heads * dim)
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in lies]
        places = " ".join(f"127.0.0.1:{server.getsockname()[1]}" for server in servers)
        command = [sys.executable, "-c", DECODE, places, *SMALL, "--timeout", "2"]
        folders = os.pathsep.join([str(EXAMPLES), os.environ.get("PYTHONPATH", "")])
        environment = os.environ | {"PYTHONPATH": folders}
        with started(command, stderr=subprocess.STDOUT, env=environment) as decode:
            assert decode.stdout is not None
            for index, (server, said) in enumerate(zip(servers, lies, strict=True)):
                lie(server, hello, said)
                lines = [decode.stdout.readline()]
                while lines[-1] and not lines[-1].startswith("tokens"):
                    lines.append(decode.stdout.readline())
                assert lines[-1] == f"tokens {alone['f32']}\n", (index, lines)
                assert "alone" in "".join(lines), index
                assert "\x1b" not in "".join(lines)
        assert decode.returncode == 0


def relay_until_a_token(server: socket.socket, port: int) -> None:
    """Forwards what two processes send, up to the frame of the first token."""
    token = head(4, 8)
    client, _ = server.accept()
    with client, socket.create_connection(("127.0.0.1", port), timeout=100) as behind:
        received, passed = b"", 0
        while token not in received:
            for source in select.select([client, behind], [], [])[0]:
                data = source.recv(1 << 16)
                assert data
                if source is client:
                    behind.sendall(data)
                    continue
                received += data
                # The last bytes may be the beginning of that frame.
                ends = (n for n in range(len(token) - 1, -1, -1) if received.endswith(token[:n]))
                limit = received.find(token) if token in received else len(received) - next(ends)
                client.sendall(received[passed:limit])
                passed = limit
        client.shutdown(socket.SHUT_WR)
        while client.recv(1 << 16):
            pass


def test_all_rows_come_but_no_token(alone: dict[str, Any], tmp_path: pathlib.Path) -> None:
    with (
        prefill(python("prefill", "--listen", f"127.0.0.1:{(port := free_port())}")),
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        threading.Thread(target=relay_until_a_token, args=(server, port)).start()
        at = f"127.0.0.1:{server.getsockname()[1]}"
        assert "alone" in run(python("decode", "--connect", at, "--json", str(tmp_path / "x")))
    assert tokens_in(tmp_path / "x") == alone["f32"]
