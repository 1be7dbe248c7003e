"""Keeps the inputs of each fuzz target in one archive, fuzz/corpus/TARGET.tar.xz.

corpus.py add TARGET FILE...        adds inputs, named by their SHA-1 as libFuzzer does
corpus.py pack TARGET DIRECTORY     makes the archive hold just the files of a directory
corpus.py unpack ARCHIVE DIRECTORY [STAMP]   makes a directory hold just the inputs of an archive
"""

import hashlib
import io
import lzma
import pathlib
import sys
import tarfile

FUZZ = pathlib.Path(__file__).resolve().parent


def archive_of(target):
    return FUZZ / "corpus" / f"{target}.tar.xz"


def read(archive):
    """The inputs of an archive by name."""
    with tarfile.open(archive) as members:
        return {member.name: members.extractfile(member).read() for member in members}


def write(archive, inputs):
    """The same inputs make the same archive: sorted, without times and owners."""
    if archive.exists() and read(archive) == inputs:
        return
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.USTAR_FORMAT) as members:
        for name in sorted(inputs):
            member = tarfile.TarInfo(name)
            member.size = len(inputs[name])
            members.addfile(member, io.BytesIO(inputs[name]))
    archive.write_bytes(lzma.compress(tar.getvalue(), preset=6 | lzma.PRESET_EXTREME))
    print(f"{archive.name} has {len(inputs)} inputs now")


def add(target, *files):
    contents = [pathlib.Path(file).read_bytes() for file in files]
    new = {hashlib.sha1(content).hexdigest(): content for content in contents}
    write(archive_of(target), read(archive_of(target)) | new)


def pack(target, directory):
    files = pathlib.Path(directory).iterdir()
    write(archive_of(target), {file.name: file.read_bytes() for file in files})


def unpack(archive, directory, stamp=None):
    inputs, folder = read(archive), pathlib.Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        if file.name not in inputs:
            file.unlink()
    for name, content in inputs.items():
        (folder / name).write_bytes(content)
    if stamp:
        pathlib.Path(stamp).touch()


if __name__ == "__main__":
    actions = {"add": add, "pack": pack, "unpack": unpack}
    if len(sys.argv) < 4 or sys.argv[1] not in actions:
        sys.exit(__doc__)
    actions[sys.argv[1]](*sys.argv[2:])
