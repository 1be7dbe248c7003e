"""Writes a wrapper for each function in the headers, which records the call before it makes it, and
the linker options that replace the functions with the wrappers. The tables below have what
declarations do not say: which pointers are lists, and how long they are.

usage: transcript.py TREE WRAPPERS.cpp OPTIONS"""

import pathlib
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests/lint"))
import harness

DECLARATION = re.compile(r"^PKV_API\s([^;{]*?)\bpkv_(\w+)\s*\(([^;]*?)\)\s*;", re.M)
STRUCT = re.compile(r"typedef struct (pkv_\w+) \{([^}]*)\} \1;")
HANDLES = ("pkv_pool", "pkv_cache", "pkv_session", "pkv_batch", "pkv_snapshot", "pkv_compute")
# Their text is made by hand-written code in transcript.cpp.
BY_HAND = {"pkv_tensor", "pkv_allocator", "pkv_logger", "pkv_runner"}

# Left out: an input of the file fuzzer is already a file, and OpenMP's threads are the process's.
UNWRITTEN = ("directory_", "file_", "openmp_", "store_", "stream_")

# Lists of numbers and handles, and their lengths. Any other pointer is to one value that the
# library writes.
LENGTHS = {
    "pool_alloc.blocks": "n",
    "pool_retain.blocks": "n",
    "pool_release.blocks": "n",
    "session_get_tokens.tokens": "n",
    "session_set_tokens.tokens": "n",
    "session_admit.tokens": "n",
    "session_match_prefix.tokens": "n",
    "session_get_block_table.ids": "capacity",
    "batch_begin.sessions": "count",
    "batch_begin.new_tokens": "count",
    "batch_choose_victims.sessions": "count",
    "batch_choose_victims.new_tokens": "count",
    "batch_choose_victims.victims": "capacity",
    "batch_accept.kept": "count",
    "batch_set_first_rows.first_rows": "sessions_of(batch)",
    "batch_commit.tokens": "rows_of(batch)",
    "batch_get_slot_mapping.slots": "capacity",
    "batch_get_block_copies.from": "capacity",
    "batch_get_block_copies.to": "capacity",
    "batch_get_state_blocks.before": "sessions_of(batch)",
    "batch_get_state_blocks.indptr": "sessions_of(batch) + 1",
    "batch_get_state_blocks.tokens": "capacity",
    "batch_get_state_blocks.after": "capacity",
    "session_read_state.state": "size",
    "session_drop_blocks.indices": "count",
    "batch_get_kv_indices.indptr": "sessions_of(batch) + 1",
    "batch_get_kv_indices.indices": "capacity",
    "batch_get_kv_indices.last_block_length": "sessions_of(batch)",
    "attention_merge.merged_lse": "amount(rows) * heads",
    "prefix_get_stats.salt": "salt_size",
    "prefix_clear.salt": "salt_size",
    "prefix_probe.salt": "salt_size",
    "prefix_probe.tokens": "n",
    "hint_text.salt": "salt_size",
    "hint_text.tokens": "n",
    "prefix_set_quota.salt": "salt_size",
    "kv_write_slots.slots": "amount(rows)",
    "kv_read_slots.slots": "amount(rows)",
    "prefix_hash_blocks.salt": "salt_size",
    "prefix_hash_blocks.tokens": "n",
    "prefix_hash_blocks.hashes": "block_size == 0 ? 0 : n / block_size",
}

# The rows of tensors. Those of a const pkv_tensor* are read, unless the name is here with "out ".
TENSORS = {
    "batch_write.k": "keys(batch, layer, rows_of(batch))",
    "batch_write.v": "values(batch, layer, rows_of(batch))",
    "batch_attend.q": "queries(batch, layer, rows_of(batch))",
    "batch_attend.out": "out results(batch, layer, rows_of(batch))",
    "session_read.k": "out keys(session, layer, amount(n))",
    "session_read.v": "out values(session, layer, amount(n))",
    "kv_attend.q": "queries(kv, sequences)",
    "kv_attend.out": "out results(kv, sequences)",
    "kv_write.k": "keys(kv, rows_of(sequences))",
    "kv_write.v": "values(kv, rows_of(sequences))",
    "kv_write_slots.k": "keys(kv, amount(rows))",
    "kv_write_slots.v": "values(kv, amount(rows))",
    "kv_read_slots.k": "out keys(kv, amount(rows))",
    "kv_read_slots.v": "out values(kv, amount(rows))",
    "attention_merge.merged": "out {amount(rows), amount(heads), amount(dim)}",
}

