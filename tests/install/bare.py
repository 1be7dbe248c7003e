"""Runs the commands that include/guide/install.md and the READMEs of packages and bindings mark
with `<!-- bare: NAME -->`, each block in a fresh userland without a clone, a compiler and Python,
up to a decode step. Prints a table of minutes and commands. It needs root, a network and many
minutes; package.py runs a part of it as tests of meson.

usage: bare.py ARTIFACTS [--systems NAME,...] [--blocks NAME,...] [--complete] [--keep DIRECTORY]

ARTIFACTS is a directory with the packages that src/packaging/wheel, sdist and deb have built, and
the packages of other languages, because registries do not have them yet; src/packaging/release
makes all of them. In a clone, the source archive is made here. A block whose packages are missing
is skipped; with --complete, it fails. DIRECTORY (build-bare by default) keeps the empty userlands
and the downloaded Debian packages for the next time."""

import argparse
import contextlib
import dataclasses
import fcntl
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

TREE = pathlib.Path(__file__).resolve().parents[2]
SYSTEMS = ("bookworm", "trixie")  # the names of debootstrap
BLOCK = re.compile(r"^<!-- bare: (?P<name>[\w-]+) -->\n```sh\n(?P<text>.*?)^```$", re.M | re.S)
# Settings of this machine for clients of registries, which are used in the userland, too.
OF_CLIENTS = re.compile(r"(PIP|GO|CARGO|UV)_?[A-Z_]*|(https?|no|ftp)_proxy", re.I)
SETTINGS = ("/etc/pip.conf", "~/.cargo/config.toml", "~/.config/go/env")
IN_NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
PACKAGES = pathlib.Path("var/cache/apt/archives")  # what apt-get has downloaded
CERTIFICATES = pathlib.Path("/usr/local/share/ca-certificates")
MISSING = "skipped"
ALL_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


@dataclasses.dataclass(frozen=True)
class Needs:
    """The files of a block in its directory: packages, and programs that a page shows."""

    packages: tuple[str, ...]
    programs: dict[str, str] = dataclasses.field(default_factory=dict)  # name: the page
    systems: tuple[str, ...] = SYSTEMS


PYTHON = {"step.py": "bindings/python/README.md"}
C = {"minimal.c": "include/guide/first-program.md"}
GO = {"main.go": "bindings/go/README.md"}
DEBIAN_12 = ("bookworm",)
BLOCKS = {
    "python": Needs(("pagedkv-*linux*_x86_64.whl",), PYTHON),
    "python-source": Needs(("pagedkv-[0-9]*[0-9].tar.gz",), PYTHON),
    # Debian packages are for the release that they were built on.
    "c-debian": Needs(("libpagedkv*.deb",), C, DEBIAN_12),
    "c": Needs(("pagedkv-*-source.tar.gz",), C),
    "conan": Needs(("pagedkv-*-source.tar.gz",)),
    "rust": Needs(("pagedkv-*.crate",), {"main.rs": "bindings/rust/pagedkv/README.md"}),
    "go": Needs(("libpagedkv1_*.deb", "pagedkv-go-*.tar.gz"), GO, DEBIAN_12),
}
LANGUAGES = {".py": "python", ".c": "c", ".rs": "rust", ".go": "go"}


def blocks():
    """The commands of each marked block, by its name."""
    pages = [TREE / "include/guide/install.md", TREE / "src/packaging/README.md"]
    pages += sorted(TREE.glob("bindings/*/README.md"))
    return {
        block["name"]: block["text"] for page in pages for block in BLOCK.finditer(page.read_text())
    }


def count(commands):
    """The number of commands to type."""
    return len([each for each in re.split(r"\n|&&", commands.replace("\\\n", " ")) if each.strip()])


def pack_tree(artifacts):
    """An archive of the sources with uncommitted changes, like a release's."""
    version = re.search(r"^  version: '(.*)',", (TREE / "meson.build").read_text(), re.M)[1]
    name = f"pagedkv-{version}"
    command = (
        "git ls-files -z --cached --others --exclude-standard | tar --create --gzip --null "
        f"--files-from=- --transform='s,^,{name}/,' --file='{artifacts / name}-source.tar.gz'"
    )
    subprocess.run(["bash", "-c", command], cwd=TREE, check=True)


def what_is_missing():
    """The reason why no empty userland can be made, or None."""
    if os.geteuid() != 0:
        return "an empty system needs root"
    if not shutil.which("debootstrap"):
        return "debootstrap is missing: bash tests/install-deps everything"
    tried = subprocess.run([*IN_NAMESPACES, "true"], capture_output=True, text=True)
    return f"an empty system cannot be entered: {tried.stderr}" if tried.returncode else None


