//! Many answers at once, and what they take.
use crate::args::{Args, KvKind};
use crate::talker::Talker;
use candle_core::{bail, Error, Result};
use pagedkv_candle::{Basic, Engine, Figures, Gguf, Kv, Model, Request};
use std::fmt::Write as _;
use std::io::{stderr, IsTerminal, Write};
use std::time::{Duration, Instant};

const QUESTIONS: [&str; 16] = [
    "What is the capital of France?",
    "Why is the sky blue?",
    "Write a haiku about Rust.",
    "Name three fruits that are yellow.",
    "How does a bicycle stay upright?",
    "Explain what a cache is to a child.",
    "What is the largest planet of the solar system?",
    "Give me a recipe for pancakes.",
    "Who wrote Romeo and Juliet?",
    "How many legs does a spider have?",
    "Tell me a short story about a lighthouse.",
    "What is photosynthesis?",
    "Translate \"good morning\" into French.",
    "Why do leaves fall in autumn?",
    "What is the difference between a list and a tuple in Python?",
    "Write two sentences about the sea.",
];

/// What came of one kind of memory.
struct Outcome {
    kind: &'static str,
    answers: Vec<Vec<u32>>,
    first: Vec<Duration>,
    seconds: f64,
    figures: Figures,
    kv_bytes: u64,
    process_bytes: u64,
}

pub fn run(args: &Args, file: &Gguf, model: &Model, talker: Option<&Talker>) -> Result<()> {
    let (texts, prompts) = prompts(args, talker)?;
    let requests = |i: usize, prompt: &Vec<u32>| Request {
        prompt: prompt.clone(),
        max_tokens: args.max_tokens(),
        stops: talker.filter(|_| !args.ignore_end).map_or(Vec::new(), Talker::stops),
        sampler: args.sampler(i as u64),
    };
    let requests: Vec<_> = prompts.iter().enumerate().map(|(i, p)| requests(i, p)).collect();
    let tokens = requests.iter().map(|request| request.prompt.len() + request.max_tokens).sum();
    let mut outcomes = Vec::new();
    if args.kv != KvKind::Paged {
        outcomes.push(answer(args, model, &Basic::new(model.config()), "basic", &requests)?);
    }
    if args.kv != KvKind::Basic {
        let kv = super::paged(args, file, model, tokens, requests.len())?;
        outcomes.push(answer(args, model, &kv, "paged", &requests)?);
    }
    if let Some(talker) = talker {
        print_answers(talker, &texts, &outcomes[outcomes.len() - 1])?;
    }
    if !args.quiet {
        print_summary(&outcomes);
    }
    match &args.json {
        None => Ok(()),
        Some(path) => std::fs::write(path, json(&outcomes))
            .map_err(|error| Error::msg(format!("{}: {error}", path.display()))),
    }
}

/// The texts of the prompts, and their tokens.
fn prompts(args: &Args, talker: Option<&Talker>) -> Result<(Vec<String>, Vec<Vec<u32>>)> {
    let lines: Vec<String> = match (&args.prompts, args.prompt()) {
        (Some(path), _) => std::fs::read_to_string(path)
            .map_err(|error| Error::msg(format!("{}: {error}", path.display())))?
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(str::to_string)
            .collect(),
        (None, Some(prompt)) => vec![prompt.to_string()],
        (None, None) => QUESTIONS.map(str::to_string).to_vec(),
    };
    if lines.is_empty() {
        bail!("there are no prompts: the file of --prompts is empty")
    }
    let count = args.sessions.map_or(lines.len(), |n| n as usize);
    let texts: Vec<_> = lines.iter().cycle().take(count).cloned().collect();
    let system = args.system.iter().map(|text| ("system".to_string(), text.clone()));
    let system: Vec<_> = system.collect();
    let tokens = |text: &String| match talker {
        None => ids(text),
        Some(talker) => {
            talker.prompt(&[&system[..], &[("user".to_string(), text.clone())]].concat())
        }
    };
    let tokens = texts.iter().map(tokens).collect::<Result<_>>()?;
    Ok((texts, tokens))
}

fn ids(line: &str) -> Result<Vec<u32>> {
    let wrong = |word: &str| Error::msg(format!("--ids: {word:?} is no token id"));
    line.split_whitespace().map(|word| word.parse().map_err(|_| wrong(word))).collect()
}

fn answer<K: Kv>(
    args: &Args,
    model: &Model,
    kv: &K,
    kind: &'static str,
    requests: &[Request],
) -> Result<Outcome> {
    forget_peak();
    let begin = Instant::now();
    let mut engine = Engine::new(model, kv).max_rows(args.rows as usize);
    for request in requests {
        engine.add(request.clone())?;
    }
    let mut progress = Progress::new(kind, !args.quiet && stderr().is_terminal());
    while !engine.step()?.is_empty() {
        let done = engine.answers().iter().filter(|answer| answer.done.is_some()).count();
        progress.show(done, requests.len(), engine.figures().tokens);
    }
    progress.end();
    let seconds = begin.elapsed().as_secs_f64();
    let answers = engine.answers();
    Ok(Outcome {
        kind,
        answers: answers.iter().map(|answer| answer.tokens().to_vec()).collect(),
        first: answers.iter().filter_map(|answer| answer.first).collect(),
        seconds,
        figures: *engine.figures(),
        kv_bytes: kv.peak_bytes()?,
        process_bytes: peak(),
    })
}

