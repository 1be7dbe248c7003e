"""Keeps the inputs of each fuzz target in one archive, fuzz/corpus/TARGET.tar.xz.

add TARGET FILE...         adds inputs under the names that libFuzzer gives them, their SHA-1
pack TARGET DIRECTORY      makes the archive hold just the files of a directory
unpack ARCHIVE DIRECTORY   makes a directory hold just the inputs of an archive

The same inputs make the same archive, byte for byte: they are sorted by name, and neither times
nor owners are kept.
"""

import argparse
import hashlib
import io
import lzma
import os
import pathlib
import sys
import tarfile

FUZZ = pathlib.Path(__file__).resolve().parent
SUFFIX = ".tar.xz"


class Refused(Exception):
    """An error for the user."""


def targets():
    return sorted(path.name.removesuffix(SUFFIX) for path in FUZZ.glob("corpus/*" + SUFFIX))


def archive_of(target, exists):
    archive = FUZZ / "corpus" / (target + SUFFIX)
    if not (archive if exists else FUZZ / f"{target}.cpp").is_file():
        raise Refused(f"there is no target {target}; targets: {' '.join(targets())}")
    return archive


def check_name(name, origin):
    if name in ("", ".", "..") or any(separator in name for separator in "/\\\0"):
        raise Refused(f"{origin}: {name!r} is not the name of a plain file")


def read_archive(archive):
    """The inputs of an archive by name."""
    try:
        # A checksum at the end covers the whole archive, so all of it is read before anything is
        # trusted.
        with lzma.open(archive) as compressed:
            tar = io.BytesIO(compressed.read())
        inputs = {}
        with tarfile.open(fileobj=tar, mode="r:") as members:
            for member in members:
                check_name(member.name, archive)
                if not member.isreg():
                    raise Refused(f"{archive}: {member.name} is not a plain file")
                if member.name in inputs:
                    raise Refused(f"{archive}: {member.name} occurs twice")
                inputs[member.name] = members.extractfile(member).read()
    except (lzma.LZMAError, tarfile.TarError, EOFError) as error:
        raise Refused(f"{archive} is damaged: {error}") from error
    if not inputs:
        raise Refused(f"{archive} holds no inputs")
    return inputs


def write_archive(archive, inputs):
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.USTAR_FORMAT) as members:
        for name in sorted(inputs):
            member = tarfile.TarInfo(name)  # time 0, owner 0, mode 0644
            member.size = len(inputs[name])
            members.addfile(member, io.BytesIO(inputs[name]))
    packed = lzma.compress(tar.getvalue(), preset=6 | lzma.PRESET_EXTREME)
    # An interrupted run leaves the old archive.
    partial = archive.with_name(archive.name + ".partial")
    archive.parent.mkdir(exist_ok=True)
    partial.write_bytes(packed)
    os.replace(partial, archive)


def replace_archive(archive, inputs):
    """Writes the archive if its inputs differ, and prints how many it holds."""
    old = read_archive(archive) if archive.exists() else {}
    # Another version of liblzma may pack the same inputs into other bytes.
    if inputs != old:
        write_archive(archive, inputs)
    known = set(old.values())
    new = sum(content not in known for content in inputs.values())
    kept = set(inputs.values())
    gone = sum(content not in kept for content in old.values())
    text = f"{os.path.relpath(archive)} holds {len(inputs)} inputs, {new} of them new"
    print(text + (f"; {gone} are gone" if gone else ""))


def read_directory(directory):
    inputs = {}
    for path in directory.iterdir():
        if path.is_symlink() or not path.is_file():
            raise Refused(f"{path} is not a plain file")
        check_name(path.name, directory)
        inputs[path.name] = path.read_bytes()
    if not inputs:
        raise Refused(f"{directory} holds no inputs")
    return inputs


def add(target, files):
    archive = archive_of(target, exists=True)
    inputs = read_archive(archive)
    names = {content: name for name, content in inputs.items()}
    for file in files:
        content = file.read_bytes()
        if content in names:
            print(f"{file} is in it already: {names[content]}")
            continue
        name = hashlib.sha1(content).hexdigest()
        inputs[name], names[content] = content, name
        if name != file.name:
            print(f"{file} becomes {name}")
    replace_archive(archive, inputs)


def pack(target, directory):
    replace_archive(archive_of(target, exists=False), read_directory(directory))


def unpack(archive, directory, stamp):
    inputs = read_archive(archive)
    directory.mkdir(parents=True, exist_ok=True)
    present = list(directory.iterdir())
    for path in present:
        # A corpus has no directories. This keeps a mistyped directory from being emptied.
        if path.is_dir() and not path.is_symlink():
            raise Refused(f"{directory} is not a corpus: it contains a directory, {path.name}")
    for path in present:
        if path.name not in inputs or path.is_symlink():
            path.unlink()
    for name, content in inputs.items():
        (directory / name).write_bytes(content)
    if stamp:
        stamp.touch()


def parse(arguments):
    summary, _, details = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="corpus.py",
        description=summary,
        epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="add|pack|unpack")
    action = actions.add_parser("add")
    action.add_argument("target", metavar="TARGET")
    action.add_argument("files", metavar="FILE", nargs="+", type=pathlib.Path)
    action = actions.add_parser("pack")
    action.add_argument("target", metavar="TARGET")
    action.add_argument("directory", metavar="DIRECTORY", type=pathlib.Path)
    action = actions.add_parser("unpack")
    action.add_argument("archive", metavar="ARCHIVE", type=pathlib.Path)
    action.add_argument("directory", metavar="DIRECTORY", type=pathlib.Path)
    action.add_argument("--stamp", metavar="FILE", type=pathlib.Path, help="touched at the end")
    return parser.parse_args(arguments)


def main():
    options = vars(parse(sys.argv[1:]))
    action = options.pop("action")
    try:
        {"add": add, "pack": pack, "unpack": unpack}[action](**options)
    except (Refused, OSError) as error:
        sys.exit(f"corpus.py: {error}")


if __name__ == "__main__":
    main()
