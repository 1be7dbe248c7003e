//! The program pagedkv-chat, with a small random model.
mod tiny;

use candle_core::quantized::gguf_file::Value;
use candle_core::quantized::GgmlDType;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// What the program wrote to its two outputs, and whether it was content.
fn run(arguments: &[&str], input: &str) -> (String, String, bool) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_pagedkv-chat"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _ = program.stdin.take().unwrap().write_all(input.as_bytes());
    let output = program.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.success())
}

fn answer(arguments: &[&str], input: &str) -> String {
    let (out, error, succeeded) = run(arguments, input);
    assert!(succeeded, "{arguments:?}: {error}");
    out
}

/// Checks that the program ends with one sentence that has these words.
fn refused(arguments: &[&str], words: &str) {
    let (out, error, succeeded) = run(arguments, "");
    assert!(!succeeded && error.contains(words) && out.is_empty(), "{arguments:?}: {error}{out}");
    assert!(!error.contains("panicked"), "{error}");
}

fn model(folder: &tiny::Folder) -> String {
    let path = folder.file("llama.gguf");
    tiny::write(&path, "llama", GgmlDType::F32);
    path.to_str().unwrap().to_string()
}

const QUESTION: &str = "What is the difference between the one and the other?";

#[test]
fn both_kinds_of_memory_give_the_same_text() {
    let folder = tiny::Folder::new("chat-same");
    let model = model(&folder);
    let text = |kv: &[&str]| answer(&[kv, &["--quiet", &model, "40", QUESTION]].concat(), "");
    let paged = text(&[]);
    assert!(paged.len() > 20, "{paged}");
    assert_eq!(text(&["--kv", "basic"]), paged);
    assert_eq!(text(&["--kv", "basic", "--threads", "1"]), paged);
    assert_eq!(text(&["--temperature", "0"]), paged);
    let chance = text(&["--temperature", "1.5", "--seed", "3"]);
    assert_ne!(chance, paged);
    assert_eq!(text(&["--temperature", "1.5", "--seed", "3", "--kv", "basic"]), chance);
    let figures = answer(&[&model, "40", QUESTION], "");
    assert!(figures.contains("[ttft ") && figures.contains(" tok/s: "), "{figures}");
}

#[test]
fn a_conversation_keeps_what_was_said() {
    let folder = tiny::Folder::new("chat-talk");
    let model = model(&folder);
    let talk = format!("{QUESTION}\n\nAnd the third?\n/what\n/reset\n{QUESTION}\n/quit\nNo more\n");
    let out = answer(&[&model, "24"], &talk);
    let cached: Vec<_> =
        out.lines().filter_map(|line| line.strip_suffix(" of them cached]")).collect();
    assert_eq!(cached.len(), 3, "{out}");
    let cached: Vec<u32> =
        cached.iter().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
    assert!(cached[0] == 0 && cached[1] > 60, "{cached:?}");
    assert!(out.contains("[commands: "), "{out}");
    let basic = answer(&["--quiet", "--kv", "basic", &model, "24"], &talk);
    assert_eq!(answer(&["--quiet", &model, "24"], &talk), basic);
    let (out, ..) = run(&["--context", "32", &model], &format!("{QUESTION}\n"));
    assert!(out.contains("[not sent: "), "{out}");
}

#[test]
fn many_sessions_answer_at_once() {
    let folder = tiny::Folder::new("chat-many");
    let (model, json) = (model(&folder), folder.file("out.json"));
    let json = json.to_str().unwrap();
    let out = answer(&["--sessions", "20", "--kv", "both", "--json", json, &model, "24"], "");
    assert!(out.contains("--- session 20") && out.contains("time to first token"), "{out}");
    assert!(out.contains("The texts of all sessions are the same."), "{out}");
    let figures: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(figures[0]["answers"], figures[1]["answers"]);
    assert_eq!(figures[1]["answers"].as_array().unwrap().len(), 20);
    let ids = folder.file("ids");
    std::fs::write(&ids, "1 2 3\n4 5 6 7\n").unwrap();
    let ids = ids.to_str().unwrap();
    let out = answer(&["--prompts", ids, "--ids", "--ignore-end", "--json", json, &model, "5"], "");
    assert!(out.contains("tokens of answers                           10"), "{out}");
    for dtype in ["f16", "bf16", "int8", "int4", "fp8"] {
        answer(&["--sessions", "2", "--kv-dtype", dtype, &model, "4"], "");
    }
}

#[test]
fn a_directory_keeps_prompts_for_the_next_run() {
    let folder = tiny::Folder::new("chat-store");
    let (model, store) = (model(&folder), folder.file("store"));
    let ask = || answer(&["--prefix-store", store.to_str().unwrap(), &model, "24", QUESTION], "");
    let (first, second) = (ask(), ask());
    assert!(first.contains(" 0 of them cached]"), "{first}");
    assert!(second.contains(" 48 of them cached]"), "{second}");
    assert_eq!(first.split("\n[").next(), second.split("\n[").next());
}

#[test]
fn what_is_wrong_is_said() {
    let folder = tiny::Folder::new("chat-wrong");
    let model = model(&folder);
    refused(&["/nonexistent.gguf"], "No such file");
    refused(&[concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")], "is not a GGUF file");
    refused(&["--kv-dtype", "f31", &model], "f31");
    refused(&["--kv-dtype", "f16", "--kv", "basic", &model], "--kv paged");
    refused(&[&model, "many", "words"], "no number of tokens");
    refused(&[&model, "0", "words"], "0 tokens");
    refused(&["--sessions", "0", &model], "0");
    refused(&["--temperature", "-1", &model], "-1");
    refused(&["--top-p", "1.5", &model], "1.5");
    refused(&["--prompts", "/nonexistent", &model], "/nonexistent");
    let plugin = std::env::var_os("PAGEDKV_REDIS_LIBRARY");
    let words = if plugin.is_some() { "127.0.0.1:1" } else { "libpagedkv-redis" };
    refused(&["--prefix-store", "redis://127.0.0.1:1", &model, "hello"], words);
    let path = folder.file("other.gguf");
    let other = path.to_str().unwrap();
    let family = |name: &str| ("general.architecture".to_string(), Value::String(name.into()));
    tiny::write_parts(Path::new(other), &[family("mamba")], &[]);
    refused(&[other], "\"mamba\"; supported are llama, qwen2, qwen3, gemma3");
    tiny::write_parts(Path::new(other), &[family("llama")], &[]);
    refused(&[other], "has no llama.block_count");
    let bytes = std::fs::read(&model).unwrap();
    for length in [4, 100, 20_000, bytes.len() - 1000] {
        std::fs::write(other, &bytes[..length]).unwrap();
        refused(&[other, "hello"], "other.gguf");
    }
}
