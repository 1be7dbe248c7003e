"""Follows include/guide/integrate.md with an installed library in an empty folder: writes the files
that it shows (a file of which it shows a part is copied), runs its commands, and compares their
output with the page. Commands marked <!-- from a clone --> are not run: the library is installed
into a folder, and variables point there. CMake's part is left out if cmake or the installed package
file for it is missing.

usage: guide.py TREE BUILD MESON..."""

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
    """Returns the number of programs whose output equals the page's."""
    printed, checked = "", 0
    for block in BLOCK.finditer(chapter.read_text()):
        mark, language, text = block["mark"] or "", block["language"], block["text"]
        if mark.startswith("shows "):
            path, *part = mark.split()[1:]
            whole = (chapter.parent / path).read_text() if part else text
            (folder / pathlib.Path(path).name).write_text(whole)
        elif mark.startswith("printed by "):
            assert text in printed, f"the chapter says\n{text}but these commands print\n{printed}"
            printed, checked = "", checked + 1
        elif language == "sh" and mark != "from a clone" and (cmake or "cmake" not in text):
            how = {"input": text, "cwd": folder, "env": environment}
            result = subprocess.run(["bash", "-e"], capture_output=True, text=True, **how)
            assert result.returncode == 0, f"{text}failed:\n{result.stdout}{result.stderr}"
            printed = result.stdout
    return checked


def main():
    tree, build, *meson = sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        root, folder = pathlib.Path(directory) / "root", pathlib.Path(directory) / "empty"
        folder.mkdir()
        libraries, prefix = install.install(meson, build, root)
        environment = install.environment(root, libraries) | {"CMAKE_PREFIX_PATH": str(prefix)}
        package = [*root.rglob("pagedkvConfig.cmake"), *root.rglob("pagedkv-config.cmake")]
        cmake = bool(package) and shutil.which("cmake") is not None
        page = pathlib.Path(tree) / "include/guide/integrate.md"
        checked = follow(page, folder, environment, cmake)
        assert checked == 2, f"{checked} programs were checked"
        assert (folder / "engine").exists() and not list(folder.glob("*.so*"))
    print(f"{checked} programs, {'with' if cmake else 'without'} CMake")


if __name__ == "__main__":
    install.run_main(main)
