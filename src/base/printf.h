#pragma once

// An attribute: argument `text` is a format of printf() for the arguments from `first` on. With
// MinGW, "printf" would mean the formats of Microsoft's C library.
#ifdef __MINGW32__
#define PKV_PRINTF(text, first) gnu::format(gnu_printf, text, first)
#else
#define PKV_PRINTF(text, first) gnu::format(printf, text, first)
#endif
