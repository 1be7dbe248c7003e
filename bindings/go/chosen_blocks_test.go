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
	} {
		choosing := pagedkv.ChosenBlocks{FirstBlocks: always.first, LastBlocks: always.last}
		listed := choosing
		chosen := make([]uint32, chosenNew*2*chosenTop)
		choosing.TopBlocks = chosenTop
		out := attend(&choosing, chosen)
		for _, block := range chosen {
			if int(block) < always.firstBlocks || int(block) >= stepBlock-always.lastBlocks {
				t.Errorf("%v were chosen", chosen)
			}
		}
		listed.Lists, listed.ListBlocks = chosen, chosenTop
		same(t, attend(&listed, nil), out...)
	}
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
		{pagedkv.ChosenBlocks{Lists: lists(4), ListBlocks: -1}, pagedkv.ErrOutOfRange, "ListBlocks"},
		{
			pagedkv.ChosenBlocks{Lists: lists(4), ListBlocks: 1<<62 + 1}, pagedkv.ErrOutOfRange,
			"ListBlocks",
		},
		{pagedkv.ChosenBlocks{TopBlocks: -1}, pagedkv.ErrOutOfRange, "TopBlocks"},
		{pagedkv.ChosenBlocks{TopBlocks: 1, FirstBlocks: -2}, pagedkv.ErrOutOfRange, "FirstBlocks"},
		{pagedkv.ChosenBlocks{TopBlocks: 1, LastBlocks: -2}, pagedkv.ErrOutOfRange, "LastBlocks"},
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
		{nil, lists(4), "Chosen has 4"},
	} {
		out := make([]float32, len(q))
		params := pagedkv.AttentionParams{ChosenBlocks: wrong.blocks}
		outputs := pagedkv.AttentionOutputs{Chosen: wrong.chosen}
		err := batch.Attend(0, f32(q), f32(out), &params, &outputs)
		refused(t, err, pagedkv.ErrInvalidArgument, wrong.part)
	}
	for _, wrong := range []pagedkv.AttentionParams{
		{KVHeadWindows: []uint32{30}}, {KVHeadSinkTokens: []uint32{1, 2, 3}},
	} {
		err := batch.Attend(0, f32(q), f32(make([]float32, len(q))), &wrong, nil)
		refused(t, err, pagedkv.ErrInvalidArgument)
	}
	for _, wrong := range []pagedkv.AttentionOutputs{
		{Masses: make([]float32, 51), MassBlocks: 13}, {Masses: make([]float32, 48), MassBlocks: 12},
		{MassBlocks: 13}, {MassQueries: 1},
	} {
		err := batch.Attend(0, f32(q), f32(make([]float32, len(q))), nil, &wrong)
		refused(t, err, pagedkv.ErrInvalidArgument)
	}
}

func TestNoSinksInALayerWithSinks(t *testing.T) {
	batch, q := stepOverBlocks(t, pagedkv.CacheConfig{Groups: []pagedkv.LayerGroup{
		{Layers: 2, QueryHeads: 4, KVHeads: 2, KeyDim: 32, Window: 30, SinkTokens: 5},
	}})
	defer batch.Close()
	outs := [3][]float32{}
	for i, params := range []pagedkv.AttentionParams{
		{}, {SinkTokens: pagedkv.NoSinkTokens},
		{KVHeadSinkTokens: []uint32{pagedkv.NoHeadSinkTokens, pagedkv.NoHeadSinkTokens}},
	} {
		outs[i] = make([]float32, chosenNew*4*32)
		must(t, batch.Attend(0, f32(q), f32(outs[i]), &params, nil))
	}
	same(t, outs[2], outs[1]...)
	if outs[1][0] == outs[0][0] {
		t.Error("the sinks of the layer are still seen")
	}
}
