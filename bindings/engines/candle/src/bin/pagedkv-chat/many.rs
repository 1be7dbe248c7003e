//! Many answers at once, and their statistics.
use crate::args::{Args, KvKind};
use crate::sentence;
use crate::talker::Talker;
use candle_core::{bail, Error, Result};
use pagedkv_candle::{Basic, Engine, Figures, Gguf, Kv, Model, Request};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{stderr, IsTerminal, Write};
use std::path::Path;
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

/// The results with one kind of memory.
struct Outcome {
    kind: &'static str,
    answers: Vec<Vec<u32>>,
    /// The errors of answers that failed.
    errors: Vec<Option<String>>,
    /// The times to first tokens, without the time that the other kind of memory took.
    first: Vec<Duration>,
    seconds: f64,
    figures: Figures,
    kv_bytes: u64,
    /// Only if there is one kind of memory.
    process_bytes: Option<u64>,
}

pub fn run(args: &Args, file: &Gguf, model: &Model, talker: Option<&Talker>) -> Result<()> {
    let (texts, prompts) = prompts(args, talker)?;
    let request = |(i, prompt)| {
        let request = Request {
            prompt,
            max_tokens: args.max_tokens(),
            stops: talker.filter(|_| !args.ignore_end).map_or(Vec::new(), Talker::stops),
            sampler: args.sampler(i as u64)?,
        };
        request.check(model.config()).map_err(|error| of_session(i, &sentence(&error)))?;
        Ok(request)
    };
    let requests: Vec<_> = prompts.into_iter().enumerate().map(request).collect::<Result<_>>()?;
    let mut json_file = args.json.as_deref().map(create).transpose()?;
    let tokens = requests.iter().map(Request::longest).fold(0, usize::saturating_add);
    let basic = Basic::new(model.config());
    let paged = match args.kv {
        KvKind::Basic => None,
        _ => Some(super::paged(args, file, model, tokens, requests.len())?),
    };
    let mut runs: Vec<Box<dyn Turns + '_>> = Vec::new();
    if args.kv != KvKind::Paged {
        runs.push(Box::new(Run::new(args, model, &basic, "basic", &requests)?));
    }
    if let Some(paged) = &paged {
        runs.push(Box::new(Run::new(args, model, paged, "paged", &requests)?));
    }
    let outcomes = measure(!args.quiet && stderr().is_terminal(), &mut runs)?;
    if let Some(talker) = talker {
        print_answers(talker, &texts, &outcomes[outcomes.len() - 1]);
    }
    if !args.quiet {
        print_summary(&outcomes);
    }
    if let Some(file) = &mut json_file {
        file.write_all(json(&outcomes).as_bytes())?;
    }
    let failure = outcomes.iter().flat_map(Outcome::failures).next();
    failure.map_or(Ok(()), |(i, error)| Err(of_session(i, error)))
}

/// Creates the file before the work, so that an error does not come at the end.
fn create(path: &Path) -> Result<File> {
    File::create(path).map_err(|error| Error::msg(format!("{}: {error}", path.display())))
}

fn of_session(i: usize, error: &str) -> Error {
    Error::msg(format!("session {}: {error}", i + 1))
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
    let wrong = |word: &str| Error::msg(format!("--ids: {word:?} is not a token id"));
    line.split_whitespace().map(|word| word.parse().map_err(|_| wrong(word))).collect()
}

/// A run with one kind of memory. Its time is that of its own passes.
struct Run<'a, K: Kv> {
    kind: &'static str,
    kv: &'a K,
    engine: Engine<'a, K>,
    time: Duration,
    first: Vec<Option<Duration>>,
}

trait Turns {
    /// Runs one forward pass; false: all answers are finished.
    fn step(&mut self) -> bool;
    /// The number of finished answers, of all answers, and of all tokens.
    fn progress(&self) -> [usize; 3];
    fn outcome(&self) -> Result<Outcome>;
}

impl<'a, K: Kv> Run<'a, K> {
    fn new(
        args: &Args,
        model: &'a Model,
        kv: &'a K,
        kind: &'static str,
        requests: &[Request],
    ) -> Result<Self> {
        let mut engine = Engine::new(model, kv).max_rows(args.rows as usize);
        requests.iter().try_for_each(|request| engine.add(request.clone()))?;
        Ok(Self { kind, kv, engine, time: Duration::ZERO, first: vec![None; requests.len()] })
    }
}

impl<K: Kv> Turns for Run<'_, K> {
    fn step(&mut self) -> bool {
        let begin = Instant::now();
        let new = self.engine.step();
        self.time += begin.elapsed();
        for (i, _) in &new {
            self.first[*i].get_or_insert(self.time);
        }
        !new.is_empty()
    }

    fn progress(&self) -> [usize; 3] {
        let answers = self.engine.answers();
        let done = answers.iter().filter(|answer| answer.done.is_some()).count();
        [done, answers.len(), self.engine.figures().tokens]
    }

    fn outcome(&self) -> Result<Outcome> {
        let answers = self.engine.answers();
        Ok(Outcome {
            kind: self.kind,
            answers: answers.iter().map(|answer| answer.tokens().to_vec()).collect(),
            errors: answers.iter().map(|answer| answer.error.as_ref().map(sentence)).collect(),
            first: self.first.iter().flatten().copied().collect(),
            seconds: self.time.as_secs_f64(),
            figures: *self.engine.figures(),
            kv_bytes: self.kv.peak_bytes()?,
            process_bytes: None,
        })
    }
}

