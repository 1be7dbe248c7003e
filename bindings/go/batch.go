package pagedkv

import (
	"errors"
	"runtime"
	"sync"
	"unsafe"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
)

// Step is a session's part of a batch.
type Step struct {
	Session   *Session
	NewTokens int // May be 0.
}

// Batch is one forward pass over many sessions. Rows are in the order of the steps. Until Commit
// only the batch sees its tokens.
type Batch struct {
	_        noCopy
	handle   raw.Batch
	cache    *Cache
	sessions []*Session // kept alive until the batch ends
	rows     int
	batch    batchRows
}

// listSteps returns the two lists that C takes.
func listSteps(
	op string, steps []Step,
) (sessions []raw.Session, tokens []uint32, rows int, err error) {
	sessions, tokens = make([]raw.Session, len(steps)), make([]uint32, len(steps))
	for i, step := range steps {
		if tokens[i], err = unsigned32(op, "NewTokens", step.NewTokens); err != nil {
			return nil, nil, 0, err
		}
		if step.Session == nil {
			return nil, nil, 0, misuse(op, ErrInvalidArgument, "step %d has no session", i)
		}
		sessions[i] = step.Session.handle
		rows += step.NewTokens
	}
	return sessions, tokens, rows, nil
}

// Begin begins a step: it reserves the blocks of all new tokens, for every session or for none. If
// blocks are short, the Error says how many.
func (c *Cache) Begin(steps ...Step) (*Batch, error) {
	const op = "begin"
	sessions, tokens, rows, err := listSteps(op, steps)
	if err != nil {
		return nil, err
	}
	b := &Batch{
		cache: c, rows: rows, sessions: make([]*Session, len(steps)), batch: batchRows{lengths: tokens},
	}
	for i := range steps {
		b.sessions[i] = steps[i].Session
	}
	err = call(op, b, func() raw.Status {
		return raw.BatchBegin(
			c.handle, uint64(len(sessions)), first(sessions), first(tokens), &b.handle,
		)
	})
	if err != nil {
		return nil, err
	}
	handle := b.handle
	e := ending{close: func() raw.Status { return raw.BatchAbort(handle) }}
	runtime.SetFinalizer(b, func(*Batch) { abandon(e) })
	return b, nil
}

// ChooseVictims names sessions to suspend (or close), the lowest priority first, so that Begin with
// the rest of these steps gets its blocks. If it names none, Begin already has enough.
func (c *Cache) ChooseVictims(steps ...Step) ([]SessionID, error) {
	const op = "choose victims"
	sessions, tokens, _, err := listSteps(op, steps)
	if err != nil {
		return nil, err
	}
	victims, err := list(numbers{op: op}, c, func(
		capacity uint64, victims *raw.Session, count *uint64,
	) raw.Status {
		return raw.BatchChooseVictims(
			c.handle, uint64(len(sessions)), first(sessions), first(tokens), capacity, victims,
			count,
		)
	})
	runtime.KeepAlive(steps)
	ids := make([]SessionID, len(victims))
	for i, victim := range victims {
		ids[i] = SessionID(victim)
	}
	return ids, err
}

// Rows of this batch: the sum of the new tokens.
func (b *Batch) Rows() int { return b.rows }

// SetFirstRows sets where the rows of each session begin in the arrays to write and attend, for
// left padding or gaps. nil: the default again.
func (b *Batch) SetFirstRows(rows []uint32) error {
	var copied []uint32 // what C gets is what later calls check
	if rows != nil {
		copied = append(make([]uint32, 0, len(rows)), rows...)
	}
	err := call("set first rows", b, func() raw.Status {
		return raw.BatchSetFirstRows(b.handle, uint64(len(copied)), optional(copied))
	})
	if err == nil {
		b.batch.firstRows = copied
	}
	return err
}

// Write stores keys [rows][KV heads][key dim] and values [rows][KV heads][value dim] of one layer.
// The zero Tensor for v: the layer is latent.
func (b *Batch) Write(layer int, k, v Tensor) error {
	n := numbers{op: "write"}
	number := n.u32("layer", layer)
	return n.call(b, func() raw.Status {
		return raw.BatchWrite(b.handle, number, k.place(), v.place())
	})
}

