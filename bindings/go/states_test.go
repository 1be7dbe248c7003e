package pagedkv_test

import (
	"bytes"
	"errors"
	"hash/fnv"
	"reflect"
	"testing"
	"unsafe"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
)

// A toy of a hybrid model: layer 0 has keys and values, layers 1 and 2 keep a running hash of all
// tokens each.
const (
	stateBytes = 100 // no multiple of the alignment of a state
	stateGroup = 1
)

// newHybrid makes a cache with checkpoints 32 tokens apart, and drafts of up to 4 tokens.
func newHybrid(t *testing.T, storage pagedkv.Storage) *pagedkv.Cache {
	t.Helper()
	return newCache(t, pagedkv.CacheConfig{
		Groups: []pagedkv.LayerGroup{
			{Layers: 1, QueryHeads: 1, KVHeads: 1, KeyDim: 16},
			{Layers: 2, StateBytes: stateBytes, CheckpointTokens: 32, DraftTokens: 4},
		},
		Storage: storage, Blocks: 64, Threads: 1,
	})
}

// nextState is a hash of all bytes of the state before, the layer and the token.
func nextState(before []byte, layer int, token int32) []byte {
	hash := fnv.New64a()
	hash.Write(before)
	hash.Write([]byte{byte(layer), byte(token), byte(token >> 8)})
	state := make([]byte, 0, stateBytes+8)
	for len(state) < stateBytes {
		state = hash.Sum(state)
		hash.Write(state)
	}
	return state[:stateBytes]
}

func stateOf(text []int32, layer int) []byte {
	var state []byte
	for _, token := range text {
		state = nextState(state, layer, token)
	}
	return state
}

// newTokens are those of one session; token i follows the new token parents[i], or the last one of
// the session if that is -1.
type newTokens struct {
	tokens  []int32
	parents []int
}

func chain(tokens []int32) newTokens {
	parents := make([]int, len(tokens))
	for i := range parents {
		parents[i] = i - 1
	}
	return newTokens{tokens, parents}
}

func writeHybrid(t *testing.T, batch *pagedkv.Batch, news ...newTokens) {
	t.Helper()
	rows := f32(make([]float32, batch.Rows()*16))
	must(t, batch.Write(0, rows, rows))
	for layer := 1; layer <= 2; layer++ {
		states, err := batch.States(layer)
		must(t, err)
		if len(states) != len(news) {
			t.Fatalf("states of %d sessions, expected %d", len(states), len(news))
		}
		for i, session := range states {
			computed := make([][]byte, len(news[i].tokens))
			for j, token := range news[i].tokens {
				before := session.Before
				if parent := news[i].parents[j]; parent >= 0 {
					before = computed[parent]
				}
				computed[j] = nextState(before, layer, token)
			}
			for j, token := range session.Tokens {
				state := session.After[j]
				if len(state) != stateBytes || uintptr(unsafe.Pointer(&state[0]))%64 != 0 {
					t.Errorf("%d bytes at %p", len(state), state)
				}
				copy(state, computed[token])
			}
		}
	}
}

func stepHybrid(t *testing.T, session *pagedkv.Session, tokens []int32) {
	t.Helper()
	batch := begin(t, session.Cache(), step(session, len(tokens)))
	writeHybrid(t, batch, chain(tokens))
	must(t, batch.Commit(tokens))
}

// holds checks the tokens and states of a session, and after how many tokens it has a state.
func holds(t *testing.T, session *pagedkv.Session, text []int32, wanted ...int) {
	t.Helper()
	length, err := session.Length()
	must(t, err)
	found := make([]int32, len(text))
	must(t, session.Tokens(0, found))
	if length != len(text) || !reflect.DeepEqual(found, text) {
		t.Fatalf("%d tokens: %v, expected %v", length, found, text)
	}
	for layer := 1; layer <= 2; layer++ {
		var held []int
		for tokens := 1; tokens <= length; tokens++ {
			state := make([]byte, stateBytes)
			if err := session.ReadState(layer, tokens, state); err == nil {
				held = append(held, tokens)
				if !bytes.Equal(state, stateOf(text[:tokens], layer)) {
					t.Errorf("layer %d has another state after %d tokens", layer, tokens)
				}
			} else if !errors.Is(err, pagedkv.ErrOutOfRange) {
				t.Fatal(err)
			}
		}
		if !reflect.DeepEqual(held, wanted) {
			t.Errorf("layer %d has states after %v, expected %v", layer, held, wanted)
		}
	}
}

