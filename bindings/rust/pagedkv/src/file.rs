//! Sessions in files.
use crate::cache::{Cache, Owned};
use crate::error::{call, ensure_library, Result};
use crate::hooks::{contained, negative_errno, NO_ERRNO};
use crate::paths::path_of_c;
use crate::secret::Secret;
use crate::session::Session;
use crate::snapshot::Snapshot;
use crate::structs::{bytes, durability, filled, setters, Numbers};
use crate::sys;
use std::ffi::CString;
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::os::raw::c_void;
#[cfg(unix)]
use std::os::unix::io::{AsRawFd, BorrowedFd};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::Arc;

#[doc(inline)]
pub use crate::sys::pkv_file_info as FileInfo;

/// Options for saving and loading.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileConfig<'a> {
    c: Numbers<sys::pkv_file_config>,
    fingerprint: &'a [u8],
    secret_key: Option<Secret<&'a [u8]>>,
}

impl<'a> FileConfig<'a> {
    /// Only sessions, with checksums; saving waits for the disk.
    pub fn new() -> Self {
        Self::default()
    }

    sys::pkv_file_config_setters! {}

    setters! {
        /// Identifies the model (for example a hash of its weights), in up to 64 bytes. Loading a
        /// file with another one fails with `MISMATCH`.
        fingerprint(fingerprint: &'a [u8]) = fingerprint;
        /// A secret of 16 to 64 bytes that encrypts and authenticates the file.
        secret_key(key: &'a [u8]) = Some(Secret(key));
    }

    /// Whether saving to a path waits for the disk. If not, a power cut may lose both the old file
    /// and the new one. Default: true.
    pub fn durable(mut self, durable: bool) -> Self {
        self.c.0.durability = durability(durable);
        self
    }

    pub(crate) fn raw(&self) -> sys::pkv_file_config {
        let fingerprint = Some(self.fingerprint).filter(|name| !name.is_empty());
        let (fingerprint, fingerprint_size) = bytes(fingerprint);
        let (secret_key, secret_key_size) = bytes(self.secret_key.map(|Secret(key)| key));
        sys::pkv_file_config {
            fingerprint,
            fingerprint_size,
            secret_key,
            secret_key_size,
            ..self.c.0
        }
    }
}

/// A session or a snapshot to save: see [`Cache::save`].
#[derive(Clone, Copy, Debug)]
pub enum Saved<'a> {
    /// The current content of a session.
    Session(&'a Session),
    /// The content of a snapshot.
    Snapshot(&'a Snapshot),
}

impl<'a> From<&'a Session> for Saved<'a> {
    fn from(session: &'a Session) -> Self {
        Self::Session(session)
    }
}

impl<'a> From<&'a Snapshot> for Saved<'a> {
    fn from(snapshot: &'a Snapshot) -> Self {
        Self::Snapshot(snapshot)
    }
}

/// A destination of bytes.
pub enum Sink<'a> {
    /// A regular file. At any moment the path has either the old or the new file.
    Path(&'a Path),
    /// An open, blocking descriptor, from its current position.
    #[cfg(unix)]
    Descriptor(BorrowedFd<'a>),
    /// Anything else: a `Vec<u8>`, a socket.
    Writer(&'a mut dyn Write),
}

/// A source of bytes.
pub enum Source<'a> {
    /// A regular file that ends where the sessions end.
    Path(&'a Path),
    /// An open, blocking descriptor, from its current position. Bytes after the data are not read.
    #[cfg(unix)]
    Descriptor(BorrowedFd<'a>),
    /// The bytes of a file.
    Bytes(&'a [u8]),
    /// Anything else. Bytes after the data are not read.
    Reader(&'a mut dyn Read),
}

/// A C stream with what it points to.
struct Stream<'a> {
    raw: sys::pkv_stream,
    _path: Option<Pointee<CString>>,
    _callbacks: Option<Pointee<Callbacks<'a>>>,
}

/// A value whose address C gets. It is not a `Box`, because moving a box invalidates addresses that
/// were taken before.
struct Pointee<T>(*mut T);

impl<T> Pointee<T> {
    fn new(value: T) -> Self {
        Self(Box::into_raw(Box::new(value)))
    }
}

impl<T> Drop for Pointee<T> {
    fn drop(&mut self) {
        // It was a box, and C does not use the address any more.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

enum Callbacks<'a> {
    Read(&'a mut dyn Read),
    Write(&'a mut dyn Write),
}

impl<'a> Stream<'a> {
    fn path(path: &Path) -> Result<Self> {
        let text = Pointee::new(path_of_c(path, "the path")?);
        let raw = sys::pkv_stream {
            kind: sys::pkv_stream_kind::PATH,
            path: unsafe { (*text.0).as_ptr() },
            ..Default::default()
        };
        Ok(Self { raw, _path: Some(text), _callbacks: None })
    }

    #[cfg(unix)]
    fn descriptor(descriptor: BorrowedFd<'_>) -> Self {
        Self::of(sys::pkv_stream {
            kind: sys::pkv_stream_kind::DESCRIPTOR,
            descriptor: descriptor.as_raw_fd(),
            ..Default::default()
        })
    }

    fn bytes(bytes: &'a [u8]) -> Self {
        Self::of(sys::pkv_stream {
            kind: sys::pkv_stream_kind::BUFFER,
            data: bytes.as_ptr() as *mut c_void,
            size: bytes.len() as u64,
            ..Default::default()
        })
    }

    fn callbacks(callbacks: Callbacks<'a>) -> Self {
        let callbacks = Pointee::new(callbacks);
        let raw = sys::pkv_stream {
            kind: sys::pkv_stream_kind::CALLBACKS,
            read: Some(read),
            write: Some(write),
            user: callbacks.0.cast(),
            ..Default::default()
        };
        Self { raw, _path: None, _callbacks: Some(callbacks) }
    }

    fn of(raw: sys::pkv_stream) -> Self {
        Self { raw, _path: None, _callbacks: None }
    }

    fn to(sink: Sink<'a>) -> Result<Self> {
        Ok(match sink {
            Sink::Path(path) => Self::path(path)?,
            #[cfg(unix)]
            Sink::Descriptor(descriptor) => Self::descriptor(descriptor),
            Sink::Writer(writer) => Self::callbacks(Callbacks::Write(writer)),
        })
    }

    fn from(source: Source<'a>) -> Result<Self> {
        Ok(match source {
            Source::Path(path) => Self::path(path)?,
            #[cfg(unix)]
            Source::Descriptor(descriptor) => Self::descriptor(descriptor),
            Source::Bytes(bytes) => Self::bytes(bytes),
            Source::Reader(reader) => Self::callbacks(Callbacks::Read(reader)),
        })
    }
}

/// Returns the bytes moved, or a negative errno. A panic must not unwind through C.
fn moved(mut call: impl FnMut() -> std::io::Result<usize>) -> i64 {
    let outcome = contained(|| loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return negative_errno(&error).into(),
            Ok(bytes) => return bytes as i64,
        }
    });
    outcome.unwrap_or(NO_ERRNO.into())
}

unsafe extern "C" fn read(user: *mut c_void, to: *mut c_void, n: u64) -> i64 {
    match &mut *(user as *mut Callbacks<'_>) {
        Callbacks::Read(reader) => {
            // A reader may read the buffer that it fills.
            std::ptr::write_bytes(to.cast::<u8>(), 0, n as usize);
            let to = std::slice::from_raw_parts_mut(to.cast::<u8>(), n as usize);
            moved(|| reader.read(to).map(|bytes| bytes.min(n as usize)))
        }
        Callbacks::Write(_) => NO_ERRNO.into(),
    }
}

unsafe extern "C" fn write(user: *mut c_void, from: *const c_void, n: u64) -> i64 {
    match &mut *(user as *mut Callbacks<'_>) {
        Callbacks::Write(writer) => {
            let from = std::slice::from_raw_parts(from.cast::<u8>(), n as usize);
            moved(|| writer.write(from).map(|bytes| bytes.min(n as usize)))
        }
        Callbacks::Read(_) => NO_ERRNO.into(),
    }
}

/// The library's limit of open handles; no file can have more sessions.
const MAX_SESSIONS: usize = 1 << 22;

impl Cache {
    /// Saves sessions and snapshots, each with a label of the caller. Returns the number of bytes.
    ///
    /// ```
    /// # use pagedkv::{Cache, CacheConfig, LayerGroup};
    /// use pagedkv::{FileConfig, Sink, Source};
    ///
    /// # let cache = Cache::new(&CacheConfig::new(LayerGroup::new(1, 2, 1, 16).blocks(8)))?;
    /// let mut session = cache.open_session()?;
    /// let mut batch = cache.begin([(&mut session, 3)])?;
    /// batch.write(0, &[0.5; 3 * 16], &[0.5; 3 * 16])?;
    /// batch.commit(None)?;
    /// let mut file = Vec::new();
    /// cache.save([(&session, 42)], &FileConfig::new(), Sink::Writer(&mut file))?;
    ///
    /// for (loaded, label) in cache.load(&FileConfig::new(), Source::Bytes(&file))? {
    ///     assert_eq!((loaded.length()?, label), (3, 42));
    /// }
    /// # Ok::<(), pagedkv::Error>(())
    /// ```
    pub fn save<'a>(
        &self,
        items: impl IntoIterator<Item = (impl Into<Saved<'a>>, u64)>,
        config: &FileConfig<'_>,
        to: Sink<'_>,
    ) -> Result<u64> {
        let item = |(saved, label): (Saved<'_>, u64)| match saved {
            Saved::Session(session) => {
                sys::pkv_file_item { session: session.as_raw(), snapshot: null_mut(), label }
            }
            Saved::Snapshot(snapshot) => {
                sys::pkv_file_item { session: null_mut(), snapshot: snapshot.as_raw(), label }
            }
        };
        let items: Vec<_> =
            items.into_iter().map(|(saved, label)| item((saved.into(), label))).collect();
        let (config, to, mut bytes) = (config.raw(), Stream::to(to)?, 0);
        call(|| unsafe {
            sys::pkv_file_save(
                self.as_raw(),
                items.len(),
                items.as_ptr(),
                &config,
                &to.raw,
                &mut bytes,
            )
        })?;
        Ok(bytes)
    }

    /// Opens every sequence of a file as a session, with its label, in the order of
    /// [`save`](Self::save). If it fails, the cache is unchanged.
    pub fn load(&self, config: &FileConfig<'_>, from: Source<'_>) -> Result<Vec<(Session, u64)>> {
        // Room for the maximum, because a stream is read only once. Memory that is never written
        // takes only addresses.
        let (mut handles, mut labels, mut count) =
            (vec![null_mut(); MAX_SESSIONS], vec![0; MAX_SESSIONS], 0);
        let (config, from) = (config.raw(), Stream::from(from)?);
        call(|| unsafe {
            let (sessions, labels) = (handles.as_mut_ptr(), labels.as_mut_ptr());
            sys::pkv_file_load(
                self.as_raw(),
                &config,
                &from.raw,
                MAX_SESSIONS,
                sessions,
                labels,
                &mut count,
            )
        })?;
        let cache: &Arc<Owned> = &self.0;
        Ok(handles[..count]
            .iter()
            .zip(labels)
            .map(|(&handle, label)| (Session::adopted(cache, handle), label))
            .collect())
    }
}

/// Returns the properties of a file. It reads the tables, not the keys and values.
pub fn inspect_file(config: &FileConfig<'_>, from: Source<'_>) -> Result<FileInfo> {
    ensure_library()?;
    let (config, from) = (config.raw(), Stream::from(from)?);
    filled(|out| unsafe { sys::pkv_file_inspect(&config, &from.raw, out) })
}

impl fmt::Debug for Sink<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => f.debug_tuple("Path").field(path).finish(),
            #[cfg(unix)]
            Self::Descriptor(descriptor) => f.debug_tuple("Descriptor").field(descriptor).finish(),
            Self::Writer(_) => f.write_str("Writer"),
        }
    }
}

impl fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => f.debug_tuple("Path").field(path).finish(),
            #[cfg(unix)]
            Self::Descriptor(descriptor) => f.debug_tuple("Descriptor").field(descriptor).finish(),
            Self::Bytes(bytes) => write!(f, "Bytes({})", bytes.len()),
            Self::Reader(_) => f.write_str("Reader"),
        }
    }
}
