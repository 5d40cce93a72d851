//! HTTP responses.

use hyper::body::Bytes;
use hyper::http::{Response, StatusCode, header};
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::fmt::rfc2822::DateTimePrinter;
use serde_json::Value;

use super::super::Millis;
use super::outcome::Refusal;

pub(super) fn json(code: StatusCode, body: Bytes, now: Millis) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    if let Ok(date) = header::HeaderValue::from_str(&date(now)) {
        headers.insert(header::DATE, date);
    }
    response
}

pub(super) fn value(code: StatusCode, value: &Value, now: Millis) -> Response<Bytes> {
    json(code, Bytes::from(value.to_string()), now)
}

pub(super) fn refusal(refusal: &Refusal, now: Millis) -> Response<Bytes> {
    let code = StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = value(code, &refusal.status(), now);
    if let Some(seconds) = refusal.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from(seconds));
    }
    response
}

/// Formats the header `Date`: whole seconds.
pub(super) fn date(now: Millis) -> String {
    let time = Timestamp::from_second(now.div_euclid(1_000)).unwrap_or_default();
    DateTimePrinter::new().timestamp_to_rfc9110_string(&time).unwrap_or_default()
}