func joined(parts ...[]int32) []int32 {
	var all []int32
	for _, part := range parts {
		all = append(all, part...)
	}
	return all
}

func TestStatesOfStepsForksAndTrims(t *testing.T) {
	cache, whole, other := newHybrid(t, pagedkv.StoragePaged), numbered(0, 100), numbered(500, 3)
	session := open(t, cache)
	stepHybrid(t, session, whole[:70])
	holds(t, session, whole[:70], 32, 64, 70)
	fork, err := session.Fork()
	must(t, err)
	idle, err := session.Fork()
	must(t, err)

	// Two sessions with new tokens and one without in one step, which the first time is aborted.
	for _, commits := range []bool{false, true} {
		batch := begin(t, cache, step(session, 30), pagedkv.Step{Session: idle}, step(fork, 3))
		blocks, err := batch.StateBlocks(stateGroup)
		must(t, err)
		for i, wanted := range [][]uint32{{25, 29}, {}, {0, 1, 2}} {
			if !reflect.DeepEqual(blocks[i].Tokens, wanted) || len(blocks[i].After) != len(wanted) {
				t.Errorf("session %d keeps states at %v", i, blocks[i].Tokens)
			}
		}
		writeHybrid(t, batch, chain(whole[70:]), chain(nil), chain(other))
		if commits {
			must(t, batch.Commit(joined(whole[70:], other)))
		} else {
			must(t, batch.Abort())
		}
	}
	holds(t, session, whole, 32, 64, 96, 100)
	holds(t, idle, whole[:70], 32, 64, 70)
	holds(t, fork, joined(whole[:70], other), 32, 64, 73)

	for limit, want := range map[int]int{1000: 100, 95: 64, 31: 0} {
		if length, err := session.TrimPoint(limit); err != nil || length != want {
			t.Errorf("the trim point up to %d is %d, expected %d: %v", limit, length, want, err)
		}
	}
	refused(t, session.Trim(95), pagedkv.ErrOutOfRange, "64")
	must(t, session.Trim(64))
	last := numbered(800, 40)
	stepHybrid(t, session, last)
	holds(t, session, joined(whole[:64], last), 32, 64, 96, 104)
	must(t, cache.Validate())
}

func TestAnyPathOfADraftIsAccepted(t *testing.T) {
	cache, text := newHybrid(t, pagedkv.StoragePaged), numbered(0, 15)
	// 10 is followed by 11 and by 12, 12 by 13.
	draft := newTokens{[]int32{10, 11, 12, 13}, []int{-1, 0, 0, 2}}
	paths := []struct {
		kept []uint32
		held []int
	}{
		{nil, []int{15}}, {[]uint32{0}, []int{16}}, {[]uint32{0, 1}, []int{16, 17}},
		{[]uint32{0, 2}, []int{16, 17}}, {[]uint32{0, 2, 3}, []int{16, 18}},
	}
	for _, path := range paths {
		session := open(t, cache)
		stepHybrid(t, session, text)
		batch := begin(t, cache, step(session, 4))
		writeHybrid(t, batch, draft)
		must(t, batch.Accept(0, path.kept))
		refused(t, errorOf(batch.States(1)), pagedkv.ErrInvalidArgument)
		must(t, batch.Commit(draft.tokens))
		expected := joined(text)
		for _, i := range path.kept {
			expected = append(expected, draft.tokens[i])
		}
		holds(t, session, expected, path.held...)
	}
}

