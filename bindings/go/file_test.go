package pagedkv_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
)

// saved is a cache with a session of 40 tokens, and a snapshot of its first 20.
func saved(t *testing.T) (*pagedkv.Cache, []pagedkv.FileItem) {
	cache := newCache(t, pagedkv.CacheConfig{})
	session := open(t, cache)
	extend(t, session, numbered(1, 20))
	frozen, err := session.Snapshot()
	must(t, err)
	if frozen.Length() != 20 {
		t.Errorf("the snapshot has %d tokens", frozen.Length())
	}
	extend(t, session, numbered(21, 20))
	return cache, []pagedkv.FileItem{{Session: session, Label: 7}, {Snapshot: frozen, Label: 8}}
}

// checkLoaded compares the loaded sessions with the saved ones: tokens, labels and attention.
func checkLoaded(t *testing.T, loaded []pagedkv.Loaded, err error) {
	t.Helper()
	must(t, err)
	if len(loaded) != 2 || loaded[0].Label != 7 || loaded[1].Label != 8 {
		t.Fatalf("loaded %+v", loaded)
	}
	for i, length := range []int{40, 20} {
		got := make([]int32, length)
		must(t, loaded[i].Session.Tokens(0, got))
		if held, err := loaded[i].Session.Length(); err != nil || held != length ||
			!reflect.DeepEqual(got, numbered(1, length)) {
			t.Errorf("session %d has %d tokens: %v, %v", i, held, got, err)
		}
		fresh := open(t, newCache(t, pagedkv.CacheConfig{}))
		extend(t, fresh, numbered(1, length))
		near(
			t, "the next token", extend(t, loaded[i].Session, []int32{99}),
			extend(t, fresh, []int32{99}),
		)
	}
	must(t, loaded[0].Session.Cache().Validate())
}

func TestFilesComeBack(t *testing.T) {
	cache, items := saved(t)
	path := filepath.Join(t.TempDir(), "sessions")
	config := &pagedkv.FileConfig{Fingerprint: []byte("model"), Durability: pagedkv.DurabilityOff}
	size, err := cache.SaveFile(path, config, items...)
	must(t, err)
	onDisk, err := os.ReadFile(path)
	must(t, err)
	info, err := pagedkv.InspectFile(path, config)
	must(t, err)
	if uint64(len(onDisk)) != size || info.Bytes != size || info.Sessions != 2 ||
		info.Tokens != 60 ||
		!info.HasKV ||
		info.Encrypted ||
		string(info.Fingerprint[:info.FingerprintSize]) != "model" {
		t.Errorf("%d bytes, %d on disk, %+v", size, len(onDisk), info)
	}
	loaded, err := newCache(
		t, pagedkv.CacheConfig{BlockSize: 32, Layout: pagedkv.LayoutPlain},
	).LoadFile(path, config)
	checkLoaded(t, loaded, err)

	other := newCache(t, pagedkv.CacheConfig{})
	keyed := &pagedkv.FileConfig{
		Fingerprint: []byte("model"),
		SecretKey:   pagedkv.NewSecret("a key of 24 secret bytes"),
		TrustSalts:  true,
	}
	var encrypted bytes.Buffer
	_, err = cache.SaveTo(&encrypted, keyed, items...)
	if errors.Is(err, pagedkv.ErrUnsupported) {
		t.Skip("this build is without libsodium or libcrypto")
	}
	must(t, err)
	loaded, err = other.LoadFrom(bytes.NewReader(encrypted.Bytes()), keyed)
	checkLoaded(t, loaded, err)
	for _, one := range loaded {
		must(t, one.Session.Close())
	}
	_, err = other.LoadFrom(bytes.NewReader(encrypted.Bytes()), config)
	refused(t, err, pagedkv.ErrWrongKey)
	_, err = cache.SaveTo(&encrypted, &pagedkv.FileConfig{SecretKey: pagedkv.NewSecret("")}, items...)
	refused(t, err, pagedkv.ErrInvalidArgument)
	_, err = other.LoadFile(path, &pagedkv.FileConfig{Fingerprint: []byte("another")})
	refused(t, err, pagedkv.ErrMismatch)
	onDisk[len(onDisk)/2] ^= 1
	_, err = other.LoadFrom(bytes.NewReader(onDisk), config)
	refused(t, err, pagedkv.ErrCorrupt)
	if !errors.Is(err, pagedkv.ErrCorrupted) {
		t.Errorf("of another family: %v", err)
	}
	_, err = other.LoadFile(filepath.Join(t.TempDir(), "none"), nil)
	refused(t, err, pagedkv.ErrIO)
	if !errors.Is(err, syscall.ENOENT) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %#v", err)
	}
	_, err = cache.SaveFile("a\x00b", nil)
	refused(t, err, pagedkv.ErrInvalidArgument, `a\x00b`)
	_, err = cache.SaveFile(path, nil, pagedkv.FileItem{})
	refused(t, err, pagedkv.ErrInvalidArgument)
	if stats, err := other.Stats(); err != nil || stats.Sessions != 0 {
		t.Errorf("a load that failed left %+v, %v", stats, err)
	}
	if pools, err := other.PoolStats(pagedkv.AllGroups); err != nil || pools.HeldBlocks != 0 {
		t.Errorf("a load that failed left %+v, %v", pools, err)
	}
}

func TestReadersAndWriters(t *testing.T) {
	cache, items := saved(t)
	var buffer bytes.Buffer
	size, err := cache.SaveTo(&buffer, nil, items...)
	must(t, err)
	if uint64(buffer.Len()) != size {
		t.Errorf("%d bytes written, %d told", buffer.Len(), size)
	}
	whole := append([]byte{}, buffer.Bytes()...)
	buffer.WriteString("what follows")
	loaded, err := newCache(t, pagedkv.CacheConfig{}).LoadFrom(&buffer, nil)
	checkLoaded(t, loaded, err)
	if rest := buffer.String(); rest != "what follows" {
		t.Errorf("left in the reader: %q", rest)
	}
	info, err := pagedkv.Inspect(bytes.NewReader(whole), nil)
	if err != nil || info.Sessions != 2 {
		t.Errorf("%+v, %v", info, err)
	}
	// Byte by byte, like a slow connection.
	loaded, err = newCache(t, pagedkv.CacheConfig{}).LoadFrom(oneByte{bytes.NewReader(whole)}, nil)
	checkLoaded(t, loaded, err)

	other := newCache(t, pagedkv.CacheConfig{})
	reason := errors.New("the line is dead")
	_, err = other.LoadFrom(
		io.MultiReader(bytes.NewReader(whole[:len(whole)/2]), failing{reason}), nil,
	)
	refused(t, err, pagedkv.ErrIO, reason.Error())
	if !errors.Is(err, reason) || !errors.Is(err, pagedkv.ErrSystem) {
		t.Errorf("the reader's error is lost: %v", err)
	}
	_, err = cache.SaveTo(failing{syscall.ENOSPC}, nil, items...)
	refused(t, err, pagedkv.ErrIO, strings.ToLower(syscall.ENOSPC.Error()))
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("the writer's error is lost: %v", err)
	}
}

type oneByte struct{ r io.Reader }

func (o oneByte) Read(p []byte) (int, error) { return o.r.Read(p[:1]) }

type failing struct{ err error }

func (f failing) Read([]byte) (int, error)  { return 0, f.err }
func (f failing) Write([]byte) (int, error) { return 0, f.err }