# Special arguments.
ARGUMENTS = {
    "attention_merge.outs": "call.tensors(outs, count, "
    "{amount(rows), amount(heads), amount(dim)});",
    "attention_merge.lse": "call.lists(lse, count, amount(rows) * heads);",
    "batch_attend.params": "call.structure(params, queries(batch, layer, rows_of(batch)));",
    "kv_attend.params": "call.structure(params, queries(kv, sequences));",
    "batch_get_states.before": "call.out_list(before, sessions_of(batch));",
    "batch_get_states.after": "call.out_list(after, amount(capacity));",
    # Read before they are written.
    "kv_view_plan.kv": "call.structure(kv, {});",
    "prefix_read_events.next": "call.in_list(next, 1);",
    "prefix_read_events.events": "call.out_list(events, amount(n));",
}

# The memory that a struct's pointers lead to; shape: rows and heads of the call's queries.
POINTERS = {
    "pkv_layer_group.layer_indices": "in(s.layer_indices, s.layers)",
    "pkv_layer_group.key_rotation": "in(s.key_rotation, matrix_of(s.key_dim))",
    "pkv_layer_group.value_rotation": "in(s.value_rotation, matrix_of(values_of(s)))",
    "pkv_kv_view.key_rotation": "in(s.key_rotation, matrix_of(s.key_dim))",
    "pkv_kv_view.value_rotation": "in(s.value_rotation, matrix_of(values_of(s)))",
    "pkv_cache_config.groups": "groups(s.groups, s.group_count)",
    "pkv_cache_config.allocator": "allocator(s.allocator)",
    "pkv_cache_config.logger": "logger(s.logger)",
    "pkv_cache_config.runner": "runner(s.runner)",
    "pkv_cache_config.prefix": "structure(s.prefix, shape)",
    "pkv_cache_config.store": "left_out(s.store)",
    "pkv_cache_config.block_io": "left_out(s.block_io)",
    "pkv_cache_config.memory_directory": "in(s.memory_directory, bytes_of(s.memory_directory))",
    "pkv_pool_config.allocator": "allocator(s.allocator)",
    "pkv_compute_config.allocator": "allocator(s.allocator)",
    "pkv_compute_config.runner": "runner(s.runner)",
    "pkv_session_config.salt": "in(static_cast<const unsigned char*>(s.salt), amount(s.salt_size))",
    "pkv_attention_params.alibi_slopes": "in(s.alibi_slopes, shape.heads)",
    "pkv_attention_params.sink_logits": "in(s.sink_logits, shape.heads)",
    "pkv_attention_params.head_windows": "in(s.head_windows, shape.kv_heads)",
    "pkv_attention_params.head_sinks": "in(s.head_sinks, shape.kv_heads)",
    "pkv_attention_params.mask": "structure(s.mask, shape)",
    "pkv_attention_params.chosen_blocks": "structure(s.chosen_blocks, shape)",
    "pkv_attention_params.block_mass": "structure(s.block_mass, shape)",
    "pkv_attention_params.lse": "out(s.lse, shape.rows * shape.heads)",
    "pkv_mask.data": "copy_of(s.data, bytes_of_mask(s, shape))",
    "pkv_mask.first_positions": "in(s.first_positions, shape.sequences)",
    "pkv_mask.positions": "in(s.positions, shape.rows)",
    "pkv_chosen_blocks.lists": "in(s.lists, tiles_of(s, shape) * shape.kv_heads * "
    "amount(s.list_blocks))",
    "pkv_chosen_blocks.chosen": "out(s.chosen, tiles_of(s, shape) * shape.kv_heads * "
    "amount(s.top_blocks))",
    "pkv_block_mass.masses": "out(s.masses, shape.sequences * shape.heads * amount(s.blocks))",
    "pkv_kv_view.k": "memory_of(s, s.k, s.k_block_stride, s.k_row_stride, s.k_head_stride, "
    "s.dtype, s.key_dim)",
    "pkv_kv_view.v": "memory_of(s, s.v, s.v_block_stride, s.v_row_stride, s.v_head_stride, "
    "s.value_dtype == 0 ? s.dtype : s.value_dtype, s.value_dim)",
    "pkv_kv_sequences.query_lengths": "in(s.query_lengths, amount(s.count))",
    "pkv_kv_sequences.kv_lengths": "in(s.kv_lengths, amount(s.count))",
    "pkv_kv_sequences.block_tables": "in(s.block_tables, "
    "amount(s.count) * amount(s.block_table_stride))",
    "pkv_kv_sequences.first_rows": "in(s.first_rows, amount(s.count))",
    "pkv_kv_sequences.query_positions": "in(s.query_positions, rows_of(&s))",
}

# What later calls need to know of one that returned PKV_OK.
AFTER = {
    "cache_create": "remember_layers(*out, *config);",
    "batch_begin": "remember_rows(*out, count, new_tokens);",
}


def split(parameter):
    """'const uint32_t* ids' -> ('const uint32_t*', 'ids')"""
    kind, name = re.fullmatch(r"(.*?)(\w+)", parameter.strip(), re.S).groups()
    return " ".join(kind.split()), name


