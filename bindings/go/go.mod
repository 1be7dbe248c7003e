module github.com/pagedkv/pagedkv/bindings/go

go 1.19

require github.com/ebitengine/purego v0.10.2
