//! The command line.
use candle_core::Result;
use clap::{Parser, ValueEnum};
use pagedkv::Dtype;
use pagedkv_candle::{Sampler, Weights};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  pagedkv-chat model.gguf                                    a conversation
  pagedkv-chat model.gguf 128 \"Write a haiku about Rust.\"    one answer of at most 128 tokens
  pagedkv-chat --kv basic model.gguf 128 \"...\"               the same without pagedkv
  pagedkv-chat --sessions 16 --kv both model.gguf 64         16 questions at once, both ways
  pagedkv-chat --kv-dtype int8 --prefix-store /tmp/kv model.gguf
  pagedkv-chat --prefix-store redis://127.0.0.1:6379 model.gguf

With --weights f32 and --kv-dtype f32, basic and paged keys and values give the same text. With
quantised weights candle rounds the other factor to 8 bits: texts can part after some words.";

/// A chat with a language model from a GGUF file (Llama, SmolLM2, Qwen2, Qwen3, Gemma 3), computed
/// by candle, with keys and values in pagedkv.
#[derive(Parser, Debug)]
#[command(name = "pagedkv-chat", version, after_help = EXAMPLES)]
pub struct Args {
    /// The model: a GGUF file
    pub model: PathBuf,
    /// The most tokens of an answer (default: 256), and the question; a conversation without one
    #[arg(value_names = ["MAX_TOKENS", "PROMPT"], num_args = 0..=2)]
    words: Vec<String>,
    /// Where keys and values are: blocks of pagedkv, candle's contiguous tensors, or both in turns,
    /// a forward pass each, for a comparison
    #[arg(long, value_enum, default_value = "paged")]
    pub kv: KvKind,
    /// How pagedkv stores keys and values
    #[arg(long, value_parser = dtype, default_value = "f32", value_name = "TYPE")]
    pub kv_dtype: (&'static str, Dtype),
    /// Weights as the file has them, exact in 32 bits, or quantised again to 8 bits; auto: f32 for
    /// models of up to a billion weights, else file
    #[arg(long, value_enum, default_value = "auto")]
    weights: WeightsKind,
    /// This many answers at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub sessions: Option<u32>,
    /// The prompts of --sessions, one a line (default: 16 questions)
    #[arg(long, value_name = "FILE")]
    pub prompts: Option<PathBuf>,
    /// The lines of --prompts are token ids: no tokenizer and no template are used
    #[arg(long, requires = "prompts")]
    pub ids: bool,
    /// Answers never end before MAX_TOKENS
    #[arg(long)]
    pub ignore_end: bool,
    /// The system prompt
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Tokens of a conversation (default: the model's training length, at most 8192)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(16..))]
    pub context: Option<u32>,
    /// Stores prefixes in a directory, or a Redis or Valkey server (redis://HOST:PORT, rediss://
    /// with TLS), for the next run
    #[arg(long, value_name = "DIR|URL")]
    pub prefix_store: Option<String>,
    /// 0: always the most likely token; 1: by the model's probabilities
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    temperature: f32,
    /// With a temperature: only the most likely tokens of this total probability
    #[arg(long, value_name = "P", default_value_t = 0.95)]
    top_p: f32,
    /// With a temperature: the seed; other numbers give other answers
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Threads (default: one per core)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Rows of one forward pass, of prompts and answers
    #[arg(long, value_name = "N", default_value_t = 512,
          value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub rows: u32,
    /// Writes token ids and figures of --sessions as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Prints only the answer
    #[arg(long)]
    pub quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KvKind {
    Paged,
    Basic,
    Both,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum WeightsKind {
    Auto,
    File,
    F32,
    Q8,
}

fn dtype(name: &str) -> std::result::Result<(&'static str, Dtype), String> {
    const TYPES: [(&str, Dtype); 7] = [
        ("f32", Dtype::F32),
        ("f16", Dtype::F16),
        ("bf16", Dtype::BF16),
        ("int8", Dtype::INT8),
        ("int4", Dtype::INT4),
        ("fp8", Dtype::FP8_E4M3),
        ("fp8_e5m2", Dtype::FP8_E5M2),
    ];
    let known = TYPES.into_iter().find(|(known, _)| *known == name);
    let names = TYPES.map(|(known, _)| known).join(", ");
    known.ok_or_else(|| format!("{name:?} is not one of {names}"))
}

impl Args {
    /// Reads the command line. A wrong one ends the program with an error.
    pub fn read() -> Self {
        let args = Self::parse();
        if let Some(wrong) = args.contradiction() {
            let kind = clap::error::ErrorKind::ArgumentConflict;
            <Self as clap::CommandFactory>::command().error(kind, wrong).exit()
        }
        args
    }

    fn contradiction(&self) -> Option<String> {
        let paged_only = self.kv_dtype.0 != "f32" || self.prefix_store.is_some();
        let many = self.sessions.is_some() || self.prompts.is_some();
        let wrong = |word: &&String| {
            let is_number = self.words.len() == 2 || word.bytes().all(|b| b.is_ascii_digit());
            is_number && word.parse::<usize>().is_err()
        };
        if let Some(word) = self.words.first().filter(wrong) {
            return Some(format!("{word:?} is not a number of tokens"));
        }
        if self.max_tokens() == 0 {
            return Some("the answer must have 1 token or more, not 0 tokens".into());
        }
        if self.kv == KvKind::Basic && paged_only {
            return Some("--kv-dtype and --prefix-store are for --kv paged".into());
        }
        if self.kv == KvKind::Both && !many {
            return Some("--kv both is for --sessions and --prompts".into());
        }
        if self.prompt().is_some() && self.prompts.is_some() {
            return Some("there is a PROMPT, and there are --prompts".into());
        }
        if self.json.is_some() && !many {
            return Some("--json is for --sessions and --prompts".into());
        }
        self.sampler(0).err().map(|error| super::sentence(&error))
    }

    pub fn max_tokens(&self) -> usize {
        self.words.first().and_then(|word| word.parse().ok()).unwrap_or(256)
    }

    /// The question. A single word after the model is the question if it is not a number.
    pub fn prompt(&self) -> Option<&str> {
        match &self.words[..] {
            [_, prompt] => Some(prompt),
            [word] if word.parse::<usize>().is_err() => Some(word),
            _ => None,
        }
    }

    pub fn weights(&self) -> Weights {
        match self.weights {
            WeightsKind::Auto => Weights::Auto,
            WeightsKind::File => Weights::File,
            WeightsKind::F32 => Weights::F32,
            WeightsKind::Q8 => Weights::Q8,
        }
    }

    /// The sampler of answer number `i`.
    pub fn sampler(&self, i: u64) -> Result<Sampler> {
        Sampler::new(self.temperature, self.top_p, self.seed.wrapping_add(i))
    }
}
