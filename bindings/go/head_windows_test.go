package pagedkv_test

import (
	"testing"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
)

// A head with a window gives what all heads give in a layer with that window.
func TestHeadWindows(t *testing.T) {
	batch, q, _, _ := stepOverBlocks(t)
	attend := func(params pagedkv.AttentionParams) []float32 {
		out := make([]float32, chosenNew*4*32)
		must(t, batch.Attend(0, pagedkv.Float32(q), pagedkv.Float32(out), &params))
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
		{ChooseTogether: true},
	} {
		out := pagedkv.Float32(make([]float32, chosenNew*4*32))
		refused(t, batch.Attend(0, pagedkv.Float32(q), out, &wrong), pagedkv.ErrInvalidArgument)
	}
}

func TestATreeChoosesTogether(t *testing.T) {
	batch, q, _, _ := stepOverBlocks(t)
	chosen := make([]uint32, chosenNew*2*chosenTop)
	out := pagedkv.Float32(make([]float32, chosenNew*4*32))
	must(t, batch.Attend(0, pagedkv.Float32(q), out, &pagedkv.AttentionParams{
		Parents: []int32{-1, 0}, TopBlocks: chosenTop, ChooseTogether: true, ChosenBlocks: chosen,
	}))
	for i := 0; i < 2*chosenTop; i++ {
		if chosen[i] != chosen[2*chosenTop+i] {
			t.Errorf("the tokens chose %v", chosen)
		}
	}
}
