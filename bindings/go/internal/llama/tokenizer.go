package llama

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Tokens that stand for no text.
const (
	Begin int32 = 1
	End   int32 = 2
)

// Tokenizer turns text to tokens and back, in the file format of llama2.c.
type Tokenizer struct {
	pieces []string
	scores []float32
	ids    map[string]int32
	bytes  [256]int32 // the tokens "<0x41>", -1 where there is none
}

// OpenTokenizer reads the tokenizer of a model with this vocabulary.
func OpenTokenizer(path string, vocabulary int) (*Tokenizer, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{ids: map[string]int32{}}
	for i := range t.bytes {
		t.bytes[i] = -1
	}
	at := 4 // the length of the longest piece stands first
	for id := 0; id < vocabulary; id++ {
		if at+8 > len(data) {
			return nil, fmt.Errorf(
				"the tokenizer %s is cut short: it ends before token %d", path, id,
			)
		}
		length := int(binary.LittleEndian.Uint32(data[at+4:]))
		if length > len(data)-at-8 {
			return nil, fmt.Errorf(
				"the tokenizer %s is cut short: token %d has %d bytes", path, id, length,
			)
		}
		piece := string(data[at+8 : at+8+length])
		t.pieces = append(t.pieces, piece)
		t.scores = append(t.scores, math.Float32frombits(binary.LittleEndian.Uint32(data[at:])))
		if _, known := t.ids[piece]; !known {
			t.ids[piece] = int32(id)
		}
		if value, ok := byteOf(piece); ok {
			t.bytes[value] = int32(id)
		}
		at += 8 + length
	}
	if at != len(data) {
		return nil, fmt.Errorf(
			"the tokenizer %s is not the model's: it goes on after %d tokens", path, vocabulary,
		)
	}
	return t, nil
}

// byteOf is the byte that a piece like "<0x41>" stands for.
func byteOf(piece string) (byte, bool) {
	if len(piece) != 6 || !strings.HasPrefix(piece, "<0x") || piece[5] != '>' {
		return 0, false
	}
	value, err := strconv.ParseUint(piece[3:5], 16, 8)
	return byte(value), err == nil
}

// Encode gives the tokens of a text, with Begin before them: characters, or bytes where they have
// no token, then the best neighbours joined until none are left.
func (t *Tokenizer) Encode(text string) ([]int32, error) {
	tokens := []int32{Begin}
	if space, known := t.ids[" "]; known && text != "" {
		tokens = append(tokens, space)
	}
	for len(text) > 0 {
		_, size := utf8.DecodeRuneInString(text)
		if id, known := t.ids[text[:size]]; known {
			tokens = append(tokens, id)
		} else {
			for _, value := range []byte(text[:size]) {
				if t.bytes[value] < 0 {
					return nil, fmt.Errorf("the tokenizer has no token for the byte 0x%02X", value)
				}
				tokens = append(tokens, t.bytes[value])
			}
		}
		text = text[size:]
	}
	for {
		best, union := -1, int32(0)
		for i := 1; i+1 < len(tokens); i++ {
			id, known := t.ids[t.pieces[tokens[i]]+t.pieces[tokens[i+1]]]
			if known && (best < 0 || t.scores[id] > t.scores[union]) {
				best, union = i, id
			}
		}
		if best < 0 {
			return tokens, nil
		}
		tokens[best] = union
		tokens = append(tokens[:best+1], tokens[best+2:]...)
	}
}

// Decode gives the text of tokens.
func (t *Tokenizer) Decode(tokens []int32) string {
	var text strings.Builder
	for i, token := range tokens {
		piece := t.pieces[token]
		if value, ok := byteOf(piece); ok {
			text.WriteByte(value)
		} else if token != Begin && token != End {
			if i > 0 && tokens[i-1] == Begin {
				piece = strings.TrimPrefix(piece, " ")
			}
			text.WriteString(piece)
		}
	}
	return text.String()
}
