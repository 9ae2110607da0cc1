//! The routes of requests, found once, and their counts: how many there were, how long they took, how many are under
//! way.
//!
//! Counting costs a look into a table and a few additions: every count has its place before the first
//! request comes. Labels are the templates of routes, never the paths themselves: those have no bound
//! in number and may hold ids.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use asyncgate_engine::{Entry, registry};
use asyncgate_rest::{EVENTS, HEALTHZ, METRICS, READYZ};
use asyncgate_store::Stopwatch;
use axum::http::{Method, StatusCode};
use foldhash::HashMap;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// The label of everything that has no label of its own.
const OTHER: &str = "other";

/// The methods that are told apart; the last stands for all others.
const METHODS: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", OTHER];

/// The statuses that are told apart; others count as the first of their hundred.
const STATUSES: [u16; 24] = [
    100, 200, 201, 202, 300, 400, 401, 403, 404, 405, 406, 408, 409, 413, 415, 422, 429, 431, 500,
    501, 502, 503, 504, 505,
];

/// The upper bounds of the buckets of latency, in microseconds; one more bucket has no bound.
const BOUNDS_MICROS: [u64; 12] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 10_000_000,
    60_000_000,
];

/// The counts of every route.
pub struct Traffic {
    routes: Vec<Route>,
    /// The routes without fields, by their path.
    exact: HashMap<&'static str, usize>,
    /// The routes with fields.
    patterns: Vec<Pattern>,
}

/// A route with fields.
struct Pattern {
    /// The text before the first field, and behind the last one.
    ends: (&'static str, &'static str),
    /// True if there are more fields than one.
    is_long: bool,
    place: usize,
}

impl Pattern {
    fn fits(&self, template: &str, path: &str) -> bool {
        let (front, back) = self.ends;
        let within = path
            .strip_prefix(front)
            .and_then(|rest| rest.strip_suffix(back));
        match within {
            None => false,
            Some(_) if self.is_long => matches(template, path),
            Some(field) => !field.is_empty() && !field.as_bytes().contains(&b'/'),
        }
    }
}

#[derive(Default)]
struct Route {
    template: &'static str,
    inflight: AtomicI64,
    methods: [Seen; METHODS.len()],
    /// The operations behind its methods.
    operations: [Option<&'static Entry>; METHODS.len()],
}

/// The counts of one method of a route.
#[derive(Default)]
struct Seen {
    statuses: [AtomicU64; STATUSES.len()],
    buckets: [AtomicU64; BOUNDS_MICROS.len() + 1],
    nanos: AtomicU64,
}

impl fmt::Debug for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traffic")
            .field("routes", &self.routes.len())
            .finish_non_exhaustive()
    }
}

impl Default for Traffic {
    /// The counts of every route that this server has.
    fn default() -> Self {
        let operations = registry().iter().map(|entry| entry.spec.path);
        let own = [HEALTHZ, READYZ, METRICS, EVENTS];
        let mut traffic = Self::new(
            operations
                .chain(asyncgate_rest::PATHS)
                .chain(asyncgate_rest::DOMAIN_PATHS)
                .chain([asyncgate_rest::INGRESS_PATH])
                .chain(asyncgate_grpc::PATHS)
                .chain([asyncgate_mcp::PATH])
                .chain(asyncgate_oauth::PATHS)
                .chain(own),
        );
        for entry in registry() {
            let spec = entry.spec;
            let method = METHODS
                .iter()
                .position(|known| *known == spec.method.as_str());
            let route = traffic
                .routes
                .iter_mut()
                .find(|route| route.template == spec.path);
            if let (Some(route), Some(method)) = (route, method) {
                route.operations[method] = Some(entry);
            }
        }
        traffic
    }
}

impl Traffic {
    fn new(templates: impl IntoIterator<Item = &'static str>) -> Self {
        let mut traffic = Self {
            routes: Vec::new(),
            exact: HashMap::default(),
            patterns: Vec::new(),
        };
        for template in templates {
            // Two methods of one path are one route.
            if traffic
                .routes
                .iter()
                .any(|route| route.template == template)
            {
                continue;
            }
            let place = traffic.add(template);
            match template.split_once('{') {
                None => drop(traffic.exact.insert(template, place)),
                Some((front, fields)) => {
                    let back = fields.rsplit_once('}').map_or("", |(_, back)| back);
                    traffic.patterns.push(Pattern {
                        ends: (front, back),
                        is_long: fields.contains('{'),
                        place,
                    });
                }
            }
        }
        traffic.add(OTHER);
        traffic
    }

    fn add(&mut self, template: &'static str) -> usize {
        self.routes.push(Route {
            template,
            ..Route::default()
        });
        self.routes.len() - 1
    }

    /// Counts a request as under way.
    pub fn begin(self: &Arc<Self>, method: &Method, path: &str) -> Passage {
        let route = self.find(path);
        self.routes[route].inflight.fetch_add(1, Relaxed);
        Passage {
            traffic: self.clone(),
            route,
            method: method_place(method),
            watch: Stopwatch::start(),
        }
    }

