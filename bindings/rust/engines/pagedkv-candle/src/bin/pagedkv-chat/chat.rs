//! One answer, or a conversation.
use crate::args::Args;
use crate::talker::Talker;
use candle_core::Result;
use pagedkv_candle::{Answer, Engine, Figures, Kv, Message, Model, Request};
use std::io::{stdin, stdout, BufRead, IsTerminal, Write};

/// A conversation: what was said, and the keys and values of it.
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
                Some(line) => self.ask(line)?,
            }
        }
    }

    /// Answers a question, word by word.
    pub fn ask(&mut self, question: &str) -> Result<()> {
        self.messages.push(("user".into(), question.into()));
        let prompt = self.talker.prompt(&self.messages)?;
        let room = self.context.saturating_sub(prompt.len());
        if room == 0 {
            self.messages.pop();
            let (length, context) = (prompt.len(), self.context);
            println!("[not sent: that would be {length} tokens, and the context has {context}]");
            return Ok(());
        }
        let stops = if self.args.ignore_end { Vec::new() } else { self.talker.stops() };
        let max_tokens = self.args.max_tokens().min(room);
        let request = Request { prompt, max_tokens, stops, sampler: self.args.sampler(0) };
        let mut engine = Engine::new(self.model, self.kv).max_rows(self.args.rows as usize);
        engine.add_after(request, self.last.take())?;
        let text = self.stream(&mut engine)?;
        let figures = *engine.figures();
        self.last = engine.into_answers().pop();
        self.messages.push(("assistant".into(), text));
        if let Some(answer) = self.last.as_ref().filter(|_| !self.args.quiet) {
            print_figures(answer, &figures);
        }
        Ok(())
    }

    fn stream(&self, engine: &mut Engine<'_, K>) -> Result<String> {
        let (mut out, mut pieces) = (stdout().lock(), self.talker.pieces());
        let mut text = String::new();
        loop {
            let new = engine.step()?;
            let Some((_, token)) = new.first() else { break };
            let piece = pieces.push(*token)?;
            out.write_all(piece.as_bytes())?;
            out.flush()?;
            text += &piece;
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
