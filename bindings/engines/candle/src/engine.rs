//! Answers to many prompts at once: see [`Engine`].
use crate::answer::{Answer, Held, Request};
use crate::kv::{Begun, Kv, Step};
use crate::model::{Model, Rows};
use crate::sampler::Sampler;
use candle_core::{bail, Error, IndexOp, Result, Tensor};
use std::time::{Duration, Instant};

/// Counts and times of the passes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Tokens of all prompts, including cached ones.
    pub prompt_tokens: usize,
    /// Of these, the tokens that were cached and not computed.
    pub cached_tokens: usize,
    /// The time of passes that had rows of prompts.
    pub prompt_time: Duration,
    /// Tokens of all answers.
    pub tokens: usize,
    /// Tokens of passes that had no rows of prompts.
    pub decoded_tokens: usize,
    /// The time of these passes.
    pub decode_time: Duration,
    /// The time of writes and attention in all passes.
    pub attention_time: Duration,
}

impl Figures {
    /// Tokens of prompts per second.
    pub fn prompt_rate(&self) -> f64 {
        rate(self.prompt_tokens, self.prompt_time)
    }

    /// Tokens of answers per second in passes without rows of prompts.
    pub fn decode_rate(&self) -> f64 {
        rate(self.decoded_tokens, self.decode_time)
    }

    /// The share of attention in the time of all passes.
    pub fn attention_share(&self) -> f64 {
        let all = self.prompt_time + self.decode_time;
        self.attention_time.as_secs_f64() / all.as_secs_f64().max(1e-9)
    }
}

fn rate(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(1e-9)
}

/// A scheduler with continuous batching: each [`step`](Self::step) is one forward pass over all
/// answers in progress. It computes the next token of each answer whose prompt is complete, and
/// some rows of other prompts.
///
/// If keys and values can be shared, a prompt waits while another one with the same beginning is
/// computed, and then continues from the shared tokens.
///
/// If memory is short, finished answers lose their keys and values first, then the newest ones in
/// progress. These wait until another answer is finished, and start again.
///
/// An error ends only the answer that caused it ([`Answer::error`]); the tokens of the others do
/// not change. A pass that fails is computed again in halves, until the answers that fail alone are
/// found. A panic of a [`Kv`] propagates; the next step continues from where this one began.
#[derive(Debug)]
pub struct Engine<'a, K: Kv> {
    model: &'a Model,
    kv: &'a K,
    max_rows: usize,
    answers: Vec<Answer<K::Sequence>>,
    /// Tokens that no step has returned yet.
    new: Vec<(usize, u32)>,
    /// An answer lost its keys and values and none has ended since, so a new one would lose them
    /// next.
    full: bool,
    figures: Figures,
}

/// The rows of one answer in a pass.
#[derive(Clone, Copy)]
struct Part {
    answer: usize,
    rows: usize,
}

enum Pass {
    /// The pass was committed. Some answers have a new token and a new state of their sampler.
    Done {
        chosen: Vec<(usize, u32, Sampler)>,
        attention: Duration,
    },
    NoRoom(Error),
}

impl<'a, K: Kv> Engine<'a, K> {
    /// Creates an engine without requests.
    pub fn new(model: &'a Model, kv: &'a K) -> Self {
        let (answers, new, figures) = (Vec::new(), Vec::new(), Figures::default());
        Self { model, kv, max_rows: 512, answers, new, full: false, figures }
    }

    /// The most rows in a pass, if there are not more answers. Default: 512.
    pub fn max_rows(mut self, rows: usize) -> Self {
        self.max_rows = rows.max(1);
        self
    }

    /// Adds a request. Answers are numbered from 0. An error says why the request cannot be
    /// answered.
    pub fn add(&mut self, request: Request) -> Result<()> {
        self.add_after(request, None)
    }

