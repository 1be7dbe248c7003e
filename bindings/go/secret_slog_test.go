//go:build go1.21

package pagedkv_test

import (
	"io"
	"log/slog"
)

// logStructured logs a config as log/slog does it, in both of its forms.
func logStructured(to io.Writer, config any) {
	slog.New(slog.NewTextHandler(to, nil)).Info("a config", "config", config)
	slog.New(slog.NewJSONHandler(to, nil)).Info("a config", "config", config)
}
