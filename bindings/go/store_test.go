package pagedkv_test

import (
	"path/filepath"
	"testing"
	"time"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
)

func prefetch(t *testing.T, cache *pagedkv.Cache, text []int32) {
	t.Helper()
	hint := pagedkv.Hint{Action: pagedkv.HintPrefetch, End: pagedkv.ToEnd}
	must(t, errorOf(cache.Prefix().Hint("", text, hint)))
}

func TestTextsComeBackFromADirectory(t *testing.T) {
	config := pagedkv.CacheConfig{Prefix: &pagedkv.PrefixConfig{},
		Store: &pagedkv.StoreConfig{
			Directory:   filepath.Join(t.TempDir(), "store"),
			Fingerprint: []byte("model"),
		}}
	first := newCache(t, config)
	session := open(t, first)
	text := numbered(1, 40)
	extend(t, session, text)
	must(t, session.Close())
	if queued, err := first.Store().Flush(20 * time.Second); err != nil || queued != 0 {
		t.Fatalf("%d blocks wait, %v", queued, err)
	}
	stats, err := first.Store().Stats()
	must(t, err)
	if stats.WrittenItems != 2 || stats.Down {
		t.Errorf("%+v", stats)
	}
	must(t, first.Close())

	second := newCache(t, config)
	prefetch(t, second, text)
	cached, err := second.Store().WaitForPrefetch("", text, 20*time.Second)
	if err != nil || cached != 32 {
		t.Errorf("%d tokens are back, %v", cached, err)
	}
	again := open(t, second)
	if matched, err := again.Admit(text, 0); err != nil || matched != 32 {
		t.Errorf("%d tokens matched, %v", matched, err)
	}
	plain := open(t, newCache(t, pagedkv.CacheConfig{}))
	extend(t, plain, text)
	extend(t, again, text[32:])
	near(t, "the next token", extend(t, again, []int32{99}), extend(t, plain, []int32{99}))
	must(t, second.Store().CancelPrefetch("", text))
	must(t, again.Suspend())
	prefetch(t, second, append(text, 99))

	refused(t, errorOf(newCache(t, pagedkv.CacheConfig{}).Store().Stats()), pagedkv.ErrUnsupported)
	config.Groups, config.Storage = plainModel(32), pagedkv.StorageExternal // no store
	refused(t, errorOf(pagedkv.NewCache(config)), pagedkv.ErrUnsupported)
	config.Storage = 0
	config.Store.SecretKey = pagedkv.NewSecret("")
	refused(t, errorOf(pagedkv.NewCache(config)), pagedkv.ErrInvalidArgument)
	config.Store.SecretKey = pagedkv.Secret{}
	config.Store.Directory = filepath.Join(config.Store.Directory, "no", "such", "folder")
	refused(t, errorOf(pagedkv.NewCache(config)), pagedkv.ErrIO)
}
