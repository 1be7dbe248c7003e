//! Answers two questions at once with a model from a GGUF file:
//!
//!   cargo run --release --example answers -- MODEL.gguf
use candle_core::{Error, Result};
use pagedkv::Dtype;
use pagedkv_candle::{
    read_tokenizer, ChatTemplate, Engine, Gguf, Model, Paged, PagedConfig, Request, Sampler,
    Weights,
};

fn main() -> Result<()> {
    let path = std::env::args().nth(1).ok_or_else(|| Error::msg("usage: answers MODEL.gguf"))?;
    // [answers]
    let mut file = Gguf::open(path)?;
    let tokenizer = read_tokenizer(&file)?;
    let template = ChatTemplate::read(&file, &tokenizer)?;
    let model = Model::load(&mut file, Weights::File)?;

    let config = PagedConfig { tokens: 4096, sequences: 2, dtype: Dtype::F32, store: None };
    let kv = Paged::new(model.config(), &config)?;
    let mut engine = Engine::new(&model, &kv);
    for question in ["Why is the sky blue?", "Write a haiku about Rust."] {
        let text = template.render(&[("user".into(), question.into())])?;
        let prompt = tokenizer.encode(text, false).map_err(Error::wrap)?.get_ids().to_vec();
        let (stops, sampler) = (template.stops.clone(), Sampler::greedy());
        engine.add(Request { prompt, max_tokens: 100, stops, sampler })?;
    }
    while !engine.step().is_empty() {} // one forward pass for both: a token of each
    for answer in engine.answers() {
        println!("{}\n", tokenizer.decode(answer.tokens(), true).map_err(Error::wrap)?);
        if let Some(error) = &answer.error {
            println!("This answer failed: {error}"); // and the other one continued
        }
    }
    // [answers end]
    Ok(())
}
