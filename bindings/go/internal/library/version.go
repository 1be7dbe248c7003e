package library

import (
	"fmt"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
)

// Version returns the version of the open library, for example "1.0.0".
func Version() string {
	version := raw.Version()
	return fmt.Sprintf("%d.%d.%d", version/1000000, version/1000%1000, version%1000)
}
