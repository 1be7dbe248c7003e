//! A tokenizer in the llama2.c layout: the longest token's length, then per token a score (fp32), a
//! length (int32) and its bytes.
use std::collections::HashMap;

pub const BEGIN: i32 = 1;
pub const END: i32 = 2;

pub struct Tokenizer {
    pieces: Vec<(f32, Vec<u8>)>,
    ids: HashMap<Vec<u8>, i32>,
}

impl Tokenizer {
    pub fn new(mut bytes: &[u8], vocabulary: usize) -> Result<Self, String> {
        let mut take = |n: usize| -> Result<&[u8], String> {
            if n > bytes.len() {
                return Err("the tokenizer is cut short".into());
            }
            let (taken, rest) = bytes.split_at(n);
            bytes = rest;
            Ok(taken)
        };
        take(4)?;
        let mut pieces = Vec::new();
        for _ in 0..vocabulary {
            let head = take(8)?;
            let score = f32::from_le_bytes([head[0], head[1], head[2], head[3]]);
            let length = i32::from_le_bytes([head[4], head[5], head[6], head[7]]);
            let length = usize::try_from(length)
                .map_err(|_| format!("the tokenizer has a token of length {length}"))?;
            pieces.push((score, take(length)?.to_vec()));
        }
        // Of pieces that are spelled alike the first one counts.
        let ids = pieces
            .iter()
            .enumerate()
            .rev()
            .map(|(id, (_, spelling))| (spelling.clone(), id as i32))
            .collect();
        Ok(Self { pieces, ids })
    }

    fn find(&self, spelling: &[u8]) -> Option<i32> {
        self.ids.get(spelling).copied()
    }

    /// A token per character, or per byte where the vocabulary has no such character; then the
    /// neighbours whose union has the best score are joined until none is left (byte-pair
    /// encoding).
    pub fn encode(&self, text: &str) -> Result<Vec<i32>, String> {
        let mut tokens = Vec::new();
        if !text.is_empty() {
            tokens.extend(self.find(b" ")); // as SentencePiece vocabularies begin a text
        }
        for character in text.chars() {
            let spelling = character.to_string().into_bytes();
            if let Some(id) = self.find(&spelling) {
                tokens.push(id);
                continue;
            }
            for byte in spelling {
                let name = format!("<0x{byte:02X}>");
                tokens.push(
                    self.find(name.as_bytes())
                        .ok_or(format!("the tokenizer has no token {name}"))?,
                );
            }
        }
        while let Some((place, id)) = self.best_union(&tokens) {
            tokens.splice(place..place + 2, [id]);
        }
        tokens.insert(0, BEGIN);
        Ok(tokens)
    }

    fn best_union(&self, tokens: &[i32]) -> Option<(usize, i32)> {
        let union = |(place, pair): (usize, &[i32])| {
            let spelling =
                [&self.pieces[pair[0] as usize].1[..], &self.pieces[pair[1] as usize].1].concat();
            self.find(&spelling).map(|id| (place, id))
        };
        let score = |id: i32| self.pieces[id as usize].0;
        tokens.windows(2).enumerate().filter_map(union).reduce(|best, next| {
            if score(next.1) > score(best.1) {
                next
            } else {
                best
            }
        })
    }

    /// The bytes that a token adds to a text after the token `previous`.
    pub fn decode(&self, previous: i32, token: i32) -> Vec<u8> {
        let piece = &self.pieces[token as usize].1;
        if token == BEGIN || token == END {
            return Vec::new();
        }
        if let [b'<', b'0', b'x', high, low, b'>'] = piece[..] {
            let digits = [high, low].map(char::from).iter().collect::<String>();
            if let Ok(byte) = u8::from_str_radix(&digits, 16) {
                return vec![byte];
            }
        }
        match piece.split_first() {
            Some((b' ', rest)) if previous == BEGIN => rest.to_vec(),
            _ => piece.clone(),
        }
    }
}