    fn find(&self, path: &str) -> usize {
        if let Some(place) = self.exact.get(path) {
            return *place;
        }
        let fits = |it: &&Pattern| it.fits(self.routes[it.place].template, path);
        let found = self.patterns.iter().find(fits);
        found.map_or(self.routes.len() - 1, |pattern| pattern.place)
    }
}

fn matches(template: &str, path: &str) -> bool {
    let mut parts = path.split('/');
    let fits = template.split('/').all(|expected| {
        let part = parts.next();
        part.is_some_and(|part| part == expected || expected.starts_with('{') && !part.is_empty())
    });
    fits && parts.next().is_none()
}

fn method_place(method: &Method) -> usize {
    let known = METHODS.iter().position(|known| *known == method.as_str());
    known.unwrap_or(METHODS.len() - 1)
}

fn status_place(status: StatusCode) -> usize {
    let status = status.as_u16();
    let found = STATUSES.binary_search(&status);
    found.unwrap_or_else(|_| {
        let hundred = STATUSES.binary_search(&(status / 100 * 100));
        hundred.unwrap_or_default()
    })
}

/// A request that is under way, until it is answered or given up.
#[derive(Debug)]
pub struct Passage {
    traffic: Arc<Traffic>,
    route: usize,
    method: usize,
    watch: Stopwatch,
}

impl Passage {
    /// Returns the operation that the request is for, if it is for one over REST.
    pub fn operation(&self) -> Option<&'static Entry> {
        self.traffic.routes[self.route].operations[self.method]
    }

    /// Counts the answer, which begins now. The rest of a long one is not part of the time.
    pub fn answered(self, status: StatusCode) {
        let elapsed = self.watch.elapsed();
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_MICROS.partition_point(|bound| *bound < micros);
        let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        let seen = &self.traffic.routes[self.route].methods[self.method];
        seen.statuses[status_place(status)].fetch_add(1, Relaxed);
        seen.buckets[bucket].fetch_add(1, Relaxed);
        seen.nanos.fetch_add(nanos, Relaxed);
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        let route = &self.traffic.routes[self.route];
        route.inflight.fetch_sub(1, Relaxed);
    }
}

/// Reports the counts that are not zero, so that a page of metrics stays short.
#[derive(Debug)]
pub struct Report(pub Arc<Traffic>);

impl Collector for Report {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.requests(&mut encoder)?;
        self.latencies(&mut encoder)?;
        self.inflight(&mut encoder)
    }
}

impl Report {
    fn seen(&self) -> impl Iterator<Item = (&'static str, &'static str, &Seen)> {
        self.0.routes.iter().flat_map(|route| {
            let methods = METHODS.into_iter().zip(&route.methods);
            methods.map(|(method, seen)| (route.template, method, seen))
        })
    }

