//! Lists in pages, because the client reads an answer as a whole.

use futures::{Stream, stream};
use kube::Api;
use kube::api::ListParams;

use super::{Guarded, Kind};
use crate::api::requests::{RequestError, request};

/// The objects of one API that these fields select, in pages of [`Kind::PAGE`].
pub(crate) fn pages<K: Kind>(
    api: Api<Guarded<K>>,
    fields: Option<String>,
) -> impl Stream<Item = Result<Vec<Guarded<K>>, RequestError>> {
    let first = ListParams { field_selector: fields, ..ListParams::default().limit(K::PAGE) };
    stream::try_unfold((api, Some(first)), async |(api, page)| {
        let Some(mut page) = page else { return Ok(None) };
        let list = request(api.list(&page)).await?;
        page.continue_token = list.metadata.continue_.filter(|token| !token.is_empty());
        let next = page.continue_token.is_some().then_some(page);
        Ok(Some((list.items, (api, next))))
    })
}
