"""The dependencies of the build files, tests/install-deps and the packages of the bindings are in
src/packaging/dependencies.json, with a known use and a licence, and each entry there is used
somewhere."""

import json
import re

import harness

LIST = "src/packaging/dependencies.json"
SYSTEM = {"dl", "threads"}  # the C library's
BINDINGS = {
    "pypi": [
        "bindings/python/pyproject.toml",
        "bindings/python/tests/requirements.txt",
        "bindings/engines/llama.cpp/pyproject.toml",
        "bindings/engines/transformers/pyproject.toml",
        "bindings/engines/vllm/pyproject.toml",
        "bindings/python/tests/requirements-checks.txt",
        "bench/peers",
        "bench/serve",
        "bench/demo",
        "include/site/requirements.txt",
        "tests/install-deps",
        "src/packaging/cross",
        "src/packaging/sdist",
        "src/packaging/sdist.toml",
        "src/packaging/wheel",
    ],
    "go": ["bindings/go/go.mod", "bindings/go/test"],
    "cargo": [
        "bindings/rust/pagedkv/Cargo.toml",
        "bindings/rust/pagedkv-sys/Cargo.toml",
        "bindings/engines/candle/Cargo.toml",
    ],
}
# bench/peers names some packages that torch needs, because it installs torch without its
# dependencies.
OF_TORCH = {"filelock", "fsspec", "jinja2", "networkx", "setuptools", "sympy", "typing-extensions"}
REQUIREMENT = re.compile(r"""(?<![\w.-])([A-Za-z][\w-]*)(?:\[\w,]+\])?(?:[<>=~]=|==)[\d.]+""")


def text(root, name):
    return (root / name).read_text() if (root / name).exists() else ""


def of_meson(root):
    files = [
        path
        for path in root.rglob("meson.build")
        if not any(
            part.startswith("build") or part == "subprojects"
            for part in path.relative_to(root).parts
        )
    ]
    return {
        name
        for path in files
        for name in re.findall(r"(?<!_)dependency\('([^']+)'", path.read_text())
    } - SYSTEM


def of_apt(root):
    """Also the tools that are installed by hand: `need COMMAND PACKAGE` of src/packaging/cross."""
    hand = re.findall(r"^ *need [\w+-]+ ([\w.+-]+)$", text(root, "src/packaging/cross"), re.M)
    return set(re.findall(r"^ *need ([\w.+-]+) ", text(root, "tests/install-deps"), re.M)) | set(
        hand
    )


def of_pypi(root):
    everything = "\n".join(text(root, name) for name in BINDINGS["pypi"])
    test_group = re.search(r"^test = \[(.*)\]", everything, re.M)
    return set(REQUIREMENT.findall(everything)) | set(
        re.findall(r'"([\w-]+)"', test_group[1] if test_group else "")
    )


def of_go(root):
    everything = "\n".join(text(root, name) for name in BINDINGS["go"])
    found = re.findall(r"^(?:require |\t)([\w.-]+/\S+) v[^/\n]*$", everything, re.M)
    found = [name for name in found if not name.endswith("/bindings/go")]
    return set(found) | set(re.findall(r"go install \"([^@]+)@", everything))


def of_cargo(root):
    found = set()
    for name in BINDINGS["cargo"]:
        for section in re.findall(
            r"^\[(?:dev-|build-)?dependencies\]\n((?:[^\[\n].*\n|\n)*)", text(root, name), re.M
        ):
            found |= set(re.findall(r"^([\w-]+) = ", section, re.M))
    return found - {"pagedkv", "pagedkv-sys"}


def check(root):
    entries = json.loads(text(root, LIST) or '{"uses": {}, "dependencies": []}')
    asked = {
        "meson": of_meson(root),
        "apt": of_apt(root),
        "pypi": of_pypi(root) - OF_TORCH - {"pagedkv"},
        "go": of_go(root),
        "cargo": of_cargo(root),
    }
    found = []
    for kind, names in asked.items():
        listed = {name for entry in entries["dependencies"] for name in entry.get(kind, [])}
        found += [
            f"{kind}: {name} is asked for and not in {LIST}" for name in sorted(names - listed)
        ]
        found += [
            f"{kind}: {name} is in {LIST} and asked for nowhere" for name in sorted(listed - names)
        ]
    return found + [
        f"{entry['name']}: no known use, licence or version"
        for entry in entries["dependencies"]
        if entry.get("use") not in entries["uses"]
        or not entry.get("licence")
        or not entry.get("version")
    ]


harness.run(check)
