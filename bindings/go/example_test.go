package pagedkv_test

import (
	"errors"
	"fmt"
	"log"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// A model of one layer with one head of 16 dims, small enough to follow.
func smallCache(blocks uint64, prefix *pagedkv.PrefixConfig) *pagedkv.Cache {
	cache, err := pagedkv.NewCache(pagedkv.CacheConfig{
		Groups: []pagedkv.LayerGroup{
			{Layers: 1, QueryHeads: 1, KVHeads: 1, KeyDim: 16, Blocks: blocks},
		},
		Prefix: prefix,
	})
	check(err)
	return cache
}

// compute runs a step of one session that writes rows of zeros for the tokens.
func compute(cache *pagedkv.Cache, session *pagedkv.Session, tokens []int32) error {
	batch, err := cache.Begin(step(session, len(tokens)))
	if err != nil {
		return err
	}
	defer batch.Close()
	rows := f32(make([]float32, len(tokens)*16))
	if err := batch.Write(0, rows, rows); err != nil {
		return err
	}
	return batch.Commit(tokens)
}

func Example() {
	cache := smallCache(8, nil)
	defer cache.Close()
	session, err := cache.OpenSession(nil)
	check(err)

	k, v := make([]float32, 2*16), make([]float32, 2*16)
	q, out := make([]float32, 2*16), make([]float32, 2*16)
	v[0], v[16] = 1, 3 // all keys are equal, so attention gives the mean of the values so far

	batch, err := cache.Begin(step(session, 2))
	check(err)
	defer batch.Close()
	check(batch.Write(0, f32(k), f32(v)))
	check(batch.Attend(0, f32(q), f32(out), nil, nil))
	check(batch.Commit([]int32{7, 8}))

	length, err := session.Length()
	check(err)
	fmt.Println(out[0], out[16], length)
	// Output: 1 2 2
}

func ExampleCache_Begin_outOfBlocks() {
	cache := smallCache(2, nil)
	defer cache.Close()
	first, err := cache.OpenSession(nil)
	check(err)
	second, err := cache.OpenSession(nil)
	check(err)
	check(compute(cache, first, make([]int32, 20)))

	err = compute(cache, second, make([]int32, 20))
	var e *pagedkv.Error
	if errors.As(err, &e) && errors.Is(err, pagedkv.ErrUnavailable) {
		fmt.Println(e.Status, e.BlocksShort)
	}
	// Output: PKV_OUT_OF_BLOCKS 2
}

func ExampleCache_ChooseVictims() {
	cache := smallCache(2, nil)
	defer cache.Close()
	urgent, err := cache.OpenSession(&pagedkv.SessionConfig{Priority: 1})
	check(err)
	other, err := cache.OpenSession(nil)
	check(err)
	check(compute(cache, other, make([]int32, 20)))

	requests := map[pagedkv.SessionID]*pagedkv.Session{urgent.ID(): urgent, other.ID(): other}
	victims, err := cache.ChooseVictims(step(urgent, 20))
	check(err)
	for _, id := range victims {
		fmt.Println("the other one is suspended:", requests[id] == other)
		check(requests[id].Suspend())
	}
	check(compute(cache, urgent, make([]int32, 20)))
	// Output: the other one is suspended: true
}

func ExampleSession_Fork() {
	cache := smallCache(8, nil)
	defer cache.Close()
	session, err := cache.OpenSession(nil)
	check(err)
	check(compute(cache, session, make([]int32, 20)))

	fork, err := session.Fork()
	check(err)
	check(compute(cache, fork, make([]int32, 1))) // copies the part-filled block, shares the other
	one, err := session.BlockTable(0)
	check(err)
	two, err := fork.BlockTable(0)
	check(err)
	fmt.Println(one, two)
	// Output: [0 1] [0 2]
}

func ExampleSession_Admit() {
	cache := smallCache(8, &pagedkv.PrefixConfig{})
	defer cache.Close()
	prompt := make([]int32, 40)
	session, err := cache.OpenSession(nil)
	check(err)
	check(compute(cache, session, prompt))
	check(session.Close())

	next, err := cache.OpenSession(nil)
	check(err)
	matched, err := next.Admit(prompt[:39], 0) // all but the last token, whose output is needed
	check(err)
	fmt.Println(matched, "of 40 tokens need not be computed")
	// Output: 32 of 40 tokens need not be computed
}
