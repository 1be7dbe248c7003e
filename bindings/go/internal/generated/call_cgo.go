//go:build pagedkv_cgo

package generated

/*
#cgo pkg-config: pagedkv
#include <pagedkv/experimental.h>
#include <pagedkv/pagedkv.h>

#include "functions.h"

typedef void (*go_function)(void);
#define F(name) (go_function)pkv_##name,
static const go_function go_functions[] = {FUNCTIONS(F)};

// Functions take only numbers and addresses. Their calling convention does not depend on the number
// of arguments.
static uintptr_t go_call(size_t f, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e,
    uintptr_t g, uintptr_t h, uintptr_t i, uintptr_t j) {
  typedef uintptr_t (*function)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
      uintptr_t, uintptr_t, uintptr_t);
  return ((function)go_functions[f])(a, b, c, d, e, g, h, i, j);
}
*/
import "C"

// call passes arguments on to a function of Names.
//
//go:uintptrescapes
func call(function int, arguments ...uintptr) uintptr {
	var a [9]C.uintptr_t
	for i, value := range arguments {
		a[i] = C.uintptr_t(value)
	}
	return uintptr(C.go_call(
		C.size_t(function), a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8],
	))
}
