//! One answer, or a conversation.
use crate::args::Args;
use crate::talker::Talker;
use crate::{bare, sentence};
use candle_core::{bail, Error, Result};
use pagedkv_candle::{Answer, Engine, Figures, Kv, Message, Model, Request};
use std::io::{stdin, stdout, BufRead, IsTerminal, Write};

/// A conversation: its messages, and their keys and values.
pub struct Chat<'a, K: Kv> {
    args: &'a Args,
    model: &'a Model,
    talker: &'a Talker,
    kv: &'a K,
    context: usize,
    messages: Vec<Message>,
    last: Option<Answer<K::Sequence>>,
}

impl<'a, K: Kv> Chat<'a, K> {
    pub fn new(
        args: &'a Args,
        model: &'a Model,
        talker: &'a Talker,
        kv: &'a K,
        context: usize,
    ) -> Self {
        let mut chat = Self { args, model, talker, kv, context, messages: Vec::new(), last: None };
        chat.reset();
        chat
    }

    fn reset(&mut self) {
        let system = self.args.system.iter().map(|text| ("system".to_string(), text.clone()));
        self.messages = system.collect();
        self.last = None;
    }

    /// Reads lines and answers them, until there are no more.
    pub fn converse(&mut self) -> Result<()> {
        let is_person = stdin().is_terminal();
        if is_person && !self.args.quiet {
            println!("Up to {} tokens. /reset forgets all, /quit ends.", self.context);
        }
        let mut lines = stdin().lock().lines();
        loop {
            if is_person {
                print!("> ");
                stdout().flush()?;
            }
            match lines.next().transpose()?.as_deref().map(str::trim) {
                None | Some("/quit") => return Ok(()),
                Some("") => {}
                Some("/reset") => self.reset(),
                Some(command) if command.starts_with('/') => {
                    println!("[commands: /reset forgets the conversation, /quit ends]");
                }
                // The question may have caused it, so the conversation continues, unless the
                // message cannot be written.
                Some(line) => match self.ask(line) {
                    Err(error) if !matches!(bare(&error), Error::Io(_)) => {
                        println!("[no answer: {}]", sentence(&error));
                    }
                    other => other?,
                },
            }
        }
    }

    /// Answers a question, word by word. If it fails, the conversation is unchanged.
    pub fn ask(&mut self, question: &str) -> Result<()> {
        let mut messages = self.messages.clone();
        messages.push(("user".into(), question.into()));
        let prompt = self.talker.prompt(&messages)?;
        let room = self.context.saturating_sub(prompt.len());
        if room == 0 {
            let (length, context) = (prompt.len(), self.context);
            bail!("that would be {length} tokens, and the context has {context}")
        }
        let stops = if self.args.ignore_end { Vec::new() } else { self.talker.stops() };
        let max_tokens = self.args.max_tokens().min(room);
        let request = Request { prompt, max_tokens, stops, sampler: self.args.sampler(0)? };
        let mut engine = Engine::new(self.model, self.kv).max_rows(self.args.rows as usize);
        engine.add_after(request, self.last.take())?;
        let text = self.stream(&mut engine)?;
        let figures = *engine.figures();
        let mut answer = engine.into_answers().pop();
        if let Some(error) = answer.as_mut().and_then(|answer| answer.error.take()) {
            return Err(error);
        }
        messages.push(("assistant".into(), text));
        (self.messages, self.last) = (messages, answer);
        if let Some(answer) = self.last.as_ref().filter(|_| !self.args.quiet) {
            print_figures(answer, &figures);
        }
        Ok(())
    }

    fn stream(&self, engine: &mut Engine<'_, K>) -> Result<String> {
        let (mut out, mut pieces) = (stdout().lock(), self.talker.pieces());
        let mut text = String::new();
        loop {
            let new = engine.step();
            let piece = match new.first() {
                Some((_, token)) => pieces.push(*token)?,
                None => pieces.rest()?,
            };
            out.write_all(piece.as_bytes())?;
            out.flush()?;
            text += &piece;
            if new.is_empty() {
                break;
            }
        }
        writeln!(out)?;
        Ok(text)
    }
}

fn print_figures<S>(answer: &Answer<S>, figures: &Figures) {
    let first = answer.first.unwrap_or_default().as_secs_f64();
    println!(
        "[ttft {:.0} ms, {:.1} tok/s: {} tokens after a prompt of {}, {} of them cached]",
        1e3 * first,
        figures.decode_rate(),
        answer.tokens().len(),
        answer.prompt_length(),
        answer.cached
    );
}
