package pagedkv_test

import (
	"testing"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
)

const (
	chosenTokens = 202 // the last two are the step
	chosenNew    = 2
	chosenTop    = 3
	stepBlock    = 12 // the block in which the step begins
)

// stepOverBlocks makes a step of a cache of the default model with its keys and values written. It
// returns queries of its first layer.
func stepOverBlocks(
	t *testing.T, config pagedkv.CacheConfig,
) (batch *pagedkv.Batch, q []float32) {
	t.Helper()
	cache := newCache(t, config)
	session := open(t, cache)
	rows := histories(numbered(5, chosenTokens))
	before := chosenTokens - chosenNew
	extend(t, session, numbered(5, before))
	batch = begin(t, cache, step(session, chosenNew))
	write(t, batch, 0, rows[before:])
	return batch, rowsOf(rows[before:], kindQ, 0, 4, 32)
}

func TestChosenBlocks(t *testing.T) {
	batch, q := stepOverBlocks(t, pagedkv.CacheConfig{})
	defer batch.Close()
	attend := func(blocks *pagedkv.ChosenBlocks, chosen []uint32) []float32 {
		t.Helper()
		out := make([]float32, len(q))
		params := pagedkv.AttentionParams{ChosenBlocks: blocks}
		outputs := pagedkv.AttentionOutputs{Chosen: chosen}
		must(t, batch.Attend(0, f32(q), f32(out), &params, &outputs))
		return out
	}
	for _, always := range []struct{ first, last, firstBlocks, lastBlocks int }{
		{0, 0, 1, 1},
		{pagedkv.NoFirstBlocks, pagedkv.NoLastBlocks, 0, 0},
		{2, 3, 2, 3},
	} {
		choosing := pagedkv.ChosenBlocks{FirstBlocks: always.first, LastBlocks: always.last}
		listed := choosing
		chosen := make([]uint32, chosenNew*2*chosenTop)
		choosing.TopBlocks = chosenTop
		out := attend(&choosing, chosen)
		for i, block := range chosen {
			if int(block) < always.firstBlocks || int(block) >= stepBlock-always.lastBlocks ||
				i%chosenTop > 0 && block <= chosen[i-1] {
				t.Errorf("%v were chosen", chosen)
			}
		}
		listed.Lists, listed.ListBlocks = chosen, chosenTop
		same(t, attend(&listed, nil), out...)
	}
	// Top may exceed the number of blocks, or be 0.
	all := make([]uint32, chosenNew*2*12)
	out := attend(&pagedkv.ChosenBlocks{TopBlocks: 12}, all)
	same(t, out, attend(nil, nil)...)
	if all[0] != 1 || all[9] != 10 || all[10] != pagedkv.NoBlock || all[11] != pagedkv.NoBlock {
		t.Errorf("%v were chosen", all)
	}
	none := attend(&pagedkv.ChosenBlocks{Lists: []uint32{}}, nil)
	same(t, none, attend(&pagedkv.ChosenBlocks{Lists: make([]uint32, 4), ListBlocks: 1}, nil)...)
}

func TestChosenBlocksAreCheckedAgainstShapes(t *testing.T) {
	batch, q := stepOverBlocks(t, pagedkv.CacheConfig{})
	defer batch.Close()
	lists := func(entries int) []uint32 { return make([]uint32, entries) }
	for _, wrong := range []struct {
		blocks pagedkv.ChosenBlocks
		status pagedkv.Status
		part   string
	}{
		{
			pagedkv.ChosenBlocks{Lists: lists(11), ListBlocks: 3}, pagedkv.ErrInvalidArgument,
			"Lists has 11 entries: 2 choices of 2 KV heads of 3 blocks are needed",
		},
		{pagedkv.ChosenBlocks{Lists: lists(12)}, pagedkv.ErrInvalidArgument, "of 0 blocks"},
		{
			pagedkv.ChosenBlocks{Lists: lists(0), ListBlocks: 3}, pagedkv.ErrInvalidArgument,
			"Lists has 0 entries",
		},
		{
			pagedkv.ChosenBlocks{TopBlocks: 1, ListBlocks: 3}, pagedkv.ErrInvalidArgument, "lists is NULL",
		},
		{pagedkv.ChosenBlocks{Lists: lists(4), ListBlocks: -1}, pagedkv.ErrOutOfRange, "ListBlocks"},
		{
			pagedkv.ChosenBlocks{Lists: lists(4), ListBlocks: 1<<62 + 1}, pagedkv.ErrOutOfRange,
			"ListBlocks",
		},
		{
			pagedkv.ChosenBlocks{Lists: lists(4), ListBlocks: 1, TopBlocks: 1}, pagedkv.ErrInvalidArgument,
			"give one of the two",
		},
		{pagedkv.ChosenBlocks{}, pagedkv.ErrInvalidArgument, "give one of the two"},
		{pagedkv.ChosenBlocks{TopBlocks: -1}, pagedkv.ErrOutOfRange, "TopBlocks"},
		{pagedkv.ChosenBlocks{TopBlocks: 1, FirstBlocks: -2}, pagedkv.ErrOutOfRange, "FirstBlocks"},
		{pagedkv.ChosenBlocks{TopBlocks: 1, LastBlocks: -2}, pagedkv.ErrOutOfRange, "LastBlocks"},
		{
			pagedkv.ChosenBlocks{Lists: []uint32{1, 2, 3, 13}, ListBlocks: 1}, pagedkv.ErrOutOfRange,
			"has block 13",
		},
	} {
		out := make([]float32, len(q))
		params := pagedkv.AttentionParams{ChosenBlocks: &wrong.blocks}
		err := batch.Attend(0, f32(q), f32(out), &params, nil)
		refused(t, err, wrong.status, wrong.part)
	}
	for _, wrong := range []struct {
		blocks *pagedkv.ChosenBlocks
		chosen []uint32
		part   string
	}{
		{&pagedkv.ChosenBlocks{TopBlocks: 3}, lists(13), "Chosen has 13"},
		{&pagedkv.ChosenBlocks{TopBlocks: 1<<31 - 1}, lists(4), "Chosen has 4"},
		{&pagedkv.ChosenBlocks{Lists: lists(0)}, lists(0), "top_blocks is 0"},
		{nil, lists(4), "Chosen has 4"},
	} {
		out := make([]float32, len(q))
		params := pagedkv.AttentionParams{ChosenBlocks: wrong.blocks}
		outputs := pagedkv.AttentionOutputs{Chosen: wrong.chosen}
		err := batch.Attend(0, f32(q), f32(out), &params, &outputs)
		refused(t, err, pagedkv.ErrInvalidArgument, wrong.part)
	}
}
