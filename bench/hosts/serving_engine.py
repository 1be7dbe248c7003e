"""The Engine of pagedkv-transformers: our own engine over the model of transformers."""

import time

import torch
from pagedkv_transformers import ForwardPass
from pagedkv_transformers.serving import Engine
from transformers_engine import load

import engine


class Serving(engine.Engine):
    """Prefixes are kept from prompt to prompt, and over the turns of a conversation."""

    def __init__(self, options):
        super().__init__()
        self.model, self.engine = load(options), None
        for name in ("write", "attend"):
            setattr(ForwardPass, name, self.watch.around(getattr(ForwardPass, name)))

    def reset(self):
        if self.engine is not None:
            self.engine.close()
        self.engine = None

    @torch.inference_mode()
    def generate(self, prompts, new):
        if self.engine is None:
            self.engine = Engine(self.model)
        how = {"max_new_tokens": new, "stop_tokens": ()}
        requests = [self.engine.add(prompt, **how) for prompt in prompts]
        times = {id(request): [] for request in requests}
        while any(len(times[id(request)]) < new for request in requests):
            for event in self.engine.step():
                times[id(event.request)].append(time.perf_counter())
        answers = [request.tokens[-new:] for request in requests]
        return answers, [times[id(request)] for request in requests]


if __name__ == "__main__":
    chosen = engine.arguments()
    engine.serve(lambda: Serving(chosen))
