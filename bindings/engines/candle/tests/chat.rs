//! The program pagedkv-chat, with a small random model.
mod tiny;

use candle_core::quantized::gguf_file::Value;
use candle_core::quantized::GgmlDType;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// What the program wrote to its two outputs, and whether it succeeded.
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

/// Checks that the program ends with one sentence that contains these words.
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
    assert!(out.contains("[no answer: that would be "), "{out}");
    refused(&["--context", "32", &model, QUESTION], "the context has 32");
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
    // The process's memory is not shown, because both kinds use it.
    assert!(figures[0]["process_bytes"].is_null() && figures[0]["kv_bytes"].is_u64());
    for run in [&figures[0], &figures[1]] {
        let first = run["first_seconds"].as_array().unwrap();
        assert!(first.iter().all(|time| time.as_f64() <= run["seconds"].as_f64()), "{figures}");
    }
    let ids = folder.file("ids");
    std::fs::write(&ids, "1 2 3\n4 5 6 7\n").unwrap();
    let ids = ids.to_str().unwrap();
    let out = answer(&["--prompts", ids, "--ids", "--ignore-end", "--json", json, &model, "5"], "");
    assert!(out.contains("tokens of answers                           10"), "{out}");
    for dtype in ["f16", "bf16", "int8", "int4", "fp8"] {
        answer(&["--sessions", "2", "--kv-dtype", dtype, &model, "4"], "");
    }
}

/// A tokenizer of bytes, so an answer can end within a character.
#[test]
fn an_answer_has_all_of_its_text() {
    let folder = tiny::Folder::new("chat-text");
    let model = model(&folder);
    let mut cut = 0;
    for length in 1..=12 {
        let length = length.to_string();
        let alone = answer(&["--quiet", &model, &length, QUESTION], "");
        let session = answer(&["--quiet", "--sessions", "1", &model, &length, QUESTION], "");
        let text = session.split_once('\n').unwrap().1;
        assert_eq!(alone.trim(), text.trim(), "{length} tokens");
        cut += usize::from(alone.trim().ends_with('\u{fffd}'));
    }
    assert!(cut > 0);
}

/// The second of three prompts has a letter after which all logits are NaN.
#[test]
fn a_session_that_fails_stops_no_other() {
    let folder = tiny::Folder::new("chat-fault");
    let (path, prompts) = (folder.file("poisoned.gguf"), folder.file("prompts"));
    tiny::write_poisoned(&path, tiny::token_of("Z"));
    let (model, json) = (path.to_str().unwrap(), folder.file("out.json"));
    std::fs::write(&prompts, format!("{QUESTION}\nZ\nAnd the third?\n")).unwrap();
    let (prompts, json) = (prompts.to_str().unwrap(), json.to_str().unwrap());
    for kv in ["paged", "basic", "both"] {
        let flags = ["--prompts", prompts, "--kv", kv, "--json", json, model, "24"];
        let (out, error, succeeded) = run(&flags, "");
        assert!(!succeeded && error.contains("session 2: ") && error.contains("NaN"), "{error}");
        let sessions: Vec<_> = out.split("--- session ").collect();
        assert!(sessions[2].contains("[failed: ") && sessions.len() == 4, "{out}");
        for (session, question) in [(1, QUESTION), (3, "And the third?")] {
            let alone = answer(&["--quiet", model, "24", question], "");
            assert!(sessions[session].contains(alone.trim()), "{out}");
        }
        let text = std::fs::read_to_string(json).unwrap();
        let figures: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(figures[0]["failed"], serde_json::json!([1]));
    }
    let talk = format!("{QUESTION}\nZ\nAnd the third?\n");
    let out = answer(&["--quiet", model, "24"], &talk);
    let (reason, rest): (Vec<_>, Vec<_>) =
        out.lines().partition(|line| line.starts_with("[no answer: "));
    assert!(reason.len() == 1 && reason[0].contains("NaN"), "{out}");
    let without = answer(&["--quiet", model, "24"], &talk.replace("Z\n", ""));
    // A failed answer ends its line, too.
    assert_eq!(rest.join("\n").replace("\n\n", "\n"), without.trim_end().replace("\n\n", "\n"));
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
    refused(&["--kv", "both", &model], "Usage: pagedkv-chat");
    refused(&["--kv-dtype", "f16", "--kv", "basic", &model], "--kv paged");
    refused(&[&model, "many", "words"], "not a number of tokens");
    refused(&[&model, "0", "words"], "0 tokens");
    refused(&[&model, "99999999999999999999"], "not a number of tokens");
    refused(&["--sessions", "1", "--json", "/nonexistent/json", &model], "/nonexistent/json");
    refused(&["--sessions", "0", &model], "0");
    for (flag, words) in [
        ("--temperature=-1", "-1"),
        ("--temperature=nan", "NaN"),
        ("--temperature=inf", "inf"),
        ("--top-p=1.5", "1.5"),
        ("--top-p=0", "a top-p of 0"),
        ("--top-p=nan", "NaN"),
        ("--seed=-1", "-1"),
        ("--seed=18446744073709551616", "18446744073709551616"),
    ] {
        refused(&[flag, &model], words);
    }
    for temperature in ["1e-45", "3e38"] {
        answer(&["--temperature", temperature, "--seed", "18446744073709551615", &model, "4"], "");
    }
    refused(&["--prompts", "/nonexistent", &model], "/nonexistent");
    let ids = folder.file("ids");
    std::fs::write(&ids, "1 2\n3 99999\n").unwrap();
    let ids = ids.to_str().unwrap();
    refused(&["--prompts", ids, "--ids", &model, "4"], "session 2: token 99999 of a prompt");
    let many = usize::MAX.to_string();
    refused(&["--sessions", "2", &model, &many], "an answer of 18446744073709551615");
    answer(&["--context", "64", &model, &many, ""], "");
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
    for (key, value, words) in [
        ("block_count", 0, "llama.block_count is 0"),
        ("block_count", u64::MAX, "has 18446744073709551615 layers and no tensor blk.1844"),
        ("context_length", 0, "llama.context_length is 0"),
        ("embedding_length", 0, "llama.embedding_length is 0"),
        ("attention.head_count", 0, "llama.attention.head_count is 0"),
        ("attention.key_length", 0, "the head dim is 0"),
        ("attention.key_length", 17, "the head dim is 17"),
    ] {
        tiny::write_with(Path::new(other), &format!("llama.{key}"), Value::U64(value));
        refused(&[other, "hello"], words);
    }
    tiny::write_with(Path::new(other), "tokenizer.ggml.eos_token_id", Value::U64(1 << 32));
    refused(&[other, "hello"], "tokenizer.ggml.eos_token_id: 4294967296 has over 32 bits");
    tiny::write_with(Path::new(other), "llama.context_length", Value::U64(1 << 32));
    answer(&[other, "4", "hello"], "");
    let bytes = std::fs::read(&model).unwrap();
    for length in [4, 100, 20_000, bytes.len() - 1000] {
        std::fs::write(other, &bytes[..length]).unwrap();
        refused(&[other, "hello"], "other.gguf");
    }
}
