//! Conversion of text to tokens and back.
use candle_core::{Error, Result};
use pagedkv_candle::{read_tokenizer, ChatTemplate, Gguf, Message};
use tokenizers::Tokenizer;

/// A model's tokenizer and chat template.
pub struct Talker {
    tokenizer: Tokenizer,
    template: ChatTemplate,
}

/// The tokens of an answer as text, piece by piece.
pub struct Pieces<'a> {
    tokenizer: &'a Tokenizer,
    tokens: Vec<u32>,
    written: usize,
}

impl Talker {
    pub fn new(file: &Gguf) -> Result<Self> {
        let tokenizer = read_tokenizer(file)?;
        let template = ChatTemplate::read(file, &tokenizer)?;
        Ok(Self { tokenizer, template })
    }

    /// Returns the tokens of a conversation, up to the beginning of an answer.
    pub fn prompt(&self, messages: &[Message]) -> Result<Vec<u32>> {
        let text = self.template.render(messages)?;
        let encoding = self.tokenizer.encode_fast(text, false).map_err(Error::wrap)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Tokens that end an answer.
    pub fn stops(&self) -> Vec<u32> {
        self.template.stops.clone()
    }

    pub fn text(&self, tokens: &[u32]) -> Result<String> {
        self.tokenizer.decode(tokens, true).map_err(Error::wrap)
    }

    pub fn pieces(&self) -> Pieces<'_> {
        Pieces { tokenizer: &self.tokenizer, tokens: Vec::new(), written: 0 }
    }
}

impl Pieces<'_> {
    /// Returns the text that one more token adds; nothing while it ends within a character.
    pub fn push(&mut self, token: u32) -> Result<String> {
        self.tokens.push(token);
        let text = self.text()?;
        Ok(if text.ends_with('\u{fffd}') { String::new() } else { self.write(&text) })
    }

    /// Returns the rest after the last token: an incomplete character.
    pub fn rest(&mut self) -> Result<String> {
        let text = self.text()?;
        Ok(self.write(&text))
    }

    fn text(&self) -> Result<String> {
        self.tokenizer.decode(&self.tokens, true).map_err(Error::wrap)
    }

    fn write(&mut self, text: &str) -> String {
        let piece = text.get(self.written..).unwrap_or_default().to_string();
        self.written = text.len();
        piece
    }
}