def read(root):
    text = "\n".join(
        harness.strip_comments(path.read_text())
        for path in sorted((root / "include/pagedkv").glob("*.h"))
    )
    functions = [
        (
            " ".join(result.split()),
            name,
            [split(p) for p in parameters.split(",") if p.strip() != "void"],
        )
        for result, name, parameters in DECLARATION.findall(text)
        if not name.startswith(UNWRITTEN)
    ]
    structs = {}
    for name, body in STRUCT.findall(text):
        if name in BY_HAND or name.removeprefix("pkv_").startswith(
            tuple(prefix.rstrip("_") for prefix in UNWRITTEN)
        ):
            continue
        structs[name] = []
        for kind, names in re.findall(r"([\w ]+?\*?)\s*\b(\w+(?:\s*,\s*\w+)*)\s*;", body):
            structs[name] += [(kind.strip(), field.strip()) for field in names.split(",")]
    return functions, structs


def argument(function, kind, name, structs):
    """The statement that records one argument."""
    place = f"{function}.{name}"
    base = kind.replace("const ", "").replace("*", "").strip()
    length = f"amount({LENGTHS[place]})" if place in LENGTHS else "1"
    if place in ARGUMENTS:
        return ARGUMENTS[place]
    if "*" not in kind:
        return f"call.handle({name});" if base in HANDLES else f"call.number({name});"
    if place in TENSORS:
        shape = TENSORS[place]
        return (
            f"call.tensor_out({name}, {shape[4:]});"
            if shape.startswith("out ")
            else f"call.tensor_in({name}, {shape});"
        )
    if base in HANDLES and kind.startswith("const"):
        return f'call.handles({name}, {length}, "{base}");'
    if base in HANDLES and place not in LENGTHS:
        return f'call.made({name}, "{base}");'
    if base in structs and kind.startswith("const"):
        return f"call.structure({name}, {{}});"
    if base in structs:
        return f"call.filled({name});"
    if (
        kind.count("*") > 1
        or base in BY_HAND
        or (kind.startswith("const") and place not in LENGTHS)
    ):
        sys.exit(f"transcript.py: no table says what {kind} {name} of pkv_{function} leads to")
    if base == "void":
        name = f"static_cast<const unsigned char*>({name})"
    return f"call.{'in' if kind.startswith('const') else 'out'}_list({name}, {length});"


def wrapper(result, function, parameters, structs):
    declared = ", ".join(f"{kind} {name}" for kind, name in parameters) or "void"
    names = ", ".join(name for _, name in parameters)
    lines = [
        f"{result} __real_pkv_{function}({declared});",
        f"{result} __wrap_pkv_{function}({declared}) {{",
        f"  if (unwritten > 0) return __real_pkv_{function}({names});",
        f"  Call call(\"{function}\", {'true' if result == 'pkv_status' else 'false'});",
    ]
    lines += ["  " + argument(function, kind, name, structs) for kind, name in parameters]
    lines += [
        "  call.write();",
        f"  const auto returned = __real_pkv_{function}({names});",
        "  call.returned(returned);" if result == "pkv_status" else "  call.returned();",
    ]
    if function in AFTER:
        lines.append(f"  if (returned == PKV_OK) {AFTER[function]}")
    return "\n".join(lines + ["  return returned;", "}", ""])


def field(struct, kind, name):
    place = f"{struct}.{name}"
    if "*" in kind and place not in POINTERS:
        return None  # a field of a struct that is only written, or that no function takes
    value = POINTERS.get(place, f"number(s.{name})")
    comma = "" if name == "struct_size" else ", "
    return f'  result += "{comma}.{name} = " + {value};'


def text_of(struct, fields):
    lines = [field(struct, kind, name) for kind, name in fields]
    if None in lines:
        return None
    return "\n".join(
        [
            f"std::string text({struct} s, [[maybe_unused]] Shape shape) {{",
            f'  std::string result = "({struct}){{";',
            *lines,
            '  return result + "}";',
            "}",
            "",
        ]
    )


def main(root, wrappers, options):
    functions, structs = read(root)
    texts = [text_of(name, fields) for name, fields in structs.items()]
    wrapped = [wrapper(*function, structs) for function in functions]
    used = {f"{function}.{name}" for _, function, parameters in functions for _, name in parameters}
    gone = [place for place in [*LENGTHS, *TENSORS, *ARGUMENTS] if place not in used]
    if gone:
        sys.exit(f"transcript.py: the headers have no {', '.join(gone)}")
    pathlib.Path(wrappers).write_text(
        "\n".join(
            [
                "// Written by fuzz/transcript.py.",
                '#include "transcript.h"',
                "",
                "namespace transcript {",
                *filter(None, texts),
                "}",
                "",
                "using namespace transcript;",
                'extern "C" {',
                *wrapped,
                "}",
                "",
            ]
        )
    )
    pathlib.Path(options).write_text("".join(f"--wrap=pkv_{name}\n" for _, name, _ in functions))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), *sys.argv[2:])
