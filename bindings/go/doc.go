// Package pagedkv is the KV cache and paged attention of an inference engine: bindings to
// libpagedkv.
//
// A Cache stores the keys and values of a model in blocks, a Session is one sequence, and a Batch
// is one forward pass over many sessions:
//
//	cache, err := pagedkv.NewCache(pagedkv.CacheConfig{
//		Groups: []pagedkv.LayerGroup{
//			{Layers: 2, QueryHeads: 4, KVHeads: 2, KeyDim: 32, Blocks: 64},
//		},
//	})
//	defer cache.Close()
//	session, err := cache.OpenSession(nil)
//	batch, err := cache.Begin(pagedkv.Step{Session: session, NewTokens: 20})
//	defer batch.Close() // aborts the step if it was not committed
//	for layer := 0; layer < 2; layer++ {
//		err = batch.Write(layer, pagedkv.Float32(k), pagedkv.Float32(v))
//		err = batch.Attend(layer, pagedkv.Float32(q), pagedkv.Float32(out), nil, nil)
//	}
//	err = batch.Commit(tokens)
//
// # The library
//
// By default no C compiler is needed: libpagedkv.so.1 is opened at the first call. It is the first
// of these: the file that PAGEDKV_LIBRARY names; the copy in a program that was built with the tag
// pagedkv_embed; beside the program or in ../lib; where the dynamic linker finds it; in /usr/local;
// in an installed Python package. If there is none, the error says why for each place. Load
// opens another one, and LoadBytes one that is embedded in the program. With the build tag
// pagedkv_cgo the program is linked to the library by cgo and pkg-config; everything else is the
// same.
//
// # Errors
//
// Every error of the library is an *Error with a sentence that has the numbers. errors.Is compares
// it with a Status (ErrOutOfBlocks), with a family of them (ErrUnavailable), or with the error of
// the system (fs.ErrNotExist). It also has the entry of a list that the call refused, and how many
// blocks are short. A failed call changes nothing. Slices are checked against the shapes of the
// model before the library reads them.
//
// # Closing
//
// Close every object. Closing it twice, or using it afterwards, returns ErrStaleHandle (and
// fs.ErrClosed) and never crashes. Forgotten objects are closed some time after the garbage
// collector finds them. Do not rely on it: the collector does not know how much memory they hold.
//
// # Goroutines
//
// All functions may be called from any goroutine. Different sessions and batches of one cache work
// concurrently. During a call that changes a session or batch, other calls on it return ErrBusy. A
// call that changes it waits for those that only return values of it, such as Length, and returns
// ErrBusy during those that copy or save it. Slices belong to the library only during the call. The
// slices of Batch.States are the library's memory, and belong to the caller until the batch ends.
package pagedkv
