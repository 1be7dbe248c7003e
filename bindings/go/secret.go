package pagedkv

import (
	"fmt"
	"io"
)

// Secret is a password, a key, or a text that may have one in it. Package fmt, encoders and loggers
// show that there is one, and never the secret: it lies behind a function, so that not even those
// that follow pointers and read unexported fields see it. The zero value is none.
type Secret struct {
	reveal func() []byte
}

// NewSecret makes a secret of a text or of bytes. Bytes are not copied, so that the caller can wipe
// them when they are not needed any more.
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

// String says whether there is a secret.
func (s Secret) String() string {
	if s.reveal == nil {
		return "(none)"
	}
	return "(hidden)"
}

// Format writes String, whatever the verb.
func (s Secret) Format(state fmt.State, _ rune) { io.WriteString(state, s.String()) }

// MarshalText gives String.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
