//! Pages of text for monitoring. A page is made when a client asks for it, one at a time per connection.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::map_response;
use axum::response::Response;
use axum::routing::get;
use tokio::task::spawn_blocking;

use crate::server::{Limits, Patience, Server};

const LIMITS: Limits = Limits {
    connections_max: 64,
    head: Duration::from_secs(2),
    patience: Patience::Whole(Duration::from_secs(2)),
};

/// A page, or why it is missing.
pub type Page = Result<String, String>;

/// Makes a page; this may wait.
pub type Make = Arc<dyn Fn() -> Page + Send + Sync>;

impl Server {
    /// Serves pages from now on, each at its path with its content type.
    pub fn pages(
        bound: TcpListener,
        pages: Vec<(&'static str, &'static str, Make)>,
    ) -> io::Result<Server> {
        let paths: Vec<&str> = pages.iter().map(|(path, ..)| *path).collect();
        let missing = format!("not found; use {}\n", paths.join(", "));
        let mut routes = Router::new();
        for (path, kind, make) in pages {
            let page = move || async move {
                let page = spawn_blocking(move || make()).await;
                let page = page.unwrap_or_else(|error| Err(error.to_string()));
                let (status, text) = match page {
                    Ok(text) => (StatusCode::OK, text),
                    Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
                };
                (status, [(CONTENT_TYPE, kind)], text)
            };
            routes = routes.route(path, get(page));
        }
        let routes = routes
            .fallback((StatusCode::NOT_FOUND, missing))
            .method_not_allowed_fallback((StatusCode::METHOD_NOT_ALLOWED, "use GET or HEAD\n"))
            .layer(map_response(|mut response: Response| async move {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(CONNECTION, close);
                response
            }));
        Server::start("loom-http", vec![bound], LIMITS, None, routes, drop)
    }
}
