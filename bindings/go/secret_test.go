package pagedkv_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
)

// configs are all configs of the package.
var configs = map[string]any{
	"CacheConfig":   pagedkv.CacheConfig{},
	"ComputeConfig": pagedkv.ComputeConfig{},
	"FileConfig":    pagedkv.FileConfig{},
	"PoolConfig":    pagedkv.PoolConfig{},
	"PrefixConfig":  pagedkv.PrefixConfig{},
	"RedisConfig":   pagedkv.RedisConfig{},
	"SessionConfig": pagedkv.SessionConfig{},
	"StoreConfig":   pagedkv.StoreConfig{},
	"TLSConfig":     pagedkv.TLSConfig{},
}

// public are the texts and bytes that may be shown. All others must be Secrets.
const public = " CacheConfig.MemoryDirectory FileConfig.Fingerprint RedisConfig.KeyPrefix" +
	" RedisConfig.User SessionConfig.Salt StoreConfig.Directory StoreConfig.Fingerprint" +
	" TLSConfig.CADirectory TLSConfig.CAFile TLSConfig.CertificateFile TLSConfig.KeyFile" +
	" TLSConfig.ServerName "

const mark = "NOBODY-SEES-THIS"

// marked fills a config, and what it points to, with secrets.
func marked(t *testing.T, config reflect.Value) {
	for i := 0; i < config.NumField(); i++ {
		field, name := config.Field(i), config.Type().Name()+"."+config.Type().Field(i).Name
		switch value := field.Interface().(type) {
		case pagedkv.Secret:
			field.Set(reflect.ValueOf(pagedkv.NewSecret(mark)))
		case string, []byte:
			if !strings.Contains(public, " "+name+" ") {
				t.Errorf("%s is a %T: make it a Secret, or say here that it is public", name, value)
			}
		default:
			if field.Kind() == reflect.Pointer && field.Type().Elem().Kind() == reflect.Struct {
				field.Set(reflect.New(field.Type().Elem()))
				marked(t, field.Elem())
			}
		}
	}
}

// forms are all forms in which a secret could be shown.
func forms() []string {
	numbers := fmt.Sprint([]byte(mark))
	return []string{
		mark, strings.ToLower(mark), hex.EncodeToString([]byte(mark)),
		strings.ToUpper(hex.EncodeToString([]byte(mark))), base64.StdEncoding.EncodeToString(
			[]byte(mark))[:16], numbers[1 : len(numbers)-1], strings.ReplaceAll(
			fmt.Sprintf("%#v", []byte(mark)), "[]byte", ""),
	}
}

func TestNoConfigShowsASecret(t *testing.T) {
	for name, empty := range configs {
		made := reflect.New(reflect.TypeOf(empty))
		marked(t, made.Elem())
		config, pointer := made.Elem().Interface(), made.Interface()
		var shown bytes.Buffer
		logger := log.New(&shown, "", 0)
		for _, value := range []any{
			config, pointer, []any{config}, map[string]any{"a": config}, struct{ inside any }{config},
		} {
			for _, verb := range strings.Fields("%v %+v %#v %s %q %x %X %d %T %p %t") {
				fmt.Fprintf(&shown, verb+"\n", value)
			}
			logger.Println(value)
			shown.WriteString(fmt.Sprint(errors.New(fmt.Sprint(value))))
			if text, err := json.Marshal(value); err == nil {
				shown.Write(text)
			}
		}
		followed(&shown, reflect.ValueOf(config))
		logStructured(&shown, config)
		for _, form := range forms() {
			if strings.Contains(shown.String(), form) {
				t.Errorf("%s shows its secret as %s", name, form)
			}
		}
	}
}

// followed returns what code sees that follows pointers and reads unexported fields.
func followed(shown *bytes.Buffer, value reflect.Value) {
	switch value.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !value.IsNil() {
			followed(shown, value.Elem())
		}
	case reflect.Struct:
		for i := 0; i < value.NumField(); i++ {
			followed(shown, value.Field(i))
		}
	default:
		fmt.Fprintf(shown, "%v %q\n", value, value)
	}
}

func TestEveryConfigIsLookedAt(t *testing.T) {
	for _, spec := range types(t) {
		if name := spec.Name.Name; strings.HasSuffix(name, "Config") && configs[name] == nil {
			t.Errorf("%s is not among those that are shown", name)
		}
	}
}

// types are the exported types of the package.
func types(t *testing.T) (found []*ast.TypeSpec) {
	files, err := filepath.Glob("*.go")
	must(t, err)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		must(t, err)
		ast.Inspect(file, func(node ast.Node) bool {
			if spec, is := node.(*ast.TypeSpec); is && spec.Name.IsExported() {
				found = append(found, spec)
			}
			return true
		})
	}
	return found
}

func TestASecretSaysWhetherThereIsOne(t *testing.T) {
	for _, one := range []struct {
		config pagedkv.FileConfig
		key    string
	}{
		{pagedkv.FileConfig{}, "SecretKey:(none)"},
		{pagedkv.FileConfig{SecretKey: pagedkv.NewSecret([]byte(mark))}, "SecretKey:(hidden)"},
	} {
		if shown := fmt.Sprintf("%+v", one.config); !strings.Contains(shown, one.key) {
			t.Errorf("%s is shown, not %s", shown, one.key)
		}
	}
}
