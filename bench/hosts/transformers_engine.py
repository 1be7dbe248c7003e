"""Hugging Face transformers: generate() with its own attention and ours, and generate_batch()."""

import time

import torch
import transformers
from transformers import AttentionInterface

import engine

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


class _Clock(transformers.StoppingCriteria):
    """Notes the time of each token."""

    def __init__(self):
        self.times = []

    def __call__(self, input_ids, scores, **kwargs):
        self.times.append(time.perf_counter())
        return torch.zeros(len(input_ids), dtype=torch.bool)


def load(options):
    torch.set_num_threads(options.threads)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers.AutoModelForCausalLM.from_pretrained(
        options.model / options.dtype, dtype=DTYPES[options.dtype]
    ).eval()


class Generate(engine.Engine):
    """One padded batch. A conversation continues in the cache of its earlier turns, unless the
    batch was padded, which generate() cannot undo."""

    def __init__(self, options, paged):
        super().__init__()
        self.model, self.paged = load(options), paged
        if paged:
            from pagedkv_transformers import PagedCache, PagedLayer, install

            install(self.model)
            self.make_cache, layer, name = (lambda: PagedCache(self.model)), PagedLayer, "pagedkv"
        else:
            self.model.set_attn_implementation("sdpa")
            layer, name = transformers.cache_utils.DynamicLayer, "sdpa"
            self.make_cache = lambda: transformers.DynamicCache(config=self.model.config)
        layer.update = self.watch.around(layer.update)
        function = transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS[name]
        AttentionInterface.register(name, self.watch.around(function))
        self.cache = None

    def reset(self):
        if self.paged and self.cache is not None:
            self.cache.close()
        self.cache = None

    @torch.inference_mode()
    def generate(self, prompts, new):
        longest = max(map(len, prompts))
        if self.cache is None or any(len(prompt) != longest for prompt in prompts):
            self.reset()
            self.cache = self.make_cache()
        ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
        clock = _Clock()
        output = self.model.generate(
            ids,
            attention_mask=mask,
            past_key_values=self.cache,
            min_new_tokens=new,
            max_new_tokens=new,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
            stopping_criteria=transformers.StoppingCriteriaList([clock]),
        )
        return output[:, longest:].tolist(), [clock.times] * len(prompts)


class GenerateBatch(engine.Engine):
    """transformers' continuous batching; each call has a cache of its own."""

    def __init__(self, options):
        super().__init__()
        self.model = load(options)
        self.model.set_attn_implementation("sdpa")
        function = transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS["sdpa"]
        AttentionInterface.register("sdpa", self.watch.around(function))

    def generate(self, prompts, new):
        tokens = sum(map(len, prompts)) + new * len(prompts)
        config = transformers.ContinuousBatchingConfig(
            num_blocks=-(-tokens // 256) + 2 * len(prompts), max_batch_tokens=2048
        )
        outputs = self.model.generate_batch(
            prompts,
            generation_config=transformers.GenerationConfig(
                max_new_tokens=new, do_sample=False, eos_token_id=-1
            ),
            continuous_batching_config=config,
            record_timestamps=True,
            progress_bar=False,
        )
        by_prompt = {tuple(output.prompt_ids): output for output in outputs.values()}
        found = [by_prompt[tuple(prompt)] for prompt in prompts]
        if error := next((output.error for output in found if output.error), None):
            raise RuntimeError(error)
        return [o.generated_tokens for o in found], [o.timestamps for o in found]


WAYS = {
    "generate": lambda options: Generate(options, paged=False),
    "generate-pagedkv": lambda options: Generate(options, paged=True),
    "batch": GenerateBatch,
}

if __name__ == "__main__":
    chosen = engine.arguments()
    engine.serve(lambda: WAYS[chosen.way](chosen))