@contextlib.contextmanager
def locked(path):
    """Several tests may want the same userland at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def bootstrap(system, kept):
    """An archive of the empty userland, or None if it cannot be made."""
    archive = kept / f"{system}.tar"
    with locked(kept / f"{system}.lock"), tempfile.TemporaryDirectory(dir=kept) as directory:
        if archive.exists():
            return archive
        root, packed = pathlib.Path(directory, "root"), pathlib.Path(directory, archive.name)
        # The mounts of debootstrap are always undone when it ends.
        command = [*IN_NAMESPACES, "debootstrap", "--variant=minbase"]
        command += ["--include=ca-certificates", system, str(root)]
        made = subprocess.run(command, capture_output=True, text=True)
        if made.returncode:
            print(f"{system}: SKIPPED: debootstrap failed: {(made.stdout + made.stderr)[-300:]}")
            return None
        let_clients_in(root)
        subprocess.run(["tar", "-cf", packed, "-C", root, "."], check=True)
        packed.rename(archive)
    return archive


def let_clients_in(root):
    """The name server, certificates and settings of clients that this machine has."""
    for name in ("/etc/resolv.conf", *SETTINGS):
        source = pathlib.Path(name).expanduser()
        target = root / name.replace("~", "root").lstrip("/")
        if source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            shutil.copy(source, target)
    # The userland need not survive a power failure, and fsync() takes half of the time of dpkg.
    (root / "etc/dpkg/dpkg.cfg.d/unsafe-io").write_text("force-unsafe-io\n")
    (root / "etc/apt/apt.conf.d/retries").write_text('Acquire::Retries "3";\n')
    if CERTIFICATES.is_dir():
        shutil.copytree(CERTIFICATES, root / CERTIFICATES.relative_to("/"), dirs_exist_ok=True)
        subprocess.run(["chroot", root, "update-ca-certificates"], check=True, capture_output=True)


def program(page, suffix):
    """The first program of this language that the page shows."""
    language = LANGUAGES[suffix]
    text = (TREE / page).read_text()
    return re.search(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)[1]


def prepare(root, needs, artifacts):
    """Copies packages and programs into the home directory; False if a package is missing."""
    home = root / "root"
    for pattern in needs.packages:
        found = [path for path in artifacts.iterdir() if fnmatch.fnmatch(path.name, pattern)]
        if not found:
            return False
        for path in found:
            shutil.copy(path, home)
    for name, page in needs.programs.items():
        (home / name).write_text(program(page, pathlib.Path(name).suffix))
    return True


def link_packages(source, target):
    """Lets two directories share the downloaded Debian packages."""
    target.mkdir(parents=True, exist_ok=True)
    for path in source.glob("*.deb"):
        with contextlib.suppress(FileExistsError):
            os.link(path, target / path.name)


def follow(root, commands, more):
    """Runs the commands of a block in the userland, with more in their environment: False if one
    failed.
    """
    environment = {k: v for k, v in os.environ.items() if OF_CLIENTS.fullmatch(k)}
    environment |= {"HOME": "/root", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
    environment |= {"DEBIAN_FRONTEND": "noninteractive", "SSL_CERT_FILE": ALL_CERTIFICATES}
    if "PIP_CERT" in environment:
        environment["PIP_CERT"] = ALL_CERTIFICATES
    environment.pop("PIP_FIND_LINKS", None)  # a directory of this machine's
    done = subprocess.run(
        [*IN_NAMESPACES, f"--mount-proc={root}/proc"]
        + ["chroot", root, "bash", "-ec", f"cd /root\n{commands}"],
        env=environment | more,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        print(done.stdout[-3000:])
    return done.returncode == 0


def run(system, archive, name, commands, artifacts, more={}):
    """A row of the table."""
    needs = BLOCKS[name]
    row = {"system": system, "block": name, "commands": count(commands), "minutes": "-"}
    if system not in needs.systems:
        return row | {"result": "not for this system"}
    with tempfile.TemporaryDirectory(dir=archive.parent) as directory:
        root = pathlib.Path(directory)
        subprocess.run(["tar", "-xf", archive, "-C", root], check=True)
        if not prepare(root, needs, artifacts):
            return row | {
                "result": f"{MISSING}: {' '.join(needs.packages)} not in {artifacts.name}"
            }
        downloads = archive.parent / f"{system}-packages"
        link_packages(downloads, root / PACKAGES)
        begin = time.monotonic()
        worked = follow(root, commands, more)
        row["minutes"] = f"{(time.monotonic() - begin) / 60:.1f}"
        link_packages(root / PACKAGES, downloads)
    return row | {"result": "decode step" if worked else "FAILED"}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("artifacts", type=pathlib.Path)
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--blocks", default=",".join(BLOCKS))
    parser.add_argument("--complete", action="store_true")
    parser.add_argument("--keep", type=pathlib.Path, default=TREE / "build-bare")
    given = parser.parse_args()
    if reason := what_is_missing():
        sys.exit(f"bare: {reason}")
    artifacts = given.artifacts.resolve()
    if (TREE / ".git").exists():
        pack_tree(artifacts)
    commands = blocks()
    rows = []
    for system in given.systems.split(","):
        archive = bootstrap(system, given.keep.resolve())
        for name in given.blocks.split(",") if archive else ():
            if name in commands:
                rows.append(run(system, archive, name, commands[name], artifacts))
                print("{system}, {block}: {result}, {minutes} minutes".format(**rows[-1]))
            else:
                print(f"{system}, {name}: skipped: no page has commands for it")
    print("\n| system | block | commands | minutes | result |\n|---|---|---|---|---|")
    for row in rows:
        print("| {system} | {block} | {commands} | {minutes} | {result} |".format(**row))
    bad = ("FAILED", MISSING) if given.complete else ("FAILED",)
    sys.exit(any(row["result"].startswith(bad) for row in rows))


if __name__ == "__main__":
    main()
