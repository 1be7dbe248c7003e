//! Configs and parameters of scenarios, whose fields have the names of C.
use super::device::Device;
use pagedkv::{
    AttentionParams, CacheConfig, Dtype, Eviction, Hint, HintAction, LayerGroup, Layout,
    PrefixConfig, Retention, Storage,
};
use serde_json::Value;
use std::time::Duration;

pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a number"))
}

/// The value of an enum whose name in C is this one. `make` makes it from a number.
pub fn named<T: std::fmt::Debug>(value: &Value, make: fn(i32) -> T) -> T {
    let name = value.as_str().expect("a name of C");
    (-1..600)
        .map(make)
        .filter(|constant| name.ends_with(&format!("_{constant:?}")))
        .max_by_key(|constant| format!("{constant:?}").len())
        .unwrap_or_else(|| panic!("{value} is not a name of this enum"))
}

/// A layer's shape, for rows.
#[derive(Clone, Copy)]
pub struct Shape {
    pub query_heads: u64,
    pub kv_heads: u64,
    pub key_dim: u64,
    pub value_dim: u64,
}

fn layers_of(group: &Value) -> Vec<usize> {
    match group.get("layer_indices") {
        Some(indices) => indices
            .as_array()
            .expect("indices")
            .iter()
            .map(|index| number(index) as usize)
            .collect(),
        None => (0..number(&group["layers"]) as usize).collect(),
    }
}

fn is_opaque(group: &Value) -> bool {
    group.get("kind").map_or(false, |kind| kind == "PKV_LAYERS_OPAQUE_KV")
}

fn groups(config: &Value) -> &[Value] {
    config["groups"].as_array().expect("groups")
}

pub fn shapes(config: &Value) -> Vec<Shape> {
    let mut shapes = Vec::new();
    for group in groups(config).iter().filter(|group| !is_opaque(group)) {
        let field = |name: &str| number(&group[name]);
        let value_dim = group.get("value_dim").map_or(field("key_dim"), number);
        let (query_heads, kv_heads, key_dim) =
            (field("query_heads"), field("kv_heads"), field("key_dim"));
        shapes.extend(
            layers_of(group)
                .into_iter()
                .map(|layer| (layer, Shape { query_heads, kv_heads, key_dim, value_dim })),
        );
    }
    shapes.sort_by_key(|(layer, _)| *layer);
    shapes.into_iter().map(|(_, shape)| shape).collect()
}

fn layer_group(fields: &Value) -> LayerGroup {
    let field = |name: &str| fields.get(name).map_or(0, number);
    let [layers, query_heads, kv_heads, key_dim] =
        ["layers", "query_heads", "kv_heads", "key_dim"].map(|name| field(name) as u32);
    let mut group = match is_opaque(fields) {
        true => LayerGroup::opaque_kv(layers, field("layer_bytes")),
        false => LayerGroup::new(layers, query_heads, kv_heads, key_dim),
    };
    for (name, value) in fields.as_object().expect("a group") {
        group = match name.as_str() {
            "layers" | "query_heads" | "kv_heads" | "key_dim" | "kind" | "layer_bytes" => group,
            "layer_indices" => group.layer_indices(
                layers_of(fields).into_iter().map(|layer| layer as u32).collect::<Vec<_>>(),
            ),
            "value_dim" => group.value_dim(number(value) as u32),
            "dtype" => group.dtype(named(value, Dtype)),
            "value_dtype" => group.value_dtype(named(value, Dtype)),
            "window" => group.window(number(value) as u32),
            "sink_tokens" => group.sink_tokens(number(value) as u32),
            "blocks" => group.blocks(number(value)),
            _ => panic!("{name} of a layer group"),
        };
    }
    group
}

fn prefix_config(fields: &Value) -> PrefixConfig {
    fields.as_object().expect("a prefix config").iter().fold(
        PrefixConfig::new(),
        |config, (name, value)| match name.as_str() {
            "eviction" => config.eviction(named(value, Eviction)),
            "max_pinned_tokens" => config.max_pinned_tokens(number(value)),
            "max_tokens_per_salt" => config.max_tokens_per_salt(number(value)),
            _ => panic!("{name} of a prefix config"),
        },
    )
}

/// The blocks of opaque groups, if there are such groups.
pub fn device(config: &Value) -> Option<Device> {
    let first = &groups(config)[0];
    is_opaque(first).then(|| Device::new(groups(config).len(), number(&first["blocks"]) as usize))
}

/// Without a store, whose directory is the caller's.
pub fn cache_config(fields: &Value) -> CacheConfig {
    let mut config = CacheConfig::with_groups(groups(fields).iter().map(layer_group));
    for (name, value) in fields.as_object().expect("a config") {
        config = match name.as_str() {
            "groups" | "store" => config,
            "storage" => config.storage(named(value, Storage)),
            "layout" => config.layout(named(value, Layout)),
            "block_size" => config.block_size(number(value) as u32),
            "watermark_blocks" => config.watermark_blocks(number(value) as u32),
            "prefix" => config.prefix(prefix_config(value)),
            _ => panic!("{name} of a config"),
        };
    }
    config
}

pub fn hint(fields: &Value) -> Hint {
    let bound = |name: &str| fields.get(name).map_or(0, number);
    let mut hint = Hint::new(named(&fields["action"], HintAction));
    for name in fields.as_object().expect("a hint").keys() {
        hint = match name.as_str() {
            "action" => hint,
            "first" | "end" => match fields.get("end") {
                Some(end) => hint.range(bound("first")..number(end)),
                None => hint.range(bound("first")..),
            },
            "retention" => hint.retention(named(&fields[name], Retention)),
            "duration_ms" => hint.duration(Duration::from_millis(bound(name))),
            _ => panic!("{name} of a hint"),
        };
    }
    hint
}

pub fn floats(params: &Value, name: &str) -> Option<Vec<f32>> {
    Some(
        params
            .get(name)?
            .as_array()?
            .iter()
            .map(|number| number.as_f64().expect("a number") as f32)
            .collect(),
    )
}

pub fn attention_params<'a>(
    fields: &Value,
    slopes: &'a Option<Vec<f32>>,
    logits: &'a Option<Vec<f32>>,
) -> AttentionParams<'a> {
    let mut params = AttentionParams::new();
    for (name, value) in fields.as_object().into_iter().flatten() {
        params = match name.as_str() {
            "scale" => params.scale(value.as_f64().expect("a scale") as f32),
            "softcap" => params.softcap(value.as_f64().expect("a softcap") as f32),
            "window" => params.window(number(value) as u32),
            "sink_tokens" => params.sink_tokens(number(value) as u32),
            "bidirectional" if number(value) == 1 => params.bidirectional(),
            "alibi_slopes" => params.alibi_slopes(slopes.as_deref().expect("slopes")),
            "sink_logits" => params.sink_logits(logits.as_deref().expect("logits")),
            _ => panic!("{name} of attention parameters"),
        };
    }
    params
}
