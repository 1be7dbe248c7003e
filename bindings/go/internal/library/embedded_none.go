//go:build !pagedkv_embed && !pagedkv_cgo

package library

var embedded []byte
