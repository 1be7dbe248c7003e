//! No config shows a key or a password.
use pagedkv::*;
use std::fmt::Debug;

const MARK: &str = "NOBODY-SEES-THIS";

/// A setter of a config that takes a text, bytes or a path, and the output of a config whose value
/// was set to the mark by it.
struct Shown {
    setter: &'static str,
    secret: bool,
    text: String,
}

/// Prints a config in every way, without spaces.
fn shown(config: impl Debug) -> String {
    let mut text = format!("{config:?} {config:#?} {config:x?} {config:#X?} {:?}", Some([&config]));
    text.retain(|letter| !letter.is_whitespace());
    text
}

fn secret(setter: &'static str, config: impl Debug) -> Shown {
    Shown { setter, secret: true, text: shown(config) }
}

fn public(setter: &'static str, config: impl Debug) -> Shown {
    Shown { setter, secret: false, text: shown(config) }
}

fn all_shown() -> Vec<Shown> {
    let store = || StoreConfig::directory("/d");
    let file = FileConfig::new;
    let cache = || CacheConfig::new(LayerGroup::new(1, 2, 1, 16));
    let mut all = vec![
        secret("store.rs secret_key", cache().store(store().secret_key(MARK))),
        public("store.rs fingerprint", store().fingerprint(MARK)),
        public("store.rs directory", StoreConfig::directory(MARK)),
        secret("file.rs secret_key", file().secret_key(MARK.as_bytes())),
        public("file.rs fingerprint", file().fingerprint(MARK.as_bytes())),
        public("config.rs memory_directory", cache().memory_directory(MARK)),
        public("session.rs salt", SessionConfig::new().salt(MARK)),
    ];
    all.extend(shown_of_redis());
    all
}

#[cfg(not(feature = "redis"))]
fn shown_of_redis() -> Vec<Shown> {
    Vec::new()
}

#[cfg(feature = "redis")]
fn shown_of_redis() -> Vec<Shown> {
    let redis = || RedisConfig::new("host:1");
    let tls = || TlsConfig::new();
    vec![
        secret("redis.rs new", StoreConfig::redis(RedisConfig::new(MARK))),
        public("redis.rs user", redis().user(MARK)),
        secret("redis.rs password", StoreConfig::redis(redis().password(MARK))),
        public("redis.rs key_prefix", redis().key_prefix(MARK)),
        public("redis.rs ca_file", tls().ca_file(MARK)),
        public("redis.rs ca_directory", tls().ca_directory(MARK)),
        public("redis.rs identity", tls().identity(MARK, MARK)),
        public("redis.rs server_name", tls().server_name(MARK)),
    ]
}

#[test]
fn no_config_shows_a_secret() {
    let bytes = MARK.as_bytes();
    let mut forms = vec![MARK.to_string()];
    for list in [shown(bytes), format!("{bytes:x?}"), format!("{bytes:#X?}")] {
        let numbers = list.replace([' ', '\n'].as_slice(), "");
        forms.push(numbers[1..20].to_string());
    }
    for Shown { setter, secret, text } in all_shown() {
        let found = forms.iter().any(|form| text.contains(form));
        assert_eq!(found, !secret, "{setter}: {text}");
    }
}

/// A new setter fails here until it is listed above, as secret or as public.
#[test]
fn every_setter_is_looked_at() {
    let known: Vec<_> = all_shown().iter().map(|shown| shown.setter).collect();
    let mut found = 0;
    for file in
        ["compute.rs", "config.rs", "file.rs", "pool.rs", "redis.rs", "session.rs", "store.rs"]
    {
        if file == "redis.rs" && !cfg!(feature = "redis") {
            continue;
        }
        let path = format!("{}/src/{file}", env!("CARGO_MANIFEST_DIR"));
        let mut in_setters = false;
        for line in std::fs::read_to_string(path).unwrap().lines().map(str::trim) {
            let kinds = ["String", "str", "u8", "Path", "OsStr"];
            in_setters = line == "setters! {" || in_setters && line != "}";
            let line = match line.strip_prefix("pub fn ") {
                Some(line) if line.contains("-> Self") && !line.contains("Fn(") => line,
                None if in_setters && line.contains(") =") => line,
                _ => continue,
            };
            let words: Vec<_> = line.split(|letter: char| !letter.is_alphanumeric()).collect();
            if words.iter().any(|word| kinds.contains(word) || word.ends_with("Path")) {
                let name = line.split(['(', '<'].as_slice()).next().unwrap();
                let setter = format!("{file} {name}");
                found += 1;
                assert!(known.contains(&setter.as_str()), "{setter}: is it secret?");
            }
        }
    }
    assert!(found >= 6, "{found} setters were found");
}
