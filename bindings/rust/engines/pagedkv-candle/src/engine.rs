//! Answers to many prompts at once: see [`Engine`].
use crate::kv::{Kv, Step};
use crate::model::{Model, Rows};
use crate::sampler::Sampler;
use candle_core::{bail, IndexOp, Result, Tensor};
use std::time::{Duration, Instant};

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// Token ids.
    pub prompt: Vec<u32>,
    /// An answer has at most so many tokens.
    pub max_tokens: usize,
    /// It also ends with one of these.
    pub stops: Vec<u32>,
    /// Chooses its tokens.
    pub sampler: Sampler,
}

/// An answer, done or on its way.
#[derive(Debug)]
pub struct Answer<S> {
    request: Request,
    tokens: Vec<u32>,
    sequence: Option<S>,
    computed: usize,
    begun: Instant,
    /// Tokens of the prompt that were there already.
    pub cached: usize,
    /// From the request to the first token.
    pub first: Option<Duration>,
    /// From the request to the last token.
    pub done: Option<Duration>,
}

impl<S> Answer<S> {
    /// The tokens of the answer so far; the one that ended it is among them.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens[self.request.prompt.len()..]
    }

    /// Tokens of the prompt.
    pub fn prompt_length(&self) -> usize {
        self.request.prompt.len()
    }

    /// The tokens whose keys and values its sequence has.
    fn held(&self) -> &[u32] {
        &self.tokens[..self.computed]
    }

    fn in_prompt(&self) -> bool {
        self.computed < self.request.prompt.len()
    }
}

/// Where the time went.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Tokens of all prompts, with those that were cached.
    pub prompt_tokens: usize,
    /// Of these, the tokens that were not computed because a sequence had them already.
    pub cached_tokens: usize,
    /// Passes that had rows of prompts.
    pub prompt_time: Duration,
    /// Tokens of all answers.
    pub tokens: usize,
    /// Tokens of passes that had no rows of prompts.
    pub decoded_tokens: usize,
    /// These passes.
    pub decode_time: Duration,
    /// Writing keys and values, and attention, of all passes.
    pub attention_time: Duration,
}

impl Figures {
    /// Tokens of prompts per second.
    pub fn prompt_rate(&self) -> f64 {
        rate(self.prompt_tokens, self.prompt_time)
    }

    /// Tokens of answers per second, once all prompts were read.
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

/// A scheduler: every [`step`](Self::step) is one forward pass over all answers that are not done,
/// the next token of those whose prompt was read, and some more rows of prompts.
///
/// Where keys and values can be shared, a prompt waits while another one that begins alike is
/// computed, and goes on from what they have in common.
#[derive(Debug)]
pub struct Engine<'a, K: Kv> {
    model: &'a Model,
    kv: &'a K,
    max_rows: usize,
    answers: Vec<Answer<K::Sequence>>,
    figures: Figures,
}

impl<'a, K: Kv> Engine<'a, K> {
    /// An engine without requests.
    pub fn new(model: &'a Model, kv: &'a K) -> Self {
        let (max_rows, figures) = (512, Figures::default());
        Self { model, kv, max_rows, answers: Vec::new(), figures }
    }

    /// At most so many rows in a pass, if there are not more answers. Default: 512.
    pub fn max_rows(mut self, rows: usize) -> Self {
        self.max_rows = rows.max(1);
        self
    }

    /// Adds a request, whose answer has the next number, from 0.
    pub fn add(&mut self, request: Request) -> Result<()> {
        self.add_after(request, None)
    }

    /// The same, with the keys and values of an earlier answer as far as the prompt begins like
    /// it: the next turn of a conversation.
    pub fn add_after(
        &mut self,
        request: Request,
        earlier: Option<Answer<K::Sequence>>,
    ) -> Result<()> {
        let vocabulary = self.model.config().vocabulary;
        let Some((_, known)) = request.prompt.split_last() else { bail!("a prompt has no tokens") };
        if let Some(wrong) = request.prompt.iter().find(|&&id| id as usize >= vocabulary) {
            bail!("token {wrong} of a prompt; the model has {vocabulary} tokens")
        }
        if request.max_tokens == 0 {
            bail!("an answer of 0 tokens is asked for")
        }
        let (mut sequence, mut computed) = (None, 0);
        if let Some(mut earlier) = earlier {
            let shared = common(earlier.held(), known);
            if let Some(mut had) = earlier.sequence.take() {
                computed = self.kv.trim(&mut had, shared)?;
                sequence = Some(had).filter(|_| computed > 0);
            }
        }
        self.figures.prompt_tokens += request.prompt.len();
        self.figures.cached_tokens += computed;
        self.answers.push(Answer {
            tokens: request.prompt.clone(),
            request,
            sequence,
            computed,
            begun: Instant::now(),
            cached: computed,
            first: None,
            done: None,
        });
        Ok(())
    }

