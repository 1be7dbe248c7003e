package main

import (
	"math"
	"sort"

	"github.com/pagedkv/pagedkv/bindings/go/engines/llama"
)

// sampler chooses the next token; its draws depend only on the seed and the session's number.
type sampler struct {
	temperature, topP float64
	state             uint64
}

func newSampler(temperature, topP float64, seed, stream uint64) sampler {
	s := sampler{temperature, topP, seed}
	s.state = s.random() ^ stream*0xD1342543DE82EF95
	return s
}

// random is SplitMix64 (Steele, Lea and Flood 2014).
func (s *sampler) random() uint64 {
	s.state += 0x9E3779B97F4A7C15
	z := s.state
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// next returns a token, and the sampler for the token after it.
func (s sampler) next(logits []float32) (int32, sampler, error) {
	best, err := llama.Best(logits)
	if err != nil || s.temperature <= 0 {
		return int32(best), s, err
	}
	draw := float64(s.random()>>11) / (1 << 53)
	probabilities, order, sum := make([]float64, len(logits)), make([]int, len(logits)), 0.0
	for i, logit := range logits {
		probabilities[i] = math.Exp((float64(logit) - float64(logits[best])) / s.temperature)
		order[i] = i
		sum += probabilities[i]
	}
	sort.SliceStable(
		order, func(a, b int) bool { return probabilities[order[a]] > probabilities[order[b]] },
	)
	count, kept := 0, 0.0
	for count < len(order) && (count == 0 || kept < s.topP*sum) {
		kept += probabilities[order[count]]
		count++
	}
	chosen, below := 0, probabilities[order[0]]
	for chosen+1 < count && below <= draw*kept {
		chosen++
		below += probabilities[order[chosen]]
	}
	return int32(order[chosen]), s, nil
}
