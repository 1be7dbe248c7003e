package pagedkv_test

import (
	"testing"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
)

func TestMemoryDirectory(t *testing.T) {
	config := pagedkv.CacheConfig{
		Groups: []pagedkv.LayerGroup{
			{Layers: 1, QueryHeads: 1, KVHeads: 1, KeyDim: 16, Blocks: 4},
		},
		MemoryDirectory: t.TempDir(),
	}
	cache, err := pagedkv.NewCache(config)
	must(t, err)
	must(t, cache.Close())
	config.MemoryDirectory += "/nowhere"
	refused(t, errorOf(pagedkv.NewCache(config)), pagedkv.ErrIO, config.MemoryDirectory)
	config.MemoryDirectory += "\x00"
	refused(
		t, errorOf(pagedkv.NewCache(config)), pagedkv.ErrInvalidArgument,
		"MemoryDirectory: there is a NUL in it",
	)
}
