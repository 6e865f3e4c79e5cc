//! The model that is served.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::error::Refusal;
use crate::service::Service;

fn describe(service: &Service) -> Value {
    json!({
        "id": service.options.model_name,
        "object": "model",
        "created": service.created,
        "owned_by": "rushlight",
        "max_model_len": service.limits.max_context_len,
    })
}

pub async fn list(State(service): State<Arc<Service>>) -> Json<Value> {
    Json(json!({ "object": "list", "data": [describe(&service)] }))
}

pub async fn one(State(service): State<Arc<Service>>, Path(name): Path<String>) -> Result<Json<Value>, Refusal> {
    if name == service.options.model_name {
        return Ok(Json(describe(&service)));
    }
    let message = format!("there is no model `{name}`: expected `{}`", service.options.model_name);
    Err(Refusal::new(StatusCode::NOT_FOUND, message))
}
