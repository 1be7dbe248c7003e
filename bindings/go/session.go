package pagedkv

import (
	"runtime"
	"unsafe"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
)

const (
	// UnknownToken is a token whose id is unknown.
	UnknownToken int32 = raw.UnknownToken
	// NoBlockID is the entry in a block table for a block that left the window.
	NoBlockID uint32 = raw.NoBlockID
)

// SessionID names an open session. ChooseVictims returns such ids; they do not keep a session from
// being collected.
type SessionID uint64

// Session is one sequence: its tokens and its block tables, one per layer group.
type Session struct {
	_      noCopy
	handle raw.Session
	cache  *Cache // stays alive as long as its sessions
}

func newSession(cache *Cache, handle raw.Session) *Session {
	s := &Session{handle: handle, cache: cache}
	e := ending{close: func() raw.Status { return raw.SessionClose(handle) }}
	runtime.SetFinalizer(s, func(*Session) { abandon(e) })
	return s
}

func (c *SessionConfig) place() *raw.SessionConfig {
	out := sized(&raw.SessionConfig{})
	salt := []byte(c.Salt)
	(&numbers{}).fill(c, out)
	out.Salt, out.SaltSize = unsafe.Pointer(first(salt)), uint64(len(salt))
	return out
}

// OpenSession opens an empty session. config may be nil.
func (c *Cache) OpenSession(config *SessionConfig) (*Session, error) {
	var given *raw.SessionConfig
	if config != nil {
		given = config.place()
	}
	var handle raw.Session
	err := call("open session", c, func() raw.Status {
		return raw.SessionOpen(c.handle, given, &handle)
	})
	if err != nil {
		return nil, err
	}
	return newSession(c, handle), nil
}

// ID returns the id of the session, which is valid while it is open.
func (s *Session) ID() SessionID { return SessionID(s.handle) }

// Cache returns the cache of the session.
func (s *Session) Cache() *Cache { return s.cache }

// Close frees the blocks that only this session holds.
func (s *Session) Close() error {
	err := call("close session", s, func() raw.Status { return raw.SessionClose(s.handle) })
	if err == nil {
		runtime.SetFinalizer(s, nil)
	}
	return err
}

// Length returns the number of committed tokens; 0 while the session is suspended.
func (s *Session) Length() (int, error) {
	var tokens uint64
	err := call("length", s, func() raw.Status { return raw.SessionGetLength(s.handle, &tokens) })
	return int(tokens), err
}

// Tokens copies the ids of positions from begin on into tokens: committed ones, and those that
// Suspend remembered.
func (s *Session) Tokens(begin int, tokens []int32) error {
	n := numbers{op: "tokens"}
	position := n.u64("begin", begin)
	return n.call(s, func() raw.Status {
		return raw.SessionGetTokens(s.handle, position, uint64(len(tokens)), first(tokens))
	})
}

// SetTokens sets the ids of positions, from begin on, that were committed without ids.
func (s *Session) SetTokens(begin int, tokens []int32) error {
	n := numbers{op: "set tokens"}
	position := n.u64("begin", begin)
	return n.call(s, func() raw.Status {
		return raw.SessionSetTokens(s.handle, position, uint64(len(tokens)), first(tokens))
	})
}

// Reserve reserves blocks for a length of `tokens`: steps up to there cannot run out of blocks.
func (s *Session) Reserve(tokens int) error {
	n := numbers{op: "reserve"}
	total := n.u64("tokens", tokens)
	return n.call(s, func() raw.Status { return raw.SessionReserve(s.handle, total) })
}

// Trim keeps the first tokens and frees all blocks beyond them.
func (s *Session) Trim(length int) error {
	n := numbers{op: "trim"}
	tokens := n.u64("length", length)
	return n.call(s, func() raw.Status { return raw.SessionTrim(s.handle, tokens) })
}

// TrimPoint returns the longest length, up to limit, that Trim can keep: with a window or with
// states it cannot keep every length. 0 if there is no other.
func (s *Session) TrimPoint(limit int) (int, error) {
	n := numbers{op: "trim point"}
	longest := n.u64("limit", limit)
	var length uint64
	err := n.call(s, func() raw.Status {
		return raw.SessionGetTrimPoint(s.handle, longest, &length)
	})
	return int(length), err
}

// DropBlocks frees blocks in the middle, by their indices in the block table of a group, in
// ascending order. Later tokens do not see the tokens of these blocks. Experimental: it may change
// in any minor version.
func (s *Session) DropBlocks(group int, indices []uint32) error {
	n := numbers{op: "drop blocks"}
	number := n.u32("group", group)
	return n.call(s, func() raw.Status {
		return raw.SessionDropBlocks(s.handle, number, uint64(len(indices)), first(indices))
	})
}

// Fork opens a session with the same tokens. Blocks are shared until one of the sessions writes to
// them.
func (s *Session) Fork() (*Session, error) {
	var handle raw.Session
	err := call("fork", s, func() raw.Status { return raw.SessionFork(s.handle, &handle) })
	if err != nil {
		return nil, err
	}
	return newSession(s.cache, handle), nil
}

// Suspend frees the blocks that only this session holds, and remembers the token ids until Resume.
func (s *Session) Suspend() error {
	return call("suspend", s, func() raw.Status { return raw.SessionSuspend(s.handle) })
}

// Resume ends the suspension: positions [length, total) must be computed again; Tokens returns
// their ids. If blocks are short, the Error says how many.
func (s *Session) Resume() (length, total int, err error) {
	var from, to uint64
	err = call("resume", s, func() raw.Status { return raw.SessionResume(s.handle, &from, &to) })
	return int(from), int(to), err
}

// SetPriority changes the priority of SessionConfig.
func (s *Session) SetPriority(priority int32) error {
	return call("set priority", s, func() raw.Status {
		return raw.SessionSetPriority(s.handle, priority)
	})
}

// Info returns the current state of the session.
func (s *Session) Info() (SessionInfo, error) {
	out := sized(&raw.SessionInfo{})
	err := call("session info", s, func() raw.Status { return raw.SessionGetInfo(s.handle, out) })
	return reported[SessionInfo](out), err
}

// BlockTable returns the block ids of one group, including reserved blocks. A block that left the
// window is NoBlockID.
func (s *Session) BlockTable(group int) ([]uint32, error) {
	n := numbers{op: "block table"}
	number := n.u32("group", group)
	return list(n, s, func(capacity uint64, ids *uint32, count *uint64) raw.Status {
		return raw.SessionGetBlockTable(s.handle, number, capacity, ids, count)
	})
}

// Read copies keys and values of positions [begin, begin + rows) of one layer into k and v;
// either may be the zero Tensor.
func (s *Session) Read(layer, begin, rows int, k, v Tensor) error {
	n := numbers{op: "read"}
	number, position, count := n.u32("layer", layer), n.u64("begin", begin), n.u64("rows", rows)
	return n.call(s, func() raw.Status {
		return raw.SessionRead(s.handle, number, position, count, k.place(), v.place())
	})
}

// State copies the state of one layer after `tokens` committed tokens into state, which must be
// as long as the states of the layer. A session holds the states after the last token, after the
// last full block and at checkpoints (LayerGroup.CheckpointInterval).
func (s *Session) State(layer, tokens int, state []byte) error {
	n := numbers{op: "state"}
	number := n.u32("layer", layer)
	after := n.u64("tokens", tokens)
	return n.call(s, func() raw.Status {
		return raw.SessionGetState(
			s.handle, number, after, uint64(len(state)), unsafe.Pointer(first(state)),
		)
	})
}
