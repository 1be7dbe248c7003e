package pagedkv_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
)

// mapped tells whether this process has a file in the directory mapped.
func mapped(t *testing.T, directory string) bool {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	must(t, err)
	return strings.Contains(string(maps), directory)
}

func TestKeysAndValuesInAFile(t *testing.T) {
	directory := t.TempDir()
	var outs [2][]float32
	var chosen [2][]uint32
	for i, where := range []string{"", directory} {
		batch, q, _, _ := stepOverBlocks(t, pagedkv.CacheConfig{MemoryDirectory: where})
		if mapped(t, directory) != (where != "") {
			t.Errorf("memory in %q: a file is mapped where there should be none, or none", where)
		}
		chosen[i] = make([]uint32, chosenNew*2*chosenTop)
		for _, params := range []pagedkv.AttentionParams{
			{}, {ChosenBlocks: &pagedkv.ChosenBlocks{TopBlocks: chosenTop, Chosen: chosen[i]}},
		} {
			outs[i] = append(outs[i], attend(t, batch, 0, q, &params)...)
		}
		must(t, batch.Abort())
	}
	same(t, outs[1], outs[0]...)
	for i, block := range chosen[0] {
		if chosen[1][i] != block {
			t.Fatalf("%v were chosen, and %v in memory", chosen[1], chosen[0])
		}
	}
	left, err := os.ReadDir(directory)
	must(t, err)
	if len(left) != 0 {
		t.Errorf("the directory has %v", left)
	}
}

func TestDirectoriesThatAreNone(t *testing.T) {
	directory := t.TempDir()
	file, link := filepath.Join(directory, "file"), filepath.Join(directory, "link")
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Symlink(directory, link))
	config := pagedkv.CacheConfig{
		Groups: []pagedkv.LayerGroup{{Layers: 1, QueryHeads: 1, KVHeads: 1, KeyDim: 16}},
		Blocks: 4,
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
