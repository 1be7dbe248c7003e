/* pkv-scenarios: plays bindings/scenarios/scenarios.json through the library, which is opened at
 * run time. README.md there says what each step means.
 *
 * usage: pkv-scenarios FILE      exits with 1 and prints each difference if a step does not give
 * the expected result
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../common/util.h"
#include "player.h"

static char* read_text(const char* path) {
  mapped_file file = map_file(path, "scenario file");
  char* text = new_array(file.size + 1, 1);
  memcpy(text, file.data, file.size);
  unmap_file(&file);
  return text;
}

/* False if a step differs; the output names it. */
static bool play(const pkv_dl* lib, const cJSON* scenario) {
  const char* name = text_of(scenario, "name");
  player* p = player_new(lib, scenario);
  const cJSON* step;
  bool same = true;
  int number = 0;
  cJSON_ArrayForEach(step, item_of(scenario, "steps")) {
    number++;
    if (player_step(p, step)) continue;
    fprintf(stderr, "scenario '%s', step %d (%s): %s\n", name, number, text_of(step, "do"),
            player_difference(p));
    same = false;
  }
  player_free(p);
  return same;
}

int main(int argc, char** argv) {
  pkv_dl lib;
  if (argc != 2) die(EXIT_BAD_OPTION, "usage: pkv-scenarios FILE");
  pkv_dl_open(&lib, NULL);
  char* text = read_text(argv[1]);
  cJSON* document = cJSON_Parse(text);
  if (document == NULL) die(EXIT_BAD_INPUT, "%s is not JSON", argv[1]);
  const cJSON* scenario;
  int passed = 0, failed = 0;
  cJSON_ArrayForEach(scenario, item_of(document, "scenarios")) {
    const bool same = play(&lib, scenario);
    passed += same;
    failed += !same;
  }
  printf("%d scenarios passed, %d failed\n", passed, failed);
  cJSON_Delete(document);
  free(text);
  return failed == 0 && passed > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
