package library

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
)

var redis struct {
	sync.Mutex
	open, lastError uintptr
}

// LoadRedis opens the library once: $PAGEDKV_REDIS_LIBRARY; else the one beside libpagedkv, if that
// was opened at run time; else the one that the dynamic linker finds.
func LoadRedis() error {
	redis.Lock()
	defer redis.Unlock()
	if redis.open != 0 {
		return nil
	}
	path := findRedis()
	handle, err := openFile(path)
	if err != nil {
		return fmt.Errorf(
			"pagedkv: cannot open libpagedkv-redis (PAGEDKV_REDIS_LIBRARY may name it): %w", err,
		)
	}
	var found [2]uintptr
	names := []string{"pkv_redis_open", "pkv_redis_last_error"}
	for i, name := range names {
		if found[i], err = findSymbol(handle, name); err != nil {
			return fmt.Errorf("pagedkv: the library %s has no %s", path, name)
		}
	}
	redis.open, redis.lastError = found[0], found[1]
	return nil
}

func findRedis() string {
	if path := os.Getenv("PAGEDKV_REDIS_LIBRARY"); path != "" {
		return path
	}
	if folder := filepath.Dir(Path()); folder != "." {
		if path := filepath.Join(folder, redisSoname); exists(path) {
			return path
		}
	}
	return redisSoname
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// RedisOpen is pkv_redis_open. Call it only after LoadRedis.
func RedisOpen(config *raw.RedisConfig, out *raw.Store) raw.Status {
	result, _, _ := purego.SyscallN(
		redis.open, uintptr(unsafe.Pointer(config)), uintptr(unsafe.Pointer(out)),
	)
	return raw.Status(result)
}

// RedisLastError is pkv_redis_last_error.
func RedisLastError() string {
	result, _, _ := purego.SyscallN(redis.lastError)
	// No pointer of Go's: see raw.CString.
	return raw.CString(*(*unsafe.Pointer)(unsafe.Pointer(&result)))
}
