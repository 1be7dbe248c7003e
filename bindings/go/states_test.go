package pagedkv_test

import (
	"bytes"
	"reflect"
	"runtime"
	"testing"
	"time"
	"unsafe"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
)

// A toy hybrid model: layer 0 has keys and values; layers 1 and 2 each keep a state.
const (
	stateBytes = 100 // not a multiple of a state's alignment
	stateGroup = 1
)

// newHybrid makes a cache with checkpoints 32 tokens apart, and drafts of up to 4 tokens.
func newHybrid(t *testing.T, storage pagedkv.Storage) *pagedkv.Cache {
	t.Helper()
	return newCache(t, pagedkv.CacheConfig{
		Groups: []pagedkv.LayerGroup{
			{Layers: 1, QueryHeads: 1, KVHeads: 1, KeyDim: 16, Blocks: 64},
			{
				Layers: 2, Kind: pagedkv.LayersStates, LayerBytes: stateBytes, CheckpointInterval: 32,
				MaxVerifyTokens: 4, Blocks: 64,
			},
		},
		Storage: storage, Threads: 1,
	})
}

func stateOf(layer int, mark byte) []byte {
	return bytes.Repeat([]byte{byte(layer)<<7 + mark}, stateBytes)
}

// writeHybrid writes all layers of a step. The state after new token i of session s has the mark
// marks[s] + i; that before the step has before[s], 0 for none.
func writeHybrid(t *testing.T, batch *pagedkv.Batch, before, marks []byte) {
	t.Helper()
	rows := f32(make([]float32, batch.Rows()*16))
	must(t, batch.Write(0, rows, rows))
	for layer := 1; layer <= 2; layer++ {
		states, err := batch.States(layer)
		must(t, err)
		if len(states) != len(marks) {
			t.Fatalf("states of %d sessions, expected %d", len(states), len(marks))
		}
		for s, session := range states {
			if before[s] != 0 && !bytes.Equal(session.Before, stateOf(layer, before[s])) ||
				before[s] == 0 && session.Before != nil {
				t.Errorf("session %d begins with %v", s, session.Before)
			}
			for j, token := range session.Tokens {
				state := session.After[j]
				if len(state) != stateBytes || uintptr(unsafe.Pointer(&state[0]))%64 != 0 {
					t.Errorf("%d bytes at %p", len(state), state)
				}
				copy(state, stateOf(layer, marks[s]+byte(token)))
			}
		}
	}
}

func stepHybrid(t *testing.T, session *pagedkv.Session, n int, before, mark byte) {
	t.Helper()
	batch := begin(t, session.Cache(), step(session, n))
	writeHybrid(t, batch, []byte{before}, []byte{mark})
	must(t, batch.Commit(nil))
}

// holds checks the lengths at which a session has a state, and the marks of these states.
func holds(t *testing.T, session *pagedkv.Session, wanted map[int]byte) {
	t.Helper()
	length, err := session.Length()
	must(t, err)
	for tokens := 1; tokens <= length; tokens++ {
		for layer := 1; layer <= 2; layer++ {
			state := make([]byte, stateBytes)
			err := session.State(layer, tokens, state)
			if mark := wanted[tokens]; mark == 0 {
				refused(t, err, pagedkv.ErrOutOfRange)
			} else if err != nil || !bytes.Equal(state, stateOf(layer, mark)) {
				t.Errorf("layer %d has %v after %d tokens: %v", layer, state[0], tokens, err)
			}
		}
	}
	if wanted[length] == 0 {
		t.Errorf("the session has %d tokens", length)
	}
}

func TestStatesOfStepsForksAndTrims(t *testing.T) {
	cache := newHybrid(t, pagedkv.StorageInternal)
	session := open(t, cache)
	stepHybrid(t, session, 70, 0, 1)
	holds(t, session, map[int]byte{32: 32, 64: 64, 70: 70})
	fork, err := session.Fork()
	must(t, err)
	idle, err := session.Fork()
	must(t, err)

	// Two sessions with new tokens and one without in one step.
	batch := begin(t, cache, step(session, 30), step(idle, 0), step(fork, 3))
	blocks, err := batch.StateBlocks(stateGroup)
	must(t, err)
	for i, wanted := range [][]uint32{{25, 29}, {}, {0, 1, 2}} {
		if !reflect.DeepEqual(blocks[i].Tokens, wanted) || len(blocks[i].After) != len(wanted) {
			t.Errorf("session %d keeps states at %v", i, blocks[i].Tokens)
		}
	}
	writeHybrid(t, batch, []byte{70, 70, 70}, []byte{71, 0, 101})
	must(t, batch.Commit(nil))
	holds(t, session, map[int]byte{32: 32, 64: 64, 96: 96, 100: 100})
	holds(t, idle, map[int]byte{32: 32, 64: 64, 70: 70})
	holds(t, fork, map[int]byte{32: 32, 64: 64, 73: 103})

	for limit, want := range map[int]int{1000: 100, 95: 64, 31: 0} {
		if length, err := session.TrimPoint(limit); err != nil || length != want {
			t.Errorf("the trim point up to %d is %d, expected %d: %v", limit, length, want, err)
		}
	}
	refused(t, session.Trim(95), pagedkv.ErrOutOfRange, "64")
	must(t, cache.Validate())
}

