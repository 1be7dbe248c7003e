package pagedkv_test

// The rows of bindings/scenarios/README.md, all of which depend only on the text.

const golden = 0x9E3779B97F4A7C15

func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xBF58476D1CE4E5B9
	x ^= x >> 27
	x *= 0x94D049BB133111EB
	return x ^ x>>31
}

func tokenID(seed, i uint64) int32 { return int32(mix(seed<<32+i) % (1 << 20)) }

const (
	kindK = 0
	kindV = 1
	kindQ = 2
)

// histories of a text: one number per position.
func histories(text []int32) []uint64 {
	all := make([]uint64, len(text))
	var h uint64
	for p, id := range text {
		h = mix(h + golden*(uint64(id)+1))
		all[p] = h
	}
	return all
}

// rowsOf returns [len(histories)][heads][dim].
func rowsOf(histories []uint64, kind, layer, heads, dim int) []float32 {
	rows := make([]float32, 0, len(histories)*heads*dim)
	factor := 1.0
	if kind == kindQ {
		factor = 4
	}
	for _, h := range histories {
		for head := 0; head < heads; head++ {
			for d := 0; d < dim; d++ {
				place := uint64(((layer*4+kind)*64+head)*1024 + d)
				rows = append(
					rows, float32(factor*(float64(mix(h+golden*(1+place))>>40)/(1<<23)-1)),
				)
			}
		}
	}
	return rows
}
