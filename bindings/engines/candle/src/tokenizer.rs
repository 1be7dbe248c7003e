//! Text to tokens and back: see [`read_tokenizer`].
use crate::gguf::Gguf;
use candle_core::{bail, Error, Result};
use std::collections::HashMap;
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence as Decoders;
use tokenizers::decoders::strip::Strip;
use tokenizers::models::bpe::{Merges, Vocab, BPE};
use tokenizers::normalizers::{Prepend, Replace, Sequence as Normalizers, NFC};
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::{AddedToken, SplitDelimiterBehavior, Tokenizer};

/// Makes the tokenizer of a model from its file: byte-level BPE (GPT-2's kind) with the splits of
/// GPT-2, SmolLM2, Llama 3 and Qwen2, or BPE with scores (SentencePiece's kind), as Gemma and the
/// first Llamas use it. Other kinds are an error that names them.
pub fn read_tokenizer(file: &Gguf) -> Result<Tokenizer> {
    const MODEL: &str = "tokenizer.ggml.model";
    const TOKENS: &str = "tokenizer.ggml.tokens";
    let kind = file.needed(MODEL, file.text(MODEL)?)?;
    let tokens = file.needed(TOKENS, file.texts(TOKENS)?)?;
    let mut tokenizer = match kind {
        "gpt2" => byte_level(file, &tokens),
        "llama" => scored(file, &tokens),
        other => {
            bail!("{}: tokenizers of the kind {other:?} are not supported", file.path().display())
        }
    }?;
    add_tokens(file, &mut tokenizer, tokens)?;
    Ok(tokenizer)
}

fn ids(tokens: &[String]) -> Vocab {
    tokens.iter().cloned().zip(0..).collect()
}

// ---- Byte-level BPE
// -------------------------------------------------------------------------------------------------

fn byte_level(file: &Gguf, tokens: &[String]) -> Result<Tokenizer> {
    const MERGES: &str = "tokenizer.ggml.merges";
    let pair = |merge: String| match merge.split_once(' ') {
        Some((a, b)) => Ok((a.to_string(), b.to_string())),
        None => Err(Error::msg(format!("{MERGES}: {merge:?} is not a pair"))),
    };
    let merges = file.needed(MERGES, file.texts(MERGES)?)?;
    let merges = merges.into_iter().map(pair).collect::<Result<Merges>>()?;
    let pre = file.text("tokenizer.ggml.pre")?.unwrap_or("gpt-2");
    let splits = splits(pre)?;
    let whole_words = matches!(pre, "llama-bpe" | "llama3"); // words that are tokens need no merges
    let bpe = BPE::builder().vocab_and_merges(ids(tokens), merges).ignore_merges(whole_words);
    let mut tokenizer = Tokenizer::new(bpe.build().map_err(Error::wrap)?);
    if pre == "qwen2" {
        tokenizer.with_normalizer(Some(NFC)).map_err(Error::wrap)?;
    }
    tokenizer.with_pre_tokenizer(Some(Sequence::new(splits)));
    tokenizer.with_decoder(Some(ByteLevel::default()));
    Ok(tokenizer)
}

/// Splits a text before it is merged. The patterns are those of the models' `tokenizer.json`.
fn splits(pre: &str) -> Result<Vec<PreTokenizerWrapper>> {
    let pattern = |digits: &str| {
        let pattern = format!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}{}",
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        );
        let pattern = SplitPattern::Regex(pattern);
        Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map_err(Error::wrap)
    };
    // GPT-2 has its own pattern; without one, bytes only become letters.
    let bytes = |own_pattern| ByteLevel::new(false, true, own_pattern).into();
    Ok(match pre {
        "gpt-2" => vec![bytes(true)],
        "smollm" => vec![Digits::new(true).into(), bytes(true)],
        "qwen2" => vec![pattern(r"\p{N}")?.into(), bytes(false)],
        "llama-bpe" | "llama3" => vec![pattern(r"\p{N}{1,3}")?.into(), bytes(false)],
        other => bail!("texts split as {other:?} (tokenizer.ggml.pre) are not supported"),
    })
}

