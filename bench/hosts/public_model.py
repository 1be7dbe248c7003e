"""The public model, a text that it did not write, and the errors of predictions of that text."""

import argparse
import json
import pathlib

import torch
import transformers


def arguments(description, **numbers):
    """The directory of the model, and options that are numbers, with their defaults."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=pathlib.Path, help="what bench/hosts/prepare.py wrote")
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N")
    return parser.parse_args()


def load(directory):
    """The model in float32, and the text of the longest workload as token ids."""
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory / "f32", dtype=torch.float32
    ).eval()
    workloads = json.loads((directory / "workloads.json").read_text())
    return model, max((w["prompts"][0] for w in workloads), key=len)


def deviations(exact, found, targets):
    """Sums over the tokens of a text, from log-probabilities: -log p of the text, divergence from
    the exact ones, equal first choices, tokens."""
    surprise = -found.gather(1, targets[:, None]).sum()
    divergence = (exact.exp() * (exact - found)).sum()
    equal = (exact.argmax(-1) == found.argmax(-1)).sum()
    return torch.tensor([surprise, divergence, equal, len(targets)], dtype=torch.float64)


def cells(sums):
    """Perplexity, mean divergence and the share of equal first choices, for a row of a table."""
    surprise, divergence, equal, count = sums
    perplexity = torch.exp(surprise / count)
    return f"{perplexity:.3f} | {max(0.0, divergence / count):.2g} | {equal / count:.1%}"


@torch.inference_mode()
def print_costs(options, model, text, cases):
    """A row for each (name, rotation, function from a number of tokens to a cache); the first is
    exact."""
    sums = [torch.zeros(4, dtype=torch.float64) for _ in cases]
    text = text[: options.tokens]
    for begin in range(0, len(text), 2000):
        ids, exact = torch.tensor([text[begin : begin + 2000]]), None
        for i, (_, _, make_cache) in enumerate(cases):
            cache = make_cache(ids.shape[1])
            logits = model(input_ids=ids, past_key_values=cache, use_cache=True).logits
            found = torch.log_softmax(logits[0, :-1].float(), -1)
            getattr(cache, "close", lambda: None)()
            exact = found if exact is None else exact
            sums[i] += deviations(exact, found, ids[0, 1:])
    print("| K and V | rotation | perplexity | KL to f32 | first choice as with f32 |")
    print("|---|---|---|---|---|")
    for (name, rotation, _), row in zip(cases, sums):
        print(f"| {name} | {rotation} | {cells(row)} |")