    /// As [`add`](Self::add), and reuses the keys and values of an earlier answer up to the first
    /// different token: for the next turn of a conversation.
    pub fn add_after(
        &mut self,
        request: Request,
        earlier: Option<Answer<K::Sequence>>,
    ) -> Result<()> {
        request.check(self.model.config())?;
        let (longest, room) = (request.longest(), self.kv.longest());
        if longest > room {
            bail!("a prompt and an answer of {longest} tokens; there is room for {room}")
        }
        let mut held = None;
        if let Some((mut had, tokens)) = earlier.and_then(|e| Some((e.held?, e.tokens))) {
            let known = &request.prompt[..request.prompt.len() - 1];
            let shared = common(&tokens[..had.length], known);
            had.length = self.kv.trim(&mut had.sequence, shared)?;
            held = Some(had).filter(|had| had.length > 0);
        }
        let cached = held.as_ref().map_or(0, |held| held.length);
        self.figures.prompt_tokens += request.prompt.len();
        self.figures.cached_tokens += cached;
        self.answers.push(Answer {
            tokens: request.prompt.clone(),
            request,
            held,
            begun: Instant::now(),
            cached,
            preemptions: 0,
            first: None,
            done: None,
            error: None,
        });
        Ok(())
    }

    /// All answers, in the order of their requests.
    pub fn answers(&self) -> &[Answer<K::Sequence>] {
        &self.answers
    }

    /// Counts and times so far.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Converts the engine to its answers, with their sequences.
    pub fn into_answers(self) -> Vec<Answer<K::Sequence>> {
        self.answers
    }

    /// Runs one forward pass. Returns the new tokens, each with the number of its answer; none when
    /// all answers are finished.
    pub fn step(&mut self) -> Vec<(usize, u32)> {
        while self.new.is_empty() && self.answers.iter().any(|answer| answer.done.is_none()) {
            self.open_sequences();
            self.compute(&self.plan());
            self.let_go_of_failed();
        }
        std::mem::take(&mut self.new)
    }

    // ---- Beginning and ending
    // ---------------------------------------------------------------------------------------------

    fn open_sequences(&mut self) {
        for i in 0..self.answers.len() {
            if self.full && self.answers.iter().any(Answer::runs) {
                return;
            }
            let answer = &self.answers[i];
            if answer.done.is_none() && answer.held.is_none() {
                self.open_sequence(i).unwrap_or_else(|error| self.fail(i, error));
            }
        }
    }

    fn open_sequence(&mut self, i: usize) -> Result<()> {
        if self.waits(i)? {
            return Ok(());
        }
        let answer = &mut self.answers[i];
        let (sequence, length) = self.kv.open(&answer.tokens)?;
        if answer.preemptions == 0 {
            answer.cached = length;
            self.figures.cached_tokens += length;
        }
        answer.held = Some(Held { sequence, length });
        Ok(())
    }

    /// Returns whether a prompt in progress will give answer `i` more tokens than are cached now.
    fn waits(&self, i: usize) -> Result<bool> {
        if !self.kv.shares() {
            return Ok(false);
        }
        let prompt = &self.answers[i].request.prompt;
        let at_work = |answer: &&Answer<_>| answer.runs() && answer.in_prompt();
        let shared = self.answers.iter().filter(at_work);
        let shared = shared.map(|answer| common(&answer.request.prompt, prompt)).max().unwrap_or(0);
        const WORTH_WAITING_FOR: usize = 32;
        Ok(shared >= WORTH_WAITING_FOR && shared - shared % 16 > self.kv.cached(prompt)?)
    }

    /// Marks an answer as failed. Its keys and values are dropped later: until all marks are set,
    /// no call is made that could fail.
    fn fail(&mut self, i: usize, error: Error) {
        let answer = &mut self.answers[i];
        answer.error = Some(error);
        answer.done = Some(answer.begun.elapsed());
        self.full = false;
    }

    fn let_go_of_failed(&mut self) {
        let failed = self.answers.iter_mut().filter(|answer| answer.error.is_some());
        failed.for_each(|answer| drop(answer.held.take()));
    }

    /// Frees keys and values that can be computed again, or ends the only answer if it does not fit
    /// even alone.
    fn make_room(&mut self, error: Error) {
        let ended = |answer: &&mut Answer<_>| answer.done.is_some() && answer.held.is_some();
        if let Some(answer) = self.answers.iter_mut().find(ended) {
            drop(answer.held.take());
            return;
        }
        let running: Vec<usize> =
            (0..self.answers.len()).filter(|&i| self.answers[i].runs()).collect();
        match running[..] {
            [] => {}
            [only] => self.fail(only, error),
            [.., last] => {
                self.full = true;
                self.answers[last].preemptions += 1;
                drop(self.answers[last].held.take());
            }
        }
    }

    // ---- A pass
    // ---------------------------------------------------------------------------------------------