func TestAPathOfADraftIsAccepted(t *testing.T) {
	session := open(t, newHybrid(t, pagedkv.StorageInternal))
	stepHybrid(t, session, 15, 0, 1)
	batch := begin(t, session.Cache(), step(session, 4))
	writeHybrid(t, batch, []byte{15}, []byte{50})
	must(t, batch.Accept(0, []uint32{0, 2}))
	states, err := batch.States(1)
	must(t, err)
	if !reflect.DeepEqual(states[0].Tokens, []uint32{0, 1, 2, 3}) {
		t.Errorf("after the accept, states are kept at %v", states[0].Tokens)
	}
	must(t, batch.Commit(nil))
	holds(t, session, map[int]byte{16: 50, 17: 52})
}

func TestEnginesWithStatesOfTheirOwn(t *testing.T) {
	session := open(t, newHybrid(t, pagedkv.StorageExternal))
	last := pagedkv.NoBlockID
	for at := 0; at < 40; at += 8 {
		batch := begin(t, session.Cache(), step(session, 8))
		refused(t, errorOf(batch.States(1)), pagedkv.ErrUnsupported)
		blocks, err := batch.StateBlocks(stateGroup)
		must(t, err)
		if len(blocks) != 1 || blocks[0].Before != last {
			t.Fatalf("the states of the step at %d are in %v, not in %d", at, blocks, last)
		}
		last = blocks[0].After[len(blocks[0].After)-1]
		must(t, batch.Commit(nil))
	}
	table, err := session.BlockTable(stateGroup)
	must(t, err)
	if table[len(table)-1] != last {
		t.Errorf("the last block of %v is not %d", table, last)
	}
	refused(t, session.State(1, 40, make([]byte, stateBytes)), pagedkv.ErrUnsupported)
}

func TestWrongCallsOfStatesAreRefused(t *testing.T) {
	cache := newHybrid(t, pagedkv.StorageInternal)
	session := open(t, cache)
	stepHybrid(t, session, 20, 0, 1)
	state := make([]byte, stateBytes+1)
	must(t, session.State(1, 20, state[:stateBytes]))
	for _, wrong := range []struct {
		layer, tokens, size int
		status              pagedkv.Status
	}{
		{1, 20, stateBytes - 1, pagedkv.ErrInvalidArgument},
		{1, 20, stateBytes + 1, pagedkv.ErrInvalidArgument},
		{1, -1, stateBytes, pagedkv.ErrOutOfRange},
		{-1, 20, stateBytes, pagedkv.ErrOutOfRange},
	} {
		refused(t, session.State(wrong.layer, wrong.tokens, state[:wrong.size]), wrong.status)
	}
	refused(t, errorOf(session.TrimPoint(-1)), pagedkv.ErrOutOfRange, "-1")
	batch := begin(t, cache, step(session, 1))
	defer batch.Close()
	for layer, status := range map[int]pagedkv.Status{
		-1: pagedkv.ErrOutOfRange, 0: pagedkv.ErrUnsupported, 3: pagedkv.ErrOutOfRange,
	} {
		refused(t, errorOf(batch.States(layer)), status)
	}
	for group, status := range map[int]pagedkv.Status{
		-1: pagedkv.ErrOutOfRange, 0: pagedkv.ErrUnsupported, 2: pagedkv.ErrOutOfRange,
	} {
		refused(t, errorOf(batch.StateBlocks(group)), status)
	}
	must(t, batch.Abort())
	refused(t, errorOf(batch.States(1)), pagedkv.ErrStaleHandle)
}

// A slice of states is used when nothing else refers to its batch.
func TestABatchWhoseStatesAreShownIsNotCollected(t *testing.T) {
	cache := newHybrid(t, pagedkv.StorageInternal)
	session, err := cache.OpenSession(nil)
	must(t, err)
	shown := func() []byte {
		batch := begin(t, cache, step(session, 3))
		states, err := batch.States(1)
		must(t, err)
		return states[0].After[0]
	}()
	for i := 0; i < 3; i++ {
		runtime.GC()
		time.Sleep(time.Millisecond) // for finalizers
	}
	refused(t, session.Trim(0), pagedkv.ErrBusy)
	copy(shown, stateOf(1, 1))
	must(t, cache.Close())
}