// Attend computes attention of all rows over their sessions, the new tokens included, from q
// [rows][query heads][key dim] into out [rows][query heads][value dim]. params may be nil, and
// outputs if no others are wanted.
func (b *Batch) Attend(
	layer int, q, out Tensor, params *AttentionParams, outputs *AttentionOutputs,
) error {
	const op = "attend"
	number, err := unsigned32(op, "layer", layer)
	if err != nil {
		return err
	}
	var given *raw.AttentionParams
	var others *raw.AttentionOutputs
	if s, known := b.cache.shape(layer); known {
		if given, err = params.place(op, b.batch, s.queryHeads, s.kvHeads); err != nil {
			return err
		}
		others, err = outputs.place(op, params, b.batch, s.queryHeads, s.kvHeads)
		if err != nil {
			return err
		}
	}
	return call(op, b, func() raw.Status {
		return raw.BatchAttend(b.handle, number, given, q.place(), out.place(), others)
	})
}

// Accept keeps only some of the new tokens of step number i, by indices in ascending order. Commit
// still takes one id per row.
func (b *Batch) Accept(i int, kept []uint32) error {
	n := numbers{op: "accept"}
	number := n.u64("i", i)
	return n.call(b, func() raw.Status {
		return raw.BatchAccept(b.handle, number, uint64(len(kept)), first(kept))
	})
}

// Commit ends the step: it adds the new tokens to every session, one id per row. nil: their ids are
// UnknownToken, or those that Session.Suspend remembered.
func (b *Batch) Commit(tokens []int32) error {
	return b.end(call("commit", b, func() raw.Status {
		return raw.BatchCommit(b.handle, uint64(len(tokens)), optional(tokens))
	}))
}

// Abort undoes the step.
func (b *Batch) Abort() error {
	return b.end(call("abort", b, func() raw.Status { return raw.BatchAbort(b.handle) }))
}

func (b *Batch) end(err error) error {
	if err == nil {
		runtime.SetFinalizer(b, nil)
	}
	if err == nil || errors.Is(err, ErrStaleHandle) {
		shown.release(func(other *Batch) bool { return other == b })
	}
	return err
}

// shownBatches are open batches whose states the caller can reach by slices of the library's
// memory. The collector does not see that such a slice needs the batch, so it may not end these.
type shownBatches struct {
	sync.Mutex
	batches map[*Batch]bool
}

var shown = shownBatches{batches: map[*Batch]bool{}}

func (s *shownBatches) keep(b *Batch) {
	s.Lock()
	defer s.Unlock()
	s.batches[b] = true
}

func (s *shownBatches) release(ended func(*Batch) bool) {
	s.Lock()
	defer s.Unlock()
	for b := range s.batches {
		if ended(b) {
			delete(s.batches, b)
		}
	}
}

// Close aborts a step that was neither committed nor aborted, and otherwise does nothing: for
// defer.
func (b *Batch) Close() error {
	err := b.Abort()
	if errors.Is(err, ErrStaleHandle) {
		return nil
	}
	return err
}

// SlotMapping returns the slots of all new tokens in one group: an engine with its own memory
// writes there.
func (b *Batch) SlotMapping(group int) ([]int64, error) {
	n := numbers{op: "slot mapping"}
	number := n.u32("group", group)
	return list(n, b, func(capacity uint64, slots *int64, count *uint64) raw.Status {
		return raw.BatchGetSlotMapping(b.handle, number, capacity, slots, count)
	})
}

// BlockCopies returns the shared, part-filled blocks that Begin replaced in one group:
// the step writes into to[i] instead of from[i]. With StorageExternal the engine copies them
// before it writes.
func (b *Batch) BlockCopies(group int) (from, to []uint32, err error) {
	n := numbers{op: "block copies"}
	number := n.u32("group", group)
	to, err = list(n, b, func(capacity uint64, to *uint32, count *uint64) raw.Status {
		from = make([]uint32, capacity)
		return raw.BatchGetBlockCopies(b.handle, number, capacity, first(from), to, count)
	})
	return from[:len(to)], to, err
}

