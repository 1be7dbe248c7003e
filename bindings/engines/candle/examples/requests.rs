//! Answers requests of token ids on standard input, for bench/engines. bench/hosts/engine.py
//! defines the requests.
//!
//! usage: requests basic|paged --model DIRECTORY --dtype f32|bf16 --threads N
use candle_core::{Error, Result};
use pagedkv::Dtype;
use pagedkv_candle::{
    Answer, Basic, Engine, Gguf, Kv, Model, Paged, PagedConfig, Request, Sampler, Weights,
};
use serde_json::{json, Value};
use std::time::Instant;

/// Room for all workloads.
const TOKENS: usize = 40_000;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [way, _, directory, _, dtype, _, threads] = &args[..] else {
        return Err(Error::msg("usage: requests WAY --model DIRECTORY --dtype DTYPE --threads N"));
    };
    std::env::set_var("RAYON_NUM_THREADS", threads);
    let mut file = Gguf::open(format!("{directory}/{dtype}.gguf"))?;
    // candle multiplies 32-bit matrices fastest, and they hold bf16 weights exactly.
    let model = Model::load(&mut file, Weights::F32)?;
    let dtype = if dtype == "bf16" { Dtype::BF16 } else { Dtype::F32 };
    if way == "basic" {
        return serve(&model, || Ok(Basic::new(model.config())));
    }
    let config = PagedConfig { tokens: TOKENS, sequences: 16, dtype, store: None };
    serve(&model, || Paged::new(model.config(), &config))
}

/// Answers requests until the input ends. After a reset they get new keys and values.
fn serve<K: Kv>(model: &Model, make: impl Fn() -> Result<K>) -> Result<()> {
    let mut lines = std::io::stdin().lines();
    send(json!({}));
    loop {
        let kv = make()?;
        let mut earlier = Vec::new();
        loop {
            let Some(line) = lines.next() else { return Ok(()) };
            let request: Value = serde_json::from_str(&line?).map_err(Error::wrap)?;
            if request["reset"] == true {
                send(json!({}));
                break;
            }
            let (answer, answers) = answer(model, &kv, &request, earlier)?;
            earlier = answers;
            send(answer);
        }
    }
}

/// `earlier`: the answers of the conversation's previous turn, one for each prompt.
fn answer<K: Kv>(
    model: &Model,
    kv: &K,
    request: &Value,
    earlier: Vec<Answer<K::Sequence>>,
) -> Result<(Value, Vec<Answer<K::Sequence>>)> {
    let prompts: Vec<Vec<u32>> =
        serde_json::from_value(request["prompts"].clone()).map_err(Error::wrap)?;
    let max_tokens = request["new"].as_u64().unwrap_or(1) as usize;
    let mut times = vec![Vec::new(); prompts.len()];
    let mut engine = Engine::new(model, kv);
    let mut earlier = earlier.into_iter();
    let begin = Instant::now();
    for prompt in prompts {
        let request = Request { prompt, max_tokens, stops: vec![], sampler: Sampler::greedy() };
        engine.add_after(request, earlier.next())?;
    }
    loop {
        let new = engine.step();
        if new.is_empty() {
            break;
        }
        for (i, _) in new {
            times[i].push(begin.elapsed().as_secs_f64());
        }
    }
    let attention = engine.figures().attention_time.as_secs_f64();
    let mut answers = engine.into_answers();
    if let Some(error) = answers.iter_mut().find_map(|answer| answer.error.take()) {
        return Err(error);
    }
    let tokens: Vec<&[u32]> = answers.iter().map(Answer::tokens).collect();
    let answer = json!({"tokens": tokens, "start": 0.0, "times": times, "attention": attention});
    Ok((answer, answers))
}

fn send(mut answer: Value) {
    answer["mebibytes"] = json!(peak_mebibytes());
    println!("{answer}");
}

fn peak_mebibytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0");
    let kibibytes = line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0);
    kibibytes / 1024.0
}
