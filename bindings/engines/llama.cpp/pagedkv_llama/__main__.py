"""Prints the path of the plug-in, for GGML_BACKEND_PATH."""

from . import find

print(find())
