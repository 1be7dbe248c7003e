//! The text of a conversation as a model was trained to read it: see [`ChatTemplate`].
use crate::gguf::Gguf;
use candle_core::{Error, Result};
use minijinja::syntax::SyntaxConfig;
use minijinja::{context, Environment, ErrorKind};
use minijinja_contrib::pycompat::unknown_method_callback;
use tokenizers::Tokenizer;

/// A message: its role and its text.
pub type Message = (String, String);

/// The chat template of a model's file, and the tokens that end an answer.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Option<Environment<'static>>,
    begin: String,
    end: String,
    /// Tokens that end an answer.
    pub stops: Vec<u32>,
}

/// Tokens that end a turn, for models whose file names only the token that ends a text.
const ENDS_OF_TURNS: [&str; 4] = ["<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|endoftext|>"];

impl ChatTemplate {
    /// Reads the template. A model without one gets only the texts.
    pub fn read(file: &Gguf, tokenizer: &Tokenizer) -> Result<Self> {
        let id = |key: &str| file.number(key);
        let (begin, end) = (id("tokenizer.ggml.bos_token_id")?, id("tokenizer.ggml.eos_token_id")?);
        let mut stops: Vec<u32> =
            [end, id("tokenizer.ggml.eot_token_id")?].into_iter().flatten().collect();
        stops.extend(ENDS_OF_TURNS.iter().filter_map(|name| tokenizer.token_to_id(name)));
        let text =
            |id: Option<u32>| id.and_then(|id| tokenizer.id_to_token(id)).unwrap_or_default();
        let source = file.text("tokenizer.chat_template")?.map(str::to_string);
        Ok(Self {
            environment: source.map(environment).transpose()?,
            begin: text(begin),
            end: text(end),
            stops,
        })
    }

    /// Returns the text of a conversation, up to the beginning of the model's answer.
    pub fn render(&self, messages: &[Message]) -> Result<String> {
        let Some(environment) = &self.environment else {
            let texts: Vec<_> = messages.iter().map(|(_, text)| text.as_str()).collect();
            return Ok(texts.join("\n"));
        };
        let messages: Vec<_> = messages
            .iter()
            .map(|(role, text)| context! { role => role, content => text })
            .collect();
        let template = environment.get_template("chat").map_err(Error::wrap)?;
        let values = context! {
            messages => messages,
            add_generation_prompt => true,
            bos_token => &self.begin,
            eos_token => &self.end,
        };
        template
            .render(values)
            .map_err(|error| Error::msg(format!("the model's chat template: {error:#}")))
    }
}

/// The language of templates: Jinja with the methods of Python's objects.
fn environment(source: String) -> Result<Environment<'static>> {
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    let mut environment = Environment::new();
    environment.set_syntax(syntax.map_err(Error::wrap)?);
    environment.set_unknown_method_callback(unknown_method_callback);
    environment.add_function("raise_exception", |text: String| {
        Err::<String, _>(minijinja::Error::new(ErrorKind::InvalidOperation, text))
    });
    environment
        .add_template_owned("chat", source)
        .map_err(|error| Error::msg(format!("the model's chat template: {error:#}")))?;
    Ok(environment)
}