    fn requests(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Requests answered, by route and status";
        let mut family =
            encoder.encode_descriptor("http_requests", help, None, MetricType::Counter)?;
        for (route, method, seen) in self.seen() {
            for (status, count) in STATUSES.into_iter().zip(&seen.statuses) {
                let count = count.load(Relaxed);
                if count > 0 {
                    let status = status.to_string();
                    let labels = [("route", route), ("method", method), ("status", &status)];
                    ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }

    fn latencies(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (name, help) = (
            "request_latency_seconds",
            "From a request's headers to its answer's, waiting included",
        );
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (route, method, seen) in self.seen() {
            let bounds = BOUNDS_MICROS.map(|micros| micros as f64 / 1e6);
            let bounds = bounds.into_iter().chain([f64::INFINITY]);
            let counts = seen.buckets.iter().map(|count| count.load(Relaxed));
            let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
            let count = buckets.iter().map(|(_, count)| count).sum();
            if count > 0 {
                let seconds = seen.nanos.load(Relaxed) as f64 / 1e9;
                let labels = [("route", route), ("method", method)];
                family
                    .encode_family(&labels)?
                    .encode_histogram::<NoLabelSet>(seconds, count, &buckets, None)?;
            }
        }
        Ok(())
    }

    fn inflight(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Requests that are being answered, by route";
        let mut family =
            encoder.encode_descriptor("inflight_requests", help, None, MetricType::Gauge)?;
        for route in &self.0.routes {
            let ever = |seen: &Seen| seen.buckets.iter().any(|count| count.load(Relaxed) > 0);
            let inflight = route.inflight.load(Relaxed);
            if inflight != 0 || route.methods.iter().any(ever) {
                let labels = [("route", route.template)];
                ConstGauge::new(inflight).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    fn shown(traffic: &Arc<Traffic>) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Report(traffic.clone())));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    }

    /// gRPC, MCP and OAuth describe themselves in other ways.
    #[test]
    fn every_route_is_in_the_openapi_document() {
        let document = asyncgate_rest::openapi();
        let elsewhere = |path: &str| {
            path == OTHER
                || path == asyncgate_mcp::PATH
                || asyncgate_grpc::PATHS.contains(&path)
                || asyncgate_oauth::PATHS.contains(&path)
        };
        for route in Traffic::default().routes {
            let described = document["paths"].get(route.template).is_some();
            assert_ne!(described, elsewhere(route.template), "{}", route.template);
        }
    }

    #[test]
    fn a_path_is_counted_under_its_route_whatever_stands_in_it() {
        let traffic = Traffic::default();
        let id = "0190d8c2-7c1e-7a3b-8e21-aa0000000001";
        for (path, route) in [
            ("/v1/send".to_owned(), "/v1/send"),
            (format!("/v1/ack/{id}"), "/v1/ack/{msg_id}"),
            ("/v1/ack/batch".to_owned(), "/v1/ack/batch"),
            (format!("/v1/tasks/{id}"), "/v1/tasks/{task_id}"),
            (
                format!("/v1/tasks/{id}/cancel"),
                "/v1/tasks/{task_id}/cancel",
            ),
            ("/v1/receipts/ledger".to_owned(), "/v1/receipts/ledger"),
            ("/v1/recv/stream".to_owned(), "/v1/recv/stream"),
            ("/v1/events".to_owned(), "/v1/events"),
            ("/mcp".to_owned(), "/mcp"),
            (
                "/ron.mailbox.v1.Mailbox/Send".to_owned(),
                "/ron.mailbox.v1.Mailbox/Send",
            ),
            ("/ron.mailbox.v1.Mailbox/Nope".to_owned(), OTHER),
            (format!("/v1/tasks/{id}/cancel/more"), OTHER),
            ("/v1/tasks/".to_owned(), OTHER),
            ("/v1/tasks//cancel".to_owned(), OTHER),
            (format!("/v1/nothing/{id}"), OTHER),
        ] {
            assert_eq!(traffic.routes[traffic.find(&path)].template, route);
        }
    }

    #[test]
    fn requests_are_counted_by_method_and_status_and_forgotten_when_given_up() {
        let traffic = Arc::new(Traffic::new(["/a", "/a", "/b/{x}"]));
        traffic.begin(&Method::GET, "/a").answered(StatusCode::OK);
        let post = |status| traffic.begin(&Method::POST, "/b/7").answered(status);
        post(StatusCode::OK);
        post(StatusCode::TOO_MANY_REQUESTS);
        post(StatusCode::IM_A_TEAPOT);
        traffic.begin(&Method::PUT, "/a").answered(StatusCode::OK);
        drop(traffic.begin(&Method::PATCH, "/b/8"));
        let waits = traffic.begin(&Method::GET, "/c");
        let text = shown(&traffic);
        for line in [
            r#"http_requests_total{route="/a",method="GET",status="200"} 1"#,
            r#"http_requests_total{route="/a",method="PUT",status="200"} 1"#,
            r#"http_requests_total{route="/b/{x}",method="POST",status="200"} 1"#,
            r#"http_requests_total{route="/b/{x}",method="POST",status="429"} 1"#,
            r#"http_requests_total{route="/b/{x}",method="POST",status="400"} 1"#,
            r#"request_latency_seconds_count{route="/b/{x}",method="POST"} 3"#,
            r#"request_latency_seconds_bucket{le="+Inf",route="/b/{x}",method="POST"} 3"#,
            r#"inflight_requests{route="/a"} 0"#,
            r#"inflight_requests{route="other"} 1"#,
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} in {text}");
        }
        assert!(!text.contains("PATCH") && !text.contains("/b/7"), "{text}");
        drop(waits);
        assert!(!shown(&traffic).contains(r#"inflight_requests{route="other"} 1"#));
    }

    #[test]
    fn every_method_of_an_operation_is_told_apart() {
        for entry in registry() {
            let method = entry.spec.method.as_str();
            let place = method_place(&Method::from_bytes(method.as_bytes()).unwrap());
            assert_eq!(METHODS[place], method, "{}", entry.spec.name);
        }
    }

    /// The listener answers by what is found here, so it must be what the router would find.
    #[test]
    fn every_operation_is_found_by_its_method_and_path() {
        let traffic = Arc::new(Traffic::default());
        for entry in registry() {
            let spec = entry.spec;
            let parts = spec.path.split('/');
            let path: Vec<&str> = parts
                .map(|part| if part.starts_with('{') { "x" } else { part })
                .collect();
            let find = |method: &str, path: &str| {
                let method = Method::from_bytes(method.as_bytes()).unwrap();
                let found = traffic.begin(&method, path).operation();
                found.map(|found| found.spec.name)
            };
            let (method, path) = (spec.method.as_str(), path.join("/"));
            assert_eq!(find(method, &path), Some(spec.name));
            assert_eq!(find("HEAD", &path), None, "the router answers these");
            assert_eq!(find(method, &format!("{path}/")), None);
            assert_eq!(find(method, &format!("{path}//x")), None);
        }
    }

    #[test]
    fn statuses_are_in_order() {
        assert!(STATUSES.is_sorted());
        assert!(BOUNDS_MICROS.is_sorted());
    }
}
