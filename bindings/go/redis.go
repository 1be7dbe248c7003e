package pagedkv

import (
	"runtime"
	"time"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
	"github.com/pagedkv/pagedkv/bindings/go/internal/library"
)

// RedisConfig is a Redis or Valkey server, or a cluster of them, as a store. It is reached by
// libpagedkv-redis, which is opened when a cache needs it: the file that PAGEDKV_REDIS_LIBRARY
// names, else libpagedkv-redis.so.1 beside libpagedkv or where the dynamic linker finds it. A field
// that is 0 has its default.
type RedisConfig struct {
	// "host:port,host:port" or "redis://[[user]:password@]host:port[/database]", rediss:// with
	// TLS. Default "127.0.0.1:6379".
	Servers   Secret
	User      string // "": that of Servers.
	Password  Secret // None: that of Servers.
	KeyPrefix string // Up to 64 bytes. Default "pagedkv:".
	// How long the server keeps an item; 0: until it evicts the item.
	TTL              time.Duration
	ConnectTimeout   time.Duration // Default 500 ms.
	CommandTimeout   time.Duration // Default 1 s.
	MaxPipelineBytes uint64        // Sent or asked for at once. Default 8 MiB.
	ConnectLater     bool          // No error without a server: later calls connect.
	TLS              *TLSConfig    // nil: as Servers says, by rediss:// or redis://.
}

// TLSConfig enables TLS and names the trusted CAs. The server's certificate must name the server.
type TLSConfig struct {
	CAFile, CADirectory      string // Trusted CAs, PEM. "": the system's.
	CertificateFile, KeyFile string // For a server that requires a client certificate, PEM.
	// The name that the certificate must have. "": the host of each server.
	ServerName       string
	InsecureNoVerify bool // Trusts any server, which can then read and change all data.
}

// ended returns a text with a final NUL, which must be its only one; nil for "".
func ended[T string | []byte](op, name string, given T) ([]byte, error) {
	for i := 0; i < len(given); i++ {
		if given[i] == 0 {
			return nil, misuse(op, ErrInvalidArgument, "%s: there is a NUL in it", name)
		}
	}
	if len(given) == 0 {
		return nil, nil
	}
	text := make([]byte, len(given)+1)
	copy(text, given)
	return text, nil
}

// wipe erases copies of passwords; the originals stay in the config.
func wipe(texts [][]byte) {
	for _, text := range texts {
		for i := range text {
			text[i] = 0
		}
	}
}

// open connects. The plugin has its own error sentences.
func (c *RedisConfig) open(op string) (*raw.Store, error) {
	store := sized(&raw.Store{})
	if err := library.LoadRedis(); err != nil {
		return store, err
	}
	given, texts, err := c.place(op)
	defer wipe(texts) // C has copied what it keeps
	if err != nil {
		return store, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if status := library.RedisOpen(given, store); status != raw.OK {
		return store, plainError(op, Status(status), library.RedisLastError())
	}
	return store, nil
}

// place returns the config of C and the texts that it points to, also with an error.
func (c *RedisConfig) place(op string) (*raw.RedisConfig, [][]byte, error) {
	if c.ConnectTimeout < 0 || c.CommandTimeout < 0 {
		return nil, nil, misuse(
			op, ErrInvalidArgument, "a negative timeout: ConnectTimeout %v, CommandTimeout %v",
			c.ConnectTimeout, c.CommandTimeout,
		)
	}
	given := sized(&raw.RedisConfig{})
	var copies [][]byte
	texts := []struct {
		out   **byte
		name  string
		given []byte
	}{
		{&given.Servers, "Servers", c.Servers.bytes()}, {&given.User, "User", []byte(c.User)},
		{&given.Password, "Password", c.Password.bytes()},
		{&given.KeyPrefix, "KeyPrefix", []byte(c.KeyPrefix)},
	}
	if t := c.TLS; t != nil {
		given.TLS, given.TLSInsecureNoVerify = 1, flag(t.InsecureNoVerify)
		texts = append(texts, []struct {
			out   **byte
			name  string
			given []byte
		}{
			{&given.TLSCAFile, "CAFile", []byte(t.CAFile)},
			{&given.TLSCADirectory, "CADirectory", []byte(t.CADirectory)},
			{&given.TLSCertificateFile, "CertificateFile", []byte(t.CertificateFile)},
			{&given.TLSKeyFile, "KeyFile", []byte(t.KeyFile)},
			{&given.TLSServerName, "ServerName", []byte(t.ServerName)},
		}...)
	}
	for _, text := range texts {
		bytes, err := ended(op, text.name, text.given)
		if err != nil {
			return nil, copies, err
		}
		if bytes != nil {
			*text.out = &bytes[0]
			copies = append(copies, bytes)
		}
	}
	given.TTLSeconds = uint32((uint64(milliseconds(c.TTL)) + 999) / 1000)
	given.ConnectTimeoutMs = milliseconds(c.ConnectTimeout)
	given.CommandTimeoutMs = milliseconds(c.CommandTimeout)
	given.MaxPipelineBytes = c.MaxPipelineBytes
	given.ConnectLater = flag(c.ConnectLater)
	return given, copies, nil
}
