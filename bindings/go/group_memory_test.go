package pagedkv_test

import (
	"errors"
	"testing"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
)

func TestGroupMemory(t *testing.T) {
	config := pagedkv.CacheConfig{
		Groups: []pagedkv.LayerGroup{
			{Layers: 1, QueryHeads: 1, KVHeads: 1, KeyDim: 16},
			{Layers: 5, QueryHeads: 1, KVHeads: 1, KeyDim: 16, Window: 64},
		},
		Storage: pagedkv.StorageNone, GroupsShareMemory: true, MemoryBytes: 1 << 19,
	}
	cache, err := pagedkv.NewCache(config)
	must(t, err)
	t.Cleanup(func() { must(t, cache.Close()) })
	empty, err := cache.Stats()
	must(t, err)
	if empty.Pages < 8 || empty.FreePages != empty.Pages {
		t.Errorf("an empty cache has %d of %d pages free", empty.FreePages, empty.Pages)
	}
	batch := begin(t, cache, step(open(t, cache), 16))
	must(t, batch.Commit(nil))
	used, err := cache.Stats()
	must(t, err)
	if used.FreePages != empty.Pages-2 {
		t.Errorf("a block of each group leaves %d of %d pages", used.FreePages, used.Pages)
	}
	config.Groups[0].Blocks = 4
	if _, err := pagedkv.NewCache(config); !errors.Is(err, pagedkv.ErrInvalidArgument) {
		t.Errorf("blocks beside one memory: %v", err)
	}
}
