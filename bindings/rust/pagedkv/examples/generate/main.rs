//! Writes text with a small Llama model, for several prompts at once: all keys, values and
//! attention are the library's.
//!
//!     cargo run --release --example generate -- \
//!         [--model FILE] [--max-tokens N] [--ids] [PROMPT...]
//!
//! Greedy, so the text is that of `pkv-generate` (C) and of the other languages. `--ids` prints
//! token ids, a session per line.
mod llama2;
mod tokenizer;

use llama2::{Llama2, Rows};
use pagedkv::{Cache, CacheConfig, LayerGroup, PrefixConfig, Session};
use std::error::Error;
use tokenizer::{Tokenizer, END};

struct Options {
    model: String,
    max_tokens: usize,
    ids: bool,
    prompts: Vec<String>,
}

fn options() -> Result<Options, Box<dyn Error>> {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../bench/data/tiny-shakespeare.bin")
        .to_string();
    let mut found = Options { model, max_tokens: 160, ids: false, prompts: Vec::new() };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--model" => found.model = arguments.next().ok_or("--model takes a file")?,
            "--max-tokens" => {
                found.max_tokens = arguments.next().ok_or("--max-tokens takes a number")?.parse()?
            }
            "--ids" => found.ids = true,
            option if option.starts_with("--") => {
                return Err(format!("there is no option {option}").into())
            }
            prompt => found.prompts.push(prompt.into()),
        }
    }
    if found.prompts.is_empty() {
        found.prompts = ["ROMEO:\n", "JULIET:\n", "KING RICHARD III:\n"].map(String::from).to_vec();
    }
    Ok(found)
}

/// A text that grows.
struct Text {
    session: Session,
    tokens: Vec<i32>,
    ends_at: usize,
}

impl Text {
    /// The tokens that the cache does not have yet.
    fn new_tokens(&self) -> Result<&[i32], pagedkv::Error> {
        Ok(&self.tokens[self.session.length()? as usize..])
    }

    fn ended(&self) -> bool {
        self.tokens.len() >= self.ends_at || self.tokens.last() == Some(&END)
    }
}

/// One forward pass over all texts that have not ended; each gets a token.
fn step(model: &Llama2, cache: &Cache, texts: &mut [Text]) -> Result<(), Box<dyn Error>> {
    let mut running: Vec<&mut Text> = texts.iter_mut().filter(|text| !text.ended()).collect();
    let (mut tokens, mut positions, mut counts) = (Vec::new(), Vec::new(), Vec::new());
    for text in &running {
        let new = text.new_tokens()?;
        tokens.extend_from_slice(new);
        positions.extend(text.session.length()?..text.tokens.len() as u64);
        counts.push(new.len());
    }

    let sessions =
        running.iter_mut().zip(&counts).map(|(text, &count)| (&mut text.session, count as u32));
    let mut batch = cache.begin(sessions)?;
    let rows = Rows { tokens: &tokens, positions: &positions };
    let x = model.forward(&rows, |layer, q, k, v, out| {
        batch.write(layer as u32, k, v)?;
        batch.attend(layer as u32, q, out)
    })?;
    batch.commit(&tokens)?;

    let mut row = 0;
    for (text, count) in running.into_iter().zip(counts) {
        row += count;
        text.tokens.push(model.best_token(&x, row - 1));
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = options()?;
    let model = Llama2::new(&std::fs::read(&options.model)?)?;
    let tokenizer_file = options.model.trim_end_matches(".bin").to_string() + ".tokenizer.bin";
    let tokenizer = Tokenizer::new(&std::fs::read(tokenizer_file)?, model.vocabulary)?;

    let layers = LayerGroup::new(
        model.layers as u32,
        model.query_heads as u32,
        model.kv_heads as u32,
        model.head_dim as u32,
    );
    let prompts = options
        .prompts
        .iter()
        .map(|prompt| tokenizer.encode(prompt))
        .collect::<Result<Vec<_>, _>>()?;
    let blocks: usize =
        prompts.iter().map(|prompt| (prompt.len() + options.max_tokens) / 16 + 1).sum();
    let cache =
        Cache::new(&CacheConfig::new(layers).blocks(blocks as u64).prefix(PrefixConfig::new()))?;

    let mut texts = Vec::new();
    for tokens in prompts {
        let mut session = cache.open_session()?;
        session.match_prefix(&tokens[..tokens.len() - 1])?;
        texts.push(Text { session, ends_at: tokens.len() + options.max_tokens, tokens });
    }
    while texts.iter().any(|text| !text.ended()) {
        step(&model, &cache, &mut texts)?;
    }

    for text in &texts {
        if options.ids {
            println!("{}", text.tokens.iter().map(i32::to_string).collect::<Vec<_>>().join(" "));
            continue;
        }
        let bytes: Vec<u8> =
            text.tokens.windows(2).flat_map(|pair| tokenizer.decode(pair[0], pair[1])).collect();
        println!("{}\n", String::from_utf8_lossy(&bytes));
    }
    Ok(())
}
