"""Prints what llama.cpp's server answers, and how many operations the plug-in computed. The server
is that of xllamacpp, whose llama.cpp is newer, and does not load backends by itself.

usage: server.py MODEL [plugged-in]
"""

import sys

import xllamacpp

import pagedkv_llama

PROMPTS = ("The capital of France is", "The three most important ideas of computer science are")

if plugged_in := len(sys.argv) > 2:
    pagedkv_llama.load()

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx = 2048
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
for prompt in PROMPTS:
    request = {"prompt": prompt, "n_predict": 10, "temperature": 0}
    print(repr(server.handle_completions(request)["choices"][0]["text"]))

if plugged_in:
    print(f"computed {pagedkv_llama.computed()}")
