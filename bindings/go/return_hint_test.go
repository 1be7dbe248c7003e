package pagedkv_test

import (
	"errors"
	"testing"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
)

func newHintCache(t *testing.T) *pagedkv.Cache {
	t.Helper()
	return newCache(t, pagedkv.CacheConfig{
		Groups:  []pagedkv.LayerGroup{{Layers: 1, QueryHeads: 1, KVHeads: 1, KeyDim: 16}},
		Storage: pagedkv.StorageNone, Blocks: 32, Prefix: &pagedkv.PrefixConfig{},
	})
}

// serveWithHint computes a text of two full blocks, and tells whether they were cached.
func serveWithHint(t *testing.T, cache *pagedkv.Cache, text int32, hint uint32) bool {
	t.Helper()
	tokens := make([]int32, 33)
	for i := range tokens {
		tokens[i] = text
	}
	session := open(t, cache)
	matched, err := session.MatchPrefix(tokens)
	must(t, err)
	batch := begin(t, cache, step(session, len(tokens)-matched))
	must(t, batch.Commit(tokens[matched:]))
	must(t, session.SetReturnHint(hint))
	must(t, session.Close())
	return matched == 32
}

// serveMany lets one in nine texts go on, after 72 others; the cache has room for 16. Nothing but
// the hints tells them apart. It returns how many of 292 were still cached.
func serveMany(t *testing.T, soon, never uint32) (found int) {
	t.Helper()
	cache := newHintCache(t)
	var coming []int32
	text := int32(0)
	for round := 0; round < 300; round++ {
		for i := 0; i < 8; i++ {
			serveWithHint(t, cache, text, never)
			text++
		}
		serveWithHint(t, cache, text, soon)
		coming = append(coming, text)
		text++
		if len(coming) > 8 {
			if serveWithHint(t, cache, coming[0], never) {
				found++
			}
			coming = coming[1:]
		}
	}
	return found
}

func TestReturnHintsKeepTextsThatGoOn(t *testing.T) {
	if found := serveMany(t, 30, pagedkv.ReturnHintNever); found <= 200 {
		t.Errorf("%d of 292 texts found", found)
	}
	if found := serveMany(t, 0, 0); found >= 50 {
		t.Errorf("%d of 292 texts found without a hint", found)
	}
}

func TestReturnHintOfWhatTakesNone(t *testing.T) {
	cache := newHintCache(t)
	session := open(t, cache)
	for _, hint := range []uint32{0, 1, pagedkv.ReturnHintNever - 1, pagedkv.ReturnHintNever} {
		must(t, session.SetReturnHint(hint))
	}
	batch := begin(t, cache, step(session, 1))
	if err := session.SetReturnHint(30); !errors.Is(err, pagedkv.ErrBusy) {
		t.Errorf("a session in a batch: %v", err)
	}
	must(t, batch.Close())
	must(t, session.Close())
	if err := session.SetReturnHint(30); !errors.Is(err, pagedkv.ErrStaleHandle) {
		t.Errorf("a closed session: %v", err)
	}
	var never pagedkv.Session
	if err := never.SetReturnHint(30); !errors.Is(err, pagedkv.ErrInvalidArgument) {
		t.Errorf("a session that was never opened: %v", err)
	}
}
