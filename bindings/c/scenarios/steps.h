/* The steps of a scenario by name. */
#ifndef PKV_SCENARIO_STEPS_H
#define PKV_SCENARIO_STEPS_H

#include "player.h"

/* Does a step. False where something is not as expected; player_difference then says what. */
bool player_step(player* p, const cJSON* step);

#endif
