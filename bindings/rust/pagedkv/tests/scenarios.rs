//! The scenarios that every binding plays: bindings/scenarios/README.md says what each step does
//! and compares.
mod play;

use play::Player;
use serde_json::Value;

#[test]
fn scenarios() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/scenarios.json");
    let document: Value =
        serde_json::from_str(&std::fs::read_to_string(file).expect(file)).expect(file);
    let scenarios = document["scenarios"].as_array().expect("scenarios");
    assert!(!scenarios.is_empty());
    let folder = std::env::temp_dir().join(format!("pagedkv-scenarios-{}", std::process::id()));
    for scenario in scenarios {
        let mut player = Player::new(scenario, &folder);
        for (number, step) in scenario["steps"].as_array().expect("steps").iter().enumerate() {
            if let Err(difference) = player.play(step) {
                panic!("{}, step {number} ({}): {difference}", scenario["name"], step["do"]);
            }
        }
        drop(player);
        let _ = std::fs::remove_dir_all(&folder); // only a store makes it
    }
}

/// The numbers in bindings/scenarios/README.md for checking rows.
#[test]
fn rows() {
    let text = play::rows::tokens(&serde_json::json!([[1, 0, 1]]));
    assert_eq!(text, [63807]);
    assert_eq!(play::rows::rows(&text, 0, 1, play::rows::Kind::Key, 0, 1, 1)[0], 0.390_095_6);
    assert_eq!(play::rows::rows(&text, 0, 1, play::rows::Kind::Query, 0, 1, 1)[0], -3.216_357_7);
}
