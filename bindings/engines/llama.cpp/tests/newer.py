"""Runs recall.cpp, compiled as a library, in the llama.cpp of xllamacpp. That is newer than the
headers: a context's parameters differ after the types of keys and values, so none that comes later
may be set, as kv_unified is in layouts with shared cells.

usage: newer.py RECALL_SO MODEL FOLDER streams (no backends may be in the folder: it has them)
"""

import ctypes
import os
import sys

sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)
import xllamacpp  # noqa: E402, F401

arguments = [os.fsencode(argument) for argument in sys.argv[1:]]
count = len(arguments)
sys.exit(ctypes.CDLL(sys.argv[1]).main(count, (ctypes.c_char_p * (count + 1))(*arguments)))
