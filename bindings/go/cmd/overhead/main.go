//go:build !windows

// Overhead measures how much more a decode step costs from Go than from C, and its share of a step.
//
//	go run ./cmd/overhead PKV_STEP [ROUNDS]      PKV_STEP: build/bindings/pkv-step
//
// The same step in both: begin, write, attend and commit of one new token for each of 8 sessions.
// With 16 tokens in each session and one thread, the difference in the calling thread's CPU
// time is what Go adds: other programs hardly disturb it. It is set against the shortest time on
// the clock of a step of 4096 tokens, from C on all CPUs. C and Go take turns.
package main

import (
	"fmt"
	"log"
	"os"
	"os/exec"
	"runtime"
	"sort"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
)

const (
	sessions, queryHeads, kvHeads, dim = 8, 32, 8, 128
	short, long                        = 16, 4096
)

func main() {
	log.SetFlags(0)
	rounds := 7
	if len(os.Args) == 3 {
		rounds, _ = strconv.Atoi(os.Args[2])
	}
	if len(os.Args) < 2 || len(os.Args) > 3 || rounds < 1 {
		log.Fatal("usage: overhead PKV_STEP [ROUNDS]")
	}
	if err := compare(os.Args[1], rounds); err != nil {
		log.Fatal(err)
	}
}

func compare(program string, rounds int) error {
	var c, own, added, longC, longOwn []float64
	for round := 0; round < rounds; round++ {
		for _, kind := range []struct {
			tokens, steps, threads int
			c, own                 *[]float64
			shortest               bool
		}{{short, 500, 1, &c, &own, false}, {long, 40, 0, &longC, &longOwn, true}} {
			median, shortest, err := stepsInC(program, kind.tokens, kind.steps, kind.threads)
			if err != nil {
				return err
			}
			ownMedian, ownShortest, err := stepsInGo(kind.tokens, kind.steps, kind.threads)
			if err != nil {
				return err
			}
			if kind.shortest {
				median, ownMedian = shortest, ownShortest
			} else {
				added = append(added, ownMedian-median)
			}
			*kind.c, *kind.own = append(*kind.c, median), append(*kind.own, ownMedian)
		}
	}
	for _, figures := range [][]float64{c, own, added, longC, longOwn} {
		sort.Float64s(figures)
	}
	overhead := own[rounds/2] - c[rounds/2]
	fmt.Printf(
		"8 x %d tokens, one thread, CPU time: %.1f us from C, %.1f us from Go\n", short,
		c[rounds/2], own[rounds/2],
	)
	fmt.Printf(
		"8 x %d tokens, all CPUs, shortest: %.0f us from C, %.0f us from Go\n", long,
		longC[0], longOwn[0],
	)
	fmt.Printf(
		"overhead %.1f us (rounds: %.1f to %.1f), %.2f %% of a step of 8 x %d\n", overhead,
		added[0], added[rounds-1], 100*overhead/longC[0], long,
	)
	return nil
}

// stepsInC gives, in microseconds, the median of CPU time and the shortest time on the clock.
func stepsInC(program string, tokens, steps, threads int) (median, shortest float64, err error) {
	arguments := []string{strconv.Itoa(tokens), strconv.Itoa(steps), strconv.Itoa(threads)}
	output, err := exec.Command(program, arguments...).Output()
	if err == nil {
		_, err = fmt.Sscan(string(output), &median, &shortest)
	}
	return median, shortest, err
}

// stepsInGo is the same from Go.
func stepsInGo(tokens, steps, threads int) (median, shortest float64, err error) {
	cache, err := pagedkv.NewCache(pagedkv.CacheConfig{
		Groups: []pagedkv.LayerGroup{
			{
				Layers: 1, QueryHeads: queryHeads, KVHeads: kvHeads, KeyDim: dim, DType: pagedkv.BF16,
				Blocks: uint64(sessions * (tokens/16 + 1)),
			},
		},
		Prefault: true,
		Threads:  threads,
	})
	if err != nil {
		return 0, 0, err
	}
	defer cache.Close()
	list, err := filled(cache, tokens)
	if err != nil {
		return 0, 0, err
	}
	rows := func(heads int) pagedkv.Tensor {
		return pagedkv.Float32(make([]float32, sessions*heads*dim))
	}
	q, k, v, out := rows(queryHeads), rows(kvHeads), rows(kvHeads), rows(queryHeads)
	ids := []int32{1, 2, 3, 4, 5, 6, 7, 8}
	runtime.LockOSThread() // CPU time is that of a thread
	defer runtime.UnlockOSThread()
	times := make([]float64, steps)
	for i := range times {
		start, processorStart := time.Now(), processorTime()
		if err := decode(cache, list, q, k, v, out, ids); err != nil {
			return 0, 0, err
		}
		times[i] = float64((processorTime() - processorStart).Nanoseconds()) / 1e3
		if elapsed := float64(time.Since(start).Nanoseconds()) / 1e3; i == 0 || elapsed < shortest {
			shortest = elapsed
		}
		for _, session := range list {
			if err := session.Trim(tokens); err != nil {
				return 0, 0, err
			}
		}
	}
	sort.Float64s(times)
	return times[steps/2], shortest, nil
}

func filled(cache *pagedkv.Cache, tokens int) ([]*pagedkv.Session, error) {
	prompt := make([]float32, tokens*kvHeads*dim)
	for i := range prompt {
		prompt[i] = float32(i%17) / 17
	}
	list := make([]*pagedkv.Session, sessions)
	for i := range list {
		session, err := cache.OpenSession(nil)
		if err != nil {
			return nil, err
		}
		batch, err := cache.Begin(pagedkv.Step{Session: session, NewTokens: tokens})
		if err != nil {
			return nil, err
		}
		rows := pagedkv.Float32(prompt)
		if err := batch.Write(0, rows, rows); err != nil {
			return nil, err
		}
		if err := batch.Commit(nil); err != nil {
			return nil, err
		}
		list[i] = session
	}
	return list, nil
}

func decode(
	cache *pagedkv.Cache, list []*pagedkv.Session, q, k, v, out pagedkv.Tensor, ids []int32,
) error {
	steps := make([]pagedkv.Step, len(list))
	for i, session := range list {
		steps[i] = pagedkv.Step{Session: session, NewTokens: 1}
	}
	batch, err := cache.Begin(steps...)
	if err != nil {
		return err
	}
	defer batch.Close()
	if err := batch.Write(0, k, v); err != nil {
		return err
	}
	if err := batch.Attend(0, q, out, nil, nil); err != nil {
		return err
	}
	return batch.Commit(ids)
}

const threadProcessorTime = 3 // CLOCK_THREAD_CPUTIME_ID

func processorTime() time.Duration {
	var now syscall.Timespec
	_, _, errno := syscall.Syscall(
		syscall.SYS_CLOCK_GETTIME, threadProcessorTime, uintptr(unsafe.Pointer(&now)), 0,
	)
	if errno != 0 {
		log.Fatal(errno)
	}
	return time.Duration(now.Nano())
}
