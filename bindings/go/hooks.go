package pagedkv

import (
	"math"
	"sync"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
)

// Logger receives one line without a newline, from any thread and perhaps several at once. It must
// not call the library.
type Logger func(level LogLevel, message string)

// Clock returns the time since any moment before, from any thread and perhaps several at once. It
// may stand still; a time before an earlier one counts as that one. It must not call the library.
type Clock func() time.Duration

// Runner computes tasks: it calls run(i, worker) once for every i in [0, tasks), from any
// goroutines and in any order, and returns when all of them have returned; run does nothing after
// that. worker is below the config's Threads, and no two calls at once have the same worker.
// Results do not depend on how the calls are distributed. It must not call the library in any other
// way.
//
// There is no allocator hook: Go's memory belongs to its garbage collector.
type Runner func(tasks int, run func(task, worker int))

// Goroutines is a Runner with this many workers: it computes attention on the threads of Go's
// scheduler.
func Goroutines(workers int) Runner {
	return func(tasks int, run func(task, worker int)) {
		var group sync.WaitGroup
		next := make(chan int, tasks)
		for i := 0; i < tasks; i++ {
			next <- i
		}
		close(next)
		work := func(worker int) {
			for task := range next {
				run(task, worker)
			}
		}
		for worker := 1; worker < workers && worker < tasks; worker++ {
			group.Add(1)
			go func(worker int) {
				defer group.Done()
				work(worker)
			}(worker)
		}
		work(0)
		group.Wait()
	}
}

// registry maps numbers to Go's functions, because C may not keep pointers to them.
var registry struct {
	sync.RWMutex
	last    uintptr
	entries map[uintptr]any
	once    sync.Once
	// C's addresses of the functions below.
	log, clock, run, read, write, readBlocks, writeBlocks uintptr
}

// These numbers are passed as C pointers, but Go's runtime rejects pointers into the first page.
const firstEntry = 1 << 16

// hooks are the entries of one cache.
type hooks struct {
	entries []uintptr
	copies  *blockCopies // nil: none
}

func (h *hooks) register(entry any) uintptr {
	registry.once.Do(func() {
		registry.entries, registry.last = map[uintptr]any{}, firstEntry
		registry.log, registry.run = purego.NewCallback(logHook), purego.NewCallback(runHook)
		registry.clock = purego.NewCallback(clockHook)
		registry.read, registry.write = purego.NewCallback(readHook), purego.NewCallback(writeHook)
		registry.readBlocks = purego.NewCallback(readBlocksHook)
		registry.writeBlocks = purego.NewCallback(writeBlocksHook)
	})
	registry.Lock()
	defer registry.Unlock()
	registry.last++
	registry.entries[registry.last] = entry
	h.entries = append(h.entries, registry.last)
	return registry.last
}

func (h *hooks) forget() {
	registry.Lock()
	defer registry.Unlock()
	for _, entry := range h.entries {
		delete(registry.entries, entry)
	}
	h.entries = nil
}

func registered(user uintptr) any {
	registry.RLock()
	defer registry.RUnlock()
	return registry.entries[user]
}

func (h *hooks) logger(logger Logger) raw.Logger {
	user := h.register(logger)
	return raw.Logger{Log: registry.log, User: user}
}

func (h *hooks) clock(clock Clock) raw.Clock {
	user := h.register(clock)
	return raw.Clock{NowMs: registry.clock, User: user}
}

func (h *hooks) runner(runner Runner, workers uint32) raw.Runner {
	user := h.register(runner)
	return raw.Runner{Run: registry.run, User: user, Threads: workers}
}

// guarded calls a hook. Neither a panic nor runtime.Goexit, which testing.T's Fatal calls, may
// unwind through the library's frames, which would leave what they use busy forever: both end the
// program from another goroutine.
func guarded(hook func() uintptr) uintptr {
	returned := false
	defer func() {
		if returned {
			return
		}
		reason := recover()
		if reason == nil {
			reason = "pagedkv: a hook ended its goroutine, by runtime.Goexit or by Fatal of a test"
		}
		go func() { panic(reason) }()
		select {}
	}()
	result := hook()
	returned = true
	return result
}

func logHook(user uintptr, level int32, message unsafe.Pointer) uintptr {
	return guarded(func() uintptr {
		registered(user).(Logger)(LogLevel(level), raw.CString(message))
		return 0
	})
}

func clockHook(user uintptr) uintptr {
	return guarded(func() uintptr {
		return uintptr(registered(user).(Clock)() / time.Millisecond)
	})
}

// run is one call of a Runner. C's memory of it is gone when the call has returned.
type run struct {
	sync.RWMutex
	task, context uintptr
	ended         bool
}

// do computes a task, unless the Runner has returned: what C lacks then is an error of its call.
func (r *run) do(task, worker int) {
	if worker < 0 || worker > math.MaxUint32 {
		worker = math.MaxUint32 // C reads 32 bits, and refuses this one
	}
	r.RLock()
	defer r.RUnlock()
	if !r.ended {
		purego.SyscallN(r.task, r.context, uintptr(task), uintptr(worker))
	}
}

// end waits for the tasks that are being computed.
func (r *run) end() {
	r.Lock()
	defer r.Unlock()
	r.ended = true
}

func runHook(user uintptr, tasks uintptr, task uintptr, context uintptr) uintptr {
	return guarded(func() uintptr {
		r := &run{task: task, context: context}
		registered(user).(Runner)(int(tasks), r.do)
		r.end()
		return 0
	})
}
