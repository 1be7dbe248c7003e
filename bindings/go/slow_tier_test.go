package pagedkv_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
)

// mapped returns whether this process maps a file in the directory.
func mapped(t *testing.T, directory string) bool {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	must(t, err)
	return strings.Contains(string(maps), directory)
}

func TestKeysAndValuesInAFile(t *testing.T) {
	directory := t.TempDir()
	var outs [2][]float32
	for i, where := range []string{"", directory} {
		batch, q := stepOverBlocks(t, pagedkv.CacheConfig{MemoryDirectory: where})
		if runtime.GOOS != "windows" && mapped(t, directory) != (where != "") {
			t.Errorf("memory in %q: a file is mapped where there should be none, or none", where)
		}
		outs[i] = attend(t, batch, 0, q, nil)
		must(t, batch.Abort())
	}
	same(t, outs[1], outs[0]...)
}

func TestDirectoriesThatAreNone(t *testing.T) {
	directory := t.TempDir()
	file, link := filepath.Join(directory, "file"), filepath.Join(directory, "link")
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Symlink(directory, link))
	config := pagedkv.CacheConfig{
		Groups: []pagedkv.LayerGroup{
			{Layers: 1, QueryHeads: 1, KVHeads: 1, KeyDim: 16, Blocks: 4},
		},
	}
	create := func(directory string) error {
		config.MemoryDirectory = directory
		_, err := pagedkv.NewCache(config)
		return err
	}
	for _, wrong := range []string{file, link, filepath.Join(directory, "nowhere")} {
		refused(t, create(wrong), pagedkv.ErrIO, wrong)
	}
	refused(
		t, create(directory+"\x00"), pagedkv.ErrInvalidArgument,
		"MemoryDirectory: there is a NUL in it",
	)
	config.HugePages = pagedkv.HugePagesRequire
	refused(t, create(directory), pagedkv.ErrInvalidArgument, "huge pages")
	config.HugePages, config.Storage = 0, pagedkv.StorageNone
	refused(t, create(directory), pagedkv.ErrUnsupported, "memory_directory needs storage PAGED")
}
