"""Packs, extends and unpacks its own corpora with corpus.py, and passes it archives and directories
that it must refuse.
"""

import contextlib
import hashlib
import io
import lzma
import pathlib
import sys
import tarfile
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import corpus  # noqa: E402


def tar_xz(*members):
    """An archive of (TarInfo, content) that corpus.py would not write."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return lzma.compress(tar.getvalue())


def special(kind):
    member = tarfile.TarInfo("a")
    member.type, member.linkname = kind, "/etc/passwd"
    return member


class Corpus(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.addCleanup(setattr, corpus, "FUZZ", corpus.FUZZ)
        corpus.FUZZ = self.root
        (self.root / "pool.cpp").touch()
        self.archive = self.root / "corpus/pool.tar.xz"
        self.inputs = self.directory("inputs", {"seed-1": b"one", "b" * 40: b"", "a": b"\0\xff"})

    def directory(self, name, files):
        path = self.root / name
        path.mkdir()
        for file, content in files.items():
            (path / file).write_bytes(content)
        return path

    def run_tool(self, *arguments):
        """Returns the exit status or the error sentence, and the output."""
        printed = io.StringIO()
        sys.argv = ["corpus.py", *map(str, arguments)]
        with contextlib.redirect_stdout(printed):
            try:
                status = corpus.main()
            except SystemExit as end:
                status = end.code
        return status, printed.getvalue()

    def works(self, *arguments):
        status, printed = self.run_tool(*arguments)
        self.assertIsNone(status)
        return printed

    def refused(self, sentence, *arguments):
        status, _ = self.run_tool(*arguments)
        self.assertRegex(str(status), f"^corpus.py: .*{sentence}")

    def test_the_same_inputs_make_the_same_archive(self):
        self.assertRegex(self.works("pack", "pool", self.inputs), "holds 3 inputs, 3 of them new")
        first = self.archive.read_bytes()
        self.archive.unlink()
        again = {path.name: path.read_bytes() for path in sorted(self.inputs.iterdir())}
        self.works("pack", "pool", self.directory("again", again))
        self.assertEqual(self.archive.read_bytes(), first)

    def test_an_archive_of_the_same_inputs_is_left_alone(self):
        self.archive.parent.mkdir()
        member = tarfile.TarInfo("a")
        self.archive.write_bytes(tar_xz((member, b"other bytes, same input")))
        before = self.archive.read_bytes()
        same = self.directory("same", {"a": b"other bytes, same input"})
        self.assertRegex(self.works("pack", "pool", same), "holds 1 inputs, 0 of them new$")
        self.assertEqual(self.archive.read_bytes(), before)

    def test_pack_tells_what_is_gone(self):
        self.works("pack", "pool", self.inputs)
        fewer = self.directory("fewer", {"a": b"\0\xff", "new": b"new"})
        self.assertRegex(self.works("pack", "pool", fewer), "2 inputs, 1 of them new; 2 are gone")

    def test_unpack_makes_the_directory_what_the_archive_is(self):
        self.works("pack", "pool", self.inputs)
        to, stamp = self.directory("to", {"old": b"", "a": b"changed"}), self.root / "stamp"
        (to / "seed-1").symlink_to(self.inputs / "seed-1")
        self.works("unpack", self.archive, to, "--stamp", stamp)
        self.assertEqual(corpus.read_directory(to), corpus.read_directory(self.inputs))
        self.assertTrue(stamp.exists())

    def test_add_names_inputs_as_libfuzzer_does(self):
        self.works("pack", "pool", self.inputs)
        crash = self.root / "crash"
        crash.write_bytes(b"boom")
        name = hashlib.sha1(b"boom").hexdigest()
        self.assertRegex(self.works("add", "pool", crash), f"{name}\n.*4 inputs, 1 of them new")
        self.assertEqual(corpus.read_archive(self.archive)[name], b"boom")
        crash.write_bytes(b"one")
        self.assertRegex(self.works("add", "pool", crash), "already: seed-1\n.*4 inputs, 0 of")

    def test_damaged_archives_are_refused(self):
        self.works("pack", "pool", self.inputs)
        good = self.archive.read_bytes()
        to = self.root / "to"
        for bad in (b"", b"text", good[:-1], good[:40], good[:60] + b"\0" + good[61:]):
            self.archive.write_bytes(bad)
            self.refused("is damaged", "unpack", self.archive, to)
        self.archive.write_bytes(lzma.compress(b"no tar" * 1000))
        self.refused("is damaged", "unpack", self.archive, to)
        self.assertFalse(to.exists())
        self.refused("No such file", "unpack", self.root / "missing", to)

    def test_members_that_are_no_plain_files_are_refused(self):
        bad = self.root / "bad.tar.xz"
        for name in ("../a", "/a", "b/a", "b\\a", ".", ".."):
            bad.write_bytes(tar_xz((tarfile.TarInfo(name), b"")))
            self.refused("not the name of a plain file", "unpack", bad, self.root / "to")
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE):
            bad.write_bytes(tar_xz((special(kind), b"")))
            self.refused("not a plain file", "unpack", bad, self.root / "to")
        bad.write_bytes(tar_xz((tarfile.TarInfo("a"), b""), (tarfile.TarInfo("a"), b"")))
        self.refused("occurs twice", "unpack", bad, self.root / "to")
        bad.write_bytes(tar_xz())
        self.refused("holds no inputs", "unpack", bad, self.root / "to")

    def test_wrong_arguments_are_refused(self):
        self.works("pack", "pool", self.inputs)
        self.refused("no target pol; targets: pool$", "pack", "pol", self.inputs)
        self.refused("no target pol; targets: pool$", "add", "pol", self.inputs / "a")
        self.refused("not a corpus: it contains a directory", "unpack", self.archive, self.root)
        self.refused("is not a plain file", "pack", "pool", self.root)
        self.refused("holds no inputs", "pack", "pool", self.directory("empty", {}))
        self.refused("No such file", "add", "pool", self.root / "missing")


if __name__ == "__main__":
    unittest.main()
