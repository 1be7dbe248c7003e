//! Redis or Valkey behind a cache's memory, with the feature `redis`.
use crate::error::{Error, Result, Status};
use crate::open_store::{milliseconds, seconds, OpenStore};
use crate::secret::Secret;
use crate::structs::{filled, setters};
use crate::sys::redis::{ensure, pkv_redis_config, Functions};
use std::ffi::{CStr, CString};
use std::os::raw::c_char;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr::null;
use std::time::Duration;

/// A Redis or Valkey server, or a cluster of them, for
/// [`StoreConfig::redis`](crate::StoreConfig::redis). It is reached by libpagedkv-redis, which is
/// opened when a cache has one: the file that `PAGEDKV_REDIS_LIBRARY` names, else
/// `libpagedkv-redis.so.0`. What goes wrong later costs hits.
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
    pipeline_bytes: u64,
    connect_later: bool,
    tls: Option<TlsConfig>,
}

/// TLS to Redis, and whom to believe, for [`RedisConfig::tls`]. The server's certificate has to
/// name the server.
#[derive(Clone, Debug, Default)]
pub struct TlsConfig {
    ca_file: Option<PathBuf>,
    ca_directory: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
    server_name: Option<String>,
    insecure_no_verify: bool,
}

impl TlsConfig {
    /// The CAs of the system are believed, and what names the host of each server.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// CAs to believe in the place of the system's, PEM.
        ca_file(path: impl Into<PathBuf>) = Some(path.into());
        /// The same in files that are named by hash (`openssl rehash`).
        ca_directory(path: impl Into<PathBuf>) = Some(path.into());
        /// For a server that asks for a certificate: one with its chain, and its key, both PEM.
        identity(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) =
            Some((certificate.into(), key.into()));
        /// What the certificate has to name. Default: the host of each server.
        server_name(name: impl Into<String>) = Some(name.into());
        /// Believes anybody, who can then read and change all of it, and has the password.
        insecure_no_verify() = true;
    }
}

/// A text for C, which is wiped when it is no longer needed: it may be a password.
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
        given.map(|path| Self::new(path.as_os_str().as_bytes())).transpose()
    }

    fn pointer(&self) -> *const c_char {
        self.0.as_ptr()
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        for byte in &mut std::mem::take(&mut self.0).into_bytes() {
            // Without "volatile" it may be left out, since nothing reads it again.
            unsafe { std::ptr::write_volatile(byte, 0) };
        }
    }
}

impl RedisConfig {
    /// "host:port,host:port" or "redis://\[\[user\]:password@\]host:port\[/database\]", "rediss://"
    /// with TLS; of a cluster some servers are enough.
    pub fn new(servers: impl Into<String>) -> Self {
        Self {
            servers: Secret(servers.into()),
            user: None,
            password: None,
            key_prefix: None,
            ttl: Duration::ZERO,
            connect_timeout: Duration::ZERO,
            command_timeout: Duration::ZERO,
            pipeline_bytes: 0,
            connect_later: false,
            tls: None,
        }
    }

    setters! {
        /// In the place of the URL's.
        user(user: impl Into<String>) = Some(user.into());
        /// In the place of the URL's.
        password(password: impl Into<String>) = Some(Secret(password.into()));
        /// Up to 64 bytes. Default: "pagedkv:".
        key_prefix(prefix: impl Into<String>) = Some(prefix.into());
        /// How long an item is kept after it was put, in whole seconds. Default: until the server
        /// evicts it.
        ttl(time: Duration) = time;
        /// To connect and authenticate. Default: 500 ms.
        connect_timeout(time: Duration) = time;
        /// For what is sent at once, until all its answers are there. Default: 1 s.
        command_timeout(time: Duration) = time;
        /// Keys and values sent or asked for at once. Default: 8 MiB.
        pipeline_bytes(bytes: u64) = bytes;
        /// No error without a server: calls look for it.
        connect_later() = true;
        /// TLS, whether `servers` is a `rediss://` URL or not.
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

    /// Hands the config of C, with all that it points to, to `use_it`.
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
            pipeline_bytes: self.pipeline_bytes,
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

/// The sentences of the plugin are its own.
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
        let config = config.pipeline_bytes(6).connect_later();
        let tls = TlsConfig::new()
            .ca_file("ca")
            .ca_directory("cas")
            .identity("mine", "key")
            .server_name("name");
        let config = config.tls(tls.insecure_no_verify());
        let check = |raw: &pkv_redis_config| {
            // Without `..`, so that a new field has to be looked at here.
            let pkv_redis_config {
                struct_size,
                connect_timeout_ms,
                command_timeout_ms,
                ttl_seconds,
                servers,
                user,
                password,
                key_prefix,
                pipeline_bytes,
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
                    pipeline_bytes,
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
