"""Checks the parts of a release that take no build: two clones of a commit, with different dates,
modes and settings, give the same bytes; the source archive has each file of the commit; the bill of
materials refers only to what is in it; the notes are those of this version. Without a clone or git
it exits with 77 and prints the reason.

usage: release.py TREE"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

from install import run, run_main

SCRIPT = "src/packaging/release"
DEPENDENCIES = "src/packaging/dependencies.py"
PARTS = "source,sbom,notes,go"


def release(tree, directory, parts=PARTS, umask=0o022, **environment):
    """Returns the finished process. Nothing but the commit may change the files."""
    return subprocess.run(
        ["bash", tree / SCRIPT, "--only", parts, directory],
        env=os.environ | environment,
        umask=umask,
        capture_output=True,
        text=True,
    )


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def check_archive(tree, version, archive):
    """An archive unpacks into one directory, with the files and modes of the commit."""
    with tarfile.open(archive) as packed:
        found = {member.name: member.mode for member in packed if member.isfile()}
    tracked = run("git", "-C", tree, "ls-tree", "-r", "HEAD").splitlines()
    expected = {
        f"pagedkv-{version}/{name}": 0o755 if mode.startswith("100755") else 0o644
        for mode, name in (line.split("\t") for line in tracked)
    }
    assert found == expected, sorted(found.items() ^ expected.items())[:5]
    return len(found)


def check_bill(bill, version):
    """What SPDX 2.3 asks of a document, except for licences, whose list is not here."""
    packages = {package["SPDXID"]: package for package in bill["packages"]}
    assert bill["spdxVersion"] == "SPDX-2.3" and bill["dataLicense"] == "CC0-1.0"
    assert len(packages) == len(bill["packages"]), "two packages have the same id"
    assert all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", name) for name in packages), packages.keys()
    assert packages["SPDXRef-pagedkv"]["versionInfo"] == version
    assert set(bill["documentDescribes"]) <= packages.keys()
    known = {bill["SPDXID"], *packages}
    for relation in bill["relationships"]:
        ends = {relation["spdxElementId"], relation["relatedSpdxElement"]}
        assert ends <= known, f"not in the document: {ends - known}"


def check_wheels(tree, directory):
    """The bill of materials has the exact versions that are inside wheels."""
    files = []
    for wheel, exact in (("a-1.0.0-linux_x86_64", "1.0.18-1+deb12u1"), ("a-1.0.0-win_amd64", "2")):
        files.append(directory / f"{wheel}.whl.txt")
        files[-1].write_text(f"libsodium\t{exact}\tpkg:deb/debian/libsodium@{exact}\n")
    bill = json.loads(run(sys.executable, "-B", tree / DEPENDENCIES, "--spdx", *files))
    check_bill(bill, next(p["versionInfo"] for p in bill["packages"] if p["name"] == "pagedkv"))
    names = {package["SPDXID"]: package["name"] for package in bill["packages"]}
    versions = {package["SPDXID"]: package["versionInfo"] for package in bill["packages"]}
    contained = {
        (names[relation["spdxElementId"]], names[end], versions[end])
        for relation in bill["relationships"]
        if relation["relationshipType"] == "CONTAINS"
        for end in [relation["relatedSpdxElement"]]
    }
    assert contained == {
        ("a-1.0.0-linux_x86_64.whl", "libsodium", "1.0.18-1+deb12u1"),
        ("a-1.0.0-win_amd64.whl", "libsodium", "2"),
    }, contained


def main():
    tree = pathlib.Path(sys.argv[1])
    if not shutil.which("git") or not (tree / ".git").exists():
        print("SKIPPED: a release is made from a clone, with git")
        sys.exit(77)
    committed = run("git", "-C", tree, "show", "HEAD:meson.build")
    version = re.search(r"^  version: '(.*)',$", committed, re.M)[1]
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        first, second, clone = directory / "first", directory / "second", directory / "clone"
        run("git", "clone", "--quiet", "--shared", tree, clone)
        shutil.copy(tree / SCRIPT, clone / SCRIPT)  # with changes that are not committed
        made = release(tree, first)
        assert made.returncode == 0, made.stderr
        again = release(clone, second, umask=0o077, TZ="Asia/Tokyo", LC_ALL="C")
        assert again.returncode == 0, again.stderr
        files, others = contents(first), contents(second)
        name = f"pagedkv-{version}"
        expected = {f"{name}-source.tar.gz", f"{name}.spdx.json", f"{name}-notes.md", "SHA256SUMS"}
        assert files.keys() == expected | {f"pagedkv-go-{version}.tar.gz"}, files.keys()
        different = [name for name in files if files[name] != others.get(name)]
        assert not different, f"the same commit gives different files: {different}"

        count = check_archive(tree, version, first / f"{name}-source.tar.gz")
        bill = json.loads(files[f"{name}.spdx.json"])
        check_bill(bill, version)
        bill["packages"].pop()
        try:
            check_bill(bill, version)
        except AssertionError as error:
            assert "not in the document" in str(error), error
        else:
            sys.exit("a package that is missing in the bill of materials is not noticed")
        check_wheels(tree, directory)
        sections = re.findall(r"^## .*$", files[f"{name}-notes.md"].decode(), re.M)
        assert len(sections) == 1 and sections[0].startswith(f"## {version}"), sections

        run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=first)
        refused = release(tree, first, parts="source,sources")
        assert refused.returncode == 2 and "no part 'sources'" in refused.stderr, refused.stderr
        refused = release(tree, clone, parts="notes")
        assert refused.returncode == 1 and "not of a release" in refused.stderr, refused.stderr
        print(f"{count} files in the source archive, {len(files)} files twice with the same bytes")


if __name__ == "__main__":
    run_main(main)
