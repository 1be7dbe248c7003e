package pagedkv_test

import (
	"errors"
	"testing"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
)

func TestDropBlocks(t *testing.T) {
	cache := newCache(t, pagedkv.CacheConfig{
		Groups:  []pagedkv.LayerGroup{{Layers: 1, QueryHeads: 1, KVHeads: 1, KeyDim: 16}},
		Storage: pagedkv.StorageExternal,
	})
	session := open(t, cache)
	batch := begin(t, cache, step(session, 100))
	must(t, batch.Commit(nil))

	must(t, session.DropBlocks(0, []uint32{1, 3}))
	table, err := session.BlockTable(0)
	must(t, err)
	for i, id := range table {
		if (id == pagedkv.NoBlockID) != (i == 1 || i == 3) {
			t.Errorf("block %d is %d", i, id)
		}
	}
	length, err := session.TrimPoint(60)
	must(t, err)
	if length != 48 {
		t.Errorf("60 tokens can be trimmed to %d, not to 48", length)
	}
	if err := session.DropBlocks(0, []uint32{6}); !errors.Is(err, pagedkv.ErrOutOfRange) {
		t.Errorf("a block that is not full: %v", err)
	}
	if err := session.DropBlocks(-1, nil); !errors.Is(err, pagedkv.ErrOutOfRange) {
		t.Errorf("group -1: %v", err)
	}
	must(t, session.DropBlocks(0, nil))
}