    /// All answers, in the order of their requests.
    pub fn answers(&self) -> &[Answer<K::Sequence>] {
        &self.answers
    }

    /// Where the time went so far.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Gives up the engine for its answers, with what their sequences hold.
    pub fn into_answers(self) -> Vec<Answer<K::Sequence>> {
        self.answers
    }

    /// One forward pass. Gives new tokens, each with the number of its answer; none when all
    /// answers are done.
    pub fn step(&mut self) -> Result<Vec<(usize, u32)>> {
        let mut new = Vec::new();
        while new.is_empty() && self.answers.iter().any(|answer| answer.done.is_none()) {
            self.open_sequences()?;
            new = self.pass()?;
        }
        Ok(new)
    }

    fn open_sequences(&mut self) -> Result<()> {
        for i in 0..self.answers.len() {
            let answer = &self.answers[i];
            if answer.sequence.is_none() && answer.done.is_none() && !self.waits(i)? {
                let (sequence, cached) = self.kv.open(&answer.request.prompt)?;
                self.figures.cached_tokens += cached;
                let answer = &mut self.answers[i];
                (answer.computed, answer.cached) = (cached, cached);
                answer.sequence = Some(sequence);
            }
        }
        Ok(())
    }

    /// Whether another prompt that is computed now gives answer `i` more than there is already.
    fn waits(&self, i: usize) -> Result<bool> {
        if !self.kv.shares() {
            return Ok(false);
        }
        let prompt = &self.answers[i].request.prompt;
        let at_work = |answer: &&Answer<_>| answer.sequence.is_some() && answer.in_prompt();
        let shared = self.answers.iter().filter(at_work);
        let shared = shared.map(|answer| common(&answer.request.prompt, prompt)).max().unwrap_or(0);
        const WORTH_WAITING_FOR: usize = 32;
        Ok(shared >= WORTH_WAITING_FOR && shared - shared % 16 > self.kv.cached(prompt)?)
    }

    fn pass(&mut self) -> Result<Vec<(usize, u32)>> {
        let begin = Instant::now();
        let plan = self.plan();
        let mut rows = Rows::default();
        let mut sequences = Vec::new();
        let mut asked = Vec::new(); // answers that get a token
        let mut reads_prompts = false;
        for (i, (answer, &n)) in self.answers.iter_mut().zip(&plan).enumerate() {
            if n == 0 {
                continue;
            }
            reads_prompts |= answer.in_prompt();
            let end = answer.computed + n;
            let last = end == answer.tokens.len();
            rows.push(answer.computed, &answer.tokens[answer.computed..end], last);
            asked.extend(last.then_some(i));
            sequences.extend(answer.sequence.as_mut().map(|sequence| (sequence, n)));
        }
        let mut step = self.kv.begin(sequences)?;
        let output = self.model.forward(&rows, &mut step)?;
        step.commit(&rows.tokens)?;
        for (answer, n) in self.answers.iter_mut().zip(plan) {
            answer.computed += n;
        }
        let mut new = Vec::new();
        for (row, i) in asked.into_iter().enumerate() {
            let Some(logits) = &output.logits else { continue };
            let token = self.answers[i].take(&logits.i(row)?)?;
            new.push((i, token));
        }
        self.count(new.len(), reads_prompts, begin.elapsed(), output.attention);
        Ok(new)
    }

    /// How many rows of each answer the next pass has: one of those whose prompt was read, and of
    /// prompts as many as there is room for, the first ones first.
    fn plan(&self) -> Vec<usize> {
        let open = |answer: &Answer<_>| answer.done.is_none() && answer.sequence.is_some();
        let decodes = |answer: &Answer<_>| open(answer) && !answer.in_prompt();
        let decoding = self.answers.iter().filter(|answer| decodes(answer)).count();
        let mut room = self.max_rows.saturating_sub(decoding).max(1);
        let rows = |answer: &Answer<_>| {
            if decodes(answer) {
                return 1;
            }
            let left = if open(answer) { answer.tokens.len() - answer.computed } else { 0 };
            let n = left.min(room);
            room -= n;
            n
        };
        self.answers.iter().map(rows).collect()
    }

    fn count(&mut self, tokens: usize, prompts: bool, time: Duration, attention: Duration) {
        let figures = &mut self.figures;
        figures.tokens += tokens;
        figures.attention_time += attention;
        if prompts {
            figures.prompt_time += time;
        } else {
            figures.decode_time += time;
            figures.decoded_tokens += tokens;
        }
    }
}

impl<S> Answer<S> {
    fn take(&mut self, logits: &Tensor) -> Result<u32> {
        let token = self.request.sampler.choose(logits)?;
        self.tokens.push(token);
        let time = self.begun.elapsed();
        self.first.get_or_insert(time);
        let stops = self.request.stops.contains(&token);
        if stops || self.tokens().len() >= self.request.max_tokens {
            self.done = Some(time);
        }
        Ok(token)
    }
}

/// How many tokens two texts begin with alike.
fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
