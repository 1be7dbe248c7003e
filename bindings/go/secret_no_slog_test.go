//go:build !go1.21

package pagedkv_test

import "io"

// logStructured does nothing, because log/slog came with a later version of Go.
func logStructured(io.Writer, any) {}
