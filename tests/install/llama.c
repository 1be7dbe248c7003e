/* A program that uses libpagedkv-llama and has no llama.cpp: it says so. */
#include <pagedkv-llama.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  int context;
  const pkv_llama_config config = {
      .struct_size = sizeof config, .context = &context, .max_bytes = 1 << 20};
  pkv_llama memory;
  if (pkv_llama_open(&config, &memory) != PKV_UNSUPPORTED) return 2;
  printf("%s\n", pkv_llama_last_error());
  return strstr(pkv_llama_last_error(), "load llama.cpp") == NULL;
}
