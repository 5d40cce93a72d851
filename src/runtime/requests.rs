//! Requests to the API server: each has a deadline, and what keeps one from being carried out is one enum.

use std::{fmt::Debug, time::Duration};

use k8s_openapi::NamespaceResourceScope;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, PostParams, Preconditions},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::timeout;

use crate::api::FIELD_MANAGER;

/// For one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// For one that something else waits for: a grant, or the first connection to a member.
pub const SHORT_TIMEOUT: Duration = Duration::from_secs(2);

/// An object that lives in a namespace and can be read.
pub trait Namespaced:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned
{
}

impl<K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned> Namespaced
    for K
{
}

/// Why a request was not carried out, as far as is known. None of them shows a password, key or value.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The API server refused, or its answer cannot be read.
    #[error("request to the API server failed")]
    Api(#[source] Box<kube::Error>),
    /// It may have been carried out, or be carried out yet.
    #[error("the API server did not answer in time")]
    TimedOut,
    /// Another write came first.
    #[error("the object has changed in the meantime")]
    Conflict,
}

impl From<kube::Error> for RequestError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 409 => Self::Conflict,
            other => Self::Api(Box::new(other)),
        }
    }
}

impl RequestError {
    /// The answer of the API server, if it refused with one of these codes.
    #[must_use]
    pub fn refusal(&self, codes: &[u16]) -> Option<&str> {
        match self {
            Self::Api(error) => match error.as_ref() {
                kube::Error::Api(status) if codes.contains(&status.code) => Some(&status.message),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Awaits a request for [`REQUEST_TIMEOUT`].
pub async fn request<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, RequestError> {
    within(REQUEST_TIMEOUT, call).await
}

/// Awaits a request for so long.
pub async fn within<T>(deadline: Duration, call: impl Future<Output = kube::Result<T>>) -> Result<T, RequestError> {
    Ok(timeout(deadline, call).await.map_err(|_elapsed| RequestError::TimedOut)??)
}

/// Whether the object with this UID is the controller of another one. Any other owner reference shows nothing: whoever may edit an
/// object may add one.
#[must_use]
pub fn is_ours<K: Resource>(object: &K, uid: &str) -> bool {
    object.owner_references().iter().any(|owner| owner.controller == Some(true) && owner.uid == uid)
}

/// Names the operator as who has made an object.
#[must_use]
pub fn as_operator() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

/// Writes an object in place of this version of it, or makes it. A version that came in between is a conflict.
///
/// # Errors
/// If the API server refuses, or does not answer in time.
pub async fn put<K: Namespaced + Serialize>(api: &Api<K>, mut object: K, found: Option<&K>) -> Result<K, RequestError> {
    let Some(found) = found else { return request(api.create(&as_operator(), &object)).await };
    object.meta_mut().resource_version = found.resource_version();
    request(api.replace(&object.name_any(), &as_operator(), &object)).await
}

/// Deletes this very object, by its UID: one that has taken its place meanwhile is another one. Whether it was there; that it is
/// gone or replaced is as good.
///
/// # Errors
/// If the API server refuses, or does not answer in time.
pub async fn delete<K: Namespaced>(client: &Client, object: &K) -> Result<bool, RequestError> {
    let api: Api<K> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    let preconditions = Preconditions { uid: object.uid(), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
    match request(api.delete(&object.name_any(), &params)).await {
        Ok(_) => Ok(true),
        Err(RequestError::Conflict) => Ok(false),
        Err(error) if error.refusal(&[404]).is_some() => Ok(false),
        Err(error) => Err(error),
    }
}
