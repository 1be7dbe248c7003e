//! The store behind a cache's memory: see [`StoreConfig`].
use crate::error::Result;
use crate::open_store::{milliseconds, OpenStore};
use crate::paths::path_of_c;
use crate::secret::Secret;
use crate::structs::{bytes, durability, filled, setters};
use crate::sys;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A directory that stores blocks of the prefix index, and returns them when a later text begins
/// with the same tokens: after the blocks were evicted, after a restart, or in another process.
/// Caches of the same model, salt and fingerprint share it.
///
/// ```
/// use pagedkv::{
///     Cache, CacheConfig, Hint, HintAction, LayerGroup, PrefixConfig, Salt, StoreConfig,
/// };
/// use std::time::Duration;
///
/// let directory = std::env::temp_dir().join(format!("pagedkv-store-{}", std::process::id()));
/// let layers = LayerGroup::new(1, 2, 1, 16).blocks(8);
/// let config = CacheConfig::new(layers)
///     .prefix(PrefixConfig::new())
///     .store(StoreConfig::directory(&directory));
/// let (text, kv) = ([7; 40], [0.5; 40 * 16]);
/// let first = Cache::new(&config)?;
/// let mut session = first.open_session()?;
/// let mut batch = first.begin([(&mut session, 40)])?;
/// batch.write(0, &kv, &kv)?;
/// batch.commit(&text)?;
/// drop((session, first)); // waits until all is written
///
/// let second = Cache::new(&config)?;
/// second.hint(Salt::None, &text, Hint::new(HintAction::PREFETCH))?;
/// assert_eq!(second.wait_for_prefetch(Salt::None, &text, Duration::from_secs(10))?, 32);
/// assert_eq!(second.open_session()?.admit(&text, 0)?, 32);
/// # drop(second);
/// # std::fs::remove_dir_all(directory).unwrap();
/// # Ok::<(), pagedkv::Error>(())
/// ```
///
/// With the feature `redis` it can also be a server: `StoreConfig::redis`.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    place: Place,
    durable: bool,
    max_bytes: u64,
    wait: Duration,
    fingerprint: Vec<u8>,
    secret_key: Option<Secret<Vec<u8>>>,
    buffer_bytes: u64,
    max_queued_tokens: u64,
}

#[derive(Clone, Debug)]
enum Place {
    Directory(PathBuf),
    #[cfg(feature = "redis")]
    Redis(Box<crate::RedisConfig>),
}

impl StoreConfig {
    /// A directory, which is created if it does not exist.
    pub fn directory(path: impl AsRef<Path>) -> Self {
        Self::of(Place::Directory(path.as_ref().into()))
    }

    /// A Redis or Valkey server, or a cluster.
    #[cfg(feature = "redis")]
    pub fn redis(config: crate::RedisConfig) -> Self {
        Self::of(Place::Redis(Box::new(config)))
    }

    fn of(place: Place) -> Self {
        Self {
            place,
            durable: false,
            max_bytes: 0,
            wait: Duration::ZERO,
            fingerprint: Vec::new(),
            secret_key: None,
            buffer_bytes: 0,
            max_queued_tokens: 0,
        }
    }

    setters! {
        /// For a directory: whether written data survives a power cut. If not, some of it may be
        /// lost, which only costs hits. Default: false.
        durable(durable: bool) = durable;
        /// For a directory: the limit of the total size; the least recently used files are deleted.
        /// Default: no limit.
        max_bytes(bytes: u64) = bytes;
        /// How long [`Session::admit`](crate::Session::admit) and
        /// [`Session::resume`](crate::Session::resume) wait for blocks from the store. Default:
        /// they do not wait.
        wait(time: Duration) = time;
        /// Identifies the model, in up to 64 bytes.
        fingerprint(fingerprint: impl Into<Vec<u8>>) = fingerprint.into();
        /// A secret of 16 to 64 bytes that encrypts and authenticates stored data.
        secret_key(key: impl Into<Vec<u8>>) = Some(Secret(key.into()));
        /// Buffer memory of each of the two threads.
        buffer_bytes(bytes: u64) = bytes;
        /// Once this many tokens wait to be written, the blocks of further sessions are not
        /// written. Default: those of a quarter of the blocks.
        max_queued_tokens(tokens: u64) = tokens;
    }

    /// The config of C; it points to `store` and to this one.
    pub(crate) fn raw(&self, store: *mut sys::pkv_store) -> sys::pkv_store_config {
        let fingerprint = Some(&self.fingerprint[..]).filter(|name| !name.is_empty());
        let (fingerprint, fingerprint_size) = bytes(fingerprint);
        let (secret_key, secret_key_size) =
            bytes(self.secret_key.as_ref().map(|Secret(key)| &key[..]));
        sys::pkv_store_config {
            wait_ms: milliseconds(self.wait),
            store,
            fingerprint,
            fingerprint_size,
            secret_key,
            secret_key_size,
            buffer_bytes: self.buffer_bytes,
            max_queued_tokens: self.max_queued_tokens,
            ..Default::default()
        }
    }

    /// The config of C for a directory; it points to the path.
    pub(crate) fn raw_directory(&self, path: &CStr) -> sys::pkv_directory_config {
        sys::pkv_directory_config {
            durability: durability(self.durable),
            path: path.as_ptr(),
            max_bytes: self.max_bytes,
            ..Default::default()
        }
    }

    pub(crate) fn open(&self) -> Result<OpenStore> {
        match &self.place {
            Place::Directory(path) => self.open_directory(path),
            #[cfg(feature = "redis")]
            Place::Redis(config) => config.open(),
        }
    }

    fn open_directory(&self, path: &Path) -> Result<OpenStore> {
        let path = path_of_c(path, "the path")?;
        let raw = self.raw_directory(&path);
        Ok(OpenStore(filled(|out| unsafe { sys::pkv_store_open_directory(&raw, out) })?))
    }
}
