"""The public model, and a text that it did not write, of which figures of quality are."""

import json

import torch
import transformers


def load(directory):
    """The model in float32, and the text of the longest workload as token ids."""
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory / "f32", dtype=torch.float32
    ).eval()
    workloads = json.loads((directory / "workloads.json").read_text())
    return model, max((w["prompts"][0] for w in workloads), key=len)
