package pagedkv_test

import (
	"bytes"
	"errors"
	"sync"
	"syscall"
	"testing"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
)

const elsewhereBytes = 100

// An engine that has the bytes of two groups' blocks.
type engine struct {
	sync.Mutex
	blocks map[[2]uint32][]byte
	err    error
}

func (e *engine) Read(group int, blocks, tokens []uint32, to []byte) error {
	e.Lock()
	defer e.Unlock()
	for i, block := range blocks {
		if tokens[i] == 0 || tokens[i] > 16 {
			return errors.New("a wrong number of tokens")
		}
		copy(to[i*elsewhereBytes:(i+1)*elsewhereBytes], e.blocks[[2]uint32{uint32(group), block}])
	}
	return e.err
}

func (e *engine) Write(group int, blocks []uint32, from []byte) error {
	e.Lock()
	defer e.Unlock()
	for i, block := range blocks {
		e.blocks[[2]uint32{uint32(group), block}] =
			append([]byte(nil), from[i*elsewhereBytes:(i+1)*elsewhereBytes]...)
	}
	return e.err
}

// visit calls visit for each block of a session, with the byte that fills it.
func visit(t *testing.T, session *pagedkv.Session, visit func(key [2]uint32, mark byte)) {
	t.Helper()
	for group := 0; group < 2; group++ {
		table, err := session.BlockTable(group)
		must(t, err)
		for i, block := range table {
			visit([2]uint32{uint32(group), block}, byte(10*group+i+1))
		}
	}
}

func (e *engine) compute(t *testing.T, cache *pagedkv.Cache, text []int32) *pagedkv.Session {
	t.Helper()
	session := open(t, cache)
	batch, err := cache.Begin(pagedkv.Step{Session: session, NewTokens: len(text)})
	must(t, err)
	must(t, batch.Commit(text))
	e.Lock()
	defer e.Unlock()
	visit(t, session, func(key [2]uint32, mark byte) {
		e.blocks[key] = bytes.Repeat([]byte{mark}, elsewhereBytes)
	})
	return session
}

func (e *engine) check(t *testing.T, session *pagedkv.Session) {
	t.Helper()
	e.Lock()
	defer e.Unlock()
	visit(t, session, func(key [2]uint32, mark byte) {
		if !bytes.Equal(e.blocks[key], bytes.Repeat([]byte{mark}, elsewhereBytes)) {
			t.Errorf("block %v is %v, not %d", key, e.blocks[key], mark)
		}
	})
}

func elsewhere() (*engine, pagedkv.CacheConfig) {
	own := &engine{blocks: map[[2]uint32][]byte{}}
	group := pagedkv.LayerGroup{
		Layers: 1, Kind: pagedkv.LayersOpaqueKV, LayerBytes: elsewhereBytes, Blocks: 16,
	}
	return own, pagedkv.CacheConfig{
		Groups: []pagedkv.LayerGroup{group, group}, Storage: pagedkv.StorageExternal,
		Prefix: &pagedkv.PrefixConfig{}, BlockIO: own,
	}
}

func TestAnErrorOfBlockIOIsThatOfASave(t *testing.T) {
	own, config := elsewhere()
	cache, err := pagedkv.NewCache(config)
	must(t, err)
	defer cache.Close()
	session := own.compute(t, cache, numbered(1, 40))
	var file bytes.Buffer
	save := func() error {
		file.Reset()
		_, err := cache.SaveTo(&file, nil, pagedkv.FileItem{Session: session})
		return err
	}
	for _, each := range []struct {
		err    error
		number syscall.Errno
	}{{syscall.ENOSPC, syscall.ENOSPC}, {errors.New("a lost device"), syscall.EIO}} {
		own.err = each.err
		err := save()
		refused(t, err, pagedkv.ErrIO)
		if !errors.Is(err, each.number) || !errors.Is(err, each.err) {
			t.Errorf("%v", err)
		}
	}
	own.err = nil
	must(t, save())
	other, config := elsewhere()
	loading, err := pagedkv.NewCache(config)
	must(t, err)
	defer loading.Close()
	loaded, err := loading.LoadFrom(&file, nil)
	must(t, err)
	other.check(t, loaded[0].Session)
}