// KVIndices is forward metadata in compressed rows: step i reads indices[indptr[i]:indptr[i+1]],
// blocks or slots of one group in token order. lastBlockLength is the number of tokens in the last
// block of each step.
func (b *Batch) KVIndices(
	group int, unit IndexUnit,
) (indptr, indices, lastBlockLength []uint32, err error) {
	n := numbers{op: "kv indices"}
	number := n.u32("group", group)
	indptr, lastBlockLength = make([]uint32, len(b.sessions)+1), make([]uint32, len(b.sessions))
	indices, err = list(n, b, func(capacity uint64, indices *uint32, count *uint64) raw.Status {
		return raw.BatchGetKVIndices(
			b.handle, number, int32(unit), &indptr[0], capacity, indices, count,
			first(lastBlockLength),
		)
	})
	if err != nil {
		return nil, nil, nil, err
	}
	return indptr, indices, lastBlockLength, nil
}

// SessionStates are the states of one session in one layer: see Batch.States.
type SessionStates struct {
	Before []byte   // The state before the new tokens, read only; nil: the session has no token yet.
	Tokens []uint32 // The new tokens after which a state is kept, 0 the first; rising.
	After  [][]byte // Where the state after each of these tokens is written.
}

// States returns the states of one layer of a group of LayersStates, step by step: the
// state that each session has, and where to write those after its new tokens.
//
// There is always a place for the state after the last new token. A step that reaches past a
// checkpoint has places for the states there and after the last full block, too, and a draft
// (LayerGroup.MaxVerifyTokens) one after each token: the state of that token and what precedes it
// in its branch. Write all of them before Commit; until then they hold any bytes.
//
// The slices are the library's own memory, each at a multiple of 64. They are valid until Commit,
// Abort or Close of the batch, or Close of the cache, and must not be used after it. So a batch
// whose states were asked for is never collected: end it, or close its cache.
func (b *Batch) States(layer int) ([]SessionStates, error) {
	n := numbers{op: "states"}
	number := n.u32("layer", layer)
	before := make([]unsafe.Pointer, len(b.sessions)+1)
	after, err := list(n, b, func(capacity uint64, after *unsafe.Pointer, count *uint64) raw.Status {
		return raw.BatchGetStates(
			b.handle, number, unsafe.Pointer(&before[0]), capacity, unsafe.Pointer(after), count,
		)
	})
	if err != nil {
		return nil, err
	}
	s, _ := b.cache.shape(layer)
	blocks, err := b.StateBlocks(s.group)
	if err != nil {
		return nil, err
	}
	shown.keep(b)
	states := make([]SessionStates, len(b.sessions))
	for i := range states {
		tokens := blocks[i].Tokens
		states[i] = SessionStates{Tokens: tokens, After: make([][]byte, len(tokens))}
		if before[i] != nil {
			states[i].Before = unsafe.Slice((*byte)(before[i]), s.stateBytes)
		}
		for j := range tokens {
			states[i].After[j] = unsafe.Slice((*byte)(after[j]), s.stateBytes)
		}
		after = after[len(tokens):]
	}
	return states, nil
}

// SessionStateBlocks are the blocks with the states of one session in one group.
type SessionStateBlocks struct {
	Before uint32   // The block of the state before the new tokens; NoBlockID: there is no token yet.
	Tokens []uint32 // The new tokens after which a state is kept, 0 the first; rising.
	After  []uint32 // The block to write the state after each of these tokens to.
}

// StateBlocks returns the blocks that hold the states of a group, step by step, for engines with
// their own memory (StorageExternal) or with kernels that take ids.
func (b *Batch) StateBlocks(group int) ([]SessionStateBlocks, error) {
	n := numbers{op: "state blocks"}
	number := n.u32("group", group)
	before, indptr := make([]uint32, len(b.sessions)+1), make([]uint32, len(b.sessions)+1)
	var tokens []uint32
	after, err := list(n, b, func(capacity uint64, after *uint32, count *uint64) raw.Status {
		tokens = make([]uint32, capacity)
		return raw.BatchGetStateBlocks(
			b.handle, number, &before[0], &indptr[0], capacity, first(tokens), after, count,
		)
	})
	if err != nil {
		return nil, err
	}
	blocks := make([]SessionStateBlocks, len(b.sessions))
	for i := range blocks {
		begin, end := indptr[i], indptr[i+1]
		blocks[i] = SessionStateBlocks{before[i], tokens[begin:end:end], after[begin:end:end]}
	}
	return blocks, nil
}
