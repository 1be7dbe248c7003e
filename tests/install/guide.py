"""A new user with an installed library, an empty folder and include/guide/integrate.md: files it
shows are written, commands it shows are run as they stand, and what it says they print is what
they print. Commands marked <!-- from a clone --> are done another way: the library is installed
into a folder, and the two variables point there. CMake's part is left out where cmake or the
installed package file for it is not there.

usage: guide.py TREE BUILD MESON..."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import install  # noqa: E402

BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*?) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S
)


def follow(chapter, folder, environment, cmake):
    """Returns how many programs printed what they should."""
    printed, checked = "", 0
    for block in BLOCK.finditer(chapter.read_text()):
        mark, language, text = block["mark"] or "", block["language"], block["text"]
        if mark.startswith("shows "):
            (folder / pathlib.Path(mark.split()[1]).name).write_text(text)
        elif mark.startswith("printed by "):
            assert text in printed, f"the chapter says\n{text}but these commands print\n{printed}"
            printed, checked = "", checked + 1
        elif language == "sh" and mark != "from a clone" and (cmake or "cmake" not in text):
            result = subprocess.run(
                ["bash", "-e"],
                input=text,
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
            )
            assert result.returncode == 0, f"{text}failed:\n{result.stdout}{result.stderr}"
            printed = result.stdout
    return checked


def main():
    tree, build, *meson = sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        root, folder = pathlib.Path(directory) / "root", pathlib.Path(directory) / "empty"
        folder.mkdir()
        install.run(*meson, "install", "-C", build, "--no-rebuild", "--destdir", root)
        pc = next(root.rglob("pagedkv.pc"))
        libraries = pc.parent.parent
        prefix = next(path for path in libraries.parents if (path / "include/pagedkv").is_dir())
        environment = dict(
            os.environ,
            PKG_CONFIG_PATH=str(pc.parent),
            PKG_CONFIG_SYSROOT_DIR=str(root),
            LD_LIBRARY_PATH=str(libraries),
            CMAKE_PREFIX_PATH=str(prefix),
        )
        package = [*root.rglob("pagedkvConfig.cmake"), *root.rglob("pagedkv-config.cmake")]
        cmake = bool(package) and shutil.which("cmake") is not None
        checked = follow(
            pathlib.Path(tree) / "include/guide/integrate.md", folder, environment, cmake
        )
        assert checked == 2, f"{checked} programs were checked"
        assert (folder / "engine").exists() and not list(folder.glob("*.so*"))
    print(f"{checked} programs, {'with' if cmake else 'without'} CMake")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"{' '.join(error.cmd)} failed:\n{error.stdout}{error.stderr}")