/// A line that is written again and again.
struct Progress {
    kind: &'static str,
    shown: bool,
    last: Instant,
}

impl Progress {
    fn new(kind: &'static str, shown: bool) -> Self {
        Self { kind, shown, last: Instant::now() }
    }

    fn show(&mut self, done: usize, sessions: usize, tokens: usize) {
        if self.shown && self.last.elapsed() > Duration::from_millis(100) {
            self.last = Instant::now();
            eprint!("\r{}: {done} of {sessions} answers are done, {tokens} tokens", self.kind);
        }
    }

    fn end(&self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
        let _ = stderr().flush();
    }
}

// ---- Memory of the process
// -------------------------------------------------------------------------------------------------

/// The most memory counts from now on. Where that is not allowed it counts from the beginning.
fn forget_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// The most memory of the process so far; 0 where the system does not say.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10
}

// ---- What is printed
// -------------------------------------------------------------------------------------------------

fn print_answers(talker: &Talker, texts: &[String], outcome: &Outcome) -> Result<()> {
    for (i, (prompt, tokens)) in texts.iter().zip(&outcome.answers).enumerate() {
        let short: String = prompt.chars().take(70).collect();
        println!("--- session {}: {short}\n{}\n", i + 1, talker.text(tokens)?.trim());
    }
    Ok(())
}

impl Outcome {
    fn median_first(&self) -> f64 {
        let mut times: Vec<_> = self.first.iter().map(Duration::as_secs_f64).collect();
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or(0.0)
    }

    /// The lines of the summary: a label and a figure.
    fn lines(&self) -> Vec<(&'static str, String)> {
        let f = &self.figures;
        let mebibytes = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
        vec![
            ("sessions at once", self.answers.len().to_string()),
            ("tokens of prompts", f.prompt_tokens.to_string()),
            ("of these found in the cache", f.cached_tokens.to_string()),
            ("prompts, tokens per second", format!("{:.0}", f.prompt_rate())),
            ("time to first token, median", format!("{:.2} s", self.median_first())),
            ("tokens of answers", f.tokens.to_string()),
            ("answers, tokens per second", format!("{:.1}", f.decode_rate())),
            ("time in all", format!("{:.2} s", self.seconds)),
            ("of which attention", format!("{:.0} %", 100.0 * f.attention_share())),
            ("K and V memory at peak", mebibytes(self.kv_bytes)),
            ("memory of the process at peak", mebibytes(self.process_bytes)),
        ]
    }
}

fn print_summary(outcomes: &[Outcome]) {
    let columns: Vec<_> = outcomes.iter().map(Outcome::lines).collect();
    let row = |label: &str, figures: &mut dyn Iterator<Item = &str>| {
        let figures: String = figures.map(|figure| format!("{figure:>14}")).collect();
        println!("{label:32}{figures}");
    };
    row("keys and values", &mut outcomes.iter().map(|outcome| outcome.kind));
    for (i, (label, _)) in columns[0].iter().enumerate() {
        row(label, &mut columns.iter().map(|lines| lines[i].1.as_str()));
    }
    if let [basic, paged] = outcomes {
        let same = basic.answers.iter().zip(&paged.answers).filter(|(a, b)| a == b).count();
        match basic.answers.len() {
            all if all == same => println!("The texts of all sessions are the same."),
            all => println!("The texts of {same} of {all} sessions are the same."),
        }
    }
}

fn json(outcomes: &[Outcome]) -> String {
    let object = |outcome: &Outcome| {
        let (f, mut text) = (&outcome.figures, String::new());
        let first: Vec<_> = outcome.first.iter().map(Duration::as_secs_f64).collect();
        let _ = write!(
            text,
            "{{\"kv\": \"{}\", \"seconds\": {}, \"prompt_tokens\": {}, \"cached_tokens\": {}, \
             \"prompt_rate\": {}, \"tokens\": {}, \"decode_rate\": {}, \"attention_share\": {}, \
             \"first_seconds\": {first:?}, \"kv_bytes\": {}, \"process_bytes\": {}, \
             \"answers\": {:?}}}",
            outcome.kind,
            outcome.seconds,
            f.prompt_tokens,
            f.cached_tokens,
            f.prompt_rate(),
            f.tokens,
            f.decode_rate(),
            f.attention_share(),
            outcome.kv_bytes,
            outcome.process_bytes,
            outcome.answers
        );
        text
    };
    let objects: Vec<_> = outcomes.iter().map(object).collect();
    format!("[{}]\n", objects.join(",\n "))
}
