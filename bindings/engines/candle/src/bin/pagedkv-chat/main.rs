//! A chat with a language model: see `pagedkv-chat --help`.
mod args;
mod chat;
mod many;
mod talker;

use args::{Args, KvKind};
use candle_core::{Error, Result};
use pagedkv::{RedisConfig, StoreConfig};
use pagedkv_candle::{Basic, Gguf, Kv, Model, Paged, PagedConfig};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use talker::Talker;

fn main() -> ExitCode {
    let args = Args::read();
    if let Some(threads) = args.threads {
        // candle reads these when its threads begin; none has begun yet.
        for name in ["CANDLE_NUM_THREADS", "RAYON_NUM_THREADS"] {
            std::env::set_var(name, threads.to_string());
        }
    }
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pagedkv-chat: {}", sentence(&error));
            ExitCode::FAILURE
        }
    }
}

/// The error sentence, without the backtrace that candle adds if RUST_BACKTRACE is set.
fn sentence(error: &Error) -> String {
    bare(error).to_string()
}

fn bare(error: &Error) -> &Error {
    match error {
        Error::WithBacktrace { inner, .. } => bare(inner),
        other => other,
    }
}

fn run(args: &Args) -> Result<()> {
    let begin = Instant::now();
    let mut file = Gguf::open(&args.model)?;
    let model = Model::load(&mut file, args.weights())?;
    let talker = if args.ids { None } else { Some(Talker::new(&file)?) };
    if !args.quiet {
        eprintln!("{}: read in {:.1} s", model.config().name, begin.elapsed().as_secs_f64());
    }
    if args.sessions.is_some() || args.prompts.is_some() {
        return many::run(args, &file, &model, talker.as_ref());
    }
    let Some(talker) = talker else { return Ok(()) };
    let context = args.context.map_or(8192, |n| n as usize).min(model.config().context);
    match args.kv {
        KvKind::Basic => talk(args, &model, &talker, &Basic::new(model.config()), context),
        _ => talk(args, &model, &talker, &paged(args, &file, &model, context, 2)?, context),
    }
}

fn talk<K: Kv>(args: &Args, model: &Model, talker: &Talker, kv: &K, context: usize) -> Result<()> {
    let mut chat = chat::Chat::new(args, model, talker, kv, context);
    match args.prompt() {
        Some(prompt) => chat.ask(prompt),
        None => chat.converse(),
    }
}

/// A paged cache with room for this many tokens.
fn paged(
    args: &Args,
    file: &Gguf,
    model: &Model,
    tokens: usize,
    sequences: usize,
) -> Result<Paged> {
    let store = match &args.prefix_store {
        None => None,
        Some(place) => Some(store(args, file, place)?),
    };
    let dtype = args.kv_dtype.1;
    Paged::new(model.config(), &PagedConfig { tokens, sequences, dtype, store })
}

fn store(args: &Args, file: &Gguf, place: &str) -> Result<StoreConfig> {
    let is_url = place.starts_with("redis://") || place.starts_with("rediss://");
    let store = match is_url {
        true => StoreConfig::redis(RedisConfig::new(place)),
        false => StoreConfig::directory(place),
    };
    // Other weights give other keys and values.
    let fingerprint = format!("{:016x} {:?}", file.fingerprint()?, args.weights());
    if fingerprint.len() > 64 {
        return Err(Error::msg("the fingerprint of the model is too long"));
    }
    Ok(store.fingerprint(fingerprint).wait(Duration::from_secs(5)))
}
