"""Tries which causal language models of the installed transformers work with pagedkv.

usage: python tests/model_table.py [--write] [MODEL_TYPE...]

For each type it builds a tiny model with random weights. It compares the logits in a PagedCache (a
prompt in chunks, single tokens, and a padded batch by generate()) and in the Engine (two packed
prompts in chunks) with those in transformers' own cache. It prints a line for each type; --write
writes the list, ../MODELS.md, which test_model_table.py compares.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

import torch
import transformers
from pagedkv_transformers import PagedCache, UnsupportedModelError, cache_argument
from pagedkv_transformers.serving import Engine
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

LIST = pathlib.Path(__file__).resolve().parents[1] / "MODELS.md"
TYPES = sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)

PROMPT, NEW = 20, 4
CLOSE = 5e-4
"""The largest accepted difference of logits, relative to the largest logit."""


# ---- Tiny models ----


def _named(names: str, value: Any) -> dict[str, Any]:
    return dict.fromkeys(names.split(), value)


# The names of sizes in configs.
TINY = {
    **_named("vocab_size", 97),
    **_named("hidden_size d_model n_embd dim emb_dim embedding_size word_embed_proj_dim", 64),
    **_named("intermediate_size ffn_dim d_ff n_inner ffn_hidden_size decoder_ffn_dim", 96),
    **_named("encoder_ffn_dim moe_intermediate_size shared_expert_intermediate_size dim_ff", 96),
    **_named("intermediate_size_mlp hidden_dim dff", 96),
    **_named("num_hidden_layers n_layer num_layers n_layers encoder_layers decoder_layers", 4),
    **_named("num_decoder_layers num_encoder_layers", 4),
    **_named("num_attention_heads n_head n_heads num_heads encoder_attention_heads", 4),
    **_named("decoder_attention_heads num_decoder_attention_heads", 4),
    **_named("num_encoder_attention_heads", 4),
    **_named("num_key_value_heads", 2),
    **_named("head_dim dim_head kv_channels attention_head_dim rotary_dim", 16),
    **_named("max_position_embeddings n_positions n_ctx max_sequence_length", 256),
    **_named("sliding_window window_size", 8),
    **_named("num_experts num_local_experts n_routed_experts moe_num_experts", 4),
    **_named("num_experts_per_tok top_k moe_k moe_topk num_experts_per_token", 2),
    **_named("n_group topk_group", 1),
    **_named("initializer_range init_std", 0.2),
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
# For latent attention.
LATENT = {
    "num_key_value_heads": 4,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "v_head_dim": 16,
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "head_dim": 16,
}
# Fields besides the sizes. Fields of a part of a config are under the part's name.
FULL, SLIDING = "full_attention", "sliding_attention"
SHARED_KEYS = {
    "layer_types": [SLIDING, FULL] * 2,
    "num_kv_shared_layers": 2,
    "vocab_size_per_layer_input": 97,
    "hidden_size_per_layer_input": 16,
    "laurel_rank": 8,
    "activation_sparsity_pattern": [0.0] * 4,
}
INDEXER = {
    "indexer_n_heads": 2,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 16,
    "indexer_budget": 64,
    "indexer_compress_ratio": 4,
}
ROPE = {"rope_type": "default", "rope_theta": 10_000.0}
SPECIAL: dict[str, dict[str, Any]] = {
    "cohere_compass_text": {
        "layer_types": [SLIDING, FULL] * 2,
        "rope_parameters": {SLIDING: ROPE, FULL: ROPE},
    },
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10_000.0},
        "ffn_config": {"ffn_hidden_size": 96, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "dory": {"n_input_layers": 1, "n_output_layers": 1, "num_hidden_layers": 4},
    "dots1": {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1},
    "gemma3n_text": SHARED_KEYS,
    "gemma4": {"text_config": SHARED_KEYS},
    "gemma4_text": SHARED_KEYS,
    "gemma4_unified_text": SHARED_KEYS,
    "gemma4_assistant": {
        "text_config": {
            "hidden_size_per_layer_input": 0,
            "vocab_size_per_layer_input": 0,
            "num_kv_shared_layers": 4,
        }
    },
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "lfm2_moe": {"layer_types": ["conv", FULL] * 2},
    "lfm2": {"layer_types": ["conv", FULL] * 2},
    "mamba2": {"head_dim": 16, "num_heads": 8},
    "marian": {"init_std": 1.0},
    "minimax_m3_vl_text": {"layer_types": ["minimax_m3_sparse", FULL] * 2},
    "qwen4_exp": {"text_config": INDEXER},
    "qwen4_exp_text": INDEXER,
    "reformer": {"axial_pos_embds_dim": [32, 32], "axial_pos_shape": [16, 16]},
    "xmod": {"default_language": "en_XX"},
    "zamba": {"layers_block_type": ["linear_attention", "hybrid"] * 2, "attn_layer_offset": 1},
    "zamba2": {"layers_block_type": ["mamba", "hybrid"] * 2},
    "zaya": {"num_experts_per_tok": 1},
}


def tiny_config(kind: type[Any], special: dict[str, Any]) -> Any:
    default = kind()
    fields = set(vars(default))
    known = fields | {alias for alias, name in kind.attribute_map.items() if name not in TINY}
    sizes = {**TINY, **(LATENT if "qk_rope_head_dim" in fields else {})}
    changed: dict[str, Any] = {
        name: size
        for name, size in sizes.items()
        if name in known and isinstance(vars(default).get(name), int | float | None)
    }
    for name in default.sub_configs:
        if (part := getattr(default, name, None)) is not None:
            changed[name] = tiny_config(type(part), special.get(name, {}))
    whole = {name: value for name, value in special.items() if name not in default.sub_configs}
    tiny = kind(**{**changed, **whole})
    kinds = list(dict.fromkeys(vars(default).get("layer_types") or ()))
    if "layer_types" in special or set(kinds) <= set(tiny.layer_types if kinds else ()):
        return tiny  # with layers of all kinds
    layers = [kinds[i % len(kinds)] for i in range(tiny.num_hidden_layers)]
    return kind(**{**changed, **whole, "layer_types": layers})


def tiny_model(model_type: str) -> Any:
    torch.manual_seed(0)
    config = tiny_config(transformers.CONFIG_MAPPING[model_type], SPECIAL.get(model_type, {}))
    config._attn_implementation = "eager"
    if not config.is_encoder_decoder:
        config.is_decoder = True
    model = transformers.AutoModelForCausalLM.from_config(config).eval().float()
    model.generation_config.eos_token_id = None
    return model


# ---- Logits ----


def greedy(model: Any, ids: Any, cache: Any, chunks: list[int], forced: Any = None) -> Any:
    """Logits [NEW][vocabulary] after a text that is given in chunks."""
    logits, name = [], cache_argument(model)
    for part in ids.split(chunks, dim=1):
        out = model(input_ids=part, use_cache=True, **{name: cache})
    for i in range(NEW):
        logits.append(out.logits[0, -1])
        token = logits[-1].argmax() if forced is None else forced[i]
        if i < NEW - 1:
            out = model(input_ids=token.view(1, 1), use_cache=True, **{name: cache})
    return torch.stack(logits)


def generated(model: Any, ids: Any, mask: Any, cache: Any = None) -> Any:
    """Logits [batch][NEW][vocabulary] by generate()."""
    given = {} if cache is None else {cache_argument(model): cache}
    out = model.generate(
        ids,
        attention_mask=mask,
        generation_config=transformers.GenerationConfig(
            max_new_tokens=NEW,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
            pad_token_id=0,
        ),
        **given,
    )
    return torch.stack(out.logits, dim=1)


def served(model: Any, prompts: list[list[int]]) -> list[Any]:
    """Logits [NEW][vocabulary] of each prompt by an Engine that runs both at once."""
    passes: list[Any] = []
    hook = model.register_forward_hook(lambda _model, _given, out: passes.append(out.logits[0]))
    try:
        with Engine(model, blocks=64, chunk=24) as engine:
            requests = [engine.add(one, max_new_tokens=NEW, stop_tokens=[]) for one in prompts]
            logits: dict[int, list[Any]] = {request.number: [] for request in requests}
            while any(request.finish is None for request in requests):
                for event, row in zip(engine.step(), passes[-1], strict=True):
                    logits[event.request.number].append(row)
    finally:
        hook.remove()
    return [torch.stack(logits[request.number]) for request in requests]


def distance(got: Any, wanted: Any) -> float:
    """Infinite also for NaN."""
    apart = float((got - wanted).abs().max() / wanted.abs().max())
    return apart if apart == apart else float("inf")


# ---- The trial ----


@dataclasses.dataclass
class Outcome:
    """The outcome for a model type. Only `faults` are bad."""

    model_type: str
    missing: str = ""
    """Why the model could not be built, or what its own cache cannot do."""
    right: list[str] = dataclasses.field(default_factory=list)
    """Hosts."""
    refused: dict[str, str] = dataclasses.field(default_factory=dict)
    """By host, why."""
    faults: dict[str, str] = dataclasses.field(default_factory=dict)
    """By host: wrong logits, or an error that is not a refusal."""

    def __str__(self) -> str:
        said = [f"{host}: right" for host in self.right]
        said += [f"{host}: refused: {why}" for host, why in self.refused.items()]
        said += [f"{host}: FAULT: {what}" for host, what in self.faults.items()]
        return f"{self.model_type:26s} {'; '.join(said) or 'not tried: ' + self.missing}"

    @property
    def group(self) -> tuple[int, str]:
        """The position of its line in the list, and the beginning of the line."""
        if self.faults:
            return 0, "**Wrong**"
        if self.right:
            engine = self.refused.get("Engine")
            if engine is None:
                return 1, "**Works with PagedCache and Engine**"
            return 2, f"**Works with PagedCache**, not with Engine: {_shortened(engine)}"
        if self.refused:
            return 3, f"**Refused**: {_shortened(self.refused['PagedCache'])}"
        return 4, "**Not tried**: could not be built tiny"


def _shortened(reason: str) -> str:
    """A reason without the details of one model."""
    for whole, kind in (
        (r"^there is no .* layers of .*", "there is no paged cache for layers of its kinds"),
        (r" \(\w+\)$", ""),
        (r"layer 0 caches .*", "its layers cache other heads or dims than its config says"),
        (r"attends to all tokens, .*", "attends to all tokens, but its config has a window"),
    ):
        reason = re.sub(whole, kind, reason)
    return reason


def _reason(error: UnsupportedModelError) -> str:
    """The reason without the model's name and the advice."""
    return str(error).split(": ", 1)[1].rsplit(". Use generate()", 1)[0]


