//! Stores in a real server, which listens on a loopback port and ends with the test.
#![cfg(feature = "redis")]
use pagedkv::{
    Cache, CacheConfig, Hint, HintAction, LayerGroup, PrefixConfig, RedisConfig, Salt, Status,
    StoreConfig, TlsConfig,
};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const TEXT: [i32; 40] = [7; 40];
const LONG: Duration = Duration::from_secs(20);

fn have_plugin() -> bool {
    let named = std::env::var_os("PAGEDKV_REDIS_LIBRARY").is_some();
    if !named {
        eprintln!("SKIPPED: PAGEDKV_REDIS_LIBRARY names no libpagedkv-redis");
    }
    named
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

struct Server(Child, u16);

impl Server {
    /// Starts a server with a password; `None` if no server is installed.
    fn start() -> Option<Self> {
        let port = free_port();
        let directory = std::env::temp_dir();
        let arguments = [
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--requirepass",
            "secret",
            "--dir",
            directory.to_str()?,
            "--port",
        ];
        let start = |program| {
            Command::new(program)
                .args(arguments)
                .arg(port.to_string())
                .stdout(Stdio::null())
                .spawn()
                .ok()
        };
        let started = start("redis-server").or_else(|| start("valkey-server"));
        if started.is_none() {
            eprintln!(
                "SKIPPED: redis-server and valkey-server are missing: bash tests/install-deps test"
            );
        }
        let server = Self(started?, port);
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begin.elapsed() < LONG, "the server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn with(redis: RedisConfig) -> pagedkv::Result<Cache> {
    let config = CacheConfig::new(LayerGroup::new(1, 2, 1, 16).blocks(8));
    Cache::new(&config.prefix(PrefixConfig::new()).store(StoreConfig::redis(redis)))
}

#[test]
fn a_text_comes_back_from_a_server() {
    if !have_plugin() {
        return;
    }
    let server = match Server::start() {
        Some(server) => server,
        None => return,
    };
    let address = format!("127.0.0.1:{}", server.1);
    let first =
        with(RedisConfig::new(format!("redis://:secret@{address}")).ttl(Duration::from_secs(3600)))
            .unwrap();
    let mut session = first.open_session().unwrap();
    let mut batch = first.begin([(&mut session, 40)]).unwrap();
    batch.write(0, &[0.5; 40 * 16], &[0.5; 40 * 16]).unwrap();
    batch.commit(&TEXT).unwrap();
    drop((session, first)); // waits until all is written

    let other = RedisConfig::new(&address)
        .user("default")
        .password("secret")
        .connect_timeout(LONG)
        .command_timeout(LONG);
    let other = other.max_pipeline_bytes(1 << 20).connect_later();
    assert!(!format!("{other:?}").contains("secret"));
    for (prefix, expected) in [("pagedkv:", 32), ("other:", 0)] {
        let second = with(other.clone().key_prefix(prefix)).unwrap();
        second.hint(Salt::None, &TEXT, Hint::new(HintAction::PREFETCH)).unwrap();
        assert_eq!(
            second.wait_for_prefetch(Salt::None, &TEXT, LONG).unwrap(),
            expected,
            "{prefix}"
        );
    }
    let refused = with(RedisConfig::new(&address).password("wrong")).unwrap_err();
    assert!(refused.status() == Status::IO && refused.message().contains("WRONGPASS"), "{refused}");
}

#[test]
fn what_cannot_be_is_a_sentence_of_the_plugin() {
    if !have_plugin() {
        return;
    }
    let nobody = format!("127.0.0.1:{}", free_port());
    let refused = with(RedisConfig::new(&nobody)).unwrap_err();
    assert!(refused.status() == Status::IO && refused.message().contains(&nobody), "{refused}");
    with(RedisConfig::new(&nobody).connect_later()).unwrap();
    let addressed = || RedisConfig::new(&nobody);
    let tls = TlsConfig::new;
    let of_tls = [
        tls().server_name("a b"),
        tls().server_name("a\0b"),
        tls().ca_file("a\0b"),
        tls().ca_file(""),
        tls().ca_file("a").insecure_no_verify(),
    ];
    let others =
        [RedisConfig::new("a\0b"), addressed().max_pipeline_bytes(1), addressed().user("nobody")];
    for bad in of_tls.map(|tls| addressed().tls(tls)).into_iter().chain(others) {
        let refused = with(bad).unwrap_err();
        assert_eq!(refused.status(), Status::INVALID_ARGUMENT, "{refused}");
    }
}
