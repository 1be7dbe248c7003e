package library

import (
	"os"
	"testing"
	"unsafe"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
)

// The defaults differ from field to field, so that one in the wrong place is seen.
func TestDefaultsOfRedisLieWhereCHasPutThem(t *testing.T) {
	if os.Getenv("PAGEDKV_REDIS_LIBRARY") == "" {
		t.Skip("PAGEDKV_REDIS_LIBRARY names no libpagedkv-redis")
	}
	if err := LoadRedis(); err != nil {
		t.Fatal(err)
	}
	config := RedisConfig{
		TTLSeconds:          1,
		User:                new(byte),
		Password:            new(byte),
		ConnectLater:        1,
		Reserved:            1,
		TLS:                 1,
		TLSCAFile:           new(byte),
		TLSCADirectory:      new(byte),
		TLSCertificateFile:  new(byte),
		TLSKeyFile:          new(byte),
		TLSServerName:       new(byte),
		TLSInsecureNoVerify: 1,
	}
	if status := RedisConfigInit(&config, uint64(unsafe.Sizeof(config))); status != raw.OK {
		t.Fatalf("status %d: %s", status, RedisLastError())
	}
	servers := raw.Text(unsafe.Pointer(config.Servers))
	prefix := raw.Text(unsafe.Pointer(config.KeyPrefix))
	config.Servers, config.KeyPrefix = nil, nil
	if servers != "127.0.0.1:6379" || prefix != "pagedkv:" {
		t.Errorf("servers %s, key prefix %s", servers, prefix)
	}
	expected := RedisConfig{
		StructSize:       uint32(unsafe.Sizeof(config)),
		ConnectTimeoutMs: 500,
		CommandTimeoutMs: 1000,
		PipelineBytes:    8 << 20,
	}
	if config != expected {
		t.Errorf("%+v, expected %+v", config, expected)
	}
	if status := RedisConfigInit(nil, 0); status == raw.OK || RedisLastError() == "" {
		t.Errorf("status %d without a config: %q", status, RedisLastError())
	}
}
