//! Models of a few layers with random weights, written as GGUF files.
#![allow(dead_code)] // Each test uses some of it.

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

pub const FAMILIES: [&str; 4] = ["llama", "qwen2", "qwen3", "gemma3"];
pub const TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n\
    {{ message['content'].strip() }}<|im_end|>\n{% endfor %}\
    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

const WIDTH: usize = 64;
const INNER: usize = 96;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
pub const WINDOW: u32 = 20;

/// The head dim, which transformers reads only from the files of some families.
fn dim(family: &str) -> usize {
    match family {
        "qwen3" | "gemma3" => 32,
        _ => WIDTH / HEADS,
    }
}

/// If other programs use the CPU, spinning threads take much longer than products of this size.
/// candle reads these when its threads begin.
pub fn use_one_thread() {
    for name in ["CANDLE_NUM_THREADS", "RAYON_NUM_THREADS"] {
        std::env::set_var(name, "1");
    }
}

/// Numbers between -1 and 1, the same on all machines.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        // Knuth's linear congruential generator (MMIX).
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

/// A folder that is removed when this is dropped.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("pagedkv-candle-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Tensors {
    random: Random,
    dtype: GgmlDType,
    all: Vec<(String, QTensor)>,
}

impl Tensors {
    fn push(&mut self, name: String, shape: &[usize], middle: f32, spread: f32, dtype: GgmlDType) {
        let count = shape.iter().product();
        let numbers: Vec<f32> = (0..count).map(|_| middle + spread * self.random.next()).collect();
        let tensor = Tensor::from_vec(numbers, shape, &Device::Cpu).unwrap();
        self.all.push((name, QTensor::quantize(&tensor, dtype).unwrap()));
    }

    fn matrix(&mut self, name: &str, rows: usize, columns: usize) {
        let spread = 2.5 / (columns as f32).sqrt();
        self.push(format!("{name}.weight"), &[rows, columns], 0.0, spread, self.dtype);
    }

    fn norm(&mut self, name: &str, length: usize) {
        self.push(format!("{name}.weight"), &[length], 1.0, 0.3, GgmlDType::F32);
    }

    fn bias(&mut self, name: &str, length: usize) {
        self.push(format!("{name}.bias"), &[length], 0.0, 0.5, GgmlDType::F32);
    }

    fn layer(&mut self, family: &str, i: usize) {
        let name = |part: &str| format!("blk.{i}.{part}");
        let dim = dim(family);
        self.norm(&name("attn_norm"), WIDTH);
        self.norm(&name("ffn_norm"), WIDTH);
        for (part, rows) in [("attn_q", HEADS), ("attn_k", KV_HEADS), ("attn_v", KV_HEADS)] {
            self.matrix(&name(part), rows * dim, WIDTH);
            if family == "qwen2" {
                self.bias(&name(part), rows * dim);
            }
        }
        self.matrix(&name("attn_output"), WIDTH, HEADS * dim);
        self.matrix(&name("ffn_gate"), INNER, WIDTH);
        self.matrix(&name("ffn_up"), INNER, WIDTH);
        self.matrix(&name("ffn_down"), WIDTH, INNER);
        if matches!(family, "qwen3" | "gemma3") {
            self.norm(&name("attn_q_norm"), dim);
            self.norm(&name("attn_k_norm"), dim);
        }
        if family == "gemma3" {
            self.norm(&name("post_attention_norm"), WIDTH);
            self.norm(&name("post_ffw_norm"), WIDTH);
        }
    }
}

/// Every byte as GPT-2 spells it, three merges, two tokens of a chat.
fn tokens() -> Vec<String> {
    let mut letters: Vec<char> = ByteLevel::alphabet().into_iter().collect();
    letters.sort_unstable();
    let mut tokens: Vec<String> = letters.into_iter().map(String::from).collect();
    tokens.extend(["th", "the", "Ġthe", "<|im_start|>", "<|im_end|>"].map(String::from));
    tokens
}

/// The token of a letter by itself.
pub fn token_of(letter: &str) -> u32 {
    tokens().iter().position(|token| token == letter).unwrap() as u32
}

