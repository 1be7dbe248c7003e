package pagedkv_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
)

// hidden makes the value that a config takes instead of a text.
var hidden = pagedkv.NewSecret[string]

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// server starts a server with a password on a loopback port, which ends with the test.
func server(t *testing.T) int {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		program, err = exec.LookPath("valkey-server")
	}
	if err != nil {
		t.Skip("redis-server and valkey-server are missing: bash tests/install-deps test")
	}
	port := freePort(t)
	command := exec.Command(
		program, "--port", fmt.Sprint(port), "--requirepass", "secret", "--bind", "127.0.0.1",
		"--save", "", "--dir", t.TempDir(),
	)
	must(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		connection, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = connection.Close()
			return port
		}
		if time.Since(begin) > 30*time.Second {
			t.Fatal(err)
		}
	}
}

func needPlugin(t *testing.T) {
	t.Helper()
	if os.Getenv("PAGEDKV_REDIS_LIBRARY") == "" {
		t.Skip("PAGEDKV_REDIS_LIBRARY names no libpagedkv-redis")
	}
}

func withRedis(redis pagedkv.RedisConfig) pagedkv.CacheConfig {
	return pagedkv.CacheConfig{
		Groups: plainModel(32),
		Prefix: &pagedkv.PrefixConfig{},
		Store:  &pagedkv.StoreConfig{Redis: &redis},
	}
}

func TestTextsComeBackFromRedis(t *testing.T) {
	needPlugin(t)
	port := server(t)
	first := newCache(
		t,
		withRedis(
			pagedkv.RedisConfig{
				Servers: hidden(fmt.Sprintf("redis://:secret@127.0.0.1:%d", port)),
				TTL:     time.Hour,
			},
		),
	)
	session := open(t, first)
	text := numbered(1, 40)
	extend(t, session, text)
	must(t, session.Close())
	must(t, first.Close()) // waits until all is written

	// The same with all other fields set, and with another prefix.
	for prefix, expected := range map[string]int{"pagedkv:": 32, "other:": 0} {
		same := pagedkv.RedisConfig{
			Servers:          hidden(fmt.Sprintf("127.0.0.1:%d", port)),
			User:             "default",
			Password:         hidden("secret"),
			KeyPrefix:        prefix,
			TTL:              time.Second,
			ConnectTimeout:   time.Minute,
			CommandTimeout:   time.Minute,
			MaxPipelineBytes: 1 << 20,
			ConnectLater:     true,
		}
		second := newCache(t, withRedis(same))
		prefetch(t, second, text)
		if cached, err := second.Store().WaitForPrefetch("", text, 20*time.Second); err != nil ||
			cached != expected {
			t.Errorf("%s: %d tokens are back, %v", prefix, cached, err)
		}
		must(t, second.Close())
	}
	_, err := pagedkv.NewCache(
		withRedis(
			pagedkv.RedisConfig{
				Servers: hidden(fmt.Sprintf("127.0.0.1:%d", port)), Password: hidden("wrong"),
			},
		),
	)
	refused(t, err, pagedkv.ErrIO)
	if !strings.Contains(err.Error(), "WRONGPASS") {
		t.Error(err)
	}
}

func TestRedisThatCannotBe(t *testing.T) {
	needPlugin(t)
	address := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	_, err := pagedkv.NewCache(withRedis(pagedkv.RedisConfig{Servers: hidden(address)}))
	refused(t, err, pagedkv.ErrIO)
	var sentence *pagedkv.Error
	if !errors.As(err, &sentence) || !strings.Contains(sentence.Sentence, address) {
		t.Errorf("not the plugin's sentence: %v", err)
	}
	must(
		t,
		newCache(t, withRedis(pagedkv.RedisConfig{Servers: hidden(address), ConnectLater: true})).Close(),
	)
	for _, bad := range []pagedkv.RedisConfig{
		{Servers: hidden("a\x00b")}, {MaxPipelineBytes: 1}, {ConnectTimeout: -1 * time.Hour},
		{ConnectTimeout: 2 * time.Hour},
	} {
		_, err = pagedkv.NewCache(withRedis(bad))
		refused(t, err, pagedkv.ErrInvalidArgument)
	}
	for _, bad := range []pagedkv.TLSConfig{
		{KeyFile: "a"}, {CertificateFile: "a"}, {ServerName: "a b"}, {ServerName: "a\x00b"},
		{CAFile: "a\x00b"}, {CAFile: "a", InsecureNoVerify: true},
	} {
		tls := bad
		_, err := pagedkv.NewCache(withRedis(pagedkv.RedisConfig{Servers: hidden(address), TLS: &tls}))
		refused(t, err, pagedkv.ErrInvalidArgument)
	}
	both := withRedis(pagedkv.RedisConfig{})
	both.Store.Directory = t.TempDir()
	_, err = pagedkv.NewCache(both)
	refused(t, err, pagedkv.ErrInvalidArgument)
}
