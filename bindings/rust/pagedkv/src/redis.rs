//! Redis or Valkey behind a cache's memory, with the feature `redis`.
use crate::error::{Error, Result, Status};
use crate::open_store::{milliseconds, seconds, OpenStore};
use crate::paths::path_of_c;
use crate::secret::Secret;
use crate::structs::{filled, setters};
use crate::sys::redis::{ensure, pkv_redis_config, Functions};
use std::ffi::{CStr, CString};
use std::os::raw::c_char;
use std::path::PathBuf;
use std::ptr::null;
use std::time::Duration;

/// A Redis or Valkey server, or a cluster of them, for
/// [`StoreConfig::redis`](crate::StoreConfig::redis). It is reached by libpagedkv-redis, which is
/// opened when a cache has one: the file that `PAGEDKV_REDIS_LIBRARY` names, else
/// `libpagedkv-redis.so.1`. Later failures only cost hits.
///
/// ```no_run
/// use pagedkv::{RedisConfig, StoreConfig};
/// use std::time::Duration;
///
/// let server = RedisConfig::new("redis://:password@127.0.0.1:6379");
/// let store = StoreConfig::redis(server.ttl(Duration::from_secs(86_400)));
/// ```
#[derive(Clone, Debug)]
pub struct RedisConfig {
    servers: Secret<String>,
    user: Option<String>,
    password: Option<Secret<String>>,
    key_prefix: Option<String>,
    ttl: Duration,
    connect_timeout: Duration,
    command_timeout: Duration,
    max_pipeline_bytes: u64,
    connect_later: bool,
    tls: Option<TlsConfig>,
}

/// TLS to Redis, and the trusted CAs, for [`RedisConfig::tls`]. The server's certificate must name
/// the server.
#[derive(Clone, Debug, Default)]
pub struct TlsConfig {
    ca_file: Option<PathBuf>,
    ca_directory: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
    server_name: Option<String>,
    insecure_no_verify: bool,
}

impl TlsConfig {
    /// Trusts the CAs of the system; certificates must name the host of each server.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// A PEM file of trusted CAs, instead of the system's.
        ca_file(path: impl Into<PathBuf>) = Some(path.into());
        /// A directory of trusted CAs, in files named by hash (`openssl rehash`).
        ca_directory(path: impl Into<PathBuf>) = Some(path.into());
        /// The client's certificate with its chain, and its key, both PEM, if the server wants one.
        identity(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) =
            Some((certificate.into(), key.into()));
        /// The name that the certificate must have. Default: the host of each server.
        server_name(name: impl Into<String>) = Some(name.into());
        /// Accepts any certificate. An attacker can then read and change all data and the password.
        insecure_no_verify() = true;
    }
}

/// A text for C, which is wiped when it is dropped, because it may be a password.
struct Text(CString);

impl Text {
    fn new(given: impl Into<Vec<u8>>) -> Result<Self> {
        CString::new(given)
            .map(Self)
            .map_err(|_| Error::misuse("the config of Redis has a text with a NUL in it"))
    }

    fn of(given: &Option<String>) -> Result<Option<Self>> {
        given.as_deref().map(Self::new).transpose()
    }

    fn of_path(given: Option<&PathBuf>) -> Result<Option<Self>> {
        given.map(|path| path_of_c(path, "a path in the config of Redis").map(Self)).transpose()
    }

    fn pointer(&self) -> *const c_char {
        self.0.as_ptr()
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        for byte in &mut std::mem::take(&mut self.0).into_bytes() {
            // Without "volatile" the compiler may remove the write, because nothing reads the
            // memory again.
            unsafe { std::ptr::write_volatile(byte, 0) };
        }
    }
}

impl RedisConfig {
    /// "host:port,host:port" or "redis://\[\[user\]:password@\]host:port\[/database\]", "rediss://"
    /// with TLS. Some servers of a cluster are enough.
    pub fn new(servers: impl Into<String>) -> Self {
        Self {
            servers: Secret(servers.into()),
            user: None,
            password: None,
            key_prefix: None,
            ttl: Duration::ZERO,
            connect_timeout: Duration::ZERO,
            command_timeout: Duration::ZERO,
            max_pipeline_bytes: 0,
            connect_later: false,
            tls: None,
        }
    }

    setters! {
        /// The user, instead of the URL's.
        user(user: impl Into<String>) = Some(user.into());
        /// The password, instead of the URL's.
        password(password: impl Into<String>) = Some(Secret(password.into()));
        /// The prefix of all keys, up to 64 bytes. Default: "pagedkv:".
        key_prefix(prefix: impl Into<String>) = Some(prefix.into());
        /// How long the server keeps an item, in whole seconds. Default: until it evicts the item.
        ttl(time: Duration) = time;
        /// Time to connect and authenticate. Default: 500 ms.
        connect_timeout(time: Duration) = time;
        /// Time for all answers to one pipeline of commands. Default: 1 s.
        command_timeout(time: Duration) = time;
        /// Bytes of keys and values in one pipeline. Default: 8 MiB.
        max_pipeline_bytes(bytes: u64) = bytes;
        /// No error if no server answers now: later calls connect.
        connect_later() = true;
        /// Uses TLS, even if `servers` is not a `rediss://` URL.
        tls(tls: TlsConfig) = Some(tls);
    }