fn metadata(family: &str, layers: usize) -> Vec<(String, Value)> {
    let texts = |texts: &[&str]| {
        Value::Array(texts.iter().map(|text| Value::String(text.to_string())).collect())
    };
    let tokens = tokens();
    let kinds = tokens.iter().map(|token| Value::I32(if token.starts_with("<|") { 3 } else { 1 }));
    let end = Value::U32(tokens.len() as u32 - 1);
    let mut of_model = vec![
        ("block_count", Value::U32(layers as u32)),
        ("context_length", Value::U32(1024)),
        ("embedding_length", Value::U32(WIDTH as u32)),
        ("feed_forward_length", Value::U32(INNER as u32)),
        ("attention.head_count", Value::U32(HEADS as u32)),
        ("attention.head_count_kv", Value::U32(KV_HEADS as u32)),
        ("attention.key_length", Value::U32(dim(family) as u32)),
        ("attention.value_length", Value::U32(dim(family) as u32)),
        ("attention.layer_norm_rms_epsilon", Value::F32(1e-6)),
        ("rope.freq_base", Value::F32(if family == "gemma3" { 1e6 } else { 5e4 })),
    ];
    if family == "gemma3" {
        of_model.push(("attention.sliding_window", Value::U32(WINDOW)));
    }
    let of_model = of_model.into_iter().map(|(key, value)| (format!("{family}.{key}"), value));
    let of_text = [
        ("general.architecture", Value::String(family.into())),
        ("general.name", Value::String(format!("tiny {family}"))),
        ("tokenizer.ggml.model", Value::String("gpt2".into())),
        ("tokenizer.ggml.pre", Value::String("smollm".into())),
        ("tokenizer.ggml.token_type", Value::Array(kinds.collect())),
        ("tokenizer.ggml.merges", texts(&["t h", "th e", "Ġ the"])),
        ("tokenizer.ggml.eos_token_id", end),
        ("tokenizer.chat_template", Value::String(TEMPLATE.into())),
        ("tokenizer.ggml.tokens", Value::Array(tokens.into_iter().map(Value::String).collect())),
    ];
    of_model.chain(of_text.map(|(key, value)| (key.to_string(), value))).collect()
}

/// Writes a model of a family.
pub fn write(path: &Path, family: &str, dtype: GgmlDType) {
    let (metadata, tensors) = parts(family, dtype);
    write_parts(path, &metadata, &tensors);
}

/// Writes a model of exact weights whose logits after one token are NaN.
pub fn write_poisoned(path: &Path, token: u32) {
    let (metadata, mut tensors) = parts("llama", GgmlDType::F32);
    let embedding = &mut tensors[0].1;
    let mut rows = embedding.dequantize(&Device::Cpu).unwrap().to_vec2::<f32>().unwrap();
    rows[token as usize].fill(f32::NAN);
    let rows = Tensor::new(rows, &Device::Cpu).unwrap();
    *embedding = QTensor::quantize(&rows, GgmlDType::F32).unwrap();
    write_parts(path, &metadata, &tensors);
}

/// Writes a Llama with another value of one key.
pub fn write_with(path: &Path, key: &str, value: Value) {
    let (mut metadata, tensors) = parts("llama", GgmlDType::F32);
    metadata.iter_mut().find(|(known, _)| known == key).unwrap().1 = value;
    write_parts(path, &metadata, &tensors);
}

/// Metadata and tensors of a file.
type Parts = (Vec<(String, Value)>, Vec<(String, QTensor)>);

fn parts(family: &str, dtype: GgmlDType) -> Parts {
    // Every sixth layer of Gemma 3 has no window.
    let layers = if family == "gemma3" { 7 } else { 3 };
    let seed = FAMILIES.iter().position(|known| *known == family).unwrap_or(9) as u64;
    let mut tensors = Tensors { random: Random(seed), dtype, all: Vec::new() };
    let vocabulary = tokens().len();
    tensors.push("token_embd.weight".into(), &[vocabulary, WIDTH], 0.0, 1.0, dtype);
    tensors.norm("output_norm", WIDTH);
    if family != "gemma3" {
        tensors.matrix("output", vocabulary, WIDTH);
    }
    (0..layers).for_each(|i| tensors.layer(family, i));
    (metadata(family, layers), tensors.all)
}

/// Writes a file of these parts.
pub fn write_parts(path: &Path, metadata: &[(String, Value)], tensors: &[(String, QTensor)]) {
    let metadata: Vec<_> = metadata.iter().map(|(key, value)| (key.as_str(), value)).collect();
    let tensors: Vec<_> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let mut file = BufWriter::new(File::create(path).unwrap());
    gguf_file::write(&mut file, &metadata, &tensors).unwrap();
}

/// Prompts of different lengths; the last two share a prefix.
pub fn prompts() -> Vec<Vec<u32>> {
    let prompt = |seed: u64, length: usize| {
        let mut random = Random(seed + 100);
        (0..length).map(|_| ((random.next() + 1.0) * 128.0) as u32).collect::<Vec<_>>()
    };
    let shared = prompt(5, 70);
    let mut all: Vec<_> = [(1, 1), (2, 17), (3, 50), (4, 64)].map(|(s, n)| prompt(s, n)).into();
    all.push([shared.clone(), prompt(6, 9)].concat());
    all.push([shared, prompt(7, 20)].concat());
    all
}