/// Runs all kinds of memory in turns, one forward pass each, so that other load on the machine
/// affects them equally.
fn measure(shown: bool, runs: &mut [Box<dyn Turns + '_>]) -> Result<Vec<Outcome>> {
    forget_peak();
    let mut progress = Progress::new(shown);
    let mut left = true;
    while left {
        left = false;
        for run in runs.iter_mut() {
            left |= run.step();
        }
        progress.show(runs.iter().map(|run| run.progress()));
    }
    progress.end();
    let mut outcomes = runs.iter().map(|run| run.outcome()).collect::<Result<Vec<_>>>()?;
    if let [only] = &mut outcomes[..] {
        only.process_bytes = Some(peak());
    }
    Ok(outcomes)
}

/// A progress line that is overwritten.
struct Progress {
    shown: bool,
    last: Instant,
}

impl Progress {
    fn new(shown: bool) -> Self {
        Self { shown, last: Instant::now() }
    }

    fn show(&mut self, runs: impl Iterator<Item = [usize; 3]>) {
        if self.shown && self.last.elapsed() > Duration::from_millis(100) {
            self.last = Instant::now();
            let sum = |a: [usize; 3], b: [usize; 3]| [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
            let [done, all, tokens] = runs.fold([0; 3], sum);
            eprint!("\r{done} of {all} answers are done, {tokens} tokens");
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

/// Resets the peak of the process's memory, if the system allows it.
fn forget_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Returns the peak of the process's memory; 0 if it is unknown.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10
}

// ---- Output
// -------------------------------------------------------------------------------------------------

fn print_answers(talker: &Talker, texts: &[String], outcome: &Outcome) {
    for (i, (prompt, tokens)) in texts.iter().zip(&outcome.answers).enumerate() {
        let short: String = prompt.chars().take(70).collect();
        let text = talker.text(tokens).unwrap_or_else(|error| format!("[{}]", sentence(&error)));
        println!("--- session {}: {short}\n{}", i + 1, text.trim());
        if let Some(error) = &outcome.errors[i] {
            println!("[failed: {error}]");
        }
        println!();
    }
}

impl Outcome {
    fn failures(&self) -> impl Iterator<Item = (usize, &str)> {
        let numbered = self.errors.iter().enumerate();
        numbered.filter_map(|(i, error)| error.as_deref().map(|error| (i, error)))
    }

    fn median_first(&self) -> f64 {
        let mut times: Vec<_> = self.first.iter().map(Duration::as_secs_f64).collect();
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or(0.0)
    }

    /// The lines of the summary: a label and a figure.
    fn lines(&self) -> Vec<(&'static str, String)> {
        let f = &self.figures;
        let mebibytes = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
        let of_process = self.process_bytes.map_or("-".into(), mebibytes);
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
            ("memory of the process at peak", of_process),
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
        let failed: Vec<_> = outcome.failures().map(|(i, _)| i).collect();
        let _ = write!(
            text,
            "{{\"kv\": \"{}\", \"seconds\": {}, \"prompt_tokens\": {}, \"cached_tokens\": {}, \
             \"prompt_rate\": {}, \"tokens\": {}, \"decode_rate\": {}, \"attention_share\": {}, \
             \"first_seconds\": {first:?}, \"kv_bytes\": {}, \"process_bytes\": {}, \
             \"failed\": {failed:?}, \"answers\": {:?}}}",
            outcome.kind,
            outcome.seconds,
            f.prompt_tokens,
            f.cached_tokens,
            f.prompt_rate(),
            f.tokens,
            f.decode_rate(),
            f.attention_share(),
            outcome.kv_bytes,
            outcome.process_bytes.map_or("null".into(), |bytes| bytes.to_string()),
            outcome.answers
        );
        text
    };
    let objects: Vec<_> = outcomes.iter().map(object).collect();
    format!("[{}]\n", objects.join(",\n "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// A kind of memory with some passes, which records its turns.
    struct Passes<'a>(usize, &'static str, &'a RefCell<String>);

    impl Turns for Passes<'_> {
        fn step(&mut self) -> bool {
            let left = self.0 > 0;
            self.0 = self.0.saturating_sub(1);
            *self.2.borrow_mut() += if left { self.1 } else { "" };
            left
        }

        fn progress(&self) -> [usize; 3] {
            [0; 3]
        }

        fn outcome(&self) -> Result<Outcome> {
            bail!("nothing was measured")
        }
    }

    #[test]
    fn both_kinds_of_memory_have_turns() {
        let turns = RefCell::new(String::new());
        let passes = |n, kind| Box::new(Passes(n, kind, &turns)) as Box<dyn Turns>;
        assert!(measure(false, &mut [passes(2, "b"), passes(4, "p")]).is_err());
        assert_eq!(*turns.borrow(), "bpbppp");
    }
}