    pub(crate) fn open(&self) -> Result<OpenStore> {
        let library = ensure().map_err(|message| Error::new(Status::IO, message))?;
        self.with_raw(|raw| {
            let mut store = filled(|_| Status::OK)?;
            checked(&library, unsafe { (library.open)(raw, &mut store) })?;
            Ok(OpenStore(store))
        })
    }

    /// Calls `use_it` with the config of C and all that it points to.
    fn with_raw<T>(&self, use_it: impl FnOnce(&pkv_redis_config) -> Result<T>) -> Result<T> {
        let (servers, user) = (Text::new(self.servers.0.as_str())?, Text::of(&self.user)?);
        let password =
            self.password.as_ref().map(|given| Text::new(given.0.as_str())).transpose()?;
        let key_prefix = Text::of(&self.key_prefix)?;
        let given = self.tls.clone().unwrap_or_default();
        let (ca_file, ca_directory) =
            (Text::of_path(given.ca_file.as_ref())?, Text::of_path(given.ca_directory.as_ref())?);
        let certificate =
            Text::of_path(given.identity.as_ref().map(|(certificate, _)| certificate))?;
        let key = Text::of_path(given.identity.as_ref().map(|(_, key)| key))?;
        let server_name = Text::of(&given.server_name)?;
        let pointer = |text: &Option<Text>| text.as_ref().map_or(null(), Text::pointer);
        use_it(&pkv_redis_config {
            ttl_seconds: seconds(self.ttl),
            servers: servers.pointer(),
            user: pointer(&user),
            password: pointer(&password),
            key_prefix: pointer(&key_prefix),
            max_pipeline_bytes: self.max_pipeline_bytes,
            connect_timeout_ms: milliseconds(self.connect_timeout),
            command_timeout_ms: milliseconds(self.command_timeout),
            connect_later: self.connect_later.into(),
            tls: self.tls.is_some().into(),
            tls_ca_file: pointer(&ca_file),
            tls_ca_directory: pointer(&ca_directory),
            tls_certificate_file: pointer(&certificate),
            tls_key_file: pointer(&key),
            tls_server_name: pointer(&server_name),
            tls_insecure_no_verify: given.insecure_no_verify.into(),
            ..Default::default()
        })
    }
}

/// The plugin has its own error sentences.
fn checked(library: &Functions, status: Status) -> Result<()> {
    if status == Status::OK {
        return Ok(());
    }
    let sentence = unsafe { CStr::from_ptr((library.last_error)()) };
    Err(Error::new(status, sentence.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_arrives() {
        let config = RedisConfig::new("host:1")
            .user("me")
            .password("word")
            .key_prefix("p:")
            .ttl(Duration::from_secs(3));
        let config = config
            .connect_timeout(Duration::from_millis(4))
            .command_timeout(Duration::from_millis(5));
        let config = config.max_pipeline_bytes(6).connect_later();
        let tls = TlsConfig::new()
            .ca_file("ca")
            .ca_directory("cas")
            .identity("mine", "key")
            .server_name("name");
        let config = config.tls(tls.insecure_no_verify());
        let check = |raw: &pkv_redis_config| {
            // Without `..`, so that a new field must be handled here.
            let pkv_redis_config {
                struct_size,
                connect_timeout_ms,
                command_timeout_ms,
                ttl_seconds,
                servers,
                user,
                password,
                key_prefix,
                max_pipeline_bytes,
                connect_later,
                tls,
                tls_ca_file,
                tls_ca_directory,
                tls_certificate_file,
                tls_key_file,
                tls_server_name,
                tls_insecure_no_verify,
                reserved,
            } = *raw;
            let text = |address| unsafe { CStr::from_ptr(address) }.to_str().unwrap();
            assert_eq!(
                [servers, user, password, key_prefix].map(text),
                ["host:1", "me", "word", "p:"]
            );
            assert_eq!(
                (
                    connect_timeout_ms,
                    command_timeout_ms,
                    ttl_seconds,
                    max_pipeline_bytes,
                    connect_later
                ),
                (4, 5, 3, 6, 1)
            );
            let files = [
                tls_ca_file,
                tls_ca_directory,
                tls_certificate_file,
                tls_key_file,
                tls_server_name,
            ];
            assert_eq!(files.map(text), ["ca", "cas", "mine", "key", "name"]);
            assert_eq!((tls, tls_insecure_no_verify), (1, 1));
            assert_eq!((struct_size as usize, reserved), (std::mem::size_of_val(raw), 0));
            Ok(())
        };
        config.with_raw(check).unwrap();
    }
}
