package pagedkv_test

import (
	"math"
	"testing"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
)

func TestBlockMass(t *testing.T) {
	cache := newCache(t, pagedkv.CacheConfig{
		Groups: []pagedkv.LayerGroup{{Layers: 1, QueryHeads: 2, KVHeads: 1, KeyDim: 16}},
	})
	numbers := func(count int) []float32 {
		made := make([]float32, count)
		for i := range made {
			made[i] = float32(i*37%23) / 23
		}
		return made
	}
	batch := begin(t, cache, step(open(t, cache), 40))
	must(t, batch.Write(0, f32(numbers(40*16)), f32(numbers(40*16))))
	q, out := f32(numbers(40*2*16)), f32(make([]float32, 40*2*16))
	for queries, whole := range map[int]float64{0: 40, 7: 7} {
		mass := make([]float32, 2*3)
		must(t, batch.Attend(0, q, out, nil, &pagedkv.AttentionOutputs{
			Masses: mass, MassBlocks: 3, MassQueries: queries,
		}))
		for head := 0; head < 2; head++ {
			sum := float64(mass[head*3] + mass[head*3+1] + mass[head*3+2])
			if math.Abs(sum-whole) > 1e-3 {
				t.Errorf("head %d has the mass %g of %g", head, sum, whole)
			}
		}
	}
	for _, wrong := range []pagedkv.AttentionOutputs{
		{Masses: make([]float32, 5), MassBlocks: 3}, {Masses: make([]float32, 4), MassBlocks: 2},
		{MassBlocks: 3}, {MassQueries: 1},
	} {
		refused(t, batch.Attend(0, q, out, nil, &wrong), pagedkv.ErrInvalidArgument)
	}
	must(t, batch.Abort())
}
