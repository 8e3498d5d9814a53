// Package page is a web page of the gangs, the queues, the topology, the Reservations and the migrations of a cluster.
//
// It only shows: it writes nothing, and what it shows it reads from the caches of the manager, at most once a second
// however many users look. The files of the page have no data in them and are served to everyone; data are served to
// callers that the API server knows by their token and lets get the path: all of them, or what is in the namespaces in
// which the caller may list pods.
package page