    /// Returns the rows of each answer in the next pass: one if its prompt is complete. The others
    /// share the remaining rows, first come, first served.
    fn plan(&self) -> Vec<Part> {
        let running = || self.answers.iter().enumerate().filter(|(_, answer)| answer.runs());
        let decoding = running().filter(|(_, answer)| answer.pending() == 1).count();
        let mut room = self.max_rows.saturating_sub(decoding).max(1);
        let part = |(i, answer): (usize, &Answer<_>)| {
            let pending = answer.pending();
            let rows = if pending == 1 { 1 } else { pending.min(room) };
            room -= if pending == 1 { 0 } else { rows };
            Part { answer: i, rows }
        };
        running().map(part).filter(|part| part.rows > 0).collect()
    }

    fn compute(&mut self, parts: &[Part]) {
        // An answer may have lost its keys and values to another part of the same plan.
        let runs = |part: &&Part| self.answers[part.answer].runs();
        let parts: Vec<Part> = parts.iter().filter(runs).copied().collect();
        if parts.is_empty() {
            return;
        }
        let begin = Instant::now();
        match self.pass(&parts) {
            Ok(Pass::Done { chosen, attention }) => {
                self.count(&parts, chosen.len(), begin.elapsed(), attention);
                self.take(&parts, chosen);
            }
            Ok(Pass::NoRoom(error)) => self.make_room(error),
            Err(error) if parts.len() == 1 => self.fail(parts[0].answer, error),
            Err(_) => {
                let (first, second) = parts.split_at(parts.len() / 2);
                self.compute(first);
                self.compute(second);
            }
        }
    }

    /// Computes some parts, in the order of their answers. Before the commit nothing has changed,
    /// and after it nothing fails.
    fn pass(&mut self, parts: &[Part]) -> Result<Pass> {
        let (mut rows, mut samplers) = (Rows::default(), Vec::new());
        for part in parts {
            let answer = &self.answers[part.answer];
            let (begin, last) = (answer.length(), part.rows == answer.pending());
            rows.push(begin, &answer.tokens[begin..begin + part.rows], last);
            samplers.extend(last.then(|| (part.answer, answer.request.sampler.clone())));
        }
        let mut parts = parts.iter().peekable();
        let answers = self.answers.iter_mut().enumerate();
        let sequences = answers.filter_map(|(i, answer)| {
            let part = parts.next_if(|part| part.answer == i)?;
            Some((&mut answer.held.as_mut()?.sequence, part.rows))
        });
        let mut step = match self.kv.begin(sequences.collect())? {
            Begun::Step(step) => step,
            Begun::NoRoom(error) => return Ok(Pass::NoRoom(error)),
        };
        let output = self.model.forward(&rows, &mut step)?;
        let chosen = choose(samplers, output.logits.as_ref())?;
        step.commit(&rows.tokens)?;
        Ok(Pass::Done { chosen, attention: output.attention })
    }

    /// Records a committed pass.
    fn take(&mut self, parts: &[Part], chosen: Vec<(usize, u32, Sampler)>) {
        for part in parts {
            if let Some(held) = &mut self.answers[part.answer].held {
                held.length += part.rows;
            }
        }
        for (i, token, sampler) in chosen {
            self.answers[i].take(token, sampler);
            self.full &= self.answers[i].done.is_none();
            self.new.push((i, token));
        }
    }

    fn count(&mut self, parts: &[Part], tokens: usize, time: Duration, attention: Duration) {
        let reads = |part: &Part| part.rows > 1 || self.answers[part.answer].in_prompt();
        let figures = &mut self.figures;
        figures.tokens += tokens;
        figures.attention_time += attention;
        if parts.iter().any(reads) {
            figures.prompt_time += time;
        } else {
            figures.decode_time += time;
            figures.decoded_tokens += tokens;
        }
    }
}

/// Returns the tokens that samplers choose, each from its row of logits.
fn choose(
    samplers: Vec<(usize, Sampler)>,
    logits: Option<&Tensor>,
) -> Result<Vec<(usize, u32, Sampler)>> {
    let Some(logits) = logits else { return Ok(Vec::new()) };
    let choose = |(row, (answer, mut sampler)): (usize, (usize, Sampler))| {
        let token = sampler.choose(&logits.i(row)?)?;
        Ok((answer, token, sampler))
    };
    samplers.into_iter().enumerate().map(choose).collect()
}

/// Returns the length of the common prefix of two texts.
fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
