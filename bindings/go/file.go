package pagedkv

import (
	"errors"
	"io"
	"runtime"
	"unsafe"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
)

// FileItem is one sequence to save: a session or a snapshot.
type FileItem struct {
	Session  *Session
	Snapshot *Snapshot
	Label    uint64 // The caller's label, which Loaded returns.
}

// Loaded is a session from a file.
type Loaded struct {
	Session *Session
	Label   uint64
}

// SaveFile saves sequences of the cache to a path: tokens, keys and values as they are stored. It
// returns the number of bytes. Shared blocks are written once. At any moment, and after a crash,
// the path has either the old or the new file.
func (c *Cache) SaveFile(path string, config *FileConfig, items ...FileItem) (uint64, error) {
	return c.save("save", pathStream(path), config, items)
}

// SaveTo is SaveFile to a writer, which must not call the library.
func (c *Cache) SaveTo(w io.Writer, config *FileConfig, items ...FileItem) (uint64, error) {
	return c.save("save", &stream{writer: w}, config, items)
}

// LoadFile opens every sequence of a file as a session of the cache, in the order of SaveFile. If
// it fails, the cache is unchanged. The cache's model must be that of the file; block size, layout
// and storage may differ.
func (c *Cache) LoadFile(path string, config *FileConfig) ([]Loaded, error) {
	info, err := InspectFile(path, config)
	if err != nil {
		return nil, err
	}
	return c.load(pathStream(path), config, int(info.Sessions))
}

// maxFromReader is the most sessions of LoadFrom: a reader cannot be read twice.
const maxFromReader = 1 << 16

// LoadFrom is LoadFile from a reader, which must not call the library, of a file with at most 65536
// sessions. Bytes after the file stay in the reader.
func (c *Cache) LoadFrom(r io.Reader, config *FileConfig) ([]Loaded, error) {
	return c.load(&stream{reader: r}, config, maxFromReader)
}

// InspectFile returns the properties of a file from its tables. It uses the key of the config and
// compares its fingerprint.
func InspectFile(path string, config *FileConfig) (FileInfo, error) {
	return inspect(pathStream(path), config)
}

// Inspect is InspectFile from a reader, which must not call the library.
func Inspect(r io.Reader, config *FileConfig) (FileInfo, error) {
	return inspect(&stream{reader: r}, config)
}

func (f *FileConfig) place() *raw.FileConfig {
	if f == nil {
		return nil
	}
	out := sized(&raw.FileConfig{})
	(&numbers{}).fill(f, out)
	out.Fingerprint = unsafe.Pointer(first(f.Fingerprint))
	out.FingerprintSize = uint64(len(f.Fingerprint))
	key := f.SecretKey.bytes()
	out.SecretKey, out.SecretKeySize = keyPointer(key), uint64(len(key))
	return out
}

// keyPointer points to a key, also to an empty one, so that C refuses it.
func keyPointer(key []byte) unsafe.Pointer {
	if key != nil && len(key) == 0 {
		return unsafe.Pointer(&noKey)
	}
	return unsafe.Pointer(first(key))
}

var noKey byte

// stream is a path, a reader or a writer.
type stream struct {
	path   []byte // with C's final zero; nil: none
	reader io.Reader
	writer io.Writer
	err    error // the error of the reader or writer
}

func pathStream(path string) *stream { return &stream{path: append([]byte(path), 0)} }

// call runs a call with C's form of config and stream.
func (s *stream) call(
	op string, config *FileConfig, function func(*raw.FileConfig, *raw.Stream) raw.Status,
) error {
	if length := len(s.path); length > 0 &&
		string(s.path[:length-1]) != raw.CString(unsafe.Pointer(&s.path[0])) {
		return misuse(op, ErrInvalidArgument, "a zero byte in the path %q", s.path[:length-1])
	}
	out := sized(&raw.Stream{})
	if s.path != nil {
		out.Kind, out.Path = int32(StreamPath), &s.path[0]
	} else {
		var ends hooks
		defer ends.forget()
		out.Kind = int32(StreamCallbacks)
		out.User = ends.register(s)
		out.Read = registry.read
		out.Write = registry.write
	}
	given := config.place()
	err := call(op, nil, func() raw.Status { return function(given, out) })
	var e *Error
	if errors.As(err, &e) {
		e.Cause = s.err
	}
	return err
}

func (c *Cache) save(
	op string, to *stream, config *FileConfig, items []FileItem,
) (bytes uint64, err error) {
	given := make([]raw.FileItem, len(items))
	for i, item := range items {
		given[i].Label = item.Label
		if item.Session != nil {
			given[i].Session = item.Session.handle
		}
		if item.Snapshot != nil {
			given[i].Snapshot = item.Snapshot.handle
		}
	}
	err = c.hooks.copies.withCause(func() error {
		return to.call(op, config, func(f *raw.FileConfig, s *raw.Stream) raw.Status {
			return raw.FileSave(c.handle, uint64(len(given)), first(given), f, s, &bytes)
		})
	})
	runtime.KeepAlive(items)
	runtime.KeepAlive(c)
	return bytes, err
}

func (c *Cache) load(from *stream, config *FileConfig, capacity int) ([]Loaded, error) {
	handles, labels := make([]raw.Session, capacity), make([]uint64, capacity)
	var count uint64
	err := c.hooks.copies.withCause(func() error {
		return from.call("load", config, func(f *raw.FileConfig, s *raw.Stream) raw.Status {
			return raw.FileLoad(
				c.handle, f, s, uint64(capacity), first(handles), first(labels), &count)
		})
	})
	runtime.KeepAlive(c)
	if err != nil {
		return nil, err
	}
	loaded := make([]Loaded, count)
	for i := range loaded {
		loaded[i] = Loaded{newSession(c, handles[i]), labels[i]}
	}
	return loaded, nil
}

func inspect(from *stream, config *FileConfig) (FileInfo, error) {
	out := sized(&raw.FileInfo{})
	err := from.call("inspect", config, func(f *raw.FileConfig, s *raw.Stream) raw.Status {
		return raw.FileInspect(f, s, out)
	})
	return reported[FileInfo](out), err
}

// moved returns the result for C: a count, or a negative errno.
func (s *stream) moved(n int, err error) uintptr {
	if err == nil {
		return uintptr(n)
	}
	s.err = err
	return negativeErrno(err)
}

func readHook(user uintptr, to unsafe.Pointer, n uint64) uintptr {
	return guarded(func() uintptr {
		s := registered(user).(*stream)
		got, err := io.ReadAtLeast(s.reader, unsafe.Slice((*byte)(to), n), 1)
		if err == io.EOF {
			return 0
		}
		return s.moved(got, err)
	})
}

func writeHook(user uintptr, from unsafe.Pointer, n uint64) uintptr {
	return guarded(func() uintptr {
		s := registered(user).(*stream)
		return s.moved(s.writer.Write(unsafe.Slice((*byte)(from), n)))
	})
}