// ---- BPE with scores
// -------------------------------------------------------------------------------------------------

fn scored(file: &Gguf, tokens: &[String]) -> Result<Tokenizer> {
    const SCORES: &str = "tokenizer.ggml.scores";
    let scores = file.needed(SCORES, file.reals(SCORES)?)?;
    if scores.len() != tokens.len() {
        bail!("{SCORES}: {} for {} tokens", scores.len(), tokens.len())
    }
    let unknown = file.count("tokenizer.ggml.unknown_token_id")?.unwrap_or(0);
    let Some(unknown) = tokens.get(unknown).cloned() else {
        bail!("the unknown token is number {unknown} of {}", tokens.len())
    };
    let bpe = BPE::builder()
        .vocab_and_merges(ids(tokens), merges_of_scores(tokens, &scores))
        .unk_token(unknown)
        .fuse_unk(true)
        .byte_fallback(true);
    let mut tokenizer = Tokenizer::new(bpe.build().map_err(Error::wrap)?);
    let space = |from: &str, to: &str| Replace::new(from, to).map_err(Error::wrap);
    let mut normalizers = vec![space(" ", "▁")?.into()];
    let mut decoders =
        vec![space("▁", " ")?.into(), ByteFallback::default().into(), Fuse::default().into()];
    if file.flag("tokenizer.ggml.add_space_prefix")?.unwrap_or(true) {
        normalizers.insert(0, Prepend::new("▁".to_string()).into());
        decoders.push(Strip::new(' ', 1, 0).into());
    }
    tokenizer.with_normalizer(Some(Normalizers::new(normalizers))).map_err(Error::wrap)?;
    tokenizer.with_decoder(Some(Decoders::new(decoders)));
    Ok(tokenizer)
}

/// SentencePiece merges the neighbours whose merged token has the best score. This lists all
/// merges: every way to make a token of two others, the best tokens first.
fn merges_of_scores(tokens: &[String], scores: &[f32]) -> Merges {
    let ids: HashMap<&str, usize> = tokens.iter().map(String::as_str).zip(0..).collect();
    let mut by_score: Vec<usize> = (0..tokens.len()).collect();
    by_score.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    let pairs = |&whole: &usize| {
        let whole = tokens[whole].as_str();
        let mut pairs: Vec<_> = whole
            .char_indices()
            .skip(1)
            .map(|(at, _)| whole.split_at(at))
            .filter_map(|(a, b)| Some((*ids.get(a)?, *ids.get(b)?)))
            .collect();
        pairs.sort_unstable();
        pairs.into_iter().map(|(a, b)| (tokens[a].clone(), tokens[b].clone())).collect::<Vec<_>>()
    };
    by_score.iter().flat_map(pairs).collect()
}

// ---- Special tokens
// -------------------------------------------------------------------------------------------------

/// Kinds of tokens in `tokenizer.ggml.token_type`.
const CONTROL: usize = 3;
const USER_DEFINED: usize = 4;

fn add_tokens(file: &Gguf, tokenizer: &mut Tokenizer, tokens: Vec<String>) -> Result<()> {
    let kinds = file.counts("tokenizer.ggml.token_type")?.unwrap_or_default();
    let of_kind = |wanted: usize| {
        let chosen = tokens.iter().zip(&kinds).filter(move |(_, &kind)| kind == wanted);
        chosen.map(move |(token, _)| {
            AddedToken::from(token.clone(), wanted == CONTROL).normalized(false)
        })
    };
    tokenizer.add_special_tokens(of_kind(CONTROL)).map_err(Error::wrap)?;
    tokenizer.add_tokens(of_kind(USER_DEFINED)).map_err(Error::wrap)?;
    Ok(())
}
