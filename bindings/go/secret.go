package pagedkv

import (
	"fmt"
	"io"
)

// Secret is a password, a key, or a text that may contain one. Package fmt, encoders and loggers
// show that there is one, but never the secret: it is behind a function, so that even code that
// follows pointers and reads unexported fields cannot see it. The zero value is none.
type Secret struct {
	reveal func() []byte
}

// NewSecret makes a secret of a text or of bytes. Bytes are not copied, so that the caller can wipe
// them when they are no longer needed.
func NewSecret[T string | []byte](secret T) Secret {
	given := []byte(secret)
	return Secret{func() []byte { return given }}
}

// bytes are nil only for the zero value. The caller must not change them.
func (s Secret) bytes() []byte {
	if s.reveal == nil {
		return nil
	}
	if given := s.reveal(); given != nil {
		return given
	}
	return []byte{}
}

// String returns "(hidden)" or "(none)".
func (s Secret) String() string {
	if s.reveal == nil {
		return "(none)"
	}
	return "(hidden)"
}

// Format writes String for every verb.
func (s Secret) Format(state fmt.State, _ rune) { io.WriteString(state, s.String()) }

// MarshalText returns String.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
