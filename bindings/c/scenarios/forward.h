/* The step "step" of a scenario: a forward pass over sessions whose rows follow from their texts.
 */
#ifndef PKV_SCENARIO_FORWARD_H
#define PKV_SCENARIO_FORWARD_H

#include "player.h"

/* Returns the status of the first call that fails. `session` is not used: a pass names several
 * sessions in `step`. */
pkv_status player_forward(player* p, const cJSON* step, pkv_session session);

#endif
