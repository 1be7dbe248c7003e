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

// Fork opens a new session with the frozen content.
func (s *Snapshot) Fork() (*Session, error) {
	var handle raw.Session
	err := call("fork snapshot", s, func() raw.Status {
		return raw.SnapshotFork(s.handle, &handle)
	})
	if err != nil {
		return nil, err
	}
	return newSession(s.cache, handle), nil
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
