//! The model that is served.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use crate::error::Refusal;
use crate::service::Service;

fn describe(service: &Service, name: &str, parent: Option<&str>) -> Value {
    let mut model = json!({
        "id": name,
        "object": "model",
        "created": service.created,
        "owned_by": "rushlight",
        "max_model_len": service.limits.max_context_len,
    });
    if let (Some(parent), Value::Object(fields)) = (parent, &mut model) {
        fields.insert("parent".to_owned(), parent.into());
    }
    model
}

/// The model, and one model for each adapter.
fn all(service: &Service) -> Vec<Value> {
    let base = service.options.model_name.as_str();
    let adapted = service.options.adapters.iter().map(|(name, _)| describe(service, name, Some(base)));
    std::iter::once(describe(service, base, None)).chain(adapted).collect()
}

pub async fn list(State(service): State<Arc<Service>>) -> Json<Value> {
    Json(json!({ "object": "list", "data": all(&service) }))
}

pub async fn one(State(service): State<Arc<Service>>, Path(name): Path<String>) -> Result<Json<Value>, Refusal> {
    let found = all(&service).into_iter().find(|model| model.get("id").is_some_and(|id| *id == name));
    found.map(Json).ok_or_else(|| service.no_model(&name))
}
