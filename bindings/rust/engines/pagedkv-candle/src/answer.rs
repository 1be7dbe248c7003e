//! What is asked for, and what comes of it: see [`Request`] and [`Answer`].
use crate::config::ModelConfig;
use crate::sampler::Sampler;
use candle_core::{bail, Error, Result};
use std::time::{Duration, Instant};

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// Token ids.
    pub prompt: Vec<u32>,
    /// An answer has at most this many tokens.
    pub max_tokens: usize,
    /// It also ends with one of these.
    pub stops: Vec<u32>,
    /// Chooses its tokens.
    pub sampler: Sampler,
}

impl Request {
    /// Refuses what a model cannot answer. [`Engine::add`](crate::Engine::add) does so, too.
    pub fn check(&self, model: &ModelConfig) -> Result<()> {
        let (length, vocabulary) = (self.prompt.len(), model.vocabulary);
        if length == 0 {
            bail!("a prompt has no tokens")
        }
        if let Some(wrong) = self.prompt.iter().find(|&&id| id as usize >= vocabulary) {
            bail!("token {wrong} of a prompt; the model has {vocabulary} tokens")
        }
        if self.max_tokens == 0 {
            bail!("an answer of 0 tokens is asked for")
        }
        if self.longest() > model.context {
            let (answer, context) = (self.max_tokens, model.context);
            bail!("a prompt of {length} tokens and an answer of {answer}; the model has {context}")
        }
        Ok(())
    }

    /// The tokens of the prompt and of the longest answer.
    pub fn longest(&self) -> usize {
        self.prompt.len().saturating_add(self.max_tokens)
    }
}

/// An answer, done or on its way.
#[derive(Debug)]
pub struct Answer<S> {
    pub(crate) request: Request,
    pub(crate) tokens: Vec<u32>,
    pub(crate) held: Option<Held<S>>,
    pub(crate) begun: Instant,
    /// Tokens of the prompt that were there already.
    pub cached: usize,
    /// How often it gave up its keys and values because there was no room, and began anew.
    pub preemptions: usize,
    /// From the request to the first token.
    pub first: Option<Duration>,
    /// From the request to its end.
    pub done: Option<Duration>,
    /// Why it ended before its last token.
    pub error: Option<Error>,
}

/// The keys and values of an answer's first tokens.
#[derive(Debug)]
pub(crate) struct Held<S> {
    pub(crate) sequence: S,
    pub(crate) length: usize,
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

    /// How many tokens its sequence has keys and values of.
    pub(crate) fn length(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.length)
    }

    pub(crate) fn pending(&self) -> usize {
        self.tokens.len() - self.length()
    }

    pub(crate) fn in_prompt(&self) -> bool {
        self.length() < self.request.prompt.len()
    }

    pub(crate) fn runs(&self) -> bool {
        self.done.is_none() && self.held.is_some()
    }

    /// Takes a token, and what its sampler has become.
    pub(crate) fn take(&mut self, token: u32, sampler: Sampler) {
        self.request.sampler = sampler;
        self.tokens.push(token);
        let time = self.begun.elapsed();
        self.first.get_or_insert(time);
        let stops = self.request.stops.contains(&token);
        if stops || self.tokens().len() >= self.request.max_tokens {
            self.done = Some(time);
        }
    }
}
