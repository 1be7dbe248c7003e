package pagedkv

import (
	"runtime"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
)

// Snapshot is a frozen sequence: references to its blocks, not copies. Any number of goroutines may
// open sessions from it.
type Snapshot struct {
	_      noCopy
	handle raw.Snapshot
	cache  *Cache
	length int
}

// Snapshot freezes the current content of the session. The snapshot outlives the session.
func (s *Session) Snapshot() (*Snapshot, error) {
	var handle raw.Snapshot
	var length uint64
	err := call("take snapshot", s, func() raw.Status {
		if status := raw.SessionGetLength(s.handle, &length); status != raw.OK {
			return status
		}
		return raw.SnapshotTake(s.handle, &handle)
	})
	if err != nil {
		return nil, err
	}
	frozen := &Snapshot{handle: handle, cache: s.cache, length: int(length)}
	e := ending{close: func() raw.Status { return raw.SnapshotClose(handle) }}
	runtime.SetFinalizer(frozen, func(*Snapshot) { abandon(e) })
	return frozen, nil
}

// Open opens a new session with the frozen content.
func (s *Snapshot) Open() (*Session, error) { return s.cache.OpenSnapshot(s) }

// OpenSnapshot opens a session from a snapshot of this cache.
func (c *Cache) OpenSnapshot(snapshot *Snapshot) (*Session, error) {
	var handle raw.Session
	err := call("open snapshot", snapshot, func() raw.Status {
		return raw.SnapshotOpen(c.handle, snapshot.handle, &handle)
	})
	runtime.KeepAlive(c)
	if err != nil {
		return nil, err
	}
	return newSession(c, handle), nil
}

// Length returns the number of tokens.
func (s *Snapshot) Length() int { return s.length }

// Close drops the references.
func (s *Snapshot) Close() error {
	err := call("close snapshot", s, func() raw.Status { return raw.SnapshotClose(s.handle) })
	if err == nil {
		runtime.SetFinalizer(s, nil)
	}
	return err
}
