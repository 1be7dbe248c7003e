"""Prints what llama.cpp's server answers, and how many operations the plug-in computed. The server
is that of xllamacpp, whose llama.cpp is newer, and does not load backends by itself.

usage: server.py MODEL [LIBGGML_PAGEDKV]
"""

import ctypes
import pathlib
import sys

import xllamacpp

PROMPTS = ("The capital of France is", "The three most important ideas of computer science are")

library = ctypes.CDLL(str(next(pathlib.Path(xllamacpp.__file__).parent.glob("xllamacpp*.so"))))
load = library.ggml_backend_load
load.restype = ctypes.c_void_p
plugin = load(sys.argv[2].encode()) if len(sys.argv) > 2 else None

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx = 2048
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
for prompt in PROMPTS:
    request = {"prompt": prompt, "n_predict": 10, "temperature": 0}
    print(repr(server.handle_completions(request)["choices"][0]["text"]))

if plugin is not None:
    get = library.ggml_backend_reg_get_proc_address
    get.restype = ctypes.c_void_p
    address = get(ctypes.c_void_p(plugin), b"pagedkv_computed")
    print(f"computed {ctypes.CFUNCTYPE(ctypes.c_uint64)(address)()}")
