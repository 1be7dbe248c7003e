package pagedkv_test

import (
	"testing"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
)

// A head with a window gives the same results as all heads in a layer with that window.
func TestHeadWindows(t *testing.T) {
	batch, q := stepOverBlocks(t, pagedkv.CacheConfig{})
	attend := func(params pagedkv.AttentionParams) []float32 {
		out := make([]float32, chosenNew*4*32)
		must(t, batch.Attend(0, f32(q), f32(out), &params, nil))
		return out
	}
	windows := []uint32{30, 0}
	sinks := []uint32{5, 0}
	out := attend(pagedkv.AttentionParams{HeadWindows: windows, HeadSinks: sinks})
	narrow := attend(pagedkv.AttentionParams{Window: 30, Sinks: 5})
	whole := attend(pagedkv.AttentionParams{})
	for i, got := range out {
		wanted := whole[i]
		if i/32%4 < 2 { // query heads of the first KV head
			wanted = narrow[i]
		}
		if diff := got - wanted; diff > 1e-5 || diff < -1e-5 {
			t.Fatalf("number %d is %g, not %g", i, got, wanted)
		}
	}
	for _, wrong := range []pagedkv.AttentionParams{
		{HeadWindows: windows[:1]},
		{HeadSinks: []uint32{1, 2, 3}},
		{ChosenBlocks: &pagedkv.ChosenBlocks{TokensPerChoice: 2}},
	} {
		out := f32(make([]float32, chosenNew*4*32))
		refused(t, batch.Attend(0, f32(q), out, &wrong, nil), pagedkv.ErrInvalidArgument)
	}
}

func TestATreeChoosesTogether(t *testing.T) {
	batch, q := stepOverBlocks(t, pagedkv.CacheConfig{})
	chosen, outs := make([]uint32, 2*chosenTop), [2][]float32{}
	for i, lists := range [2][]uint32{nil, chosen} {
		outs[i] = make([]float32, chosenNew*4*32)
		blocks := &pagedkv.ChosenBlocks{TokensPerChoice: 1000, Lists: lists}
		outputs := pagedkv.AttentionOutputs{}
		if blocks.ListBlocks = chosenTop; lists == nil {
			blocks.TopBlocks, blocks.ListBlocks, outputs.Chosen = chosenTop, 0, chosen
		}
		must(t, batch.Attend(0, f32(q), f32(outs[i]), &pagedkv.AttentionParams{
			Mask: &pagedkv.Mask{Parents: []int32{-1, 0}}, ChosenBlocks: blocks,
		}, &outputs))
	}
	same(t, outs[1], outs[0]...)
}

func TestNoSinksInALayerWithSinks(t *testing.T) {
	batch, q := stepOverBlocks(t, pagedkv.CacheConfig{Groups: []pagedkv.LayerGroup{
		{Layers: 2, QueryHeads: 4, KVHeads: 2, KeyDim: 32, Window: 30, Sinks: 5},
	}})
	defer batch.Close()
	outs := [3][]float32{}
	for i, params := range []pagedkv.AttentionParams{
		{}, {Sinks: pagedkv.NoSinks},
		{HeadSinks: []uint32{pagedkv.NoHeadSinks, pagedkv.NoHeadSinks}},
	} {
		outs[i] = make([]float32, chosenNew*4*32)
		must(t, batch.Attend(0, f32(q), f32(outs[i]), &params, nil))
	}
	same(t, outs[2], outs[1]...)
	if outs[1][0] == outs[0][0] {
		t.Error("the sinks of the layer are still seen")
	}
}
