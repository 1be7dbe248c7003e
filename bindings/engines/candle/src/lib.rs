//! Language models of [candle] with keys and values in [`pagedkv`]: GGUF files of Llama (SmolLM2 is
//! one), Qwen2, Qwen3 and Gemma 3, many texts at once, on CPUs.
//!
//! * [`Gguf`] is an open file, [`Model`] its weights in candle's tensors, with one forward pass for
//!   all families. [`read_tokenizer`] and [`ChatTemplate`] convert text.
//! * [`Engine`] answers many [`Request`]s at once: a forward pass computes the next token of each
//!   text, and rows of prompts.
//! * [`Kv`] stores keys and values: [`Paged`] in blocks that texts share, with pagedkv's attention;
//!   [`Basic`] in candle's contiguous tensors, with candle's attention.
//!
//! candle's own models contain their cache, and it cannot be replaced; so this crate has its own
//! models. To use another model, call [`Step::attend`] in each of its layers with rows
//! `[rows][heads][dim]`, as [`Model::forward`] does.
//!
//! [candle]: https://crates.io/crates/candle-core
#![warn(missing_docs, missing_debug_implementations)]

mod answer;
mod basic;
mod config;
mod engine;
mod gguf;
mod kv;
mod model;
mod paged;
mod sampler;
mod template;
mod tokenizer;
mod weight;

pub use answer::{Answer, Request};
pub use basic::{Basic, BasicSequence, BasicStep};
pub use config::{Family, ModelConfig, Rope};
pub use engine::{Engine, Figures};
pub use gguf::Gguf;
pub use kv::{Begun, Kv, Step};
pub use model::{Model, Output, Rows};
pub use paged::{Paged, PagedConfig, PagedStep};
pub use sampler::Sampler;
pub use template::{ChatTemplate, Message};
pub use tokenizer::read_tokenizer;
pub use weight::Weights;