func TestEnginesWithStatesOfTheirOwn(t *testing.T) {
	cache, whole := newHybrid(t, pagedkv.StorageNone), numbered(0, 40)
	session := open(t, cache)
	var slab [64][]byte
	for at := 0; at < len(whole); at += 8 {
		batch := begin(t, cache, step(session, 8))
		refused(t, errorOf(batch.States(1)), pagedkv.ErrUnsupported)
		blocks, err := batch.StateBlocks(stateGroup)
		must(t, err)
		if len(blocks) != 1 || (blocks[0].Before == pagedkv.NoBlock) != (at == 0) {
			t.Fatalf("the states of the step at %d are in %v", at, blocks)
		}
		var state []byte
		if at > 0 {
			state = slab[blocks[0].Before]
		}
		for i, next := 0, 0; i < 8; i++ {
			state = nextState(state, 1, whole[at+i])
			if next < len(blocks[0].Tokens) && blocks[0].Tokens[next] == uint32(i) {
				slab[blocks[0].After[next]] = state
				next++
			}
		}
		must(t, batch.Commit(whole[at:at+8]))
	}
	table, err := session.BlockTable(stateGroup)
	must(t, err)
	if !bytes.Equal(slab[table[len(table)-1]], stateOf(whole, 1)) {
		t.Error("the last block of the table has another state")
	}
	refused(t, session.ReadState(1, 40, make([]byte, stateBytes)), pagedkv.ErrUnsupported)
}

func TestWrongCallsOfStatesAreRefused(t *testing.T) {
	cache := newHybrid(t, pagedkv.StoragePaged)
	session := open(t, cache)
	stepHybrid(t, session, numbered(0, 20))
	state := make([]byte, stateBytes+1)
	must(t, session.ReadState(1, 20, state[:stateBytes]))
	for _, wrong := range []struct {
		layer, tokens, size int
		status              pagedkv.Status
	}{
		{1, 20, stateBytes - 1, pagedkv.ErrInvalidArgument},
		{1, 20, stateBytes + 1, pagedkv.ErrInvalidArgument},
		{1, 20, 0, pagedkv.ErrInvalidArgument},
		{1, 0, stateBytes, pagedkv.ErrOutOfRange},
		{1, 19, stateBytes, pagedkv.ErrOutOfRange},
		{1, 21, stateBytes, pagedkv.ErrOutOfRange},
		{1, -1, stateBytes, pagedkv.ErrOutOfRange},
		{3, 20, stateBytes, pagedkv.ErrOutOfRange},
		{-1, 20, stateBytes, pagedkv.ErrOutOfRange},
		{0, 20, stateBytes, pagedkv.ErrUnsupported},
	} {
		refused(t, session.ReadState(wrong.layer, wrong.tokens, state[:wrong.size]), wrong.status)
	}
	refused(t, errorOf(session.TrimPoint(-1)), pagedkv.ErrOutOfRange, "-1")
	row := f32(make([]float32, 16))
	refused(t, session.Read(1, 0, 1, row, row), pagedkv.ErrUnsupported)
	refused(t, session.Append(1, 1, row, row), pagedkv.ErrUnsupported)

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
	refused(t, batch.Write(1, row, row), pagedkv.ErrUnsupported)
	refused(t, batch.Attend(1, row, row, nil), pagedkv.ErrUnsupported)
	refused(t, batch.Commit([]int32{1}), pagedkv.ErrIncomplete)
	must(t, batch.Abort())
	refused(t, errorOf(batch.States(1)), pagedkv.ErrStaleHandle)

	for _, group := range []pagedkv.LayerGroup{
		{Layers: 1, StateBytes: 8, Window: 4},
		{Layers: 1, StateBytes: 8, CheckpointTokens: 24},
		{Layers: 1, StateBytes: 8, DraftTokens: 257},
	} {
		refused(t, errorOf(pagedkv.NewCache(
			pagedkv.CacheConfig{Groups: []pagedkv.LayerGroup{group}, Blocks: 8},
		)), pagedkv.ErrInvalidArgument)
	}
}
