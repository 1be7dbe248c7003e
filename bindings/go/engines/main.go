// Engines answers several questions at once with a Llama model from a GGUF file. Gonum multiplies
// by the weights; libpagedkv has the keys and values and computes attention.
//
//	go run . SmolLM2-135M-Instruct.Q4_1.gguf 64 "What is the capital of France?" "Why is it?"
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"
	"unicode/utf8"
)

const usage = "usage: engines [options] MODEL.gguf TOKENS QUESTION..."

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "engines:", err)
		os.Exit(1)
	}
}

type options struct {
	limit, chunk      int
	blocks, seed      uint64
	temperature, topP float64
}

// parse returns the options, and the model and the questions.
func parse(args []string) (o options, model string, questions []string, err error) {
	flags := flag.NewFlagSet("engines", flag.ContinueOnError)
	flags.IntVar(&o.chunk, "chunk", 512, "prompt tokens per step")
	flags.Uint64Var(
		&o.blocks, "blocks", 0, "blocks of 16 tokens in the cache (default: enough for all)",
	)
	flags.Float64Var(&o.temperature, "temperature", 0, "0: always the best token")
	flags.Float64Var(&o.topP, "top-p", 0.9, "sample from the best tokens of this much probability")
	flags.Uint64Var(&o.seed, "seed", 1, "of the draws")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), usage)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return o, "", nil, err
	}
	if flags.NArg() < 3 {
		return o, "", nil, fmt.Errorf(
			"a model, a number of tokens and a question are needed\n%s", usage,
		)
	}
	o.limit, err = strconv.Atoi(flags.Arg(1))
	switch {
	case err != nil || o.limit < 1:
		err = fmt.Errorf("%q is not a number of tokens\n%s", flags.Arg(1), usage)
	case o.chunk < 1:
		err = fmt.Errorf("-chunk is %d; it must be at least 1", o.chunk)
	case !(o.temperature >= 0 && o.temperature <= 100) || !(o.topP >= 0 && o.topP <= 1):
		err = fmt.Errorf(
			"-temperature is %v and -top-p is %v; they must be 0 to 100 and 0 to 1", o.temperature,
			o.topP,
		)
	}
	return o, flags.Arg(0), flags.Args()[2:], err
}

func run(args []string) error {
	o, path, questions, err := parse(args)
	if err != nil {
		return err
	}
	file, err := openFile(path)
	if err != nil {
		return err
	}
	defer file.data.Close()
	words, err := file.words()
	if err != nil {
		return err
	}
	model, err := file.model()
	if err != nil {
		return err
	}
	prompts := make([][]int32, len(questions))
	for i, question := range questions {
		if prompts[i], err = words.question(question); err != nil {
			return err
		}
	}
	s, err := newScheduler(model, prompts, words.end, &o)
	if err != nil {
		return err
	}
	defer s.cache.Close()
	begin, first := time.Now(), time.Duration(0)
	tell := teller(words, s.sequences[0])
	s.told = func() {
		if first == 0 && len(s.sequences[0].answer()) > 0 {
			first = time.Since(begin)
		}
		if len(questions) == 1 {
			tell()
		}
	}
	if err := s.run(); err != nil {
		return err
	}
	if err := s.cache.Validate(); err != nil {
		return err
	}
	in, out := 0, 0
	for i, q := range s.sequences {
		if len(questions) > 1 {
			fmt.Printf("---- %s ----\n%s\n", questions[i], words.text(q.answer()))
		}
		in, out = in+q.prompt, out+len(q.answer())
	}
	fmt.Printf(
		"\n\n%d tokens in (%d found cached), first word after %.2f s, "+
			"%d tokens out in %d steps, %.1f per second, %d suspensions\n",
		in, s.matched, first.Seconds(), out, s.passes,
		float64(out)/time.Since(begin).Seconds(), s.suspensions,
	)
	return s.failures()
}

// teller returns a function that prints the new part of an answer, in whole characters.
func teller(words *words, q *sequence) func() {
	told := ""
	return func() {
		if text := words.text(q.answer()); utf8.ValidString(text) {
			fmt.Print(text[len(told):])
			told = text
		}
	}
}
