//! The tokens and rows of a text, as bindings/scenarios/README.md defines them.
use serde_json::Value;

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

#[derive(Clone, Copy)]
pub enum Kind {
    Key = 0,
    Value = 1,
    Query = 2,
}

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// The tokens of spans [seed, first, count].
pub fn tokens(spans: &Value) -> Vec<i32> {
    let mut tokens = Vec::new();
    for span in spans.as_array().expect("spans") {
        let [seed, first, count] = [0, 1, 2].map(|i| span[i].as_u64().expect("a span"));
        tokens.extend((first..first + count).map(|i| (mix((seed << 32) + i) % (1 << 20)) as i32));
    }
    tokens
}

/// The history of each position of a text.
pub fn histories(text: &[i32]) -> Vec<u64> {
    let mut history = 0u64;
    let next = |&token: &i32| {
        history = mix(history.wrapping_add(GOLDEN.wrapping_mul(token as u64 + 1)));
        history
    };
    text.iter().map(next).collect()
}

/// Rows [positions][heads][dim] of a text from position `first` to `end`.
pub fn rows(
    text: &[i32],
    first: usize,
    end: usize,
    kind: Kind,
    layer: u64,
    heads: u64,
    dim: u64,
) -> Vec<f32> {
    let mut found = Vec::new();
    for history in &histories(&text[..end])[first..] {
        for index in 0..heads * dim {
            let element = ((layer * 4 + kind as u64) * 64 + index / dim) * 1024 + index % dim;
            let bits = mix(history.wrapping_add(GOLDEN.wrapping_mul(1 + element))) >> 40;
            let value = (bits as f64 / (1 << 23) as f64 - 1.0) as f32;
            found.push(if matches!(kind, Kind::Query) { 4.0 * value } else { value });
        }
    }
    found
}