def _in_a_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


class Trial:
    """A tiny model, and its logits for two texts in its own cache."""

    def __init__(self, model: Any) -> None:
        self.model = model
        torch.manual_seed(1)
        self.ids = torch.randint(3, 97, (2, PROMPT))
        self.ids[1, :4] = 0
        self.mask = (self.ids != 0).long()
        self.texts = [self.ids[:1], self.ids[1:, 4:]]

    def expect(self) -> None:
        model, text = self.model, self.texts[0]
        self.padded = generated(model, self.ids, self.mask)
        self.alone = [generated(model, one, torch.ones_like(one))[0] for one in self.texts]
        self.plain = greedy(model, text, self._own(), [PROMPT])
        self.tokens = self.plain.argmax(-1)
        other = text.clone()
        other[0, PROMPT // 2] += 1 if text[0, PROMPT // 2] < 50 else -1
        changed = distance(greedy(model, other, self._own(), [PROMPT], self.tokens), self.plain)
        if changed < 10 * CLOSE:
            raise ValueError(f"a token changes the logits by {changed:.1e} only")

    def _own(self) -> Any:
        return transformers.DynamicCache(config=self.model.config)

    def paged(self) -> float:
        chunks = [9, 7, PROMPT - 16]
        logits = greedy(self.model, self.texts[0], PagedCache(self.model), chunks, self.tokens)
        padded = generated(self.model, self.ids, self.mask, PagedCache(self.model))
        return max(distance(logits, self.plain), distance(padded, self.padded))

    def engine(self) -> float:
        logits = served(self.model, [text[0].tolist() for text in self.texts])
        return max(map(distance, logits, self.alone))


@torch.no_grad()
def tried(model_type: str) -> Outcome:
    outcome = Outcome(model_type)
    try:
        trial = Trial(tiny_model(model_type))
    except Exception as error:
        outcome.missing = _in_a_line(error)
        return outcome
    try:
        trial.expect()
    except Exception as error:
        outcome.missing = _in_a_line(error)
    for host, distance_in in (("PagedCache", trial.paged), ("Engine", trial.engine)):
        try:
            PagedCache(trial.model).close()
            if outcome.missing:
                continue
            apart = distance_in()
        except UnsupportedModelError as error:
            outcome.refused[host] = _reason(error)
        except Exception as error:
            outcome.faults[host] = _in_a_line(error)
        else:
            if apart < CLOSE:
                outcome.right.append(host)
            else:
                outcome.faults[host] = f"logits are {apart:.1e} of the largest one off"
    return outcome


# ---- The list ----


def version() -> str:
    """The part of transformers' version that models depend on."""
    return ".".join(transformers.__version__.split(".")[:2])


def written(outcomes: Sequence[Outcome]) -> str:
    """The text of the list."""
    groups: dict[tuple[int, str], list[str]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.group, []).append(outcome.model_type)
    lines = [
        f"# The {len(outcomes)} causal language models of transformers {version()}",
        "",
        *textwrap.wrap(INTRODUCTION, 100),
        "",
    ]
    for (_, title), types in sorted(groups.items(), key=_place):
        text = f"* {title} ({len(types)}): {', '.join(types)}"
        lines += textwrap.wrap(text, 100, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(lines) + "\n"


INTRODUCTION = (
    "Each was built tiny with random weights. Its logits in a PagedCache (a prompt in chunks, "
    "tokens, a padded batch) and in the Engine were compared with those in transformers' own "
    "cache. `python tests/model_table.py --write` writes this list; a test checks that it is "
    "current."
)


def _place(line: tuple[tuple[int, str], list[str]]) -> tuple[int, int, str]:
    """Long lists come first."""
    (rank, title), types = line
    return rank, -len(types), title


def main(arguments: list[str]) -> None:
    transformers.logging.set_verbosity_error()
    outcomes = []
    for model_type in [one for one in arguments if one != "--write"] or TYPES:
        outcomes.append(tried(model_type))
        print(outcomes[-1], flush=True)
    if "--write" in arguments:
        LIST.write_text(written(outcomes))


if __name__ == "__main__":
    main(sys.argv[1:])
