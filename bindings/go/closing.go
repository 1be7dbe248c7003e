package pagedkv

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
)

// noCopy makes go vet refuse copies of the structs that contain it: if two values own a handle, the
// first one to be collected closes what the other uses.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// ending is an object that is no longer used.
type ending struct {
	close   func() raw.Status
	release func() // Frees what C may call until the object is closed; nil: nothing.
}

// waiting are objects that could not be closed when they were collected: another goroutine was
// using them. Every later call of the library first tries to close them.
var waiting struct {
	sync.Mutex
	endings []ending
	count   atomic.Int64 // len(endings), for calls that have nothing to do here
}

// attempts counts closings of collected objects. Until one has ended, its cache is busy, and a
// caller could not know why.
var attempts struct{ begun, ended atomic.Int64 }

// closePatiently closes an object, after those that are being closed for the collector. They take
// microseconds, except in a hook that closes the object itself: hence the limit.
func closePatiently(tryClose func() error) error {
	for deadline := time.Now().Add(time.Second); ; time.Sleep(10 * time.Microsecond) {
		ended := attempts.ended.Load()
		err := tryClose()
		alone := attempts.begun.Load() == ended
		if alone || !errors.Is(err, ErrBusy) || time.Now().After(deadline) {
			return err
		}
	}
}

// tried returns whether the object is closed now. Objects of a closed cache were closed with it.
func (e ending) tried() bool {
	attempts.begun.Add(1)
	defer attempts.ended.Add(1)
	if status := e.close(); status != raw.OK && Status(status) != ErrStaleHandle {
		return false
	}
	if e.release != nil {
		e.release()
	}
	return true
}

// abandon closes an object that is no longer used, now if possible, else at a later call.
func abandon(e ending) {
	if !e.tried() {
		wait(e)
	}
}

func wait(endings ...ending) {
	waiting.Lock()
	defer waiting.Unlock()
	waiting.endings = append(waiting.endings, endings...)
	waiting.count.Store(int64(len(waiting.endings)))
}

func takeWaiting() []ending {
	waiting.Lock()
	defer waiting.Unlock()
	endings := waiting.endings
	waiting.endings = nil
	waiting.count.Store(0)
	return endings
}

// closeWaiting closes the objects that can be closed now. A session waits for its batch, so one
// round may not be enough.
func closeWaiting() {
	for progress := true; progress && waiting.count.Load() > 0; {
		endings := takeWaiting()
		var left []ending
		for _, e := range endings {
			if !e.tried() {
				left = append(left, e)
			}
		}
		progress = len(left) < len(endings)
		wait(left...)
	}
}
