package main

import (
	"fmt"
	"strings"

	"github.com/dlclark/regexp2"
)

// words converts texts of a chat to tokens and back: byte-level BPE (Radford et al. 2019, "Language
// models are unsupervised multitask learners").
type words struct {
	pieces []string
	ids    map[string]int32
	ranks  map[[2]string]int // of pairs that are merged, best first
	end    int32
}

// pattern splits texts like GPT-2's, but each digit is separate, as SmolLM2 was trained.
var pattern = regexp2.MustCompile(
	`'(?:[sdmt]|ll|ve|re)| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?=\p{N})|\s+(?!\S)|\s+`,
	regexp2.None,
)

func (f *file) words() (*words, error) {
	for key, known := range map[string]string{
		"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm",
	} {
		if found, err := f.text(key); err != nil || found != known {
			return nil, fmt.Errorf(
				"the model %s has the %s %q; it must be %q", f.path, key, found, known,
			)
		}
	}
	pieces, err := f.strings("tokenizer.ggml.tokens")
	if err != nil {
		return nil, err
	}
	merges, err := f.strings("tokenizer.ggml.merges")
	if err != nil {
		return nil, err
	}
	end, err := f.number("tokenizer.ggml.eos_token_id")
	if err != nil {
		return nil, err
	}
	w := &words{pieces, make(map[string]int32), make(map[[2]string]int), int32(end)}
	for id, piece := range pieces {
		w.ids[piece] = int32(id)
	}
	for rank, merge := range merges {
		left, right, _ := strings.Cut(merge, " ")
		if _, known := w.ids[left+right]; !known {
			return nil, fmt.Errorf(
				"the model %s: merge %d is %q, and makes no token", f.path, rank, merge,
			)
		}
		w.ranks[[2]string{left, right}] = rank
	}
	return w, nil
}

// question is the beginning of a chat, by SmolLM2's template.
func (w *words) question(text string) ([]int32, error) {
	const begin, stop = "<|im_start|>", "<|im_end|>"
	var tokens []int32
	for _, part := range []string{
		begin, "system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face", stop,
		"\n", begin, "user\n" + text, stop, "\n", begin, "assistant\n",
	} {
		more, err := w.tokens(part)
		if part == begin || part == stop {
			more, err = w.id(part)
		}
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, more...)
	}
	return tokens, nil
}

func (w *words) id(piece string) ([]int32, error) {
	id, known := w.ids[piece]
	if !known {
		return nil, fmt.Errorf("the model has no token %q", piece)
	}
	return []int32{id}, nil
}

func (w *words) tokens(text string) ([]int32, error) {
	var tokens []int32
	match, err := pattern.FindStringMatch(text)
	for ; match != nil && err == nil; match, err = pattern.FindNextMatch(match) {
		for _, piece := range w.merged(match.String()) {
			id, err := w.id(piece)
			if err != nil {
				return nil, err
			}
			tokens = append(tokens, id...)
		}
	}
	return tokens, err
}

// merged joins the pair of the best rank until there is none.
func (w *words) merged(word string) []string {
	var pieces []string
	for _, value := range []byte(word) {
		pieces = append(pieces, string(letters[value]))
	}
	for {
		best, at := len(w.ranks), -1
		for i := 0; i+1 < len(pieces); i++ {
			if rank, known := w.ranks[[2]string{pieces[i], pieces[i+1]}]; known && rank < best {
				best, at = rank, i
			}
		}
		if at < 0 {
			return pieces
		}
		pieces[at] += pieces[at+1]
		pieces = append(pieces[:at+1], pieces[at+2:]...)
	}
}

// text returns the text of tokens, which may end within a character.
func (w *words) text(tokens []int32) string {
	var text []byte
	for _, token := range tokens {
		for _, letter := range w.pieces[token] {
			if value, known := values[letter]; known {
				text = append(text, value)
			}
		}
	}
	return string(text)
}

// letters are the characters that stand for bytes in vocabularies of byte-level BPE: printable
// bytes stand for themselves, the others are characters from U+0100 on. values are the bytes of
// letters.
var letters, values = func() (letters [256]rune, values map[rune]byte) {
	values, next := make(map[rune]byte), rune(256)
	for i := range letters {
		letters[i] = rune(i)
		if i < '!' || i > '~' && i < 0xA1 || i == 0xAD {
			letters[i] = next
			next++
		}
		values[letters[i]] = byte(i)
	}
	return letters, values
}()
