package pagedkv

import (
	"runtime"
	"unsafe"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
)

// Admit gives an empty session the longest cached prefix of a text, and reserves blocks for a
// length of total tokens (0: none); or it fails with ErrOutOfBlocks and does neither. It returns
// the number of cached tokens, the session's new length. Leave out the last token if you need its
// output.
func (s *Session) Admit(tokens []int32, total int) (int, error) {
	n := numbers{op: "admit"}
	length := n.u64("total", total)
	var matched uint64
	err := n.call(s, func() raw.Status {
		return raw.SessionAdmit(s.handle, uint64(len(tokens)), first(tokens), length, &matched)
	})
	return int(matched), err
}

// Prefix is the prefix index of a cache: the blocks of ended sessions stay cached under their
// tokens until their memory is needed. A salt (any bytes, "": none) separates tenants: sessions
// with different salts share nothing.
type Prefix struct {
	cache *Cache
}

// Prefix returns the prefix index of the cache. Without one its methods return ErrUnsupported.
func (c *Cache) Prefix() Prefix { return Prefix{c} }

// salted runs a call with the bytes of a salt.
func (p Prefix) salted(
	op, salt string, function func(cache raw.Cache, salt unsafe.Pointer, size uint64) raw.Status,
) error {
	bytes := []byte(salt)
	err := call(op, p.cache, func() raw.Status {
		return function(p.cache.handle, unsafe.Pointer(first(bytes)), uint64(len(bytes)))
	})
	runtime.KeepAlive(bytes)
	return err
}

// placeText returns a text for C, which keeps what it points to.
func placeText(salt string, tokens []int32) *raw.Prompt {
	bytes := []byte(salt)
	return sized(&raw.Prompt{
		Salt: unsafe.Pointer(first(bytes)), SaltSize: uint64(len(bytes)),
		Tokens: first(tokens), N: uint64(len(tokens)),
	})
}

// texted runs a call with a text.
func (p Prefix) texted(
	op, salt string, tokens []int32, function func(cache raw.Cache, text *raw.Prompt) raw.Status,
) error {
	text := placeText(salt, tokens)
	err := call(op, p.cache, func() raw.Status { return function(p.cache.handle, text) })
	runtime.KeepAlive(text)
	return err
}

// Stats returns the statistics of one salt.
func (p Prefix) Stats(salt string) (PrefixStats, error) {
	out := sized(&raw.PrefixStats{})
	err := p.salted("prefix stats", salt, func(
		cache raw.Cache, salt unsafe.Pointer, size uint64,
	) raw.Status {
		return raw.PrefixGetStats(cache, salt, size, out)
	})
	return reported[PrefixStats](out), err
}

// StatsOfAll returns the statistics of the whole index.
func (p Prefix) StatsOfAll() (PrefixStats, error) {
	out := sized(&raw.PrefixStats{})
	err := call("prefix stats", p.cache, func() raw.Status {
		return raw.PrefixGetStats(p.cache.handle, nil, raw.AllSalts, out)
	})
	return reported[PrefixStats](out), err
}

// Clear drops every cached block of one salt that is neither in use nor pinned.
func (p Prefix) Clear(salt string) error {
	return p.salted("prefix clear", salt, raw.PrefixClear)
}

// ClearAll does the same for all salts.
func (p Prefix) ClearAll() error {
	return call("prefix clear", p.cache, func() raw.Status {
		return raw.PrefixClear(p.cache.handle, nil, raw.AllSalts)
	})
}

// Probe returns how many tokens of a text are cached in whole blocks. Nothing is held or counted,
// and the order of eviction does not change.
func (p Prefix) Probe(salt string, tokens []int32) (int, error) {
	var cached uint64
	err := p.texted("prefix probe", salt, tokens, func(cache raw.Cache, text *raw.Prompt) raw.Status {
		return raw.PrefixProbe(cache, text, &cached)
	})
	return int(cached), err
}

// NoQuota makes SetQuota remove the limit.
const NoQuota = ^uint64(0)

// SetQuota limits the cached tokens of one salt from now on, rounded down to whole blocks; 0: to
// PrefixConfig.MaxTokensPerSalt again; NoQuota: no limit.
func (p Prefix) SetQuota(salt string, tokens uint64) error {
	return p.salted("prefix quota", salt, func(
		cache raw.Cache, salt unsafe.Pointer, size uint64,
	) raw.Status {
		return raw.PrefixSetQuota(cache, salt, size, tokens)
	})
}

// Events copies events in order, from the number *next on, and advances *next. It returns how many
// it copied and how many requested events were already overwritten. Several readers may each keep
// their own number.
func (p Prefix) Events(next *uint64, events []PrefixEvent) (written int, lost uint64, err error) {
	number, count := *next, uint64(0)
	copied := make([]raw.PrefixEvent, len(events))
	err = call("prefix events", p.cache, func() raw.Status {
		return raw.PrefixReadEvents(
			p.cache.handle, &number, uint64(len(events)), first(copied), &count, &lost,
		)
	})
	if err != nil {
		return 0, 0, err
	}
	for i := range copied[:count] {
		events[i] = reported[PrefixEvent](&copied[i])
	}
	*next = number
	return int(count), lost, nil
}

// HashBlocks returns the hashes of the whole blocks of a text, as in events.
func HashBlocks(salt string, blockSize int, tokens []int32) ([]uint64, error) {
	const op = "hash blocks"
	size, err := unsigned32(op, "blockSize", blockSize)
	if err != nil {
		return nil, err
	}
	text, hashes := placeText(salt, tokens), make([]uint64, len(tokens)/max(blockSize, 1))
	err = call(op, nil, func() raw.Status {
		return raw.PrefixHashBlocks(text, size, first(hashes))
	})
	runtime.KeepAlive(text)
	if err != nil {
		return nil, err
	}
	return hashes, nil
}

func max(a, b int) int {
	if a > b {
		return a
	}
	return b
}
