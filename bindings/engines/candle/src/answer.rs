//! Requests and their answers: see [`Request`] and [`Answer`].
use crate::config::ModelConfig;
use crate::sampler::Sampler;
use candle_core::{bail, Error, Result};
use std::time::{Duration, Instant};

/// A request for one answer.
#[derive(Clone, Debug)]
pub struct Request {
    /// Token ids.
    pub prompt: Vec<u32>,
    /// The most tokens of the answer.
    pub max_tokens: usize,
    /// Tokens that end the answer.
    pub stops: Vec<u32>,
    /// Chooses the tokens of the answer.
    pub sampler: Sampler,
}

impl Request {
    /// Refuses a request that a model cannot answer, as [`Engine::add`](crate::Engine::add) does.
    pub fn check(&self, model: &ModelConfig) -> Result<()> {
        let (length, vocabulary) = (self.prompt.len(), model.vocabulary);
        if length == 0 {
            bail!("a prompt has no tokens")
        }
        if let Some(wrong) = self.prompt.iter().find(|&&id| id as usize >= vocabulary) {
            bail!("token {wrong} of a prompt; the model has {vocabulary} tokens")
        }
        if self.max_tokens == 0 {
            bail!("the answer must have 1 token or more, not 0 tokens")
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

/// An answer, finished or in progress.
#[derive(Debug)]
pub struct Answer<S> {
    pub(crate) request: Request,
    pub(crate) tokens: Vec<u32>,
    pub(crate) held: Option<Held<S>>,
    pub(crate) begun: Instant,
    /// Tokens of the prompt that were cached.
    pub cached: usize,
    /// How often it was preempted: it lost its keys and values because memory was short, and
    /// started again.
    pub preemptions: usize,
    /// The time from the request to the first token.
    pub first: Option<Duration>,
    /// The time from the request to the last token.
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
    /// The tokens of the answer so far, including the one that ended it.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens[self.request.prompt.len()..]
    }

    /// Tokens of the prompt.
    pub fn prompt_length(&self) -> usize {
        self.request.prompt.len()
    }

    /// How many tokens have keys and values.
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

    /// Appends a token, and takes the new state of its sampler.
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
