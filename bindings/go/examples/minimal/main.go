// Minimal is the whole life of a cache, in one step of made-up keys, values and queries.
package main

import (
	"fmt"
	"log"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
)

const (
	layers, queryHeads, kvHeads, dim = 2, 4, 2, 32
	tokens                           = 20
)

func main() {
	cache, err := pagedkv.NewCache(pagedkv.CacheConfig{
		Groups: []pagedkv.LayerGroup{
			{Layers: layers, QueryHeads: queryHeads, KVHeads: kvHeads, KeyDim: dim, Blocks: 64},
		},
	})
	check(err)
	defer cache.Close() // closes the session as well
	session, err := cache.OpenSession(nil)
	check(err)

	k, v := make([]float32, tokens*kvHeads*dim), make([]float32, tokens*kvHeads*dim)
	q, out := make([]float32, tokens*queryHeads*dim), make([]float32, tokens*queryHeads*dim)
	for t := 0; t < tokens; t++ {
		// all keys are equal, so attention gives the mean of the values so far
		v[t*kvHeads*dim] = float32(t)
	}

	batch, err := cache.Begin(pagedkv.Step{Session: session, NewTokens: tokens})
	check(err)
	for layer := 0; layer < layers; layer++ {
		check(batch.Write(layer, pagedkv.Float32(k), pagedkv.Float32(v)))
		check(batch.Attend(layer, pagedkv.Float32(q), pagedkv.Float32(out), nil, nil))
	}
	check(batch.Commit(nil))

	table, err := session.BlockTable(0)
	check(err)
	fmt.Printf(
		"token %d attends to %d tokens: %.2f (expected %.2f)\n", tokens-1, tokens,
		out[(tokens-1)*queryHeads*dim], (tokens-1)/2.0,
	)
	fmt.Println("block table:", table)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
