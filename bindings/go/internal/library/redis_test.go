package library

import (
	"os"
	"strings"
	"testing"
	"unsafe"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
)

// Each wrong value is refused by the name that C has for its field.
func TestFieldsOfRedisLieWhereCHasThem(t *testing.T) {
	if os.Getenv("PAGEDKV_REDIS_LIBRARY") == "" {
		t.Skip("PAGEDKV_REDIS_LIBRARY names no libpagedkv-redis")
	}
	if err := LoadRedis(); err != nil {
		t.Fatal(err)
	}
	long := []byte(strings.Repeat("a", 100) + "\x00")
	for name, wrong := range map[string]func(*RedisConfig){
		"struct_size":                 func(c *RedisConfig) { c.StructSize = 7 },
		"servers":                     func(c *RedisConfig) { c.Servers = &[]byte(":\x00")[0] },
		"a user without a password":   func(c *RedisConfig) { c.User = &long[0] },
		"key_prefix has 100 bytes":    func(c *RedisConfig) { c.KeyPrefix = &long[0] },
		"pipeline_bytes is 7":         func(c *RedisConfig) { c.PipelineBytes = 7 },
		"connect_timeout_ms is 4":     func(c *RedisConfig) { c.ConnectTimeoutMs = 4000000 },
		"command_timeout_ms is 4":     func(c *RedisConfig) { c.CommandTimeoutMs = 4000000 },
		"connect_later is 7":          func(c *RedisConfig) { c.ConnectLater = 7 },
		"tls is 7":                    func(c *RedisConfig) { c.TLS = 7 },
		"tls_ca_file is given":        func(c *RedisConfig) { c.TLSCAFile = &long[0] },
		"tls_ca_directory is given":   func(c *RedisConfig) { c.TLSCADirectory = &long[0] },
		"tls_certificate_file is":     func(c *RedisConfig) { c.TLSCertificateFile = &long[0] },
		"tls_key_file is given":       func(c *RedisConfig) { c.TLSKeyFile = &long[0] },
		"tls_server_name is given":    func(c *RedisConfig) { c.TLSServerName = &long[0] },
		"tls_insecure_no_verify is 7": func(c *RedisConfig) { c.TLSInsecureNoVerify = 7 },
		"reserved is 7":               func(c *RedisConfig) { c.Reserved = 7 },
	} {
		config := RedisConfig{StructSize: uint32(unsafe.Sizeof(RedisConfig{}))}
		wrong(&config)
		status := RedisOpen(&config, &raw.Store{})
		if status == raw.OK || !strings.Contains(RedisLastError(), name) {
			t.Errorf("status %d, %q does not say %q", status, RedisLastError(), name)
		}
	}
}
