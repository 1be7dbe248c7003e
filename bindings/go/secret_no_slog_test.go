//go:build !go1.21

package pagedkv_test

import "io"

// logStructured does nothing: log/slog is in later versions of Go.
func logStructured(io.Writer, any) {}
