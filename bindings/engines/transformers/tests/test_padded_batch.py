"""Runs generate() on a padded batch in each environment whose PyTorch has empty CUDA libraries,
because transformers asks PyTorch whether a CUDA graph is captured.
"""

from __future__ import annotations

import sys

import pytest
from helpers import output

pytest.importorskip("torch")
pytest.importorskip("transformers", minversion="5.0")

BATCH = """
import torch, transformers

try:
    assert torch.cuda.is_current_stream_capturing() is False
except RuntimeError:
    pass
config = transformers.LlamaConfig(
    vocab_size=97, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
)
model = transformers.AutoModelForCausalLM.from_config(config).eval()
ids, mask = torch.arange(3, 19).view(2, 8), torch.ones(2, 8, dtype=torch.long)
ids[1, :3] = mask[1, :3] = 0
options = dict(max_new_tokens=4, do_sample=False, eos_token_id=None, pad_token_id=0)
assert model.generate(ids, attention_mask=mask, **options).shape == (2, 12)
model.generate(ids, **options)  # which looks for padding itself
"""


def test_generate_of_a_padded_batch() -> None:
    """Runs in a process of its own, which a crash would end."""
    output(sys.executable, "-W", "ignore", "-c", BATCH)
