/* pkv-scenarios: plays bindings/scenarios/scenarios.json through the library, which is opened at
 * run time. README.md there says what each step means.
 *
 * usage: pkv-scenarios FILE API.JSON FOLDER      exits with 1 and prints each difference if a step
 * does not give the expected result. Stores are made in the folder, which must be empty.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../common/system.h"
#include "../common/util.h"
#include "player.h"

static cJSON* read_json(const char* path) {
  mapped_file file = map_file(path, "JSON file");
  cJSON* document = cJSON_ParseWithLength((const char*)file.data, file.size);
  if (document == NULL) die(EXIT_BAD_INPUT, "%s is not JSON", path);
  unmap_file(&file);
  return document;
}

/* False if a step differs; the output names it. */
static bool play(const pkv_dl* lib, const cJSON* scenario, const char* folder) {
  const char* name = text_of(scenario, "name");
  player* p = player_new(lib, scenario, folder);
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
  if (argc != 4) die(EXIT_BAD_OPTION, "usage: pkv-scenarios FILE API.JSON FOLDER");
  pkv_dl_open(&lib, NULL);
  cJSON *document = read_json(argv[1]), *description = read_json(argv[2]);
  fields_open(description);
  const cJSON* scenario;
  int passed = 0, failed = 0;
  cJSON_ArrayForEach(scenario, item_of(document, "scenarios")) {
    const bool same = play(&lib, scenario, argv[3]);
    passed += same;
    failed += !same;
  }
  printf("%d scenarios passed, %d failed\n", passed, failed);
  cJSON_Delete(document);
  cJSON_Delete(description);
  return failed == 0 && passed > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
