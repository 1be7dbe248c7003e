"""vLLM's engine for CPUs in one process, with its own attention and ours."""

import os
import time

import engine

# One process, 2 GiB for keys and values, nothing sent anywhere.
os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",
}
DTYPES = {"f32": "float32", "bf16": "bfloat16"}


class Vllm(engine.Engine):
    """Blocks of shared prefixes are computed once: vLLM's prefix cache is on."""

    def __init__(self, options):
        if options.way == "pagedkv":
            from pagedkv_vllm import install

            install()
        import vllm

        super().__init__()
        self.count = 0
        self._time_attention()
        self.model = vllm.LLM(
            model=str(options.model / options.dtype),
            dtype=DTYPES[options.dtype],
            enforce_eager=True,
            max_model_len=8192,
            max_num_seqs=16,
            max_num_batched_tokens=2048,
            disable_log_stats=True,
        )
        self.new_sampling = vllm.SamplingParams

    def _time_attention(self):
        from vllm.utils.import_utils import resolve_obj_by_qualname
        from vllm.v1.attention.backends.registry import AttentionBackendEnum

        backend = resolve_obj_by_qualname(AttentionBackendEnum.CPU_ATTN.get_path())
        layer = backend.get_impl_cls()
        for name in ("forward", "do_kv_cache_update"):
            if hasattr(layer, name):
                setattr(layer, name, self.watch.around(getattr(layer, name)))

    def reset(self):
        self.model.reset_prefix_cache()

    def generate(self, prompts, new):
        engine_, names = self.model.llm_engine, []
        how = {"temperature": 0, "max_tokens": new, "ignore_eos": True, "detokenize": False}
        sampling = self.new_sampling(**how)
        for prompt in prompts:
            self.count += 1
            names.append(str(self.count))
            engine_.add_request(names[-1], {"prompt_token_ids": prompt}, sampling)
        answers, times = {}, {name: [] for name in names}
        while engine_.has_unfinished_requests():
            outputs, moment = engine_.step(), time.perf_counter()
            for output in outputs:
                answers[output.request_id] = list(output.outputs[0].token_ids)
                known = times[output.request_id]
                known += [moment] * (len(answers[output.request_id]) - len(known))
        return [answers[name] for name in names], [times[name] for name in names]


if __name__ == "__main__":
    chosen = engine.arguments()
    engine.serve(lambda: Vllm(chosen))
